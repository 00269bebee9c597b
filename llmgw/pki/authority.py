"""The authority of one cluster: a root, an issuing authority under it, and the certificates that it issues.

root (10 years, may go offline: only a new issuing authority needs its key)
  └─ issuing (5 years; signs leaves only, and only URIs of this cluster)
       └─ NAME (one year; one role: a control plane serves, an agent dials and serves other agents, all others dial)
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from llmgw.core.errors import BadName
from llmgw.core.hosts import host_name
from llmgw.core.identity import Identity, Role, identity
from llmgw.core.names import node_name
from llmgw.pki.files import CannotIssue, make_directory, read, refuse_existing, write

ROOT_DAYS = 3650
ISSUING_DAYS = 1825
LEAF_DAYS = 365

_SKEW = timedelta(minutes=5)
"""A certificate begins this long before it was made: the clock of the first to see it may be behind."""

_PURPOSES = {
    Role.CONTROL: [ExtendedKeyUsageOID.SERVER_AUTH],
    Role.AGENT: [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH],
}
"""What the holder does in a connection, for roles that do not only dial. An agent serves files to other agents; its
role keeps it from being taken for a control plane."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and where its files are."""

    identity: Identity
    certificate: Path
    """The leaf, then the issuing authority."""
    key: Path
    authority: Path
    """The root."""
    serial: int
    not_after: datetime


def init(directory: Path, cluster: str) -> None:
    """Make the authority of a new cluster in `directory`, or raise CannotIssue or BadName and leave nothing behind."""
    _checked("cluster", cluster)
    files = [directory / name for name in ("root.crt", "root.key", "issuing.crt", "issuing.key")]
    refuse_existing(*files)
    make_directory(directory, private=True)
    root_key, issuing_key = _new_key(), _new_key()
    root = _authority(f"{cluster} root", cluster, root_key, days=ROOT_DAYS, below=1)
    issuing = _authority(f"{cluster} issuing", cluster, issuing_key, days=ISSUING_DAYS, below=0, by=(root, root_key))
    contents = (_pem(root), _key_pem(root_key), _pem(issuing), _key_pem(issuing_key))
    for path, content in zip(files, contents, strict=True):
        write(path, content, private=path.suffix == ".key")


def issue(
    directory: Path, name: str, role: Role, addresses: Iterable[str], out: Path, *, days: int = LEAF_DAYS
) -> Issued:
    """Issue `NAME.crt`, `NAME.key` and `authority.crt` into `out`, or raise CannotIssue or BadName.

    It ends with its issuer at the latest. `addresses` are further host names and IP addresses at which the holder is
    reached; a client of a control plane checks that the one it dialled is among them.
    """
    root, issuing, issuing_key = _opened(directory)
    who = _identity(issuing, role, name)
    files = Issued(who, out / f"{name}.crt", out / f"{name}.key", out / "authority.crt", 0, datetime.now(UTC))
    refuse_existing(files.certificate, files.key)
    known = files.authority.exists()
    if known and read(files.authority) != _pem(root):
        raise CannotIssue(str(files.authority), "belongs to another authority", "choose another --out")
    key = _new_key()
    leaf = _leaf(who, [host_name(address) for address in addresses], key, (issuing, issuing_key), days)
    make_directory(out, private=False)
    if not known:
        write(files.authority, _pem(root), private=False)
    write(files.key, _key_pem(key), private=True)
    write(files.certificate, _pem(leaf) + _pem(issuing), private=False)
    return Issued(who, files.certificate, files.key, files.authority, leaf.serial_number, leaf.not_valid_after_utc)


def _opened(directory: Path) -> tuple[x509.Certificate, x509.Certificate, ec.EllipticCurvePrivateKey]:
    if not (directory / "issuing.crt").exists():
        raise CannotIssue(
            str(directory), "holds no authority", f"make one with `llmgw pki init {directory} --cluster NAME`"
        )
    try:
        root = x509.load_pem_x509_certificate(read(directory / "root.crt"))
        issuing = x509.load_pem_x509_certificate(read(directory / "issuing.crt"))
        key = serialization.load_pem_private_key(read(directory / "issuing.key", private=True), None)
    except (ValueError, TypeError) as error:
        raise CannotIssue(str(directory), f"holds a damaged authority: {str(error).splitlines()[0]}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != issuing.public_key():
        raise CannotIssue(str(directory / "issuing.key"), "is not the key of issuing.crt")
    if issuing.not_valid_after_utc <= datetime.now(UTC):
        raise CannotIssue(str(directory / "issuing.crt"), f"expired {issuing.not_valid_after_utc:%Y-%m-%d}")
    return root, issuing, key


def _identity(issuing: x509.Certificate, role: Role, name: str) -> Identity:
    (cluster,) = issuing.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return identity(f"llmgw://{cluster.value!s}/{role.value}/{_checked('certificate', name)}")


def _checked(kind: str, text: str) -> str:
    try:
        return node_name(text)
    except BadName as error:
        raise BadName(kind, text, error.grammar) from None


def _authority(
    name: str,
    cluster: str,
    key: ec.EllipticCurvePrivateKey,
    *,
    days: int,
    below: int,
    by: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None,
) -> x509.Certificate:
    """A certificate of an authority that may have `below` authorities under it; without `by` it signs itself."""
    subject = _subject(f"llmgw {name}", cluster)
    issuer, signer = (subject, key) if by is None else (by[0].subject, by[1])
    builder = (
        _begun(subject, issuer, key, signer, days, None if by is None else by[0].not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=below), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
    )
    if by is not None:
        # The host part of llmgw://CLUSTER/… is the cluster.
        within = x509.NameConstraints([x509.UniformResourceIdentifier(cluster)], None)
        builder = builder.add_extension(within, critical=True)
    return builder.sign(signer, hashes.SHA256())


def _leaf(
    who: Identity,
    addresses: Iterable[str],
    key: ec.EllipticCurvePrivateKey,
    by: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    days: int,
) -> x509.Certificate:
    issuing, signer = by
    if not 1 <= days <= ROOT_DAYS:
        raise CannotIssue(f"--days {days}", f"must be from 1 to {ROOT_DAYS}")
    names = [x509.UniformResourceIdentifier(who.uri), *map(_general_name, dict.fromkeys([who.name, *addresses]))]
    return (
        _begun(_subject(who.name, who.cluster), issuing.subject, key, signer, days, issuing.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage(_PURPOSES.get(who.role, [ExtendedKeyUsageOID.CLIENT_AUTH])), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    days: int,
    at_most: datetime | None,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC).replace(microsecond=0)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(end if at_most is None else min(end, at_most))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _subject(name: str, cluster: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
