"""What the authority issues, and what it refuses."""

import os
import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from llmgw.core.errors import BadName
from llmgw.core.identity import Role, identity
from llmgw.pki import authority as pki
from llmgw.pki import files
from llmgw.pki.files import CannotIssue


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    pki.init(tmp_path / "pki", "demo")
    return tmp_path / "pki"


def leaf(issued: pki.Issued) -> x509.Certificate:
    return x509.load_pem_x509_certificates(issued.certificate.read_bytes())[0]


def handshake(server: pki.Issued, client: pki.Issued, host: str) -> None:
    """A mutual TLS 1.3 handshake with strict checks on both sides; raises ssl.SSLError."""
    contexts = []
    for side, mine in ((ssl.PROTOCOL_TLS_SERVER, server), (ssl.PROTOCOL_TLS_CLIENT, client)):
        context = ssl.SSLContext(side)
        context.load_cert_chain(mine.certificate, mine.key)
        context.load_verify_locations(mine.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        contexts.append(context)
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            with contexts[0].wrap_socket(theirs, server_side=True) as tls:
                tls.sendall(b"x")

        served = pool.submit(serve)
        with contexts[1].wrap_socket(ours, server_hostname=host) as tls:
            tls.recv(1)  # under TLS 1.3 the server's refusal comes only now
        served.result()


def test_a_control_plane_and_an_agent_trust_each_other_strictly(authority: Path, tmp_path: Path) -> None:
    control = pki.issue(authority, "cp1", Role.CONTROL, ["127.0.0.1", "cp1.lab"], tmp_path / "control")
    agent = pki.issue(authority, "node01", Role.AGENT, [], tmp_path / "node01")
    for host in ("127.0.0.1", "cp1.lab", "cp1"):
        handshake(control, agent, host)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(control, agent, "cp2")


def test_agents_serve_agents_a_control_plane_cannot_dial_and_all_others_cannot_serve(
    authority: Path, tmp_path: Path
) -> None:
    control = pki.issue(authority, "cp1", Role.CONTROL, [], tmp_path)
    agents = [pki.issue(authority, name, Role.AGENT, [], tmp_path) for name in ("node01", "node02")]
    handshake(*agents, "node01")
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(*agents, "node02")
    with pytest.raises(ssl.SSLError):
        handshake(control, control, "cp1")
    for role in (Role.ROUTER, Role.OPERATOR, Role.VIEWER):
        other = pki.issue(authority, role.value, role, [], tmp_path)
        with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
            handshake(other, agents[0], role.value)


@pytest.mark.parametrize("role", Role)
def test_a_leaf_says_who_it_is_once_and_what_it_is_for(authority: Path, tmp_path: Path, role: Role) -> None:
    issued = pki.issue(authority, "it", role, ["it.lab", "10.0.0.5", "::1", "it.lab"], tmp_path)
    certificate = leaf(issued)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"llmgw://demo/{role.value}/it"]
    assert names.get_values_for_type(x509.DNSName) == ["it", "it.lab"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.5", "::1"]
    assert [a.value for a in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["it"]
    serves, dials = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
    purposes = {Role.CONTROL: [serves], Role.AGENT: [dials, serves]}.get(role, [dials])
    assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == purposes
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.digital_signature
    assert not usage.value.key_cert_sign
    assert issued.identity.uri == f"llmgw://demo/{role.value}/it"
    assert issued.serial == certificate.serial_number


def test_a_leaf_began_five_minutes_ago_and_ends_in_a_year_or_with_its_issuer(authority: Path, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    year = leaf(pki.issue(authority, "a", Role.AGENT, [], tmp_path))
    assert timedelta(minutes=4, seconds=30) < now - year.not_valid_before_utc < timedelta(minutes=5, seconds=30)
    assert timedelta(days=364) < year.not_valid_after_utc - now < timedelta(days=366)
    long = leaf(pki.issue(authority, "b", Role.AGENT, [], tmp_path, days=3650))
    issuing = x509.load_pem_x509_certificate((authority / "issuing.crt").read_bytes())
    assert long.not_valid_after_utc == issuing.not_valid_after_utc


def test_the_issuing_authority_may_sign_no_authority(authority: Path) -> None:
    for name, below in (("root", 1), ("issuing", 0)):
        certificate = x509.load_pem_x509_certificate((authority / f"{name}.crt").read_bytes())
        assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == below
        assert certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_the_issuing_authority_may_speak_for_its_own_cluster_only(authority: Path, tmp_path: Path) -> None:
    """A stolen issuing key of one cluster makes no names of another."""
    control = pki.issue(authority, "cp1", Role.CONTROL, [], tmp_path)
    agent = pki.issue(authority, "node01", Role.AGENT, [], tmp_path)
    _, issuing, key = pki._opened(authority)
    stranger = pki._new_key()
    forged = pki._leaf(identity("llmgw://other/agent/node01"), [], stranger, (issuing, key), 1)
    agent.certificate.write_bytes(pki._pem(forged) + pki._pem(issuing))
    agent.key.write_bytes(pki._key_pem(stranger))
    with pytest.raises(ssl.SSLError):
        handshake(control, agent, "cp1")


def test_keys_are_0600_and_certificates_are_not_secret(authority: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        issued = pki.issue(authority, "node01", Role.AGENT, [], tmp_path / "out")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()}
    assert modes == {"node01.key": 0o600, "node01.crt": 0o644, "authority.crt": 0o644}
    assert (authority.stat().st_mode & 0o777, (authority / "root.key").stat().st_mode & 0o777) == (0o700, 0o600)
    assert (authority / "issuing.key").stat().st_mode & 0o777 == 0o600
    assert issued.key.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")


def test_the_root_key_may_be_away_when_leaves_are_issued(authority: Path, tmp_path: Path) -> None:
    (authority / "root.key").unlink()
    pki.issue(authority, "node01", Role.AGENT, [], tmp_path)


def test_nothing_is_overwritten(authority: Path, tmp_path: Path) -> None:
    key = (authority / "root.key").read_bytes()
    with pytest.raises(CannotIssue, match=r"root\.crt: exists already"):
        pki.init(authority, "demo")
    assert (authority / "root.key").read_bytes() == key
    first = pki.issue(authority, "node01", Role.AGENT, [], tmp_path).key.read_bytes()
    with pytest.raises(CannotIssue, match=r"node01\.crt: exists already"):
        pki.issue(authority, "node01", Role.AGENT, [], tmp_path)
    (tmp_path / "node01.crt").unlink()
    with pytest.raises(CannotIssue, match=r"node01\.key: exists already"):
        pki.issue(authority, "node01", Role.AGENT, [], tmp_path)
    assert (tmp_path / "node01.key").read_bytes() == first
    pki.init(tmp_path / "other", "demo")
    with pytest.raises(CannotIssue, match=r"authority\.crt: belongs to another authority"):
        pki.issue(tmp_path / "other", "node02", Role.AGENT, [], tmp_path)
    assert not (tmp_path / "node02.key").exists()


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    files.write(tmp_path / "it.key", b"first", private=True)
    with pytest.raises(CannotIssue, match=r"it\.key: exists already"):
        files.write(tmp_path / "it.key", b"second", private=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"it.key": b"first"}


@pytest.mark.parametrize("name", ["", "Node", "node_01/x", "../x", "-a", "a" * 64, "node01\n", "nöde"])
def test_a_bad_name_is_refused_and_nothing_is_made(authority: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(BadName):
        pki.issue(authority, name, Role.AGENT, [], tmp_path / "out")
    with pytest.raises(BadName):
        pki.init(tmp_path / "out", name)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "address", ["*", "*.lab", "c*.lab", "", "a b", "10.0.0", "1.2.3.4/24", "a..b", "x\0y", "ä.lab"]
)
def test_a_bad_address_is_refused_and_nothing_is_made(authority: Path, tmp_path: Path, address: str) -> None:
    with pytest.raises(BadName):
        pki.issue(authority, "node01", Role.AGENT, [address], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("days", [0, -1, 3651])
def test_a_life_out_of_range_is_refused(authority: Path, tmp_path: Path, days: int) -> None:
    with pytest.raises(CannotIssue, match="must be from 1 to 3650"):
        pki.issue(authority, "node01", Role.AGENT, [], tmp_path / "out", days=days)
    assert not (tmp_path / "out").exists()


def test_an_authority_that_cannot_be_used_is_named(authority: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotIssue, match=r"holds no authority; make one with `llmgw pki init"):
        pki.issue(tmp_path / "none", "node01", Role.AGENT, [], tmp_path)
    key = authority / "issuing.key"
    key.chmod(0o644)
    with pytest.raises(CannotIssue, match=r"has mode 0644, others may read it; chmod 600"):
        pki.issue(authority, "node01", Role.AGENT, [], tmp_path)
    key.chmod(0o600)
    content = key.read_bytes()
    key.write_bytes(content[:100])
    with pytest.raises(CannotIssue, match="damaged authority"):
        pki.issue(authority, "node01", Role.AGENT, [], tmp_path)
    key.write_bytes((authority / "root.key").read_bytes())
    with pytest.raises(CannotIssue, match=r"is not the key of issuing\.crt"):
        pki.issue(authority, "node01", Role.AGENT, [], tmp_path)
    key.unlink()
    os.mkfifo(key, 0o600)
    with pytest.raises(CannotIssue, match=r"issuing\.key: must be a regular file"):
        pki.issue(authority, "node01", Role.AGENT, [], tmp_path)
    assert not list(tmp_path.glob("node01.*"))


def test_a_place_that_cannot_be_written_is_named(authority: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotIssue, match="file/out: not a directory"):
        pki.issue(authority, "node01", Role.AGENT, [], tmp_path / "file" / "out")


def test_a_short_command_pays_for_no_authority_and_no_models() -> None:
    """Importing configuration pulls in no parser, no models and no cryptography."""
    code = "import sys, llmgw.config.client; print({'yaml', 'pydantic', 'cryptography'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
