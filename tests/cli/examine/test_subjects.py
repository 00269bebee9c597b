"""Which files there are, and whose each is."""

from pathlib import Path

import pytest

from llmgw.cli.examine.subjects import Kind, Subject, here, server, told
from llmgw.config.client import ClientConfig
from llmgw.config.tls import TlsFiles
from llmgw.core.errors import Rejected
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


def test_the_certificate_that_ctl_takes_by_default_is_found_unless_a_context_has_it(tmp_path: Path):
    own = tmp_path / "home" / ".config" / "llmgw"
    own.mkdir(parents=True)
    for name in ("operator.crt", "operator.key", "authority.crt"):
        (own / name).touch()
    files = TlsFiles(own / "operator.crt", own / "operator.key", own / "authority.crt")
    assert here(tmp_path / "etc", tmp_path / "home") == [Subject(own, Kind.CLIENT, ClientConfig(tls=files))]
    tls = "{certificate: operator.crt, key: operator.key, authority: authority.crt}"
    (own / "lab.yaml").write_text(f"server: [a:1]\ntls: {tls}\n")
    assert here(tmp_path / "etc", tmp_path / "home") == [Subject(own / "lab.yaml", Kind.CLIENT)]


def test_a_cluster_is_named_as_for_ctl(tmp_path: Path):
    for name in ("operator.crt", "operator.key"):
        (tmp_path / name).touch()
    one = server(["10.0.0.1"], tmp_path)
    assert str(one) == f"client: 10.0.0.1:7443 by {tmp_path}"
    assert one.given is not None and one.given.tls is not None and one.given.tls.key == tmp_path / "operator.key"
    with pytest.raises(Rejected, match="--tls goes with --server"):
        server([], tmp_path)


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
