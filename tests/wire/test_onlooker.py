"""What can be seen of a server, and said of our own certificate, before any call."""

import socket

import pytest

from llmgw.config.address import Address
from llmgw.config.tls import TlsFiles
from llmgw.core.errors import BadConfig, ControlUnreachable, PeerNotTrusted
from llmgw.core.identity import Identity, Role
from llmgw.wire import der, onlooker, rehearsal, tls

from .certificates import CLIENT, DAY, LOCAL, NOW, SERVER, files, issuing, leaf, root, uri

ROOT = root()
BELOW = issuing(ROOT)
CONTROL, OP = uri("llmgw://demo/control/c"), uri("llmgw://demo/operator/op")


async def test_a_server_is_seen_without_showing_a_certificate(serve, make_files):
    given = make_files("control", Role.CONTROL)
    served = await serve()
    shown = await onlooker.look(Address("127.0.0.1", served.port), given.authority, seconds=5.0)
    assert shown.identity == Identity("demo", Role.CONTROL, "control")
    assert shown.fingerprint == der.fingerprint(tls.certificates(given.certificate)[0])
    assert shown.not_after == der.certificate(tls.certificates(given.certificate)[0]).not_after


async def test_one_for_other_addresses_is_seen_only_when_that_does_not_matter(serve, tmp_path):
    given = files(tmp_path, leaf(BELOW, [CONTROL], [SERVER]), ROOT, BELOW)
    at = Address("127.0.0.1", (await serve(files=given)).port)
    with pytest.raises(PeerNotTrusted, match="is for other addresses: none"):
        await onlooker.look(at, given.authority, seconds=5.0)
    assert (await onlooker.look(at, given.authority, seconds=5.0, as_host=False)).identity.name == "c"


async def test_it_refuses_as_a_client_does(serve, tmp_path, make_files):
    served = await serve()
    other = files(tmp_path, leaf(BELOW, [OP]), ROOT, BELOW)
    with pytest.raises(PeerNotTrusted, match="is of another authority than ours"):
        await onlooker.look(Address("127.0.0.1", served.port), other.authority, seconds=5.0)
    with pytest.raises(BadConfig, match="cannot be read"):
        await onlooker.look(Address("127.0.0.1", served.port), tmp_path / "no.crt", seconds=5.0)


async def test_nobody_and_silence_are_told_apart_by_a_knock(tmp_path):
    authority = files(tmp_path, leaf(BELOW, [OP]), ROOT).authority
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = Address("127.0.0.1", silent.getsockname()[1])
        await onlooker.knock(at, seconds=5.0)
        with pytest.raises(ControlUnreachable, match=r"no answer within 0\.2 s"):
            await onlooker.look(at, authority, seconds=0.2)
    with pytest.raises(ControlUnreachable, match="connection refused"):
        await onlooker.knock(at, seconds=5.0)


TRIALS = {
    "right": (lambda: leaf(BELOW, [OP]), False, ""),
    "a server's": (lambda: leaf(BELOW, [CONTROL, *LOCAL], [SERVER]), True, ""),
    "its dates are not looked at": (lambda: leaf(BELOW, [OP], ends=NOW - DAY / 2), False, ""),
    "for the other purpose": (lambda: leaf(BELOW, [CONTROL], [CLIENT]), True, "peers will refuse it: "),
    "of another authority": (lambda: leaf(root("x"), [OP]), False, "it does not come from the authority in "),
    "no usages at all": (lambda: leaf(BELOW, [OP], []), False, "the certificate of operator op is not for clients"),
    "nobody's": (lambda: leaf(BELOW, [*LOCAL]), False, "its certificate names nobody"),
}


@pytest.mark.parametrize("case", TRIALS)
def test_a_peer_in_memory_takes_our_certificate_or_says_why_not(case, tmp_path):
    make, serves, words = TRIALS[case]
    why = rehearsal.refusal(files(tmp_path, make(), ROOT, BELOW), serves=serves)
    assert why.startswith(words) and bool(why) == bool(words)


def test_files_that_cannot_be_used_are_named(tmp_path):
    given = files(tmp_path, leaf(BELOW, [OP]), ROOT, BELOW)
    with pytest.raises(BadConfig, match="cannot be read"):
        rehearsal.refusal(TlsFiles(given.certificate, tmp_path / "no.key", given.authority), serves=False)
