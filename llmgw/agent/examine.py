"""What would keep this agent from being of use, as far as it can tell before it runs? For `--check`."""

from llmgw.agent.discovery import memory
from llmgw.agent.engines.probe import probe
from llmgw.agent.environment import engine_environment
from llmgw.agent.launch import systemd
from llmgw.agent.launch.ports import ephemeral, overlap
from llmgw.config.agent import AgentConfig, Launcher
from llmgw.core.identity import Identity
from llmgw.core.units import size


async def examine(config: AgentConfig, identity: Identity) -> list[str]:
    """Return what is wrong, a line each: the certificate's name, engines that do not run, ports, memory, launcher."""
    found = []
    if identity.name != config.node:
        found.append(
            f"certificate is for {identity.name}, the node is {config.node}: the control plane will refuse it; "
            f"set node: {identity.name}, or issue a certificate for {config.node}"
        )
    for engine in (await probe(config.engines, engine_environment())).values():
        if engine.report.problem:
            found.append(f"engines: {engine.report.engine}: {engine.report.problem}")
    if warning := overlap(config.engine_ports, ephemeral()):
        found.append(warning)
    total = memory.total()
    if config.memory is not None and config.memory > total:
        found.append(f"memory: {size(config.memory)} is more than this machine's {size(total)}")
    if config.launcher is Launcher.SYSTEMD and not systemd.running():
        found.append("launcher: systemd does not run this machine, or we are not root; set launcher: session")
    return found
