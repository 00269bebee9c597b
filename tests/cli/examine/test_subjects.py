"""Which files there are, and whose each is."""

from pathlib import Path

import pytest

from llmgw.cli.examine.subjects import Kind, Subject, here, told
from tests.config.test_load import AGENT, ROUTER, SERVER


def test_the_files_of_the_host_and_the_users_contexts_are_found(tmp_path: Path):
    etc, contexts = tmp_path / "etc", tmp_path / "home" / ".config" / "llmgw"
    for path in (
        etc / "agent.yaml",
        etc / "router.yaml",
        etc / "other.yaml",
        contexts / "lab.yaml",
        contexts / "a.crt",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert here(etc, tmp_path / "home") == [
        Subject(etc / "agent.yaml", Kind.AGENT),
        Subject(etc / "router.yaml", Kind.ROUTER),
        Subject(contexts / "lab.yaml", Kind.CLIENT),
    ]


def test_of_nothing_nothing_is_found(tmp_path: Path):
    assert here(tmp_path / "etc", tmp_path / "home") == []


@pytest.mark.parametrize("kind", Kind)
def test_a_name_tells_the_kind(kind: Kind, tmp_path: Path):
    assert told(tmp_path / f"{kind.value}.yaml").kind is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (AGENT, Kind.AGENT),
        (SERVER, Kind.SERVER),
        (ROUTER, Kind.ROUTER),
        ("server: [a:1]\ntls: {}\n", Kind.CLIENT),
        ("socket: a.sock\n", Kind.CLIENT),
        ("control: [a:1]\n", Kind.AGENT),
        ("control: [a:1]\nlisten: nonsense\n", Kind.ROUTER),
        ("not: [yaml", Kind.CLIENT),
    ],
)
def test_else_its_keys_tell(text: str, kind: Kind, tmp_path: Path):
    path = tmp_path / "it.yaml"
    path.write_text(text)
    assert told(path).kind is kind
