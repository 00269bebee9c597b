"""The agent's parts: what is started, in which order, and how it ends."""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path

from llmgw import __version__
from llmgw.agent import keep, preflight
from llmgw.agent.engines.stock import Stock
from llmgw.agent.installing import Installing
from llmgw.agent.launch import namesakes
from llmgw.agent.launch.forms import launcher
from llmgw.agent.launch.launcher import Owner
from llmgw.agent.launch.marks import runs
from llmgw.agent.leases import Leases
from llmgw.agent.link import Link, Who
from llmgw.agent.listen import Listener
from llmgw.agent.news import News
from llmgw.agent.node import Node
from llmgw.agent.records import Records
from llmgw.agent.serve_files import FileServer
from llmgw.agent.start import Starter
from llmgw.agent.survey import Survey
from llmgw.config.agent import AgentConfig
from llmgw.core.checks import Result
from llmgw.core.errors import Rejected
from llmgw.core.identity import Identity
from llmgw.core.names import NodeName
from llmgw.host.machine import boot_id, machine_id
from llmgw.host.signals import stop_signal
from llmgw.host.systemd import READY, STOPPING, keep_alive, notify, status

_log = logging.getLogger(__name__)

_PROBE_PATIENCE = 3.0


async def serve(config: AgentConfig, identity: Identity, owner: Owner) -> None:
    """Run until SIGTERM or SIGINT. The engines run on."""
    stop = stop_signal()
    news = News()
    boot = boot_id()
    own = Who(
        node=config.name,
        machine=machine_id(),
        boot=boot,
        identity=identity,
        address=config.address,
    )
    ports = preflight.ports(config.engine_ports)
    if ports.result is not Result.OK:
        _log.warning("%s; %s", ports.fact, ports.fix)
    if warning := namesakes.warning(owner):
        _log.warning("%s", warning)
    launches = launcher(config.launcher, owner, boot)
    stock = Stock(news.ring)
    records, survey = Records(config.state), Survey(config, news, partial(runs, owner), stock)
    leases = Leases(config)
    starter = Starter(leases, records, survey, launches)
    node = Node(identity.cluster, config.start_timeout, records, starter, launches, news)
    installing = Installing(config, node, survey, stock, news)
    files = FileServer(leases, config.tls, identity.cluster, installing.shelf.downloads, node.ports)
    listener = Listener(leases, config.engine_ports, node.ports, news)
    link = Link(
        own, config.control, config.tls, node, survey, installing.installer, listener, news, stop, lambda: files.port
    )
    _log.info("node %s of cluster %s, version %s, state in %s", own.node, identity.cluster, __version__, config.state)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(survey.run(), name="survey"),
            group.create_task(installing.inspector.run(), name="installed engines"),
        ]
        if await _before(stop, _open(node, survey)):
            tasks.append(group.create_task(files.run(), name="files for others"))
            tasks.append(group.create_task(installing.installer.run(), name="installer"))
            tasks.append(group.create_task(node.run(), name="node"))
            tasks.append(group.create_task(listener.run(), name="listener"))
            tasks.append(group.create_task(keep_alive(lambda: True), name="watchdog"))
            notify(READY, status(f"node {own.node} of cluster {identity.cluster}"))
            # A registration says where; whoever stops us meanwhile is heard by the link.
            await _before(stop, _settled(files))
            # The link ends first, while the rest still answers; then nothing is left to tell.
            await link.run()
        notify(STOPPING)
        for task in tasks:
            task.cancel()
    _log.info("stopped; engines run on")


async def _open(node: Node, survey: Survey) -> None:
    """Find what runs and what the node has: a registration says both. A slow engine's probe is not waited for long."""
    await node.open()
    await survey.described.wait()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PROBE_PATIENCE):
            await survey.probed.wait()


async def _settled(files: FileServer) -> None:
    await files.settled.wait()


async def _before(stop: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Do `work` unless `stop` comes first; returns whether it was done."""
    async with asyncio.TaskGroup() as group:
        working, stopping = group.create_task(work), group.create_task(stop.wait())
        done, _ = await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        stopping.cancel()
    return working in done


@contextlib.contextmanager
def alone(config: AgentConfig, identity: Identity) -> Iterator[Owner]:
    """Hold the state directory: two agents with one state would fight over the same engines."""
    state = config.state
    with contextlib.ExitStack() as held:
        try:
            keep.make_private(state)
            # Not to be written: a disk that takes no more writes does not keep the agent from its engines.
            lock = os.open(state / "lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            held.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            owner = _claimed(state, identity.cluster, config.name)
        except BlockingIOError:
            raise Rejected(f"state {state} is in use by another agent; stop it, or give each its own") from None
        except keep.Damaged as error:
            raise Rejected(f"{error}; move the state away when none of its engines runs any more") from None
        except OSError as error:
            fact = (error.strerror or type(error).__name__).lower()
            raise Rejected(f"state {state} cannot be used: {fact}; set `state:` to a directory of ours") from None
        yield owner


def _claimed(state: Path, cluster: str, node: NodeName) -> Owner:
    """A state is of one node of one cluster for ever: what it holds is of engines with that mark."""
    file = state / "owner"
    said = keep.read(file)
    if said is None:
        owner = Owner(cluster, node, secrets.token_hex(6))
        keep.write(file, f"{owner.cluster} {owner.node} {owner.instance}")
        return owner
    words = said.split(" ")
    before = Owner(words[0], NodeName(words[1]), words[-1])
    if (before.cluster, before.node) != (cluster, node):
        ours = Owner(cluster, node, "")
        raise Rejected(f"state {state} is of {before}, this agent is {ours}; set `state:` to a directory of its own")
    return before
