"""What is right and wrong with a node, by its agent.yaml and by the machine?"""

import asyncio
import os
import socket
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from llmgw.agent import preflight
from llmgw.agent.discovery.inventory import inventory
from llmgw.agent.discovery.root import root_of
from llmgw.agent.engines.shelf import Shelf
from llmgw.agent.patience import words
from llmgw.cli.examine import machine, places, running
from llmgw.cli.examine.certificate import Wanted, certificate, own_found
from llmgw.cli.examine.control import control_planes
from llmgw.cli.examine.files import configuration
from llmgw.cli.examine.findings import Findings, bounded
from llmgw.cli.examine.libraries import libraries
from llmgw.cli.examine.runner import Runner, not_running, runner
from llmgw.cli.examine.user import as_root, user
from llmgw.config.agent import AgentConfig, Ports
from llmgw.config.lenient import Lenient, defaults
from llmgw.config.tls import TlsFiles
from llmgw.core.brief import some
from llmgw.core.checks import Check, ok, warning
from llmgw.core.identity import Role
from llmgw.host.threads import aside
from llmgw.host.units import booted

_LIMIT = 12.0
"""Seconds for the slowest of the machine's tools."""
_SHOWN = 8
_PROGRAM = "llmgw-agent"


async def node(path: Path, seconds: float) -> Findings:
    """Look at everything that agent.yaml names, and at the machine; each control plane has so many seconds."""
    read, checks = await aside(configuration, path, AgentConfig)
    config = stand_in(read)
    found = Findings(checks)
    if not read.values:
        # What a node without a word of its own would be; what its file names cannot be told.
        found.checks += await described(config)
        return found
    runs_as, wrong = await runner(_PROGRAM, path)
    found.checks += wrong
    async with asyncio.TaskGroup() as group:
        own = group.create_task(
            bounded("files", "what agent.yaml names", aside(_own, path, read, config, runs_as), _LIMIT)
        )
        engines = group.create_task(_engines(config))
        control = group.create_task(control_planes(config.control, read.get("tls"), seconds))
        host = group.create_task(described(config, but=(str(config.state),)))
    reached = control.result()
    checks = [*own.result(), *engines.result(), *host.result()]
    found.add(await aside(own_found, machine.once(checks), read.get("tls"), reached))
    found.add(reached)
    return found


def stand_in(read: Lenient) -> AgentConfig:
    """A whole configuration of what can be used of a file, so that discovery looks with it at the machine."""
    nothing = Path(os.devnull)
    lacking = {"control": (), "tls": TlsFiles(nothing, nothing, nothing), "node": ""}
    values = defaults(AgentConfig) | lacking | read.values
    return AgentConfig.model_construct(**values | {"node": values["node"] or socket.gethostname().lower()})


async def described(config: AgentConfig, but: Collection[str] = ()) -> list[Check]:
    """The machine as its agent would describe it, without the disks under these directories."""

    async def look() -> list[Check]:
        found = await inventory(config, root_of(config), ours=running.is_engine)
        return list(machine.of_inventory(found, time.time(), but))

    return await bounded("machine", "the machine", look(), _LIMIT)


async def _engines(config: AgentConfig) -> list[Check]:
    if not config.engines:
        return await installed_engines(config)
    told = await asyncio.gather(*(_engine(name, program) for name, program in config.engines.items()))
    return [check for checks in told for check in checks]


async def installed_engines(config: AgentConfig) -> list[Check]:
    """What was installed on a node whose agent.yaml names no engine."""
    try:
        there = await aside(Shelf(config.state).made)
    except OSError as error:
        return [warning("engine", f"whether one is installed cannot be seen by {user()}: {words(error)}", as_root())]
    if there:
        return [ok("engine", f"{one.engine} {one.version} ({one.variant}) is installed") for one in there]
    fact = "none is installed yet, and agent.yaml names none: nothing can be placed on this node"
    fix = "see how far it is with llmgw ctl engines, or name one: engines: {llama.cpp: /opt/llama.cpp/llama-server}"
    return [warning("engine", fact, fix)]


async def _engine(name: str, program: Path) -> list[Check]:
    runs, linked = await asyncio.gather(
        bounded("engine", f"{name} at {program}", preflight.engines({name: program}), _LIMIT), libraries(name, program)
    )
    return [*runs, *linked]


def _own(path: Path, read: Lenient, config: AgentConfig, runs_as: Runner) -> list[Check]:
    """Files, certificate, state, ports and launcher: what needs no waiting for others."""
    found = places.own_file(path, runs_as)
    tls: TlsFiles | None = read.get("tls")
    if tls is not None:
        found += places.tls_files(tls, runs_as)
        found += certificate(tls, Wanted(roles=(Role.AGENT,), name=config.node, program=_PROGRAM))
    found += places.own_directory(config.state, "state", runs_as, private=True)
    agent, told = _agent(config.state, path, runs_as)
    found += [told, *_ports(config.engine_ports, agent)]
    found += preflight.memory_stated(config.memory, root_of(config))
    # The agent runs as root, whoever we are.
    return [*found, preflight.launcher(config.launcher, has=booted())]


def _agent(state: Path, path: Path, runs_as: Runner) -> tuple[int | None, Check]:
    """The pid of the agent that has the state, and that it runs."""
    try:
        agent = running.holder(state / "lock")
    except PermissionError as error:
        return None, warning("agent", f"whether it runs cannot be seen by {user()}: {words(error)}", as_root())
    except OSError:
        agent = None  # nobody locks what cannot be there; why it cannot is told with the directory
    if agent is None:
        fact = f"no agent runs with state {state}"
        return None, not_running("agent", fact, runs_as.started_by, f"{_PROGRAM} --config {path}")
    return agent, ok("agent", f"runs (pid {agent})")


def _ports(chosen: Ports, agent: int | None) -> Iterator[Check]:
    yield preflight.ports(chosen)
    taken = [one for one in running.listeners() if one.port in chosen and not _ours(one.pid, agent)]
    if taken:
        who = some([f"{one.port} by {one}" for one in taken], _SHOWN)
        fact = f"of engine_ports {chosen} {len(taken)} are in use by other programs: {who}"
        yield warning("ports", fact, "move those, or choose another range with engine_ports:")


def _ours(pid: int | None, agent: int | None) -> bool:
    """An engine's port, or one at which the agent listens for routers to try; or we are not told whose."""
    return pid is None or pid == agent or running.is_engine(pid)
