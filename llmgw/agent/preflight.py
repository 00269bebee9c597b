"""What would keep this agent from being of use, as far as it can tell before it runs? For `--check` and `llmgw doctor`.

Each function looks at one thing, so that a file with faults is examined in all that is right in it.
"""

import socket
from collections.abc import Mapping
from pathlib import Path

from llmgw.agent.discovery import memory
from llmgw.agent.discovery.root import Root, root_of
from llmgw.agent.engines.probe import hindrance, probe
from llmgw.agent.environment import engine_environment
from llmgw.agent.launch import systemd
from llmgw.agent.launch.ports import ephemeral, overlap, way_out
from llmgw.agent.patience import words
from llmgw.config.agent import AgentConfig, Launcher, Ports
from llmgw.core.checks import Check, fault, ok, warning
from llmgw.core.identity import Identity, Role
from llmgw.core.issuing import issue, of_other_name
from llmgw.core.units import size


async def preflight(config: AgentConfig, identity: Identity) -> list[Check]:
    """The certificate's name, engines that do not run, ports, memory, launcher: all that `--check` looks at."""
    return [
        named(identity, config.node, config.tls.certificate.parent),
        *await engines(config.engines),
        ports(config.engine_ports),
        *memory_stated(config.memory, root_of(config)),
        launcher(config.launcher, has=systemd.running()),
    ]


def named(identity: Identity, node: str, directory: Path) -> Check:
    """Whether the certificate, which is in the directory, speaks for this node."""
    if identity.name == node:
        return ok("certificate", f"certificate is for node {node}")
    return fault(
        "certificate",
        f"certificate is for {identity.name}, the node is {node}: the control plane will refuse it",
        of_other_name(
            identity.name,
            socket.gethostname().lower(),
            issue(node, Role.AGENT, str(directory), restart="llmgw-agent"),
        ),
    )


async def engines(programs: Mapping[str, Path]) -> list[Check]:
    """Whether each engine that agent.yaml names runs."""
    found = []
    for engine in (await probe(programs, engine_environment())).values():
        report = engine.report
        if report.problem:
            found.append(fault("engine", f"engines: {report.engine}: {report.problem}", await _mend(report.path)))
        else:
            found.append(ok("engine", f"{report.engine} {report.version} at {report.path} runs"))
    return found


async def _mend(path: str) -> str:
    in_the_way = await hindrance(path)
    return in_the_way.fix if in_the_way else "run it by hand to see; mend it, or correct engines: in agent.yaml"


def ports(chosen: Ports) -> Check:
    """Whether the kernel gives ports of engines to outgoing connections."""
    taken = ephemeral()
    if fact := overlap(chosen, taken):
        return warning("ports", fact, way_out(taken, len(chosen)))
    return ok("ports", f"engine_ports {chosen} are outside the ports that the kernel takes for outgoing connections")


def memory_stated(stated: int | None, root: Root) -> list[Check]:
    """Whether agent.yaml promises more than there is; nothing where it promises nothing."""
    if stated is None:
        return []
    try:
        total = memory.total(root)
    except OSError as error:
        return [warning("memory", f"how much there is cannot be told: {words(error)}", "show this process /proc")]
    if stated <= total:
        return []
    return [
        fault(
            "memory",
            f"memory: {size(stated)} is more than this machine's {size(total)}",
            "correct memory: in agent.yaml, or take it out so that the measured value holds",
        )
    ]


def launcher(chosen: Launcher, *, has: bool) -> Check:
    """Whether what agent.yaml wants engines started by is there; `has` is whether the agent has systemd."""
    if chosen is Launcher.SYSTEMD and not has:
        return fault(
            "launcher", "launcher: systemd does not run this machine, or we are not root", "set launcher: session"
        )
    form = "systemd" if chosen is Launcher.SYSTEMD or (chosen is Launcher.AUTO and has) else "session"
    return ok("launcher", f"engines are started by {form}")
