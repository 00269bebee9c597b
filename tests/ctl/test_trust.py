"""ctl over TLS with real certificates: who may look, who may act, and who is not believed."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmgw.config.tls import TlsFiles
from llmgw.core.identity import Role
from llmgw.ctl.grammar import parse
from llmgw.ctl.run import carry_out
from llmgw.pki import authority
from llmgw.wire.server import RpcServer
from llmgw.wire.tls import server_context
from tests.ctl.conftest import ROLES
from tests.ctl.fixture import Operators


@dataclass
class Served:
    address: str
    issue: Callable[[str, Role], Path]
    """Makes a directory as `--tls` wants it."""


@pytest.fixture
async def served(operators: Operators, tmp_path: Path) -> AsyncIterator[Served]:
    authority.init(tmp_path / "pki", "demo")
    authority.issue(tmp_path / "pki", "control01", Role.CONTROL, ["127.0.0.1"], tmp_path)
    files = TlsFiles(tmp_path / "control01.crt", tmp_path / "control01.key", tmp_path / "authority.crt")
    server = RpcServer([operators], roles=ROLES, cluster="demo")
    port = await server.listen_tls("127.0.0.1", 0, server_context(files))

    def issue(name: str, role: Role) -> Path:
        authority.issue(tmp_path / "pki", "operator", role, [], tmp_path / name)
        return tmp_path / name

    yield Served(f"127.0.0.1:{port}", issue)
    await server.close(0.1)


async def ctl(served: Served, tls: Path, *words: str) -> int:
    return await carry_out(parse([*words, "--server", served.address, "--tls", str(tls)]))


async def test_an_operator_looks_and_acts(served: Served, operators: Operators) -> None:
    tls = served.issue("operator", Role.OPERATOR)
    assert await ctl(served, tls, "nodes") == 0
    assert await ctl(served, tls, "scale", "gemma", "2") == 0
    assert operators.scaled == [("gemma", 2)]


async def test_the_only_certificate_of_a_directory_is_taken(served: Served) -> None:
    """Whatever its name: `llmgw pki issue ada --role operator --out DIR` is enough."""
    tls = served.issue("ada", Role.OPERATOR)
    for end in ("crt", "key"):
        (tls / f"operator.{end}").rename(tls / f"ada.{end}")
    assert await ctl(served, tls, "nodes") == 0


async def test_of_several_certificates_none_is_guessed(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    tls = served.issue("ada", Role.OPERATOR)
    for name in ("ada", "bob"):
        for end in ("crt", "key"):
            (tls / f"{name}.{end}").write_bytes((tls / f"operator.{end}").read_bytes())
    assert await ctl(served, tls, "nodes") == 0, "operator is the one that was always meant"
    for end in ("crt", "key"):
        (tls / f"operator.{end}").unlink()
    assert await ctl(served, tls, "nodes") == 2
    said = capsys.readouterr().err
    assert "(ada, bob)" in said and "--context NAME" in said


async def test_a_server_without_any_certificate_is_told_where_to_name_one(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert await carry_out(parse(["nodes", "--server", served.address])) == 2
    assert "--tls DIR" in capsys.readouterr().err


async def test_a_viewer_looks_and_cannot_act(
    served: Served, operators: Operators, capsys: pytest.CaptureFixture[str]
) -> None:
    tls = served.issue("viewer", Role.VIEWER)
    assert await ctl(served, tls, "nodes") == 0
    assert await ctl(served, tls, "scale", "gemma", "2") == 2
    said = capsys.readouterr().err
    assert "viewer operator" in said and said.count("\n") == 1 and operators.scaled == []


@pytest.mark.parametrize("role", [Role.AGENT, Role.ROUTER])
async def test_a_certificate_for_another_job_does_not_act(
    role: Role, served: Served, operators: Operators, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ctl(served, served.issue("other", role), "scale", "gemma", "2") == 2
    assert role.value in capsys.readouterr().err and operators.scaled == []


async def test_another_clusters_operator_is_not_believed(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority.init(tmp_path / "other", "demo")
    authority.issue(tmp_path / "other", "operator", Role.OPERATOR, [], tmp_path / "stranger")
    assert await ctl(served, tmp_path / "stranger", "nodes") == 3
    said = capsys.readouterr()
    assert served.address in said.err and said.err.count("\n") == 1 and said.out == ""


async def test_a_certificate_that_is_not_there_is_named(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ctl(served, tmp_path / "none", "nodes") == 2
    assert "none: there is no such directory" in capsys.readouterr().err
    (tmp_path / "none").mkdir()
    assert await ctl(served, tmp_path / "none", "nodes") == 2
    assert "llmgw pki issue" in capsys.readouterr().err


async def test_of_several_servers_the_one_that_answers_is_asked(served: Served, tmp_path: Path) -> None:
    tls = served.issue("operator", Role.OPERATOR)
    assert (
        await carry_out(parse(["nodes", "--server", "127.0.0.1:1", "--server", served.address, "--tls", str(tls)])) == 0
    )
