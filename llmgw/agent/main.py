"""`llmgw-agent`: from a command line to an exit status; `serve` says what is started, and how it ends."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from llmgw.config.agent import AgentConfig
from llmgw.config.load import load_agent
from llmgw.core.checks import Result, worst
from llmgw.core.errors import BadConfig, Rejected
from llmgw.core.identity import Identity, Role
from llmgw.core.safe import LINE, safe
from llmgw.host.program import command_line, importing, run_program
from llmgw.host.systemd import set_up_logging
from llmgw.host.units import refuse_if_barred
from llmgw.wire.tls import client_context, own_identity

DEFAULT = Path("/etc/llmgw/agent.yaml")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent until it is told to stop; returns the exit status as `host.program` says it."""
    does = "Describes this node to the control plane and runs the engines it asks for."
    arguments = command_line("llmgw-agent", does, DEFAULT, {}).parse_args(argv)
    set_up_logging()
    return run_program("llmgw-agent", lambda: _run(arguments.config, check=arguments.check))


def _run(file: Path, *, check: bool) -> int:
    config = load_agent(file)
    identity = checked_identity(config)
    if check:
        return _check(file, config, identity)
    with importing():
        # Not above: a wrong configuration is answered without all that looks after engines.
        import uvloop

        from llmgw.agent.serve import alone, serve
    with alone(config, identity) as owner:
        uvloop.run(serve(config, identity, owner))
    return 0


def _check(file: Path, config: AgentConfig, identity: Identity) -> int:
    refuse_if_barred("llmgw-agent", file, (config.tls.certificate, config.tls.key, config.tls.authority))
    with importing():
        from llmgw.agent import preflight
    found = asyncio.run(preflight.preflight(config, identity))
    for one in found:
        if one.result is not Result.OK:
            print(f"{file}: {safe(f'{one.fact}; {one.fix}', LINE)}", file=sys.stderr)
    if worst(found) is Result.FAULT:
        return Rejected.exit_status
    print(f"{file}: good: node {config.node} of cluster {identity.cluster}")
    return 0


def checked_identity(config: AgentConfig) -> Identity:
    """Whom our certificate speaks for. Raises BadConfig when it cannot be used, or not by an agent.

    A certificate for another node than `node:` names is the control plane's to refuse: it says so with both names.
    """
    identity = own_identity(config.tls)
    client_context(config.tls)
    if identity.role is not Role.AGENT:
        rule = f"must be a certificate of the role agent (llmgw pki issue {config.node} --role agent)"
        raise BadConfig(str(config.tls.certificate), None, "", rule, str(identity))
    return identity


if __name__ == "__main__":
    sys.exit(main())
