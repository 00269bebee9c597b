"""How a node comes to the engines that it should have, and keeps them whole."""

import asyncio
import errno
import hashlib
import shutil
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llmgw.agent.engines import installer as installer_module
from llmgw.agent.engines import planner as planner_module
from llmgw.agent.engines.inspector import Inspector
from llmgw.agent.engines.installer import Installer
from llmgw.agent.engines.planner import Planner
from llmgw.agent.engines.releases import Releases
from llmgw.agent.engines.shelf import Shelf, Unfit
from llmgw.agent.engines.steps import Proof, StepFailed
from llmgw.agent.engines.stock import Stock
from llmgw.agent.news import News
from llmgw.core.engines.orders import EngineOrder, Release, ReleaseFile, ReleaseRef, release_id
from llmgw.core.engines.releases import version_name
from llmgw.core.engines.terms import EngineKind, Install, InstallStep
from llmgw.core.errors import ControlUnreachable
from llmgw.core.inventory import Cpu, Gpu, GpuVendor, Inventory
from llmgw.core.link import Desired
from llmgw.core.units import GIB, Bytes
from tests.agent.control import desired, order

CPU = Inventory(
    os="Debian", os_id="debian", os_version="12", kernel="6", arch="x86_64", cpu=Cpu(model="x", cores=4), memory=GIB
)
CUDA = replace(CPU, gpus=(Gpu(index=0, vendor=GpuVendor.NVIDIA, name="L4", driver="580.65", memory=Bytes(24 * GIB)),))


def release(version: str = "b2", content: str = "") -> Release:
    names = [f"llama-{version}-bin-ubuntu-x64.tar.gz", f"llama-{version}-bin-ubuntu-cuda-13.3-x64.tar.gz"]
    files = [file(name, content) for name in (*names, f"cudart-{names[1]}")]
    return Release(engine="llama.cpp", version=version, kind=EngineKind.ARCHIVE, files=tuple(files))


def file(name: str, content: str = "") -> ReleaseFile:
    body = (name + content).encode()
    return ReleaseFile(name=name, size=Bytes(len(body)), digest=f"sha256:{hashlib.sha256(body).hexdigest()}")


def wish(of: Release, **more: Any) -> EngineOrder:
    about = {"engine": of.engine, "kind": of.kind, "releases": (ReleaseRef(id=release_id(of)),), **more}
    return EngineOrder(version=of.version, **about)


class Parts:
    """Steps that a test lets fail or holds up; the real ones, each with tests of its own, take seconds."""

    def __init__(self) -> None:
        self.ring: Callable[[], None] = lambda: None
        self.calls = list[str]()
        self.fails = dict[str, Exception]()
        self.held = dict[str, asyncio.Event]()
        self.content = ""

    async def _do(self, step: str) -> None:
        self.calls.append(step)
        self.ring()
        if step in self.held:
            await self.held[step].wait()
        if step in self.fails:
            raise self.fails[step]

    async def download(self, order, release, file, target: Path, moved, verifying) -> None:
        moved(1, file.size, 5.0)
        await self._do("download")
        moved(file.size, file.size, 5.0)
        verifying(file.name)
        moved(file.size, file.size, 5.0)
        await self._do("verify")
        _write(target, file.name + self.content)

    async def unpack(self, archive: Path, into: Path, moved) -> None:
        _write(into / "half", "")
        await self._do("unpack")
        _write(into / "llama-server", "program")

    async def libraries(self, target, tree: Path, say) -> str:
        await self._do("libraries")
        return ""

    async def prove(self, target, tree: Path, say) -> Proof:
        await self._do("prove")
        program = _program(tree)
        return Proof(program=program, version="b1", flags=frozenset({"-m"}))

    async def recheck(self, made, tree: Path) -> None:
        await self._do("recheck")

    def environment_of(self, made, tree: Path) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(tree)} if made.variant.startswith("cuda") else {}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def _program(tree: Path) -> Path:
    return min(tree.rglob("llama-server"), key=lambda path: "cudart" in str(path))


