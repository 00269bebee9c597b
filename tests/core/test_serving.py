"""Which engine of a node serves a profile, and what is said where none does."""

from dataclasses import replace

import pytest

from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.facts import EngineReport, Engines
from llmgw.core.names import ModelName, NodeName
from llmgw.core.placement import Need, Placement, Room, Unplaced, chosen, fill, place
from llmgw.core.presence import NodeState
from llmgw.core.refusals import (
    EngineBroken,
    EngineInstalling,
    EngineMissing,
    EngineNotProbed,
    EngineVersion,
    NotEnoughMemory,
    Refusal,
    Verdict,
)
from llmgw.core.serving import Preference, as_run
from llmgw.core.state import Node
from llmgw.core.units import GIB, MIB, Bytes
from tests.core.stage import T0, inventory, profile

OLD, NEW, NEWER = "b9999", "b10991", "b11000"


def report(version: str, **fields: object) -> EngineReport:
    one = EngineReport(engine="llama.cpp", version=version, path=f"/engines/{version}")
    return replace(one, **fields)  # type: ignore[arg-type]


def install(version: str = NEW, step: InstallStep = InstallStep.READY, **fields: object) -> Install:
    one = Install(engine="llama.cpp", version=version, step=step, since=T0)
    return replace(one, **fields)  # type: ignore[arg-type]


def room(*reports: EngineReport, coming: Install | None = None, name: str = "node01", **fields: object) -> Room:
    node = Node(
        name=NodeName(name),
        machine="m",
        state=NodeState.READY,
        since=T0,
        session=1,
        heard=T0,
        inventory=inventory(8 * GIB),
        engines=Engines(probed_at=T0, engines=reports),
    )
    return Room(node=replace(node, **fields), coming=(coming,) if coming else ())  # type: ignore[arg-type]


def need(version: str = "", **fields: object) -> Need:
    return replace(Need(model=ModelName("gemma"), profile=profile(version=version)), **fields)  # type: ignore[arg-type]


def refusal(where: Room, version: str = "") -> Refusal:
    answer = place(need(version), [where], T0)
    assert isinstance(answer, Unplaced)
    (one,) = answer.refusals
    return one


# --- which one serves --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "version", "serves"),
    [
        (room(report(OLD), report(NEW), report(NEWER)), NEW, NEW),  # stated
        (room(report(OLD), report(NEWER)), NEW, None),
        (room(report(NEW, problem="gone")), NEW, None),
        (room(report(OLD, by_hand=True), report(NEW), coming=install()), "", OLD),  # by hand
        (room(report(OLD, by_hand=True, problem="gone"), report(NEW)), "", None),
        (room(report(OLD, by_hand=True), report(NEW)), NEW, NEW),
        (room(report(OLD), report(NEW), report(NEWER), coming=install()), "", NEW),  # wanted
        (room(report(OLD), report(NEW, problem="gone"), coming=install(problem="gone")), "", OLD),  # another one
        (room(report(OLD), report(NEW), coming=install(NEWER, InstallStep.UNPACK)), "", NEW),
        (room(report(OLD, engine="vllm")), "", None),
        (room(), "", None),
    ],
)
def test_the_engine_that_serves_a_profile(where: Room, version: str, serves: str | None) -> None:
    engine = chosen(need(version), where)
    assert (engine.version if engine else None) == serves
    assert isinstance(place(need(version), [where], T0), Placement) == (serves is not None)


def test_the_version_that_is_stored_is_that_of_an_installed_engine_only() -> None:
    assert as_run(profile(), report(NEW)).version == NEW
    assert as_run(profile(), report(NEW, by_hand=True)) == profile()
    assert as_run(profile(version=OLD), report(OLD, by_hand=True)).version == OLD
    assert as_run(profile(version=OLD), report(OLD)).version == OLD


def test_a_node_with_the_wanted_version_comes_before_one_with_another() -> None:
    there, behind = room(report(NEW), coming=install(), name="z"), room(report(OLD), coming=install(NEW), name="a")
    by_hand = room(report("my own", by_hand=True), name="m")
    answer = place(need(), [behind, replace(there, same=1), by_hand], T0)
    assert isinstance(answer, Placement)
    assert answer.fits == ("m", "z", "a")
    assert fill(need(), [behind, there, by_hand], 4, T0)[0] == ("m", "z", "m", "z")
    assert place(need(), [behind], T0) == Placement(node=NodeName("a"), fits=(NodeName("a"),)), "better than none"


