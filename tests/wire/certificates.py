"""Makes certificates as no authority of ours would: each argument breaks one thing."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from llmgw.config.tls import TlsFiles

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
ANY = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
LOCAL = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))


def uri(text: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


@dataclass(frozen=True)
class Signer:
    certificate: x509.Certificate
    key: Any

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


_USAGES = [
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
]


def usage(**allowed: bool) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in _USAGES})


def make(
    name: str,
    by: Signer | None,
    *extensions: tuple[x509.ExtensionType, bool],
    begins: datetime = NOW - DAY,
    ends: datetime = NOW + DAY,
    key: Any = None,
    ids: bool = True,
) -> Signer:
    """A certificate with just these extensions (and key ids)."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = (subject, key) if by is None else (by.certificate.subject, by.key)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), begins, ends)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    if ids:
        known = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        builder = builder.add_extension(known, False)
    return Signer(builder.sign(signer, hashes.SHA256()), key)


def root(name: str = "root", **other: Any) -> Signer:
    extensions = (
        (x509.BasicConstraints(True, None), True),
        (usage(key_cert_sign=True, crl_sign=True), True),
    )
    return make(name, None, *extensions, **other)


def issuing(by: Signer, name: str = "issuing", *, below: int | None = 0, ca: bool = True, signs: bool = True) -> Signer:
    length = below if ca else None
    return make(
        name, by, (x509.BasicConstraints(ca, length), True), (usage(key_cert_sign=signs, digital_signature=True), True)
    )


def leaf(
    by: Signer,
    names: Any,
    purposes: Any = (CLIENT,),
    key_usage: x509.KeyUsage | None = None,
    without_usage: bool = False,
    name: str = "leaf",
    extra: Any = (),
    **other: Any,
) -> Signer:
    extensions: list[tuple[x509.ExtensionType, bool]] = [(x509.BasicConstraints(False, None), True), *extra]
    if names:
        extensions.append((x509.SubjectAlternativeName(names), False))
    if purposes:
        extensions.append((x509.ExtendedKeyUsage(purposes), False))
    if not without_usage:
        extensions.append((key_usage or usage(digital_signature=True), True))
    return make(name, by, *extensions, **other)


def weak_rsa() -> Any:
    return rsa.generate_private_key(65537, 1024)


def files(directory: Path, holder: Signer, trusts: Signer, *chain: Signer, mode: int = 0o600) -> TlsFiles:
    """Write what a program is given."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = TlsFiles(directory / "tls.crt", directory / "tls.key", directory / "authority.crt")
    paths.certificate.write_bytes(holder.pem + b"".join(one.pem for one in chain))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths.key.write_bytes(holder.key.private_bytes(*form))
    paths.key.chmod(mode)
    paths.authority.write_bytes(trusts.pem)
    return paths
