"""Real handshakes with certificates of which each is wrong in one way."""

import asyncio
import ipaddress
import os
import ssl
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from llmgw.config.tls import TlsFiles
from llmgw.core.errors import BadConfig, ControlUnreachable, LlmgwError, PeerNotTrusted
from llmgw.core.identity import Identity, Role
from llmgw.wire import tls
from llmgw.wire.channel import Channel
from llmgw.wire.operator import v1 as operator

from .certificates import ANY, CLIENT, DAY, LOCAL, NOW, SERVER, files, issuing, leaf, root, uri, usage, weak_rsa
from .conftest import OPERATOR, within

OP, CONTROL = uri("llmgw://demo/operator/op"), uri("llmgw://demo/control/control")
ROOT = root()
BELOW = issuing(ROOT)
OTHER = root()
HOUR = timedelta(hours=1)


async def ask(port, given):
    async with within(8), Channel("127.0.0.1", port, given) as channel:
        return await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)


@pytest.fixture
async def control(serve, tmp_path):
    """A control plane with a right certificate."""
    return await serve(files=files(tmp_path / "control", leaf(BELOW, [CONTROL, *LOCAL], [SERVER]), ROOT, BELOW))


# What a client may show: the certificate, the chain that it sends, and the words that its user reads.
REFUSED_CLIENTS = {
    "C03 for servers only": lambda: (leaf(BELOW, [OP], [SERVER]), "it is not for clients|not in order"),
    "C04 no extended usage": lambda: (leaf(BELOW, [OP], []), "operator op is not for clients"),
    "C05 any usage": lambda: (leaf(BELOW, [OP], [ANY]), "not for clients|not in order"),
    "C08 expired": lambda: (leaf(BELOW, [OP], ends=NOW - HOUR), "expired"),
    "C08 not valid yet": lambda: (leaf(BELOW, [OP], begins=NOW + HOUR), "not valid"),
    "C20 signed by itself": lambda: (leaf(root("op"), [OP]), "authority that it does not know"),
    "C19 authority of the same name with another key": lambda: (leaf(OTHER, [OP]), "authority that it does not know"),
    "C20 the authority itself": lambda: (ROOT, "not in order|it is not for clients|names nobody|authority"),
    "C23 a wildcard": lambda: (leaf(BELOW, [OP, x509.DNSName("*.lab")]), "has a wildcard, '\\*.lab'"),
    "C25 RSA of 1024 bits": lambda: (leaf(BELOW, [OP], key=weak_rsa()), "key too small"),
    "C25 P-224": lambda: (leaf(BELOW, [OP], key=ec.generate_private_key(ec.SECP224R1())), "it got none|TLS|key"),
    "C28 unknown critical extension": lambda: (
        leaf(BELOW, [OP], extra=[(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"), True)]),
        "refused our certificate",
    ),
    "C29 no key usage": lambda: (leaf(BELOW, [OP], without_usage=True), "has no key usage for signatures"),
    "C30 key usage without signatures": lambda: (leaf(BELOW, [OP], key_usage=usage(key_agreement=True)), "TLS|refused"),
    "C31 no key ids": lambda: (leaf(BELOW, [OP], ids=False), "refused our certificate"),
    "C38 two URIs": lambda: (leaf(BELOW, [OP, uri("llmgw://demo/control/x")]), "exactly one URI name, not 2"),
    "C38 no URI": lambda: (leaf(BELOW, [x509.DNSName("op")]), "exactly one URI name, not 0"),
    "C38 no names at all": lambda: (leaf(BELOW, []), "exactly one URI name, not 0"),
    "C38 another cluster": lambda: (leaf(BELOW, [uri("llmgw://prod/operator/op")]), "cluster prod, this is .* demo"),
    **{
        f"C38 {text}": (lambda text=text: (leaf(BELOW, [uri(text)]), "names nobody"))
        for text in (
            "spiffe://demo/operator/op",
            "llmgw://demo/operator/../control",
            "llmgw://demo/operator/%2e",
            "llmgw://demo/Operator/op",
            "LLMGW://demo/operator/op",
            "llmgw://demo/operator/op/",
            "llmgw://u@demo/operator/op",
            "llmgw://demo/operator/op?x=1",
            "llmgw://demo/king/op",
        )
    },
}  # fmt: skip


def unchecked(monkeypatch):
    """A client that does not look at its own certificate first, as a stranger would not."""
    monkeypatch.setattr("llmgw.wire.dial.tls.own_identity", lambda given: Identity("demo", Role.OPERATOR, "op"))


@pytest.mark.parametrize("case", REFUSED_CLIENTS)
async def test_a_client_with_a_wrong_certificate_is_refused_and_told_why(case, control, tmp_path, monkeypatch):
    unchecked(monkeypatch)
    shown, words = REFUSED_CLIENTS[case]()
    given = files(tmp_path / "op", shown, ROOT, BELOW)
    with pytest.raises(LlmgwError, match=words) as raised:
        await ask(control.port, given)
    assert isinstance(raised.value, PeerNotTrusted | ControlUnreachable | BadConfig)
    if "C25" not in case and "C30" not in case:  # those our own OpenSSL does not even offer
        assert "refused our certificate" in str(raised.value)


@pytest.mark.parametrize("case", ["right", "an authority between that is sent", "RSA of 2048 bits"])
async def test_a_client_with_a_right_certificate_is_served(case, control, tmp_path):
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048) if case.startswith("RSA") else None
    given = files(tmp_path / "op", leaf(BELOW, [OP, x509.DNSName("op")], key=key), ROOT, BELOW)
    assert (await ask(control.port, given)).version == "operator op"


async def test_an_authority_between_that_is_not_sent_is_refused(control, tmp_path):
    """C14."""
    with pytest.raises(PeerNotTrusted, match="authority that it does not know"):
        await ask(control.port, files(tmp_path / "op", leaf(BELOW, [OP]), ROOT))


CHAINS = {
    "C11 an issuer that is no authority": lambda: issuing(ROOT, ca=False),
    "C12 an authority that may not sign certificates": lambda: issuing(ROOT, signs=False),
    "C13 an authority below one that may have none": lambda: issuing(BELOW, "deeper"),
    "C16 an authority for another cluster": lambda: constrained("prod"),
}


def constrained(host):
    from .certificates import make

    within_host = x509.NameConstraints([uri(host)], None)
    own = (x509.BasicConstraints(True, 0), True), (usage(key_cert_sign=True), True), (within_host, True)
    return make("issuing", ROOT, *own)


@pytest.mark.parametrize("case", CHAINS)
async def test_a_chain_that_breaks_a_rule_of_its_authorities_is_refused(case, control, tmp_path):
    signer = CHAINS[case]()
    with pytest.raises(PeerNotTrusted, match="refused our certificate"):
        await ask(control.port, files(tmp_path / "op", leaf(signer, [OP]), ROOT, signer, BELOW))


async def test_an_authority_for_this_cluster_is_taken(control, tmp_path):
    """C15, C17: the constraint is on URIs, which is where the identity stands."""
    signer = constrained("demo")
    assert await ask(control.port, files(tmp_path / "op", leaf(signer, [OP]), ROOT, signer))


# --- what a server may show ---------------------------------------------------------------------------------------

DNS, IP = x509.DNSName, lambda text: x509.IPAddress(ipaddress.ip_address(text))
REFUSED_SERVERS = {
    "C06 for clients only": lambda: (leaf(BELOW, [CONTROL, *LOCAL], [CLIENT]), "not trusted: unsuitable|purpose"),
    "C04 no extended usage": lambda: (leaf(BELOW, [CONTROL, *LOCAL], []), "is not for servers"),
    "C07 a node's, with both usages": lambda: (
        leaf(BELOW, [uri("llmgw://demo/agent/n1"), *LOCAL], [SERVER, CLIENT]), "is of agent n1, not of the role control"
    ),
    "another cluster": lambda: (
        leaf(BELOW, [uri("llmgw://prod/control/c"), *LOCAL], [SERVER]), "is of cluster prod, our certificate of demo"
    ),
    "C08 expired": lambda: (
        leaf(BELOW, [CONTROL, *LOCAL], [SERVER], ends=NOW - HOUR), "certificate expired on .* UTC; it is .* here"
    ),
    "C08 not valid yet": lambda: (
        leaf(BELOW, [CONTROL, *LOCAL], [SERVER], begins=NOW + HOUR), "not valid before .* UTC; it is .* here"
    ),
    "C19 another authority": lambda: (
        leaf(OTHER, [CONTROL, *LOCAL], [SERVER]), "SHA-256 [0-9a-f]{32}\\) is of another authority than ours"
    ),
    "C20 signed by itself": lambda: (leaf(root("x"), [CONTROL, *LOCAL], [SERVER]), "is of another authority than ours"),
    "C21 another host": lambda: (
        leaf(BELOW, [CONTROL, DNS("cp.lab"), IP("192.0.2.1")], [SERVER]),
        "for other addresses: cp.lab, 192.0.2.1; issue it again with --address 127.0.0.1, or dial one of those$",
    ),
    "C24 an address as a DNS name": lambda: (leaf(BELOW, [CONTROL, DNS("127.0.0.1")], [SERVER]), "other addresses"),
    "C23 a wildcard": lambda: (leaf(BELOW, [CONTROL, *LOCAL, DNS("*.lab")], [SERVER]), "has a wildcard"),
    "C29 no key usage": lambda: (leaf(BELOW, [CONTROL, *LOCAL], [SERVER], without_usage=True), "no key usage"),
    "C38 two URIs": lambda: (leaf(BELOW, [CONTROL, OP, *LOCAL], [SERVER]), "exactly one URI name, not 2"),
}  # fmt: skip


@pytest.fixture
def operators_files(tmp_path):
    return files(tmp_path / "op", leaf(BELOW, [OP]), ROOT, BELOW)


@pytest.mark.parametrize("case", REFUSED_SERVERS)
async def test_a_server_with_a_wrong_certificate_is_refused_with_the_reason(case, serve, tmp_path, operators_files):
    shown, words = REFUSED_SERVERS[case]()
    served = await serve(files=files(tmp_path / "control", shown, ROOT, BELOW))
    with pytest.raises(PeerNotTrusted, match=words) as raised:
        await ask(served.port, operators_files)
    assert str(raised.value).startswith(f"control plane 127.0.0.1:{served.port}: ")
    assert "\n" not in str(raised.value)


async def test_a_name_that_stands_in_the_common_name_only_does_not_count(serve, tmp_path, operators_files):
    """C22."""
    shown = leaf(BELOW, [CONTROL], [SERVER], name="localhost")
    served = await serve(files=files(tmp_path / "control", shown, ROOT, BELOW))
    async with within(), Channel("localhost", served.port, operators_files) as channel:
        with pytest.raises(
            PeerNotTrusted, match=r"for other addresses: none; issue it again with --address localhost$"
        ):
            await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)


# --- C45: how the connection is made --------------------------------------------------------------------------------


def plain_context(given, **options):
    context = ssl.create_default_context(cafile=str(given.authority))
    context.load_cert_chain(given.certificate, given.key)
    context.check_hostname = False
    for name, value in options.items():
        setattr(context, name, value)
    return context


async def test_older_tls_is_refused(control, operators_files):
    context = plain_context(operators_files, maximum_version=ssl.TLSVersion.TLSv1_2)
    async with within():
        with pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION"):
            await asyncio.open_connection("127.0.0.1", control.port, ssl=context)


@pytest.mark.parametrize("offer", [None, ["http/1.1"]])
async def test_a_peer_that_does_not_agree_on_http2_is_refused(control, operators_files, offer, caplog):
    context = plain_context(operators_files)
    if offer:
        context.set_alpn_protocols(offer)
    async with within():
        reader, writer = await asyncio.open_connection("127.0.0.1", control.port, ssl=context)
        await reader.read()
        writer.close()
    assert "does not speak HTTP/2" in caplog.text


async def test_no_session_can_be_resumed(control, operators_files):
    """A resumed session would bring no certificate along."""
    context = plain_context(operators_files)
    context.set_alpn_protocols(["h2"])
    async with within():
        reader, writer = await asyncio.open_connection("127.0.0.1", control.port, ssl=context)
        assert await reader.read(9)
        assert not writer.get_extra_info("ssl_object").session.has_ticket
        writer.transport.abort()


# --- C44: our own files ---------------------------------------------------------------------------------------------


def test_a_key_that_others_can_read_is_refused(tmp_path):
    given = files(tmp_path, leaf(BELOW, [OP]), ROOT, BELOW, mode=0o644)
    for use in (tls.client_context, tls.server_context, tls.own_identity):
        with pytest.raises(BadConfig, match=r"tls.key: .*\(chmod 600\), not mode 0644"):
            use(given)


@pytest.mark.parametrize("broken", ["certificate", "key", "authority"])
@pytest.mark.parametrize("how", ["missing", "half", "garbage", "empty"])
def test_a_file_that_cannot_be_used_is_named(tmp_path, broken, how):
    given = files(tmp_path, leaf(BELOW, [OP]), ROOT)
    path = getattr(given, broken)
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes({"half": whole[: len(whole) // 2], "garbage": b"\xff\x00\n" * 9, "empty": b""}[how])
    with pytest.raises(BadConfig) as raised:
        tls.own_identity(given)
        tls.client_context(given)
    assert "\n" not in str(raised.value)
    ways = {"key": "must be a private key in PEM form", "missing": "cannot be read: no such file or directory"}
    rule = ways.get(how) or ways.get(broken) or "must hold whole certificates in PEM form"
    assert str(raised.value).startswith(f"{path}: {rule}; make ")
    assert str(raised.value).endswith(" with `llmgw pki issue`, or name another file in `tls:`")


@pytest.mark.parametrize("broken", ["certificate", "key", "authority"])
@pytest.mark.parametrize("how", ["pipe", "device", "long"])
def test_what_is_no_small_file_is_named_at_once(tmp_path, broken, how):
    """A pipe in a file's place would keep the program waiting for ever, and an endless file takes all memory."""
    given = files(tmp_path, leaf(BELOW, [OP]), ROOT)
    path = getattr(given, broken)
    path.unlink()
    if how == "pipe":
        os.mkfifo(path, 0o600)
    elif how == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"\n" * (1 << 20) + b"\n")
        path.chmod(0o600)
    rule = "must be at most 1 MiB large" if how == "long" else "must be a regular file"
    with pytest.raises(BadConfig, match=f"^{path}: {rule}; make one with `llmgw pki issue`, or name another"):
        tls.client_context(given)


def test_a_key_of_another_certificate_is_refused(tmp_path):
    given = files(tmp_path, leaf(BELOW, [OP]), ROOT)
    files(tmp_path / "other", leaf(BELOW, [OP]), ROOT).key.replace(given.key)
    with pytest.raises(BadConfig) as raised:
        tls.client_context(given)
    fact = f"{given.certificate}: must be the certificate that belongs to the key {given.key}; it is of another key"
    assert str(raised.value) == f"{fact}; `llmgw pki issue` makes both together"


def with_password(key):
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x"))
    return key.private_bytes(*form)


KEYS = {
    "the certificate instead": (lambda holder: holder.pem, "must be a private key in PEM form"),
    "DER": (lambda holder: holder.key.private_bytes(*DER_FORM), "must be a private key in PEM form"),
    "with a password": (lambda holder: with_password(holder.key), "is a key with a password, .*; store it without one"),
    "of another kind": (lambda holder: pem_of(weak_rsa()), "belongs to the key .*; it is of another key"),
}
DER_FORM = (serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def pem_of(key):
    return key.private_bytes(serialization.Encoding.PEM, *DER_FORM[1:])


@pytest.mark.parametrize("case", KEYS)
def test_what_is_wrong_with_a_key_is_said(tmp_path, case):
    make, words = KEYS[case]
    holder = leaf(BELOW, [OP])
    given = files(tmp_path, holder, ROOT)
    given.key.write_bytes(make(holder))
    with pytest.raises(BadConfig, match=f"^{tmp_path}/tls.*: .*{words}") as raised:
        tls.client_context(given)
    assert "[ssl]" not in str(raised.value).lower() and "pem lib" not in str(raised.value).lower()


def test_half_a_chain_is_no_certificate_file(tmp_path):
    given = files(tmp_path, leaf(BELOW, [OP]), ROOT, BELOW)
    given.certificate.write_bytes(given.certificate.read_bytes()[:-100])
    with pytest.raises(BadConfig, match=r"tls\.crt: must hold whole certificates in PEM form"):
        tls.client_context(given)


def test_text_in_any_script_may_stand_between_certificates(tmp_path):
    given = files(tmp_path, leaf(BELOW, [OP]), ROOT)
    given.certificate.write_bytes("für Jürgen\n".encode("latin-1") + given.certificate.read_bytes())
    assert tls.own_identity(given).name == "op"


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (lambda: leaf(BELOW, [OP], ends=NOW - HOUR), "expired on .* UTC; it is .* UTC here; issue a new one"),
        (lambda: leaf(BELOW, [OP], begins=NOW + DAY / 2), "is not valid before .* UTC; it is"),
        (lambda: leaf(BELOW, [x509.DNSName("op")]), "names nobody: it must have exactly one URI name, not 0"),
    ],
)
def test_our_own_certificate_is_looked_at_before_anything_is_dialled(tmp_path, shown, words):
    given = files(tmp_path, shown(), ROOT)
    with pytest.raises(BadConfig, match=words):
        Channel("127.0.0.1", 1, given)


def test_our_own_identity(tmp_path):
    given = files(tmp_path, leaf(BELOW, [OP, *LOCAL]), ROOT, BELOW)
    assert tls.own_identity(given).uri == "llmgw://demo/operator/op"


def test_a_certificate_and_a_key_in_each_others_place_are_told(tmp_path):
    given = files(tmp_path, leaf(issuing(root()), [CONTROL]), root())
    given = TlsFiles(given.key, given.certificate, given.authority)
    for use in (tls.own_identity, tls.client_context, tls.server_context):
        with pytest.raises(BadConfig, match=r"tls\.certificate and tls\.key are swapped; exchange the two"):
            use(given)