def _remove_or_cut(directory: Path) -> None:
    (program,) = directory.rglob("llama-server")
    program.unlink()
    program.with_name("half").write_text("no more")


class Removing(Shelf):
    """Rings when something was removed."""

    ring: Callable[[], object]

    def _take_away(self, directory: Path) -> None:
        super()._take_away(directory)
        self.ring()

    def prune(self, digests: Collection[str], releases: Collection[str]) -> None:
        before = len(list(self.downloads.iterdir()))
        super().prune(digests, releases)
        if len(list(self.downloads.iterdir())) < before:
            self.ring()


class Wants:
    def __init__(self) -> None:
        self.obeyed: Desired | None = None
        self.runs = frozenset[str]()

    async def running(self) -> frozenset[str]:
        return self.runs


class Machine:
    inventory: Inventory | None = CPU


class Control(Releases):
    """A control plane that answers for some releases."""

    def __init__(self, shelf: Shelf) -> None:
        super().__init__(shelf, (), None)  # type: ignore[arg-type] # nobody is dialled
        self.known, self.asked = dict[str, Release](), list[str]()

    async def ask(self, id: str) -> Release:
        self.asked.append(id)
        if id not in self.known:
            raise ControlUnreachable("10.0.0.1:7443", "no answer within 10 s")
        self._shelf.save_release(self.known[id])
        self._read[id] = self.known[id]
        return self.known[id]