def test_a_version_to_avoid_is_taken_by_no_node_and_said() -> None:
    wary = need(preference=Preference(version=OLD, avoid=NEW, why="llama.cpp b10991 did not run gemma"))
    both = room(report(OLD), report(NEW), coming=install())
    engine = chosen(wary, both)
    assert engine is not None and engine.version == OLD
    answer = place(wary, [room(report(NEW), coming=install())], T0)
    assert isinstance(answer, Unplaced)
    assert str(answer.refusals[0]) == "engine broken: llama.cpp b10991 did not run gemma"
    assert "llmgw ctl engine retry node01" in answer.refusals[0].clears


@pytest.mark.parametrize("version", ["b" + "9" * 5000, "b١٢", "", "b-1.²", "0" * 5000])
def test_no_version_that_a_node_may_say_is_too_strange_to_sort(version: str) -> None:
    engine = chosen(need(), room(report(version), report("b1")))
    assert engine is not None


# --- what is against it ------------------------------------------------------------------------------------------


def test_an_engine_on_its_way_is_not_now_in_the_nodes_words() -> None:
    moving = install(
        step=InstallStep.DOWNLOAD,
        subject="llama-b10991-bin-ubuntu-x64.tar.gz",
        done=Bytes(61 * MIB // 4),
        total=Bytes(25 * MIB),
    )
    one = refusal(room(coming=moving))
    assert isinstance(one, EngineInstalling) and one.verdict is Verdict.NOT_NOW
    assert one.step is InstallStep.DOWNLOAD and one.version == NEW
    assert str(one) == ("installing llama.cpp b10991: downloading llama-b10991-bin-ubuntu-x64.tar.gz (25 MiB), 61 %")
    assert "llmgw ctl engines" in one.clears
    assert isinstance(refusal(room(coming=moving), NEW), EngineInstalling)
    waits = refusal(room(coming=install(step=InstallStep.RESOLVE, problem="waits for its turn to download")))
    assert str(waits) == "installing llama.cpp b10991: waits for its turn to download"
    broken_old = room(report(OLD, problem="gone"), coming=moving)
    assert isinstance(refusal(broken_old), EngineInstalling), "what comes is nearer than what is broken"


def test_an_install_that_failed_says_why_and_when_it_is_tried_again() -> None:
    failed = install(step=InstallStep.UNPACK, problem="no space left on /var", attempts=2, retry_at=T0 + 120, path="/x")
    one = refusal(room(coming=failed))
    assert isinstance(one, EngineBroken) and not one.installed and one.verdict is Verdict.NOT_NOW
    assert str(one) == "engine llama.cpp b10991 not installed: no space left on /var"
    assert one.clears == "it is installed; tried again in 2m00s; `llmgw ctl engine retry node01` tries at once"


def test_an_engine_that_was_ready_and_is_not_reads_engine_broken() -> None:
    words = "libgomp.so.1 is missing; apt-get install libgomp1"
    one = refusal(room(report(NEW, problem=words), coming=install(problem=words)))
    assert str(one) == f"engine broken: {words}"
    assert one.clears == "it is repaired; `llmgw ctl engine retry node01` tries at once"
    by_hand = refusal(room(report("", problem=words, by_hand=True)))
    assert str(by_hand) == f"engine broken: {words}"
    assert by_hand.clears == "the engine runs; it is probed each minute"
    old = refusal(room(report(OLD, problem=words)))
    assert isinstance(old, EngineBroken) and old.version == OLD


def test_what_the_node_will_never_have_is_never() -> None:
    missing = refusal(room(report(NEW, engine="vllm")))
    assert missing == EngineMissing(node=NodeName("node01"), engine="llama.cpp", has=("vllm",))
    assert missing.verdict is Verdict.NEVER
    assert "server.yaml" in missing.clears and "agent.yaml" in missing.clears
    other = refusal(room(report(NEW), report(OLD), coming=install()), NEWER)
    assert other == EngineVersion(node=NodeName("node01"), engine="llama.cpp", needs=NEWER, has=f"{OLD}, {NEW}")
    assert isinstance(refusal(room(coming=install(step=InstallStep.PROVE)), NEWER), EngineMissing)
    by_hand = room(report(OLD, by_hand=True))
    assert isinstance(refusal(by_hand, NEW), EngineVersion)


def test_a_node_that_never_probed_says_so_before_anything_of_an_install() -> None:
    assert isinstance(refusal(room(engines=None)), EngineNotProbed)


def test_a_small_node_says_never_though_its_engine_is_coming() -> None:
    small = room(coming=install(step=InstallStep.VERIFY), inventory=inventory(MIB))
    assert isinstance(refusal(small), NotEnoughMemory)
    full = replace(room(coming=install(step=InstallStep.VERIFY)), promised=Bytes(8 * GIB))
    assert isinstance(refusal(full), EngineInstalling)
