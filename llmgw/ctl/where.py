"""Where is the cluster that was meant: a demo's directory, a server, a context, or the socket of this host?"""

from pathlib import Path

from llmgw.config.address import Address, address
from llmgw.config.client import ClientConfig
from llmgw.config.load import load_client
from llmgw.config.tls import TlsFiles
from llmgw.core.errors import ControlUnreachable, Rejected

SOCKET = Path("/run/llmgw/llmgwd.sock")
PORT = 7443


def where(
    *,
    directory: Path | None = None,
    servers: tuple[str, ...] = (),
    tls: Path | None = None,
    context: str | None = None,
    socket: Path = SOCKET,
) -> ClientConfig:
    """Return how to reach the cluster; Rejected when more than one place was named."""
    given = [word for word, value in (("--dir", directory), ("--server", servers), ("--context", context)) if value]
    if len(given) > 1:
        raise Rejected(f"{' and '.join(given)} name different clusters; give one of them")
    if tls is not None and not servers:
        raise Rejected("--tls goes with --server; give that too")
    if directory is not None:
        return load_client(directory / "client.yaml")
    if context is not None:
        return load_client(_home() / f"{_plain(context)}.yaml")
    if servers:
        return _remote(servers, tls or _home())
    return _local(socket)


def _home() -> Path:
    return Path.home() / ".config" / "llmgw"


def _plain(context: str) -> str:
    if "/" in context or context in ("", ".", ".."):
        raise Rejected(f"--context {context[:80]!r} must be the name of a file in {_home()}, without .yaml")
    return context


def _remote(servers: tuple[str, ...], tls: Path) -> ClientConfig:
    files = TlsFiles(certificate=tls / "operator.crt", key=tls / "operator.key", authority=tls / "authority.crt")
    return ClientConfig(server=tuple(map(_address, servers)), tls=files)


def _address(text: str) -> Address:
    try:
        return address(text, default_port=PORT)
    except ValueError as error:
        raise Rejected(f"--server {text[:80]!r} {error}; without a port it is {PORT}") from None


def _local(socket: Path) -> ClientConfig:
    if not socket.exists():
        raise ControlUnreachable(
            str(socket),
            "there is no such socket on this host",
            "say where the cluster is: --dir, --server or --context",
        )
    return ClientConfig(socket=socket)