class Rig:
    """An installer of an agent with a state directory; `again` is another life of it."""

    def __init__(self, state: Path, by_hand: tuple[str, ...] = ()) -> None:
        self.state, self.by_hand = state, by_hand
        self.parts, self.wants, self.machine = Parts(), Wants(), Machine()
        self._set_up()

    def _set_up(self) -> None:
        self.news, self.shelf = News(), Removing(self.state)
        self.parts.ring = self.news.ring
        self.shelf.ring = partial(asyncio.get_running_loop().call_soon_threadsafe, self.news.ring)
        self.stock, self.control = Stock(self.news.ring), Control(self.shelf)
        described = asyncio.Event()
        described.set()
        self.inspector = Inspector(self.shelf, self.parts, self.stock, described)
        self.installer = Installer(
            Planner(self.by_hand, self.shelf, self.control, self.stock, self.machine),
            self.shelf,
            self.parts,
            self.control,
            self.stock,
            self.inspector,
            self.wants,
            self.news,
        )
        self._tasks = list[asyncio.Task[None]]()

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self.inspector.run()), asyncio.create_task(self.installer.run())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def again(self) -> None:
        await self.stop()
        self._set_up()
        self.start()

    def want(self, *orders: EngineOrder, shards: tuple = (), settled: bool = True) -> None:
        self.wants.obeyed = desired(*shards, engines=orders, settled=settled)
        self.news.ring()

    def know(self, *releases: Release) -> None:
        self.control.known |= {release_id(one): one for one in releases}

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until it holds; whatever it speaks of rings."""
        async with asyncio.timeout(10):
            while not (found := holds()):
                await self.news.after(self.news.count)
        return found

    def install(self, version: str = "b2") -> Install | None:
        return next((one for one in self.installer.installs() if one.version == version), None)

    async def ready(self, version: str = "b2") -> Install:
        def whole() -> Install | None:
            one = self.install(version)
            return one if one and one.step is InstallStep.READY and not one.problem else None

        found: Install = await self.until(whole)
        return found

    async def failed(self, version: str = "b2") -> Install:
        found: Install = await self.until(lambda: (one := self.install(version)) and one.problem and one)
        return found

    def engines(self) -> dict[str, str]:
        return {engine.report.version: engine.report.problem for engine in self.stock.engines()}

    def on_disk(self) -> set[str]:
        return {path.name for path in (self.state / "engines" / "llama.cpp").glob("*")}

    def making(self) -> list[Path]:
        return list((self.state / "engines" / ".making").iterdir())


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path / "state")
    rig.know(release("b1"), release("b2"), release("b3"))
    rig.start()
    yield rig
    await rig.stop()


# --- installing -------------------------------------------------------------------------------------------------


async def test_an_order_becomes_an_engine_by_its_steps(rig: Rig):
    rig.want(wish(release()))
    install = await rig.ready()
    assert rig.parts.calls == ["download", "verify", "unpack", "libraries", "prove"]
    assert (install.variant, install.problem, install.attempts, install.used) == ("cpu", "", 0, False)
    path = rig.state / "engines/llama.cpp/b2-cpu/tree/llama-b2-bin-ubuntu-x64/llama-server"
    assert install.path == str(path) and path.read_text() == "program"
    (engine,) = rig.stock.engines()
    assert (engine.report.version, engine.report.path, engine.report.by_hand) == ("b2", str(path), False)
    assert engine.flags == {"-m"} and engine.directory == str(path.parents[2])
    assert rig.making() == []
    assert rig.control.asked == [release_id(release())]


async def test_each_step_is_told_as_it_is_entered(rig: Rig):
    steps = [step for step in InstallStep if step not in (InstallStep.RESOLVE, InstallStep.READY)]
    for step in steps:
        rig.parts.held[step.value] = asyncio.Event()
    rig.want(wish(release()))
    for step in steps:
        install = await rig.until(lambda step=step: (one := rig.install()) and one.step is step and one)
        assert rig.engines() == {}, "nothing half-installed is ever reported"
        if step is InstallStep.DOWNLOAD:
            await rig.until(lambda: (one := rig.install()) and one.done)
            install = rig.install()
            assert install is not None and install.subject == "llama-b2-bin-ubuntu-x64.tar.gz"
            assert (install.done, install.total, install.rate) == (1, release().files[0].size, 5.0)
        rig.parts.held[step.value].set()
    await rig.ready()


async def test_what_agent_yaml_names_by_hand_is_not_installed(tmp_path: Path):
    rig = Rig(tmp_path / "state", by_hand=("llama.cpp",))
    rig.know(release())
    rig.want(wish(release()))
    rig.start()
    await rig.stock.inspected.wait()
    seen = rig.news.count
    rig.news.ring()
    assert await rig.installer._due() is None
    assert rig.news.count == seen + 1 and rig.installer.installs() == () and rig.control.asked == []
    await rig.stop()


async def test_a_node_waits_for_its_turn_before_it_downloads(rig: Rig):
    rig.want(wish(release(), go=False))
    await rig.until(lambda: (one := rig.install()) and one.variant)
    install = rig.install()
    assert install is not None and (install.step, install.problem) == (InstallStep.RESOLVE, "")
    assert rig.parts.calls == []
    rig.want(wish(release()))
    await rig.ready()


async def test_files_that_are_here_need_no_turn_and_are_read_once_more(rig: Rig):
    rig.parts.fails["prove"] = StepFailed("died by illegal instruction")
    rig.want(wish(release()))
    await rig.failed()
    del rig.parts.fails["prove"]
    rig.want(wish(release(), go=False, asked=1))
    await rig.ready()
    assert rig.parts.calls.count("download") == 1


async def test_a_download_that_rotted_is_made_anew(rig: Rig):
    rig.parts.fails["unpack"] = StepFailed("entry 3: a link that leaves the directory")
    rig.want(wish(release()))
    await rig.failed()
    (download,) = (rig.state / "downloads").iterdir()
    download.write_bytes(b"x" * download.stat().st_size)
    del rig.parts.fails["unpack"]
    rig.want(wish(release(), asked=1))
    await rig.ready()
    assert rig.parts.calls.count("download") == 2


async def test_an_order_that_changes_ends_what_is_being_made_for_it(rig: Rig):
    rig.parts.held["unpack"] = asyncio.Event()
    rig.want(wish(release("b1")))
    await rig.until(lambda: "unpack" in rig.parts.calls)
    assert len(rig.making()) == 1
    rig.parts.held.clear()
    rig.want(wish(release("b2")))
    await rig.ready("b2")
    assert rig.on_disk() == {"b2-cpu"} and rig.making() == [] and rig.install("b1") is None


# --- versions ---------------------------------------------------------------------------------------------------


async def install_all(rig: Rig, *versions: str) -> None:
    for version in versions:
        rig.want(wish(release(version)))
        await rig.ready(version)


async def test_a_new_version_is_made_beside_the_old_one(rig: Rig):
    await install_all(rig, "b1")
    rig.parts.held["prove"] = asyncio.Event()
    rig.want(wish(release("b2")))
    await rig.until(lambda: (one := rig.install("b2")) and one.step is InstallStep.PROVE)
    assert rig.engines() == {"b1": ""}
    rig.parts.held["prove"].set()
    await rig.ready("b2")
    assert rig.engines() == {"b1": "", "b2": ""}


async def test_one_version_is_kept_to_go_back_to_and_what_runs_besides(rig: Rig):
    await install_all(rig, "b1", "b2", "b3")
    await rig.until(lambda: rig.on_disk() == {"b2-cpu", "b3-cpu"})
    await rig.until(lambda: len(list((rig.state / "downloads").iterdir())) == 2)
    rig.wants.runs = frozenset({str(rig.state / "engines/llama.cpp/b2-cpu")})
    await install_all(rig, "b1")
    rig.want(wish(release("b1")), shards=(order("/w", version="b3"),))
    await rig.until(lambda: rig.making() == [])
    assert rig.engines() == {"b1": "", "b2": "", "b3": ""}
    assert {one.version: one.used for one in rig.installer.installs()} == {"b1": False, "b2": True, "b3": False}


async def test_going_back_to_what_is_there_takes_nothing(rig: Rig):
    await install_all(rig, "b1", "b2")
    calls = list(rig.parts.calls)
    rig.want(wish(release("b1")))
    await rig.ready("b1")
    assert rig.parts.calls == calls


async def test_an_unsettled_leader_takes_nothing_away(rig: Rig):
    await install_all(rig, "b1", "b2")
    rig.want(settled=False)
    rig.want(wish(release("b3")), settled=False)
    await rig.ready("b3")
    assert "b2" in rig.engines()


async def test_a_driver_that_comes_has_the_build_chosen_again(rig: Rig):
    await install_all(rig, "b2")
    rig.machine.inventory = CUDA
    rig.news.ring()
    await rig.until(lambda: (one := rig.install()) and one.variant == "cuda 13.3")
    assert rig.on_disk() == {"b2-cpu", "b2-cuda-13.3"}
    (engine,) = rig.stock.engines()
    assert (engine.report.variant, list(engine.environment)) == ("cuda 13.3", ["LD_LIBRARY_PATH"])
    rig.machine.inventory = CPU
    rig.news.ring()
    await rig.until(lambda: (one := rig.install()) and one.variant == "cpu")


async def test_a_driver_that_does_not_answer_changes_nothing(rig: Rig):
    await install_all(rig, "b2")
    rig.machine.inventory = replace(CPU, gpu_problem="nvidia-smi did not end within 5s", nvidia_driver=True)
    rig.news.ring()
    await rig.until(lambda: (one := rig.install()) and "nvidia-smi" in one.note)
    assert rig.engines() == {"b2": ""} and rig.on_disk() == {"b2-cpu"}


# --- what goes wrong --------------------------------------------------------------------------------------------


async def test_a_control_plane_that_does_not_know_the_release_is_asked_again(rig: Rig):
    rig.control.known.clear()
    rig.want(wish(release()))
    install = await rig.failed()
    assert install.step is InstallStep.RESOLVE and "no answer within 10 s" in install.problem
    assert install.attempts == 1 and install.retry_at is not None
    rig.know(release())
    rig.want(wish(release(), asked=1))
    await rig.ready()


@pytest.mark.parametrize("step", ["download", "verify", "unpack", "libraries", "prove"])
async def test_a_step_that_fails_is_told_with_its_reason_and_leaves_nothing(rig: Rig, step: str):
    rig.parts.fails[step] = StepFailed("libgomp.so.1 is missing: apt-get install libgomp1")
    rig.want(wish(release()))
    install = await rig.failed()
    assert (install.step.value, install.problem) == (step, "libgomp.so.1 is missing: apt-get install libgomp1")
    await rig.until(lambda: rig.making() == [])
    assert (install.attempts, rig.on_disk(), rig.engines()) == (1, set(), {})


async def test_a_full_disk_is_looked_at_each_minute(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Shelf, "free", lambda _: 5 * GIB)
    rig.parts.fails["unpack"] = OSError(errno.ENOSPC, "No space left on device")
    rig.want(wish(release()))
    install = await rig.failed()
    fact = "no space left, 5 GiB are free: are its inodes or a quota used up?"
    assert install.problem == f"{rig.state / 'engines'}: {fact}"
    assert install.retry_at is not None and install.retry_at - install.since >= 59
    await rig.until(lambda: rig.making() == [])


async def test_too_little_room_is_told_in_numbers_before_anything_is_downloaded(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    """No disk of this size is at hand."""
    monkeypatch.setattr(Shelf, "free", lambda _: 100 << 20)
    rig.want(wish(release()))
    install = await rig.failed()
    assert install.step is InstallStep.DOWNLOAD and "needs about 256 MiB, 100 MiB is free" in install.problem
    assert rig.parts.calls == []


async def test_room_for_what_is_unpacked_is_looked_at_again_before_that(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Shelf, "free", lambda shelf: (100 << 20) if any(shelf.downloads.iterdir()) else 5 * GIB)
    rig.want(wish(release()))
    install = await rig.failed()
    assert install.step is InstallStep.UNPACK and "/engines: unpacking" in install.problem
    assert "unpack" not in rig.parts.calls


def test_what_is_left_of_a_download_is_what_is_not_in_its_part(tmp_path: Path):
    (file, *_), shelf = release().files, Shelf(tmp_path)
    shelf.open()
    assert shelf.left(file) == file.size
    place = shelf.download(file)
    place.with_name(f"{place.name}.part").write_bytes(b"x")
    assert shelf.left(file) == file.size - 1


async def test_a_release_of_another_version_than_the_order_s_is_not_installed(rig: Rig):
    rig.want(replace(wish(release("b1")), version="b2"))
    install = await rig.failed()
    assert f"its release {release_id(release('b1'))[:12]} is of llama.cpp 'b1', archive" in install.problem
    assert rig.parts.calls == []


async def test_a_fault_of_ours_over_one_engine_does_not_end_the_installer(rig: Rig):
    rig.parts.fails["prove"] = LookupError("ours")
    rig.want(wish(release()))
    assert "fault of its own" in (await rig.failed()).problem
    del rig.parts.fails["prove"]
    rig.want(wish(release(), asked=1))
    await rig.ready()


async def test_a_source_that_asks_for_time_gets_it(rig: Rig):
    rig.parts.fails["download"] = StepFailed("rate limit", retry_after=1800.0)
    rig.want(wish(release()))
    install = await rig.failed()
    assert install.retry_at is not None and install.retry_at - install.since > 1799


async def test_a_disk_that_does_not_answer_is_asked_again(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(installer_module, "PAUSE", 0.01)
    real, left = rig.wants.running, [3]

    async def running() -> frozenset[str]:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.EIO, "Input/output error")
        return await real()

    monkeypatch.setattr(rig.wants, "running", running)
    rig.want(wish(release()))
    await rig.ready()


async def test_what_cannot_be_planned_for_one_engine_ends_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    def fault(*_: object) -> None:
        raise LookupError("ours")

    rig.control.known.clear()
    with monkeypatch.context() as patch:
        patch.setattr(planner_module, "pick", fault)
        rig.want(wish(release()))
        install = await rig.failed()
        assert install.step is InstallStep.RESOLVE and "fault of its own" in install.problem
    rig.know(release())
    rig.news.ring()
    await rig.ready()


async def test_a_fault_of_ours_over_a_look_changes_nothing(rig: Rig):
    await install_all(rig, "b2")
    rig.parts.fails["recheck"] = LookupError("ours")
    await rig.inspector.look()
    assert rig.engines() == {"b2": ""}


async def test_two_agents_on_one_host_have_nothing_in_common(tmp_path: Path):
    rigs = [Rig(tmp_path / name) for name in ("one", "other")]
    for rig in rigs:
        rig.know(release())
        rig.want(wish(release()))
        rig.start()
    try:
        paths = {(await rig.ready()).path for rig in rigs}
        assert len(paths) == 2 and all(rig.parts.calls.count("download") == 1 for rig in rigs)
    finally:
        for rig in rigs:
            await rig.stop()


@pytest.mark.parametrize("version", ["../../etc", "", "b 1", "x" * 65, ".making"])
def test_a_version_that_can_name_no_directory_is_refused(tmp_path: Path, version: str):
    with pytest.raises(Unfit):
        Shelf(tmp_path).name_for("llama.cpp", version, "cpu")
    with pytest.raises(Unfit):
        Shelf(tmp_path).name_for("../x", "b1", "cpu")


def test_every_version_that_a_release_may_have_can_name_a_directory(tmp_path: Path):
    assert Shelf(tmp_path).name_for("vllm", version_name("1!2.0+cpu"), "cpu") == "1!2.0+cpu-cpu"


def test_a_file_without_a_digest_has_no_place(tmp_path: Path):
    bare = ReleaseFile(name="a.tar.gz", size=Bytes(1))
    assert not Shelf(tmp_path).has(bare)
    with pytest.raises(Unfit, match="publishes no sha256 digest"):
        Shelf(tmp_path).download(bare)


# --- kept whole -------------------------------------------------------------------------------------------------


async def test_a_broken_engine_is_told_at_once_and_a_package_makes_it_whole(rig: Rig):
    await install_all(rig, "b2")
    rig.parts.fails["recheck"] = StepFailed("libgomp.so.1 is missing")
    rig.parts.held["libraries"] = asyncio.Event()
    await rig.inspector.look()
    install = rig.install()
    assert install is not None and (install.step, install.problem) == (InstallStep.READY, "libgomp.so.1 is missing")
    assert rig.engines() == {"b2": "libgomp.so.1 is missing"}
    del rig.parts.fails["recheck"]
    rig.parts.held["libraries"].set()
    await rig.ready()
    assert rig.on_disk() == {"b2-cpu"} and rig.parts.calls.count("unpack") == 1


async def test_a_broken_engine_is_made_anew_beside_what_runs(rig: Rig):
    await install_all(rig, "b2")
    directory = rig.state / "engines/llama.cpp/b2-cpu"
    rig.wants.runs = frozenset({str(directory)})
    rig.parts.held["libraries"] = asyncio.Event()
    _remove_or_cut(directory)
    await rig.inspector.look()
    told = "half, llama-server are gone or changed since it was installed"
    assert rig.engines() == {"b2": told}
    rig.parts.held["libraries"].set()
    install = await rig.ready()
    assert "/b2-cpu-2/" in install.path and rig.engines() == {"b2": ""}
    assert rig.on_disk() == {"b2-cpu", "b2-cpu-2"}, "a shard runs with the old one"
    assert rig.parts.calls.count("download") == 1
    rig.wants.runs = frozenset()
    rig.news.ring()
    await rig.until(lambda: rig.on_disk() == {"b2-cpu-2"})


async def test_a_repair_that_fails_is_told_beside_what_is_broken(rig: Rig):
    await install_all(rig, "b2")
    rig.parts.fails |= {
        "recheck": StepFailed("libx.so is missing"),
        "libraries": StepFailed("libx.so is missing: no package is known"),
    }
    await rig.inspector.look()
    install = await rig.until(lambda: (one := rig.install()) and one.attempts and one)
    assert install.problem == ("libx.so is missing; it could not be repaired: libx.so is missing: no package is known")


async def test_what_cannot_be_looked_at_now_stays_as_it_was(rig: Rig):
    await install_all(rig, "b2")
    rig.parts.fails["recheck"] = OSError(errno.EMFILE, "Too many open files")
    await rig.inspector.look()
    assert rig.engines() == {"b2": ""}


# --- another life -----------------------------------------------------------------------------------------------


async def test_what_is_installed_is_reported_once_it_was_looked_at(rig: Rig):
    await install_all(rig, "b2")
    rig.parts.held["recheck"] = asyncio.Event()
    await rig.again()
    await rig.until(lambda: rig.install())
    assert rig.engines() == {} and not rig.stock.inspected.is_set()
    rig.parts.held["recheck"].set()
    await rig.until(lambda: rig.engines() == {"b2": ""})


async def test_after_a_power_cut_nobody_need_be_asked(rig: Rig):
    rig.parts.fails["prove"] = StepFailed("x")
    rig.want(wish(release()))
    await rig.failed()
    rig.parts.fails.clear()
    await rig.again()
    await rig.ready()
    assert rig.control.asked == [] and rig.parts.calls.count("download") == 1


async def test_what_was_being_made_is_gone_in_the_next_life(rig: Rig):
    rig.parts.held["unpack"] = asyncio.Event()
    rig.want(wish(release()))
    await rig.until(lambda: "unpack" in rig.parts.calls)
    left = rig.state / "engines/.making/0123/tree"
    left.mkdir(parents=True)  # as an agent leaves it that was killed
    rig.parts.held.clear()
    await rig.again()
    await rig.ready()
    assert rig.making() == []


async def test_a_shelf_that_somebody_removes_is_made_anew(rig: Rig):
    rig.want(wish(release("b1")))
    await rig.ready("b1")
    for directory in ("engines", "downloads"):
        shutil.rmtree(rig.state / directory)
    rig.want(wish(release("b2")))
    await rig.ready("b2")


async def test_what_the_disk_does_not_let_go_is_removed_later(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(installer_module, "PAUSE", 0.0)
    kept = list[Path]()
    rename = Path.rename

    def refused(path: Path, to: Path) -> Path:
        if path.name == "b1-cpu" and not kept:
            kept.append(path)
            raise OSError(errno.EROFS, "read-only file system", str(path))
        return rename(path, to)

    for version in ("b1", "b2"):
        rig.want(wish(release(version)))
        await rig.ready(version)
    monkeypatch.setattr(Path, "rename", refused)
    rig.want(wish(release("b3")))
    await rig.until(lambda: kept and rig.on_disk() == {"b2-cpu", "b3-cpu"})


def _other_words(record: Path) -> None:
    record.write_text(record.read_text().replace("b2", "b9"))


def _directory(record: Path) -> None:
    record.unlink()
    record.mkdir()


@pytest.mark.parametrize("damage", [_other_words, _directory])
async def test_a_damaged_record_counts_as_no_engine_and_it_is_made_anew(rig: Rig, damage: Callable[[Path], None]):
    await install_all(rig, "b2")
    record = rig.state / "engines/llama.cpp/b2-cpu/install.json"
    damage(record)
    rig.wants.runs = frozenset({str(record.parent)})
    await rig.again()
    install = await rig.ready()
    assert "/b2-cpu-2/" in install.path
    assert rig.on_disk() == {"b2-cpu", "b2-cpu-2"}, "a shard runs with the other"
    rig.wants.runs = frozenset()
    rig.news.ring()
    await rig.until(lambda: rig.on_disk() == {"b2-cpu-2"})
