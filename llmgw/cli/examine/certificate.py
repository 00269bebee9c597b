"""Is a program's certificate in order: its chain, whose it is, what it may do, and its dates?"""

import socket
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw.cli.examine.clock import SET, behind
from llmgw.cli.examine.findings import Findings
from llmgw.cli.examine.places import is_key, readable
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Check, fault, ok, warning
from llmgw.core.errors import BadConfig, BadName
from llmgw.core.identity import Identity, Role, identity
from llmgw.core.issuing import issue, of_other_name
from llmgw.core.symptoms import CERTIFICATE_SHORT
from llmgw.wire import der, pem, rehearsal, tls

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
    address: str = ""
    """What others dial, where the certificate must say so."""
    program: str = ""
    """The daemon that is to be restarted with a new one, empty where none is."""


def certificate(files: TlsFiles, wanted: Wanted) -> list[Check]:
    """What is right and wrong with a certificate; a file that cannot be read is not told again here."""
    if pem.swapped(files):
        return []
    found: list[Check] = []
    if (begin := early(files)) is not None:
        found.append(behind(f"{files.certificate} and its authority begin on {der.when(begin)}"))
    if readable(files.certificate):
        found += _of_certificate(files, wanted, dates=begin is None)
    if readable(files.authority) and begin is None:
        found += _of_authority(files.authority)
    return found


def early(files: TlsFiles) -> datetime | None:
    """When the certificate begins, where it and its authority both begin later than it is here; else None.

    An authority is older than what it issues: that both are yet to come says that the clock is wrong, not they.
    """
    try:
        shown = [der.certificate(tls.certificates(path)[0]) for path in (files.certificate, files.authority)]
    except BadConfig:
        return None
    begins = [one.not_before for one in shown]
    return begins[0] if min(begins) > datetime.now(UTC) else None


def own_found(checks: list[Check], files: TlsFiles | None, reached: Findings) -> Findings:
    """What was found of our own certificate and files, in the light of what control planes showed.

    Where those are of another authority than ours, a new certificate is no way out.
    """
    if files is None:
        return Findings(checks)
    if reached.strange:
        strange = rehearsal.STRANGE.format(files.authority)
        fix = f"{files.authority} is not this cluster's: copy the root over it from the machine with the authority"
        checks = [replace(one, fix=f"{fix} (pki/root.crt)") if strange in one.fact else one for one in checks]
    return Findings(checks, early=early(files) is not None)


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


def _of_certificate(files: TlsFiles, wanted: Wanted, *, dates: bool) -> list[Check]:
    path = files.certificate
    try:
        leaf, *above = [der.certificate(one) for one in tls.certificates(path)]
    except BadConfig as error:
        return [_unusable(error)]
    holder = who(files)
    if holder is None:
        return [fault(_NAME, f"{path} names nobody of a cluster", _issue(files, wanted, None, leaf))]
    again = _issue(files, wanted, holder, leaf)
    wrong = [*_holder(path, holder, wanted, again), *_chain(files, holder, again)]
    if dates:
        wrong += _dates(path, leaf, again)
        for number, one in enumerate(above, start=2):
            subject = f"{path}: its certificate {number}, an authority's,"
            wrong += _authority_dates(subject, one)
    until = f"until {leaf.not_after:%Y-%m-%d} ({_left(leaf)})"
    right = ok(_NAME, f"{path} is for {holder} of cluster {holder.cluster}, {until}")
    return wrong or [right]


def _unusable(error: BadConfig, fix: str = "") -> Check:
    fact, _, own = error.rule.partition("; ")
    fix = fix or own or "issue a new one on the machine with the authority (llmgw pki issue)"
    return fault(_NAME, f"{error.file}: {fact}" + (f", not {error.found}" if error.found else ""), fix)


def _holder(path: Path, holder: Identity, wanted: Wanted, again: str) -> list[Check]:
    """Whether it speaks for whom it should."""
    found = []
    if holder.role not in wanted.roles:
        roles = " or ".join(role.value for role in wanted.roles)
        found.append(fault(_NAME, f"{path} is for the role {holder.role.value}, not {roles}", again))
    if wanted.cluster and holder.cluster != wanted.cluster:
        fact = f"{path} is for cluster {holder.cluster}, the file says cluster {wanted.cluster}"
        found.append(fault(_NAME, fact, f"correct cluster:, or {again}"))
    if wanted.name and holder.name != wanted.name:
        fact = f"{path} is for {holder.name}, the node is {wanted.name}: the control plane will refuse it"
        found.append(fault(_NAME, fact, of_other_name(holder.name, socket.gethostname().lower(), again)))
    return found


