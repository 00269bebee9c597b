"""Is a program's certificate in order: its chain, whose it is, what it may do, and its dates?"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw.cli.examine.places import is_key, readable
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Check, fault, ok, warning
from llmgw.core.errors import BadConfig, BadName
from llmgw.core.identity import Identity, Role, identity
from llmgw.core.symptoms import CERTIFICATE_SHORT
from llmgw.wire import der, rehearsal, tls

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_NAME, _AUTHORITY = "certificate", "authority"
_SOON, _SHARE = timedelta(seconds=CERTIFICATE_SHORT), 3
"""A certificate ends soon when less than this is left, or less than a third of its life where that is shorter."""
_AUTHORITY_SOON = timedelta(days=90)
"""To replace an authority takes every certificate below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Whom a certificate must speak for."""

    roles: tuple[Role, ...]
    cluster: str = ""
    """Empty where the file does not name one."""
    name: str = ""
    """Empty where any will do."""


def certificate(files: TlsFiles, wanted: Wanted) -> list[Check]:
    """What is right and wrong with a certificate; a file that cannot be read is not told again here."""
    found: list[Check] = []
    if readable(files.certificate):
        found += _of_certificate(files, wanted)
    if readable(files.authority):
        found += _of_authority(files.authority)
    return found


def who(files: TlsFiles) -> Identity | None:
    """Whom the certificate names, None when nobody can tell."""
    try:
        (uri,) = der.certificate(tls.certificates(files.certificate)[0]).uris
        return identity(uri)
    except (BadConfig, BadName, ValueError):
        return None


def fingerprint(files: TlsFiles) -> str:
    """The certificate's, as errors spell it; BadConfig when there is none to read."""
    return der.fingerprint(tls.certificates(files.certificate)[0])


def _of_certificate(files: TlsFiles, wanted: Wanted) -> list[Check]:
    path = files.certificate
    try:
        leaf, *above = [der.certificate(one) for one in tls.certificates(path)]
    except BadConfig as error:
        return [_unusable(error)]
    holder = who(files)
    if holder is None:
        return [fault(_NAME, f"{path} names nobody of a cluster", _issue(wanted, None))]
    wrong = [*_holder(path, holder, wanted), *_chain(files, holder, wanted)]
    wrong += _dates(path, leaf, _issue(wanted, holder))
    for number, one in enumerate(above, start=2):
        subject = f"{path}: its certificate {number}, an authority's,"
        wrong += _authority_dates(subject, one)
    until = f"until {leaf.not_after:%Y-%m-%d} ({_left(leaf)})"
    right = ok(_NAME, f"{path} is for {holder} of cluster {holder.cluster}, {until}")
    return wrong or [right]


def _unusable(error: BadConfig) -> Check:
    fact, _, fix = error.rule.partition("; ")
    return fault(_NAME, f"{error.file}: {fact}" + (f", not {error.found}" if error.found else ""), fix or _AGAIN)


_AGAIN = "issue a new one with `llmgw pki issue`"


def _holder(path: Path, holder: Identity, wanted: Wanted) -> list[Check]:
    """Whether it speaks for whom it should."""
    found = []
    if holder.role not in wanted.roles:
        roles = " or ".join(role.value for role in wanted.roles)
        found.append(fault(_NAME, f"{path} is for the role {holder.role.value}, not {roles}", _issue(wanted, holder)))
    if wanted.cluster and holder.cluster != wanted.cluster:
        fact = f"{path} is for cluster {holder.cluster}, the file says cluster {wanted.cluster}"
        found.append(fault(_NAME, fact, f"correct cluster:, or {_issue(wanted, holder)}"))
    if wanted.name and holder.name != wanted.name:
        fact = f"{path} is for {holder.name}, the node is {wanted.name}: the control plane will refuse it"
        found.append(fault(_NAME, fact, f"set node: {holder.name}, or {_issue(wanted, holder)}"))
    return found


