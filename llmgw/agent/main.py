"""llmgw-agent: what is started, in which order, and how it ends."""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import sys
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path

import uvloop

from llmgw import __version__
from llmgw.agent import keep
from llmgw.agent.examine import examine
from llmgw.agent.launch import namesakes
from llmgw.agent.launch.forms import launcher
from llmgw.agent.launch.launcher import Owner
from llmgw.agent.launch.marks import runs
from llmgw.agent.launch.ports import ephemeral, overlap
from llmgw.agent.leases import Leases
from llmgw.agent.link import Link, Who
from llmgw.agent.listen import Listener
from llmgw.agent.news import News
from llmgw.agent.node import Node
from llmgw.agent.records import Records
from llmgw.agent.start import Starter
from llmgw.agent.survey import Survey
from llmgw.config.agent import AgentConfig
from llmgw.config.load import load_agent
from llmgw.core.checks import Result, worst
from llmgw.core.errors import BadConfig, Rejected
from llmgw.core.identity import Identity, Role
from llmgw.core.names import NodeName
from llmgw.core.safe import LINE, safe
from llmgw.host.machine import boot_id, machine_id
from llmgw.host.program import command_line, run_program
from llmgw.host.signals import stop_signal
from llmgw.host.systemd import READY, STOPPING, keep_alive, notify, set_up_logging, status
from llmgw.host.units import refuse_if_barred
from llmgw.wire.tls import client_context, own_identity

_log = logging.getLogger(__name__)

DEFAULT = Path("/etc/llmgw/agent.yaml")
_PROBE_PATIENCE = 3.0


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
    with _alone(config, identity) as owner:
        uvloop.run(serve(config, identity, owner))
    return 0


def _check(file: Path, config: AgentConfig, identity: Identity) -> int:
    refuse_if_barred("llmgw-agent", file, (config.tls.certificate, config.tls.key, config.tls.authority))
    found = asyncio.run(examine(config, identity))
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
    if warning := overlap(config.engine_ports, ephemeral()):
        _log.warning("%s", warning)
    if warning := namesakes.warning(owner):
        _log.warning("%s", warning)
    launches = launcher(config.launcher, owner, boot)
    records, survey = Records(config.state), Survey(config, news, partial(runs, owner))
    leases = Leases(config)
    starter = Starter(leases, records, survey, launches)
    node = Node(identity.cluster, config.start_timeout, records, starter, launches, news)
    listener = Listener(leases, config.engine_ports, node.ports, news)
    link = Link(own, list(config.control), config.tls, node, survey, listener, news, stop)
    _log.info("node %s of cluster %s, version %s, state in %s", own.node, identity.cluster, __version__, config.state)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(survey.run(), name="survey")]
        if await _before(stop, _open(node, survey)):
            tasks.append(group.create_task(node.run(), name="node"))
            tasks.append(group.create_task(listener.run(), name="listener"))
            tasks.append(group.create_task(keep_alive(lambda: True), name="watchdog"))
            notify(READY, status(f"node {own.node} of cluster {identity.cluster}"))
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


async def _before(stop: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Do `work` unless `stop` comes first; returns whether it was done."""
    async with asyncio.TaskGroup() as group:
        working, stopping = group.create_task(work), group.create_task(stop.wait())
        done, _ = await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        stopping.cancel()
    return working in done


@contextlib.contextmanager
def _alone(config: AgentConfig, identity: Identity) -> Iterator[Owner]:
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


if __name__ == "__main__":
    sys.exit(main())
