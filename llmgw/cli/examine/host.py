"""All subjects of one look at a host, at once, and what they say together about the clock."""

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

from llmgw.cli.examine import clock, subjects
from llmgw.cli.examine.findings import Findings
from llmgw.cli.examine.subjects import Kind, Subject
from llmgw.cli.examine.user import as_root, command, user
from llmgw.core.checks import Check, Examined, fault, warning

_LEAST = 15.0
"""Seconds after which a file is given up, whatever is waited for."""


async def examine(
    files: Sequence[Path], seconds: float, etc: Path = subjects.ETC, more: Sequence[Subject] = ()
) -> list[Examined]:
    """Look at the files and at `more`, or at what is here when none is given; a control plane has so many seconds."""
    named = [*map(subjects.told, files), *more]
    chosen = named or subjects.here(etc)
    found = await asyncio.gather(*(_bounded(subject, seconds) for subject in chosen))
    host = [_shut(etc)] if not named and subjects.shut(etc) else []
    if not chosen:
        host = await _host(etc, host)
    if not any(one.early for one in found):
        skews = [skew for one in found for skew in one.skews]
        host.append(clock.clock(skews, alone=any(one.alone for one in found)))
    told = [
        Examined(subject=str(subject), checks=tuple(one.checks)) for subject, one in zip(chosen, found, strict=True)
    ]
    return [*told, Examined(subject=f"host: {socket.gethostname()}", checks=tuple(host))]


async def _bounded(subject: Subject, seconds: float) -> Findings:
    """What is found in the time that the slowest control plane and the slowest tool may take."""
    found, limit = Findings(), max(_LEAST, 3 * seconds + 1)
    try:
        async with asyncio.timeout(limit):
            return await _look(subject, seconds)
    except TimeoutError:
        fact = f"{subject.path} was not looked at within {limit:g} s: its storage does not answer"
        found.checks.append(fault("configuration", fact, "see to the storage that it and what it names are on"))
    return found


async def _look(subject: Subject, seconds: float) -> Findings:
    # Each brings what only its kind needs: a laptop has no engines.
    match subject.kind:
        case Kind.AGENT:
            from llmgw.cli.examine.node import node

            return await node(subject.path, seconds)
        case Kind.SERVER:
            from llmgw.cli.examine.control_host import control_host

            return await control_host(subject.path, seconds)
        case Kind.ROUTER:
            from llmgw.cli.examine.router import router

            return await router(subject.path, seconds)
        case Kind.CLIENT:
            from llmgw.cli.examine.client import client, cluster

            return await (cluster(subject.given, seconds) if subject.given else client(subject.path, seconds))


async def _host(etc: Path, shut: list[Check]) -> list[Check]:
    """A host without a file of ours: what it would be as a node, but for the directories that a node has."""
    from llmgw.cli.examine.node import described, stand_in
    from llmgw.config.lenient import Lenient

    node = stand_in(Lenient())
    machine = await described(node, but=(str(node.state),))
    return [*(shut or [_nothing(etc)]), *machine]


def _shut(etc: Path) -> Check:
    return warning("configuration", f"{etc} cannot be looked into by {user()}", as_root())


def _nothing(etc: Path) -> Check:
    fact = f"there is no configuration of llmgw in {etc}, and neither a context nor a certificate in ~/.config/llmgw"
    fix = (
        f"on an operator's own machine: {command('doctor', '--server', 'HOST', '--tls', 'DIR')}; on a node or control "
        f"host write one (deploy/ has an example of each), or name it: {command('doctor', 'FILE')}"
    )
    return warning("configuration", fact, fix)