def _issue(wanted: Wanted, holder: Identity | None) -> str:
    name = wanted.name or (holder.name if holder else "NAME")
    role = holder.role if holder and holder.role in wanted.roles else wanted.roles[0]
    return f"issue one: llmgw pki issue {name} --role {role.value}"


def _chain(files: TlsFiles, holder: Identity, wanted: Wanted) -> list[Check]:
    """Whether a peer would take it; without the key to try that with, whether the authority signed it."""
    if not readable(files.authority):
        return []
    try:
        serves = holder.role is Role.CONTROL
        # What is wrong with the key's file was told with the files.
        why = rehearsal.refusal(files, serves=serves) if is_key(files.key) else unsigned(files)
    except BadConfig as error:
        return [_unusable(error)]
    return [fault(_NAME, f"{files.certificate}: {why}", _issue(wanted, holder))] if why else []


def unsigned(files: TlsFiles) -> str:
    """Why no signatures lead from the certificate to the authority, empty when they do. Needs no key.

    Raises BadConfig when a file cannot be used.
    """
    from cryptography import x509  # only here: it is slow to load

    try:
        at, *between = [x509.load_der_x509_certificate(one) for one in tls.certificates(files.certificate)]
        roots = [x509.load_der_x509_certificate(one) for one in tls.certificates(files.authority)]
    except ValueError as error:
        return f"it, or one above it, is of another form: {error}"
    while not any(_signed(at, root) for root in roots):
        above = [one for one in between if _signed(at, one)]
        if not above:
            return rehearsal.STRANGE.format(files.authority)
        at = above[0]
        between.remove(at)
    return ""


def _signed(one: "Certificate", by: "Certificate") -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        one.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _dates(path: Path, leaf: der.Certificate, issue: str) -> list[Check]:
    now = datetime.now(UTC)
    life = leaf.not_after - leaf.not_before
    if now > leaf.not_after:
        fact = f"{path} expired on {der.when(leaf.not_after)}; it is {der.when(now)} here"
        return [fault(_NAME, fact, f"{issue}; or set the clock right, when that is not the time")]
    if now < leaf.not_before:
        fact = f"{path} is not valid before {der.when(leaf.not_before)}; it is {der.when(now)} here"
        return [fault(_NAME, fact, "set this host's clock right (NTP); a certificate begins when it is made")]
    if leaf.not_after - now < min(_SOON, life / _SHARE):
        return [warning(_NAME, f"{path} ends in {_left(leaf)}, on {der.when(leaf.not_after)}", issue)]
    return []


def _of_authority(path: Path) -> list[Check]:
    try:
        shown = [der.certificate(one) for one in tls.certificates(path)]
    except BadConfig as error:
        return [_unusable(error)]
    wrong = [check for one in shown for check in _authority_dates(str(path), one)]
    name, until = shown[0].issuer or "without a name", f"{shown[0].not_after:%Y-%m-%d}"
    return wrong or [ok(_AUTHORITY, f"{path} ({name}) is valid until {until}")]


def _authority_dates(subject: str, one: der.Certificate) -> list[Check]:
    now, again = datetime.now(UTC), "make a new authority with `llmgw pki init`, and issue all certificates from it"
    if now > one.not_after:
        return [fault(_AUTHORITY, f"{subject} expired on {der.when(one.not_after)}; it is {der.when(now)} here", again)]
    if now < one.not_before:
        fact = f"{subject} is not valid before {der.when(one.not_before)}; it is {der.when(now)} here"
        return [fault(_AUTHORITY, fact, "set this host's clock right (NTP)")]
    if one.not_after - now < min(_AUTHORITY_SOON, (one.not_after - one.not_before) / _SHARE):
        return [warning(_AUTHORITY, f"{subject} ends in {_left(one)}, on {der.when(one.not_after)}", again)]
    return []


def _left(one: der.Certificate) -> str:
    left = one.not_after - datetime.now(UTC)
    return f"{left.days} days" if left.days >= 2 else f"{left.total_seconds() / 3600:.0f} hours"
