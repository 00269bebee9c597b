"""A served fixture cluster, and ctl run against it inside the test's own loop."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmgw.core.identity import Role
from llmgw.ctl.grammar import parse
from llmgw.ctl.run import carry_out
from llmgw.wire.server import RpcServer
from tests.ctl.fixture import Operators

READERS = frozenset({Role.OPERATOR, Role.VIEWER})
ROLES = {
    "/operator.v1.Operator/About": READERS,
    "/operator.v1.Operator/Watch": READERS,
    "/operator.v1.Operator/WhyModel": READERS,
    "/operator.v1.Operator/ScaleModel": frozenset({Role.OPERATOR}),
    "/operator.engines.v1.Engines/EnginesWanted": READERS,
    "/operator.engines.v1.Engines/RetryEngine": frozenset({Role.OPERATOR}),
    "/operator.engines.v1.Engines/LockEngine": frozenset({Role.OPERATOR}),
    "/operator.v1.Operator/WatchRoutes": frozenset({Role.ROUTER}),
    "/operator.v1.Operator/WatchAttempts": frozenset({Role.ROUTER}),
    "/operator.v1.Operator/ReportAttempt": frozenset({Role.ROUTER}),
}


@dataclass
class Said:
    """What one run of ctl said."""

    status: int
    out: str
    err: str


Run = Callable[..., Awaitable[Said]]


@pytest.fixture
def operators() -> Operators:
    return Operators()


@pytest.fixture
async def directory(operators: Operators, tmp_path: Path) -> AsyncIterator[Path]:
    """A directory as `--dir` wants it, with the fixture cluster behind its socket."""
    server = RpcServer([operators], roles=ROLES, cluster="demo")
    await server.listen_unix(tmp_path / "s.sock", group=None)
    (tmp_path / "client.yaml").write_text("socket: s.sock\n")
    yield tmp_path
    await server.close(0.1)


@pytest.fixture
def ctl(directory: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ctl with these words."""

    async def run(*argv: str) -> Said:
        status = await carry_out(parse([*argv, "--dir", str(directory)]))
        return Said(status, *capsys.readouterr())

    return run
