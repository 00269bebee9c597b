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
        return load_client(_demo(directory))
    if context is not None:
        return load_client(_home() / f"{_plain(context)}.yaml")
    if servers:
        return _remote(servers, tls)
    return _local(socket)


def own_certificate(directory: Path) -> TlsFiles | None:
    """The certificate that a directory has for ctl, None where it has none, or none that can be told."""
    try:
        return _files(directory)
    except Rejected:
        return None


def _home() -> Path:
    return Path.home() / ".config" / "llmgw"


def _plain(context: str) -> str:
    if "/" in context or context in ("", ".", ".."):
        raise Rejected(f"--context {context[:80]!r} must be the name of a file in {_home()}, without .yaml")
    return context


def _demo(directory: Path) -> Path:
    file = directory / "client.yaml"
    if not file.exists():
        raise Rejected(
            f"--dir {str(directory)[:200]}: there is no {file.name} in it; is there a demo? "
            f"start one with `llmgw demo --dir {str(directory)[:200]}`"
        )
    return file


def _remote(servers: tuple[str, ...], tls: Path | None) -> ClientConfig:
    addresses = tuple(map(_address, servers))
    if tls is None and not _home().is_dir():
        raise Rejected(
            f"--server needs a certificate, and there is no {_home()}; name the directory that holds one with --tls DIR"
        )
    return ClientConfig(server=addresses, tls=_files(tls or _home()))


def _files(tls: Path) -> TlsFiles:
    """`operator.*`, or else the only certificate with its key, beside `authority.crt`."""
    if not tls.is_dir():
        raise Rejected(f"--tls {str(tls)[:200]}: there is no such directory")
    authority = tls / "authority.crt"
    pairs = sorted(one.stem for one in tls.glob("*.crt") if one != authority and one.with_suffix(".key").exists())
    if not pairs:
        raise Rejected(
            f"--tls {str(tls)[:200]}: there is no NAME.crt with its NAME.key in it; `llmgw pki issue` makes them"
        )
    if len(pairs) > 1 and "operator" not in pairs:
        raise Rejected(
            f"--tls {str(tls)[:200]}: there are several certificates in it ({', '.join(pairs)[:200]}); name one in a "
            f"file {_home()}/NAME.yaml and say --context NAME"
        )
    name = "operator" if "operator" in pairs else pairs[0]
    return TlsFiles(certificate=tls / f"{name}.crt", key=tls / f"{name}.key", authority=authority)


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
