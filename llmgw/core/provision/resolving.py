"""What is an engine made of? Asked once for all nodes, when the first of them needs it, and kept.

    a node needs it, nothing is known ─▶ Resolve ─▶ ReleaseFound: stored, ordered
                                                 └▶ ReleaseNotFound: asked again later, and later still

What a Python engine is made of is in a mirror, or locked by an operator: nobody else can be asked.
"""

from dataclasses import replace

from llmgw.core.brief import cut
from llmgw.core.due import ResolveDue
from llmgw.core.effects import Resolve, SaveRelease
from llmgw.core.engine_book import Known, Search
from llmgw.core.engines.orders import EngineWish, Release, ReleaseRef, release_id
from llmgw.core.events import EventKind
from llmgw.core.inputs import LockEngine, ReleaseFound, ReleaseNotFound
from llmgw.core.ledger import Ledger
from llmgw.core.provision.wanted import fits, is_asked, releases_of
from llmgw.core.units import several, size

_FIRST, _LONGEST, _ASKED_TO = 60.0, 3_600.0, 86_400.0
"""Seconds until it is asked again: after the first failure, at most, and at most when the source says how long."""

_ANSWER = 900.0
"""Seconds after which an answer that never came is waited for no more."""


def recall(ledger: Ledger, stored: tuple[tuple[str, Release], ...]) -> None:
    """Take what the store remembers."""
    for wanted, release in stored:
        _put(ledger, wanted, release)


def renew(ledger: Ledger, engine: str, old: EngineWish | None, new: EngineWish | None) -> None:
    """An entry of server.yaml is another: what is known stays in use where it fits, until it was asked for anew."""
    if old is not None and new is not None and _question(old) == _question(new):
        return
    _end_search(ledger, engine)
    if old is not None and new is not None and old.version == new.version and is_asked(new):
        ledger.book.searches[engine] = Search(stale=True)


def ask(ledger: Ledger) -> None:
    """Ask for what nodes need, is not known and may be asked for now."""
    book = ledger.book
    for engine, wish in book.wishes.items():
        search = book.searches.get(engine, Search())
        if search.asking or search.again is not None or not book.wanting.get(engine) or not is_asked(wish):
            continue
        if search.stale or not releases_of(ledger, wish):
            book.searches[engine] = replace(search, asking=True)
            ledger.deadlines.set(ResolveDue(engine), ledger.now + _ANSWER)
            ledger.do(Resolve(wish))


def due(ledger: Ledger, engine: str) -> None:
    """It may be asked again."""
    search = ledger.book.searches.get(engine)
    if search is not None:
        ledger.book.searches[engine] = replace(search, asking=False, again=None)
        ledger.turn.engines |= ledger.book.wanting.get(engine, set())


def found(ledger: Ledger, came: ReleaseFound) -> None:
    """Take the files of an engine; what nobody wishes any more is dropped."""
    wish = _still_wished(ledger, came.wish)
    if wish is None:
        return
    problem = _problem(wish, came.release)
    if problem:
        not_found(ledger, ReleaseNotFound(wish=came.wish, problem=problem))
        return
    _end_search(ledger, wish.engine)
    if _put(ledger, wish.version, came.release):
        ledger.do(SaveRelease(came.release, wish.version))
        led = ledger.book.led.get(wish.engine)
        event = ledger.emit(EventKind.RELEASE_RESOLVED, wish.engine, _words(wish.version, came.release), cause=led)
        ledger.book.led[wish.engine] = event.seq
    _touch(ledger, wish.engine)


def not_found(ledger: Ledger, came: ReleaseNotFound) -> None:
    """Ask again later; an event for each reason, not for each time."""
    wish = _still_wished(ledger, came.wish)
    if wish is None:
        return
    search = ledger.book.searches.get(wish.engine, Search())
    failures = search.failures + 1
    wait = min(_FIRST * 2 ** min(failures - 1, 6), _LONGEST)
    if came.seconds is not None:
        wait = min(max(1.0, came.seconds), _ASKED_TO) if came.seconds == came.seconds else wait  # a number, not NaN
    problem = cut(came.problem)
    ledger.book.searches[wish.engine] = replace(
        search, asking=False, problem=problem, failures=failures, again=ledger.now + wait
    )
    ledger.deadlines.set(ResolveDue(wish.engine), ledger.now + wait)
    if problem != search.problem:
        led = ledger.book.led.get(wish.engine)
        ledger.emit(EventKind.RELEASE_UNKNOWN, wish.engine, problem, cause=led)
        _touch(ledger, wish.engine)


def lock(ledger: Ledger, asked: LockEngine) -> None:
    """Keep the files of a Python engine, in the place of those that were locked before."""
    release = asked.release
    _put(ledger, release.version, release)
    ledger.do(SaveRelease(release, release.version))
    event = ledger.emit(EventKind.ENGINE_LOCKED, release.engine, _words(release.version, release), by=asked.by)
    wish = ledger.book.wishes.get(release.engine)
    if wish is not None and wish.version == release.version:
        ledger.book.led[release.engine] = event.seq
        if fits(wish, release):
            _end_search(ledger, release.engine)
        _touch(ledger, release.engine)


def release(ledger: Ledger, name: str) -> Release | None:
    """Return the release of this id, if it is one of those that are known."""
    known = (one for several_known in ledger.book.known.values() for one in several_known)
    return next((one.release for one in known if one.ref.id == name), None)


def _end_search(ledger: Ledger, engine: str) -> None:
    ledger.book.searches.pop(engine, None)
    ledger.deadlines.set(ResolveDue(engine), None)


def _put(ledger: Ledger, wanted: str, release: Release) -> bool:
    """Keep a release; return whether it is another than before."""
    known, key = ledger.book.known, (release.engine, wanted)
    new = Known(ref=ReleaseRef(id=release_id(release), variant=release.variant), release=release)
    others = [one for one in known.get(key, ()) if one.ref.variant != release.variant]
    others = [one for one in others if one.release.version == release.version]  # it points on to another one now
    before, known[key] = known.get(key, ()), tuple(sorted([*others, new], key=lambda one: one.ref.variant))
    return before != known[key]


def _still_wished(ledger: Ledger, asked: EngineWish) -> EngineWish | None:
    wish = ledger.book.wishes.get(asked.engine)
    return wish if wish is not None and _question(wish) == _question(asked) else None


def _question(wish: EngineWish) -> EngineWish:
    """What decides which files are found: not for whom."""
    return replace(wish, labels=())


def _problem(wish: EngineWish, release: Release) -> str:
    """Why this is not the answer to the wish; empty when it is."""
    if release.engine == wish.engine and fits(wish, release):
        return ""
    what = f"{release.engine} {release.version} {release.variant}".strip()
    return f"{what} was found for {wish.engine} {wish.version}: not the variant, or not the digests, of server.yaml"


def _words(wanted: str, release: Release) -> str:
    files = f"{several(len(release.files), 'file')}, {size(sum(file.size for file in release.files))}"
    version = release.version if wanted == release.version else f"{wanted} is {release.version}"
    return f"{version} ({release.variant}): {files}" if release.variant else f"{version}: {files}"


def _touch(ledger: Ledger, engine: str) -> None:
    nodes = ledger.book.wanting.get(engine, set())
    ledger.turn.engines |= nodes
    ledger.turn.nodes |= nodes
    models = [model.name for model in ledger.models.values() if model.profile.engine == engine]
    ledger.turn.models.update(models)
    ledger.turn.replicas.update(replica.id for model in models for replica in ledger.replicas_of(model))
