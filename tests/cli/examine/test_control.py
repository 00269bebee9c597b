"""Each way in which a control plane cannot be used has its own words, by real listeners."""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.cli.examine.control import by_socket, control_planes
from llmgw.cli.examine.findings import Findings
from llmgw.config.address import Address
from llmgw.config.client import ClientConfig
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Check, Result
from tests.wire.certificates import DAY, LOCAL, NOW, SERVER, files, issuing, leaf, root, uri

ROOT = root()
BELOW = issuing(ROOT)
STRANGE = root("strange")
CONTROL, NODE = uri("llmgw://demo/control/cp1"), uri("llmgw://demo/agent/node01")
HOUR = DAY / 24
SECONDS = 1.0


@pytest.fixture
def own(tmp_path: Path) -> TlsFiles:
    """A node's files, all in order."""
    return files(tmp_path / "node", leaf(BELOW, [NODE]), ROOT, BELOW)


@pytest.fixture
def control_files(tmp_path: Path) -> Callable[..., TlsFiles]:
    def make(*names: object, by: object = BELOW, chain: tuple = (BELOW,), **dates: object) -> TlsFiles:
        shown = leaf(by, names or [CONTROL, *LOCAL], [SERVER], **dates)
        return files(tmp_path / "control", shown, ROOT, *chain)

    return make


async def tried(at: Address, files: TlsFiles | None, seconds: float = SECONDS) -> Check:
    found = await control_planes([at], files, seconds)
    (only,) = found.checks
    return only


async def test_one_that_answers_is_ok_and_tells_its_time(serve, control_files, own):
    at = await serve(control_files(), ahead=40.0)
    found: Findings = await control_planes([at, at], own, SECONDS)
    (check,), (skew,) = found.checks, found.skews
    assert check.result is Result.OK
    assert re.match(rf"{at}: answers for cluster demo, version 0.1.0, TLS in order, [\d.]+ ms$", check.fact)
    assert skew.address == str(at) and abs(skew.seconds - 40.0) < 1.0 and 0 <= skew.round_trip < 1.0


UNREACHED = {
    "closed": r"connection refused → is llmgwd running there\?",
    "black_hole": r"no answer within 1 s → look at the network and its firewalls",
    "silent": r"it takes connections and says nothing \(no answer within 1 s\) → is it the port of llmgwd\?",
}


@pytest.mark.parametrize("kind", UNREACHED)
async def test_who_is_not_reached_is_told_apart(kind: str, own, request: pytest.FixtureRequest):
    at = request.getfixturevalue(kind)
    check = await tried(at, own)
    assert check.result is Result.FAULT
    assert re.match(f"{at}: {UNREACHED[kind]}", f"{check.fact} → {check.fix}"), check


UNTRUSTED = {
    "another authority": (
        lambda make: make(by=STRANGE, chain=()),
        r"its certificate \(SHA-256 [0-9a-f]{32}\) is of another authority than ours \(SHA-256 [0-9a-f]{32}\) → is .*",
    ),
    "expired": (
        lambda make: make(ends=NOW - HOUR),
        r"its certificate expired on .* UTC; it is .* here → on the machine with the "
        r"authority .* issue NAME --role control --address 127.0.0.1 ",
    ),
    "not valid yet": (
        lambda make: make(begins=NOW + HOUR),
        r"its certificate is not valid before .* UTC; it is .* here → set the clock "
        r"right, here \((chronyc|timedatectl) ",
    ),
    "for other addresses": (
        lambda make: make(CONTROL),
        r"its certificate is for other addresses: none → issue it again with --address 127.0.0.1",
    ),
    "another role": (
        lambda make: make(uri("llmgw://demo/router/r1"), *LOCAL),
        r"its certificate is of router r1, not of the role control → ",
    ),
    "another cluster": (
        lambda make: make(uri("llmgw://prod/control/cp1"), *LOCAL),
        r"it is of cluster prod, our certificate of demo → ",
    ),
}


@pytest.mark.parametrize("case", UNTRUSTED)
async def test_who_is_not_trusted_is_told_apart(case: str, serve, control_files, own):
    make, words = UNTRUSTED[case]
    at = await serve(make(control_files))
    check = await tried(at, own)
    assert check.result is Result.FAULT
    assert re.match(f"{at}: {words}", f"{check.fact} → {check.fix}"), check


async def test_a_server_without_tls_is_told_apart(plain, own):
    check = await tried(plain, own)
    assert (check.fact, check.fix) == (f"{plain}: it does not speak TLS", "is it the port of llmgwd?")


async def test_a_server_of_old_tls_is_told_apart(control_files, own):
    given = control_files()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(given.certificate, given.key)

    def refuse(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        with accepted, pytest.raises(ssl.SSLError):
            context.wrap_socket(accepted, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        refusing = asyncio.create_task(asyncio.to_thread(refuse, listener))
        check = await tried(Address("127.0.0.1", listener.getsockname()[1]), own)
        await refusing
    assert check.fact.endswith("it does not speak TLS 1.3")


async def test_our_certificate_of_another_authority_is_refused_in_its_words(serve, control_files, tmp_path):
    ours = files(tmp_path / "node", leaf(STRANGE, [NODE]), ROOT)
    check = await tried(await serve(control_files()), ours)
    assert "it refused our certificate: of an authority that it does not know" in check.fact


async def test_one_of_another_authority_is_marked_as_such(serve, control_files, own, tmp_path):
    at = await serve(control_files(by=STRANGE, chain=()))
    assert (await control_planes([at], own, SECONDS)).strange
    unusable = files(tmp_path / "late", leaf(BELOW, [NODE], ends=NOW - HOUR), ROOT, BELOW)
    assert (await control_planes([at], unusable, SECONDS)).strange
    assert not (await control_planes([await serve(control_files())], own, SECONDS)).strange


async def test_our_expired_certificate_keeps_nobody_from_looking_at_the_server(serve, control_files, tmp_path):
    ours = files(tmp_path / "node", leaf(BELOW, [NODE], ends=NOW - HOUR), ROOT, BELOW)
    check = await tried(await serve(control_files()), ours)
    assert check.result is Result.WARNING
    assert "it is control cp1 of cluster demo, TLS in order; not asked any further" in check.fact
    other = await tried(await serve(control_files(ends=NOW - HOUR)), ours)
    assert other.result is Result.FAULT and "its certificate expired on" in other.fact


async def test_without_files_of_ours_it_is_still_seen_who_listens(silent, closed):
    assert "somebody takes connections" in (await tried(silent, None)).fact
    assert "connection refused" in (await tried(closed, None)).fact


async def test_a_name_that_is_not_known_is_one_line(own):
    found = await control_planes([Address("no-such-host.invalid", 7443)], own, SECONDS)
    (check,) = found.checks
    assert (check.name, check.result) == ("name resolution", Result.FAULT)
    assert check.fact.startswith("no-such-host.invalid is not known (") or "was not resolved within" in check.fact


async def test_a_name_that_is_known_is_told_with_its_addresses(own, closed):
    found = await control_planes([Address("localhost", closed.port)], own, SECONDS)
    assert "localhost is " in found.checks[0].fact and "127.0.0.1" in found.checks[0].fact
    assert "connection refused" in found.checks[1].fact


async def test_a_socket_that_is_not_there_is_told(tmp_path):
    found = await by_socket(ClientConfig(socket=tmp_path / "llmgwd.sock"), SECONDS)
    (check,) = found.checks
    assert check.result is Result.FAULT and check.fix == "is llmgwd running?"
