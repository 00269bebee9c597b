"""`llmgwd`: from a command line to an exit status; `serve` says how the control plane comes up and goes down.

What it ends with is in `llmgwd --help`. A second signal kills.
"""

import grp
import sys
from collections.abc import Sequence
from pathlib import Path

from llmgw.config.load import load_server
from llmgw.config.server import ServerConfig
from llmgw.core.errors import BadConfig
from llmgw.core.identity import Role
from llmgw.core.units import several
from llmgw.daemon import place
from llmgw.host.program import command_line, importing, run_program
from llmgw.host.systemd import set_up_logging
from llmgw.host.units import refuse_if_barred
from llmgw.wire.tls import own_identity, server_context

DEFAULT_CONFIG = Path("/etc/llmgw/server.yaml")

EXITS = {
    3: "an address cannot be listened at",
    4: "the store is in use, or its disk fails",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run llmgwd until a signal; return its exit status."""
    asked = command_line("llmgwd", "The control plane of an llmgw cluster.", DEFAULT_CONFIG, EXITS).parse_args(argv)
    set_up_logging()
    return run_program("llmgwd", lambda: _work(asked.config, check_only=asked.check))


def _work(file: Path, *, check_only: bool) -> None:
    config = load_server(file)
    check(config, file)
    if check_only:
        check_unit(config, file)
        print(f"{file}: good: cluster {config.cluster}, {several(len(config.models), 'model')}, at {config.listen}")
        return
    with importing():
        # Not above: a wrong configuration is answered, and a right one checked, without a store and a server.
        import uvloop

        from llmgw.daemon.serve import run
    uvloop.run(run(config, file))


def check(config: ServerConfig, file: Path) -> None:
    """Raise BadConfig unless the certificate is readable, in time and for a control plane of this cluster.

    And unless a store can be where it says. Nothing is made.
    """
    try:
        grp.getgrnam(config.socket_group or "root")
    except KeyError:
        rule, found = (
            "must be a group of this host",
            f"{config.socket_group!r}; `adduser --system --group {config.socket_group}` makes it",
        )
        raise BadConfig(str(file), None, "socket_group", rule, found) from None
    server_context(config.tls)
    own = own_identity(config.tls)
    if (own.cluster, own.role) != (config.cluster, Role.CONTROL):
        rule = f"must be for a control plane of cluster {config.cluster}"
        raise BadConfig(str(config.tls.certificate), None, "", rule, f"for {own} of cluster {own.cluster}")
    place.check(config.store)


def check_unit(config: ServerConfig, file: Path) -> None:
    """Raise BadConfig unless the user of the unit can use the files, and CannotListen where it does not run and could
    not listen. Root can use them all, and a start would still fail.
    """
    tls, store, mirror = config.tls, config.store, config.mirror
    if mirror is not None and not mirror.is_dir():
        # A start goes on without: a share that comes up late must not keep the nodes without a control plane.
        raise BadConfig(str(file), None, "mirror", "must be a directory", str(mirror))
    refuse_if_barred(
        "llmgwd",
        file,
        (tls.certificate, tls.key, tls.authority, *([mirror] if mirror else [])),
        (store, place.lock_file(store)),
    )
    if not place.held(store):
        with importing():
            from llmgw.daemon.listen import probe_tcp
        probe_tcp(config)


if __name__ == "__main__":
    sys.exit(main())
