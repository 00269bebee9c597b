"""Is each control plane found, reached and believed, and does it believe us? The causes are told apart."""

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from ipaddress import ip_address

from llmgw.cli.examine.clock import SET
from llmgw.cli.examine.findings import Findings, Skew
from llmgw.cli.examine.user import as_root, user
from llmgw.client import ControlClient
from llmgw.config.address import Address
from llmgw.config.client import ClientConfig
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Check, fault, ok, warning
from llmgw.core.errors import BadConfig, ControlUnreachable, LlmgwError, NotAllowed, PeerNotTrusted
from llmgw.core.identity import Role
from llmgw.core.issuing import issue
from llmgw.core.views import AboutView
from llmgw.host.reason import reason
from llmgw.host.threads import aside
from llmgw.wire import explain, onlooker
from llmgw.wire.channel import Channel

_NAME, _RESOLUTION = "control plane", "name resolution"
_UNREACHED = "look at the network and its firewalls, and run `llmgw doctor` on the control host"
_EARLY = f"set the clock right, here ({SET}) or where it was issued"
_MOST_SHOWN = 8


async def control_planes(addresses: Sequence[Address], files: TlsFiles | None, seconds: float) -> Findings:
    """Try all addresses at once, each for so many seconds."""
    found = Findings()
    for one in await asyncio.gather(*(_tried(address, files, seconds) for address in dict.fromkeys(addresses))):
        found.add(one)
    return found


async def by_socket(config: ClientConfig, seconds: float) -> Findings:
    """Try the control plane of this host at its Unix socket."""
    path = str(config.socket)
    if _barred(path):
        return Findings(
            [warning(_NAME, f"{path} may not be used by {user()}", f"{as_root()}; or join the socket's group")]
        )
    async with ControlClient.open(config) as client:
        return await _asked(client, path, seconds)


async def _tried(at: Address, files: TlsFiles | None, seconds: float) -> Findings:
    resolved = [] if _is_address(at.host) else await _resolved(at.host, seconds)
    found = Findings(resolved)
    if not any(check.fix for check in resolved):
        found.add(await _reached(at, files, seconds))
    return found


async def _resolved(host: str, seconds: float) -> list[Check]:
    """A name's addresses, or why there are none."""
    try:
        async with asyncio.timeout(seconds):
            found = await aside(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    except TimeoutError:
        fact = f"{host} was not resolved within {seconds:g} s: the name server does not answer"
        return [fault(_RESOLUTION, fact, "look at /etc/resolv.conf, or name the control plane by its IP address")]
    except OSError as error:
        fact = f"{host} is not known ({reason(error)})"
        return [fault(_RESOLUTION, fact, "correct the name in the file, or add it to the DNS or /etc/hosts")]
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))[:_MOST_SHOWN]
    return [ok(_RESOLUTION, f"{host} is {', '.join(addresses)}")]


async def _reached(at: Address, files: TlsFiles | None, seconds: float) -> Findings:
    if files is None:
        return Findings([await _knocked(at, seconds, "the file names no certificates to check it with")])
    try:
        client = ControlClient([Channel(at.host, at.port, files, dial_time=seconds)])
    except BadConfig:
        return await _looked(at, files, seconds)
    async with client:
        return await _asked(client, str(at), seconds, at)


async def _asked(client: ControlClient, where: str, seconds: float, at: Address | None = None) -> Findings:
    """Ask twice: the first question opens the connection, the second one is timed."""
    try:
        async with asyncio.timeout(2 * seconds):
            await client.about()
            before = time.time()
            about = await client.about()
            after = time.time()
    except TimeoutError:
        return Findings([fault(_NAME, f"{where}: it does not answer within {2 * seconds:g} s", _UNREACHED)])
    except NotAllowed as error:
        fact = f"{where}: it knows us and tells us nothing: {error}"
        return Findings([warning(_NAME, fact, "upgrade llmgwd there to this version")])
    except LlmgwError as error:
        return Findings([await failed(error, where, at)], strange=is_strange(error))
    skew = Skew(address=where, seconds=about.now - (before + after) / 2, round_trip=after - before)
    return Findings([ok(_NAME, _answer(where, about, skew))], [skew])


def _answer(where: str, about: AboutView, skew: Skew) -> str:
    return (
        f"{where}: answers for cluster {about.cluster}, version {about.version}, TLS in order, "
        f"{skew.round_trip * 1000:.1f} ms"
    )


async def failed(error: LlmgwError, where: str, at: Address | None) -> Check:
    """Why `where`, dialled at an address or by a socket, did not answer, or was not believed."""
    match error:
        case ControlUnreachable():
            if at is not None and error.fact.startswith(explain.NO_ANSWER) and await _somebody(at):
                fact = f"{where}: it takes connections and says nothing ({error.fact})"
                return fault(_NAME, fact, "is it the port of llmgwd? if it is, llmgwd hangs: look at its journal")
            return fault(_NAME, f"{where}: {error.fact}", error.way_out or _UNREACHED)
        case PeerNotTrusted():
            return fault(_NAME, f"{where}: {error.fact}", _trusted(error, at))
    return fault(_NAME, f"{where}: {error}", _UNREACHED)


def is_strange(error: LlmgwError) -> bool:
    """Whether a control plane is of another authority than ours."""
    return isinstance(error, PeerNotTrusted) and explain.OTHER_AUTHORITY in error.fact


def _trusted(error: PeerNotTrusted, at: Address | None) -> str:
    """What to do about a control plane that is not believed, or does not believe us."""
    if error.fact.startswith(explain.NOT_YET_VALID):
        return _EARLY
    if error.fact.startswith(explain.OURS_REFUSED):
        return "see our own certificate above; the journal of llmgwd there says why it was refused"
    dialled = [at.host] if at is not None else ["HOST"]
    again = issue(
        "NAME", Role.CONTROL, "the directory that tls: names on that host", addresses=dialled, restart="llmgwd"
    )
    return error.way_out or f"{again}; or set the clock right, where it is wrong: {SET}"


async def _looked(at: Address, files: TlsFiles, seconds: float) -> Findings:
    """What can be seen without a certificate of our own."""
    try:
        shown = await onlooker.look(at, files.authority, seconds=seconds)
    except BadConfig:
        return Findings([await _knocked(at, seconds, f"{files.authority} cannot be used to check it")])
    except LlmgwError as error:
        return Findings([await failed(error, str(at), at)], strange=is_strange(error))
    fact = f"{at}: it is {shown.identity} of cluster {shown.identity.cluster}, TLS in order; not asked any further"
    return Findings([warning(_NAME, fact, "see what keeps our own certificate from being used, above")])


def _barred(path: str) -> bool:
    return os.path.lexists(path) and not os.access(path, os.R_OK | os.W_OK, effective_ids=True)


async def _somebody(at: Address) -> bool:
    """Whether anyone takes connections there: from inside a handshake silence and nobody look alike."""
    try:
        await onlooker.knock(at, seconds=1.0)
    except LlmgwError:
        return False
    return True


async def _knocked(at: Address, seconds: float, why: str) -> Check:
    try:
        await onlooker.knock(at, seconds=seconds)
    except LlmgwError as error:
        return await failed(error, str(at), None)
    return warning(_NAME, f"{at}: somebody takes connections; {why}", "mend tls: in the file first")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
