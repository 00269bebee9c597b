"""Whoever gets no connection is closed at once, and the server's log says why in one line."""

import asyncio
import ssl

import pytest

from llmgw.config.tls import TlsFiles
from llmgw.core.errors import LlmgwError
from llmgw.wire.server import Limits

from .certificates import DAY, LOCAL, NOW, SERVER, files, issuing, leaf, root, uri
from .conftest import within
from .test_tls import ask, plain_context, unchecked

OP, CONTROL = uri("llmgw://demo/operator/op"), uri("llmgw://demo/control/control")
ROOT, OTHER = root("our root"), root("their root")
BELOW, THEIRS = issuing(ROOT, "our issuing"), issuing(OTHER, "their issuing")


@pytest.fixture
def control(serve, tmp_path):
    """Start a control plane, whose certificate is right unless said otherwise."""

    async def start(shown=None, **limits):
        shown = shown or leaf(BELOW, [CONTROL, *LOCAL], [SERVER])
        return await serve(Limits(**limits), files=files(tmp_path / "control", shown, ROOT, BELOW))

    return start


PLAIN = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    bytes(99),
]


@pytest.mark.parametrize("said", PLAIN)
async def test_a_peer_that_does_not_speak_tls_is_closed_at_once(control, log, said):
    """Not when the time for a handshake is over."""
    served = await control(handshake_time=60)
    async with within(2):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(said)
        assert await reader.read() == b""
        writer.close()
    assert log.lines == ["connection closed: it does not speak TLS"]


async def test_a_refused_handshake_gives_its_place_back_at_once(control, log):
    """Though the peer keeps the connection open."""
    served = await control(handshakes=1, handshake_time=60)
    writers = []
    async with within(2):
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writers.append(writer)
            writer.write(b"\x16\x03\x01\xff\xff" + bytes(20))
            assert await log.next() == "connection closed: no TLS connection: packet length too long"
    for writer in writers:
        writer.close()


def by(signer, trusts, *chain, **dates):
    return lambda tmp_path: files(tmp_path / "op", leaf(signer, [OP], **dates), trusts, *chain)


STRANGERS = {
    "ours is of an authority that it does not know": (
        by(THEIRS, OTHER, THEIRS),
        "it refused our certificate: it is of an authority that it does not know",
    ),
    "of another authority": (
        by(THEIRS, ROOT, THEIRS),
        "its certificate is of another authority ('their root') than ours",
    ),
    "the authority between is missing": (by(BELOW, ROOT), "its certificate is of another authority ('our issuing')"),
    "expired": (by(BELOW, ROOT, BELOW, ends=NOW - DAY / 2), "its certificate expired on "),
    "not valid yet": (by(BELOW, ROOT, BELOW, begins=NOW + DAY / 2), "its certificate is not valid before "),
}


@pytest.mark.parametrize("case", STRANGERS)
async def test_a_client_that_is_not_trusted_or_does_not_trust_is_one_line(case, control, log, tmp_path, monkeypatch):
    unchecked(monkeypatch)
    make, words = STRANGERS[case]
    served = await control()
    with pytest.raises(LlmgwError):
        await ask(served.port, make(tmp_path))
    async with within():
        assert (await log.next()).startswith("connection closed: " + words)
    await served.server.close(0.1)
    assert not log.lines


REFUSED = {
    "of an agent": ([uri("llmgw://demo/agent/n1"), *LOCAL], "its certificate is of agent n1, not of the role control"),
    "of another cluster": (
        [uri("llmgw://prod/control/c"), *LOCAL],
        "it is of cluster prod, our certificate of demo",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_server_hears_from_its_client_what_is_wrong_with_its_certificate(case, control, log, tmp_path):
    names, words = REFUSED[case]
    served = await control(leaf(BELOW, names, [SERVER]))
    with pytest.raises(LlmgwError):
        await ask(served.port, files(tmp_path / "op", leaf(BELOW, [OP]), ROOT, BELOW))
    async with within():
        assert await log.next() == f"it refused our certificate: {words}"
    assert not log.lines


async def test_a_certificate_for_another_host_is_one_line(control, log, tmp_path):
    served = await control(leaf(BELOW, [CONTROL], [SERVER]))
    with pytest.raises(LlmgwError):
        await ask(served.port, files(tmp_path / "op", leaf(BELOW, [OP]), ROOT, BELOW))
    async with within():
        assert (await log.next()).startswith("connection closed: it refused our certificate: it is for other addresses")
    await served.server.close(0.1)
    assert not log.lines


async def knock(port: int, given: TlsFiles, **options):
    context = plain_context(given, **options)
    async with within():
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        await reader.read()
        writer.close()


async def test_a_client_without_a_certificate_and_one_of_older_tls_are_one_line(control, log, tmp_path):
    served = await control()
    given = files(tmp_path / "op", leaf(BELOW, [OP]), ROOT, BELOW)
    context = ssl.create_default_context(cafile=str(given.authority))
    async with within():
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=context)
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            await reader.read()
        writer.close()
    with pytest.raises(ssl.SSLError):
        await knock(served.port, given, maximum_version=ssl.TLSVersion.TLSv1_2)
    async with within():
        assert await log.next() == "connection closed: it showed no certificate"
        assert await log.next() == "connection closed: it does not speak TLS 1.3"
    await served.server.close(0.1)
    assert not log.lines


async def test_a_handshake_that_breaks_off_or_never_ends_is_one_line(control, log):
    served = await control(handshake_time=0.2)
    async with within():
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"\x16\x03\x01")
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        assert await reader.read() == b""
        writer.close()
    assert log.lines == [
        "connection closed: it broke the TLS handshake off",
        "connection closed: it did not finish the TLS handshake within 0.2 s",
    ]
