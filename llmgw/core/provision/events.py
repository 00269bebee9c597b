"""What happened to the engines of a node, told as events: begun, installed, failed, broken, repaired, removed.

    ENGINE_WANTED ─▶ RELEASE_RESOLVED ─▶ ENGINE_INSTALLING ─▶ ENGINE_INSTALLED ─▶ ENGINES_CHANGED ─▶ what is placed

Each is the cause of the next. A node can say what it likes as often as it likes: only so much of it is told.
"""

from dataclasses import replace

from llmgw.core.brief import cut
from llmgw.core.engine_book import Credit, Told
from llmgw.core.engines.terms import Install, InstallStep, engine_id
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import Engines
from llmgw.core.ledger import Ledger
from llmgw.core.names import NodeName
from llmgw.core.provision.wanted import is_whole, said
from llmgw.core.units import size

_BURST, _EACH = 30.0, 20.0
"""Events of one node's engines that are told at once, and seconds after which one more may be."""

Installed = tuple[Install, ...]


def tell(ledger: Ledger, node: NodeName, before: Installed, after: Installed) -> None:
    """Tell what changed from one word of a node to its next."""
    for engine, version in sorted({(one.engine, one.version) for one in (*before, *after)}):
        was, now = said(before, engine, version), said(after, engine, version)
        if was != now:
            _tell_one(ledger, node, was, now)


def reported(ledger: Ledger, installs: Installed, before: Engines | None, after: Engines) -> Installed:
    """Return the installs with what the report of a node's engines says first: that one works since.

    Installs are told twice a second at most and reports at once, so either may come first.
    """
    worked = {(one.engine, one.version) for one in before.engines if not one.problem} if before else set()
    for report in after.engines:
        if report.by_hand or report.problem or (report.engine, report.version) in worked:
            continue
        there = said(installs, report.engine, report.version)
        if there is None or is_whole(there):
            continue
        ready = replace(
            there, step=InstallStep.READY, since=ledger.now, path=report.path, problem="", attempts=0, retry_at=None
        )
        installs = tuple(ready if one is there else one for one in installs)
    return installs


def recall(ledger: Ledger, node: NodeName, installs: Installed) -> None:
    """Take what a node has that was not known here: nothing of it is news. Another machine may have had its name."""
    for name in ledger.book.shown.get(node, ()):
        ledger.book.told.pop(name, None)
    for one in installs:
        broken = one.step is InstallStep.READY and bool(one.problem)
        begun = one.step is not InstallStep.RESOLVE
        told = Told(begun=begun, broken=broken, problem=cut(one.problem))
        ledger.book.told[engine_id(node, one.engine, one.version)] = told


def _tell_one(ledger: Ledger, node: NodeName, was: Install | None, now: Install | None) -> None:
    if now is None:
        assert was is not None
        ledger.book.told.pop(engine_id(node, was.engine, was.version), None)
        if was.step is InstallStep.READY:
            _emit(ledger, EventKind.ENGINE_REMOVED, node, was, "it is not used any more", cause=ledger.turn.first_event)
        return
    name = engine_id(node, now.engine, now.version)
    told = ledger.book.told.get(name, Told())
    ledger.book.told[name] = _tell_now(ledger, node, was, now, told)


def _tell_now(ledger: Ledger, node: NodeName, was: Install | None, now: Install, told: Told) -> Told:
    """Tell how far it is now; return what is told of it."""
    whole = was is not None and is_whole(was)
    if is_whole(now):
        if not whole or (was is not None and was.variant not in ("", now.variant)):
            kind = EventKind.ENGINE_REPAIRED if told.broken else EventKind.ENGINE_INSTALLED
            _emit(ledger, kind, node, now, _installed(now))
        return Told(begun=True)
    if whole or now.step is InstallStep.READY:
        text = cut(now.problem) or "it is made anew"
        if text != told.problem:
            _emit(ledger, EventKind.ENGINE_BROKEN, node, now, text, cause=ledger.turn.first_event)
        return Told(begun=True, broken=True, problem=text)
    if now.problem:
        text = cut(now.problem)
        if text != told.problem:
            _emit(ledger, EventKind.ENGINE_FAILED, node, now, f"at {now.step.value}: {text}")
        return replace(told, problem=text)
    if now.step is not InstallStep.RESOLVE and not told.begun:
        _emit(ledger, EventKind.ENGINE_INSTALLING, node, now, _begun(now))
        return replace(told, begun=True)
    return told


def _begun(install: Install) -> str:
    variant = f" ({install.variant})" if install.variant else ""
    total = f", {size(install.total)} to {install.step.value}" if install.total else ""
    return f"{install.engine} {install.version}{variant}{total}"


def _installed(install: Install) -> str:
    variant = f" ({install.variant})" if install.variant else ""
    note = f"; {cut(install.note)}" if install.note else ""
    return f"{install.engine} {install.version}{variant} is proven{note}"


def _emit(
    ledger: Ledger, kind: EventKind, node: NodeName, install: Install, text: str, *, cause: int | None = None
) -> Event | None:
    """Tell it because of what led to it, and let what the node reports next follow from it."""
    book, key = ledger.book, (node, install.engine)
    if not _may_tell(ledger, node):
        return None
    if cause is None:
        cause = book.led_on.get(key, book.led.get(install.engine))
    event = ledger.emit(kind, engine_id(node, install.engine, install.version), text, cause=cause)
    book.led_on[key] = event.seq
    if kind not in (EventKind.ENGINE_INSTALLING, EventKind.ENGINE_FAILED):
        book.to_report[node] = event.seq
    return event


def _may_tell(ledger: Ledger, node: NodeName) -> bool:
    credit = ledger.book.credits.get(node, Credit(left=_BURST, at=ledger.now))
    left = min(_BURST, credit.left + max(0.0, ledger.now - credit.at) / _EACH)
    ledger.book.credits[node] = Credit(left=left - 1.0 if left >= 1.0 else left, at=ledger.now)
    return left >= 1.0