def _issue(files: TlsFiles, wanted: Wanted, holder: Identity | None, leaf: der.Certificate) -> str:
    name = wanted.name or (holder.name if holder else "NAME")
    role = holder.role if holder and holder.role in wanted.roles else wanted.roles[0]
    dialled = _addresses(name, wanted, leaf) if role is Role.CONTROL else []
    return issue(name, role, str(files.certificate.parent), addresses=dialled, restart=wanted.program)


def _addresses(name: str, wanted: Wanted, leaf: der.Certificate) -> list[str]:
    """All at which it is dialled, by the file and by the certificate so far."""
    known = dict.fromkeys(filter(None, (wanted.address, *leaf.names, *leaf.addresses)))
    known.pop(name, None)
    return [*known] or ["HOST"]


def _chain(files: TlsFiles, holder: Identity, again: str) -> list[Check]:
    """Whether a peer would take it; without the key to try that with, whether the authority signed it."""
    if not readable(files.authority):
        return []
    try:
        serves = holder.role is Role.CONTROL
        # What is wrong with the key's file was told with the files.
        why = rehearsal.refusal(files, serves=serves) if is_key(files.key) else unsigned(files)
    except BadConfig as error:
        return [_unusable(error)]
    if why == rehearsal.STRANGE.format(files.authority):
        again = f"copy the authority.crt that was issued with it over {files.authority}, or {again}"
    return [fault(_NAME, f"{files.certificate}: {why}", again)] if why else []


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


def _dates(path: Path, leaf: der.Certificate, again: str) -> list[Check]:
    now = datetime.now(UTC)
    life = leaf.not_after - leaf.not_before
    if now > leaf.not_after:
        fact = f"{path} expired on {der.when(leaf.not_after)}; it is {der.when(now)} here"
        return [fault(_NAME, fact, f"{again}; or set the clock right, when that is not the time: {SET}")]
    if now < leaf.not_before:
        fact = f"{path} is not valid before {der.when(leaf.not_before)}; it is {der.when(now)} here"
        return [fault(_NAME, fact, f"set this host's clock right: {SET}; a certificate begins when it is made")]
    if leaf.not_after - now < min(_SOON, life / _SHARE):
        return [warning(_NAME, f"{path} ends in {_left(leaf)}, on {der.when(leaf.not_after)}", again)]
    return []


def _of_authority(path: Path) -> list[Check]:
    try:
        shown = [der.certificate(one) for one in tls.certificates(path)]
    except BadConfig as error:
        return [_unusable(error, "copy it from the machine with the authority (there it is pki/root.crt)")]
    wrong = [check for one in shown for check in _authority_dates(str(path), one)]
    name, until = shown[0].issuer or "without a name", f"{shown[0].not_after:%Y-%m-%d}"
    return wrong or [ok(_AUTHORITY, f"{path} ({name}) is valid until {until}")]


def _authority_dates(subject: str, one: der.Certificate) -> list[Check]:
    now, again = datetime.now(UTC), "make a new authority with `llmgw pki init`, and issue all certificates from it"
    if now > one.not_after:
        return [fault(_AUTHORITY, f"{subject} expired on {der.when(one.not_after)}; it is {der.when(now)} here", again)]
    if now < one.not_before:
        fact = f"{subject} is not valid before {der.when(one.not_before)}; it is {der.when(now)} here"
        return [fault(_AUTHORITY, fact, f"set this host's clock right: {SET}")]
    if one.not_after - now < min(_AUTHORITY_SOON, (one.not_after - one.not_before) / _SHARE):
        return [warning(_AUTHORITY, f"{subject} ends in {_left(one)}, on {der.when(one.not_after)}", again)]
    return []


def _left(one: der.Certificate) -> str:
    left = one.not_after - datetime.now(UTC)
    return f"{left.days} days" if left.days >= 2 else f"{left.total_seconds() / 3600:.0f} hours"
