"""What should an agent install next, when is it tried again, and what may go? Decided without looking at anything.

```text
 order ─▶ plan (its releases, what the node chose of them, what is there) ─▶ due ─▶ an attempt ─▶ made
                                                                             ▲                  │
                                                                             └── trial, failed ◀┘
```
Level-triggered, as `converge` is: a plan looks at how things are, never at how they came to be so. What was made is
never touched again; what is made anew stands beside it, and the older goes when nothing runs with it any more.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from llmgw.core.engines.orders import EngineOrder, ReleaseFile
from llmgw.core.engines.terms import EngineKind, InstallStep

FIRST_RETRY, LONGEST_RETRY = 10.0, 600.0
"""Seconds before a failed install is tried again: doubled with each failure in a row."""
LONGEST_ASKED = 3600.0
"""Seconds that a source may ask for: one that asks for a year is not obeyed."""
FULL_RETRY = 60.0
"""Seconds after which a full disk is looked at again: people make room, and nobody else is asked by it."""


# --- what there is ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An engine that was installed, as it is kept beside its files."""

    engine: str
    version: str
    variant: str = ""
    release: str
    """The id of the release that it was made of."""
    digests: tuple[str, ...]
    """Of the files that it was made of, in their order."""
    name: str
    """Of its directory."""
    program: str
    """Where the program is, seen from its directory."""
    said: str = ""
    """The version that the program itself said."""
    flags: tuple[str, ...] = ()
    """That the program knows, sorted."""
    note: str = ""
    files: tuple[tuple[str, int], ...] = ()
    """Of one that was unpacked: each file, seen from its directory, and its size. Environments know theirs."""
    at: float
    """When it was proven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What an order comes to on this node."""

    engine: str
    version: str
    kind: EngineKind
    variant: str
    release: str
    """The id."""
    files: tuple[ReleaseFile, ...]
    note: str = ""

    @property
    def digests(self) -> tuple[str, ...]:
        """Of its files, in their order."""
        return tuple(file.digest for file in self.files)

    def is_met_by(self, made: Made) -> bool:
        """Whether `made` is what this target would become: of the same files, whichever release named them."""
        about = made.engine, made.version, made.variant, made.digests
        return about == (self.engine, self.version, self.variant, self.digests)


def current(target: Target | None, made: Iterable[Made]) -> Made | None:
    """Return the newest of what was made that meets the target."""
    return newest(one for one in made if target is not None and target.is_met_by(one))


def newest(made: Iterable[Made]) -> Made | None:
    """Return what was proven last."""
    return max(made, key=lambda one: (one.at, one.name), default=None)


# --- what to do -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An order, with how things are now."""

    order: EngineOrder
    target: Target | None = None
    """None while its releases are not here, or while `problem` says why the node can have none of them."""
    problem: str = ""
    whole: bool = False
    """What meets the target is there, and nothing is known to be wrong with it."""
    held: bool = False
    """All files of the target are here already: it needs no turn."""
    since: float = 0.0
    """When the node first heard of the order."""

    @property
    def is_open(self) -> bool:
        """There is something that the node itself can do now."""
        if self.whole or self.problem or self.order.problem or not self.order.releases:
            return False
        return self.target is None or self.order.go or self.held

    @property
    def tried(self) -> tuple[object, ...]:
        """What a failure is about: when any of it changes, it is tried anew at once."""
        order, target = self.order, self.target
        wanted = (order.version, order.variant, order.releases, order.mirror, order.served, order.asked)
        return (*wanted, target.variant, target.digests) if target else wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The failures in a row of one engine's install."""

    tried: tuple[object, ...]
    step: InstallStep
    since: float
    """When it entered that step."""
    problem: str
    attempts: int
    retry_at: float


def failed(
    before: Trial | None,
    plan: Plan,
    step: InstallStep,
    problem: str,
    *,
    since: float,
    now: float,
    full: bool = False,
    asked_for: float | None = None,
) -> Trial:
    """Return what a failure at `step` makes of the ones before it.

    `full`: the disk has no room; `asked_for`: seconds until the source wants to be asked again.
    """
    attempts = before.attempts + 1 if before is not None and before.tried == plan.tried else 1
    wait = min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(attempts - 1, 16))
    if full:
        wait = FULL_RETRY
    if asked_for is not None:
        wait = min(LONGEST_ASKED, max(FIRST_RETRY, asked_for))
    return Trial(tried=plan.tried, step=step, since=since, problem=problem, attempts=attempts, retry_at=now + wait)


def due(plans: Iterable[Plan], trials: Mapping[str, Trial], now: float) -> Plan | None:
    """Return the first plan for which something is to be done now."""
    return next((plan for plan in plans if plan.is_open and _waits_until(plan, trials) <= now), None)


def next_due(plans: Iterable[Plan], trials: Mapping[str, Trial]) -> float | None:
    """When `due` may have another answer though nothing happened; None for never."""
    return min((_waits_until(plan, trials) for plan in plans if plan.is_open), default=None)


def trial_of(plan: Plan, trials: Mapping[str, Trial]) -> Trial | None:
    """Return the failures that are about this very plan."""
    trial = trials.get(plan.order.engine)
    return trial if trial is not None and trial.tried == plan.tried else None


def _waits_until(plan: Plan, trials: Mapping[str, Trial]) -> float:
    trial = trial_of(plan, trials)
    return 0.0 if trial is None else trial.retry_at


def still_meant(begun: Plan, plans: Iterable[Plan]) -> bool:
    """Whether an attempt that was begun for a plan is of use still."""
    return any(plan.order.engine == begun.order.engine and _same(plan, begun) for plan in plans)


def _same(plan: Plan, begun: Plan) -> bool:
    if begun.target is None:
        return plan.tried[: len(begun.tried)] == begun.tried
    return plan.tried == begun.tried and not plan.order.problem


# --- what may go ------------------------------------------------------------------------------------------------


def surplus(
    made: Sequence[Made],
    plans: Sequence[Plan],
    *,
    broken: Collection[str],
    in_use: Collection[str],
    versions: Collection[tuple[str, str]],
    settled: bool,
) -> tuple[Made, ...]:
    """Return what nobody needs any more.

    Kept of each engine: what is wanted, what shards run with (`in_use`) or are told to run with (`versions`, of
    engines), and the newest of the others to go back to. Nothing goes before what is wanted is there, and nothing for
    want of an order by a leader that is not `settled`. `broken` and `in_use` are names of directories.
    """
    gone = list[Made]()
    for engine in sorted({one.engine for one in made}):
        plan = next((plan for plan in plans if plan.order.engine == engine), None)
        if (plan is None and settled) or (plan is not None and plan.whole):
            ours = [one for one in made if one.engine == engine]
            kept = _kept(ours, [one for one in ours if one.name not in broken], plan.target if plan else None, versions)
            gone += [one for one in ours if one not in kept and one.name not in in_use]
    return tuple(gone)


def _kept(
    made: Sequence[Made], whole: Sequence[Made], target: Target | None, versions: Collection[tuple[str, str]]
) -> list[Made | None]:
    wanted = current(target, whole)
    back = newest(one for one in made if target is None or not target.is_met_by(one))
    told = [newest(one for one in whole if (one.engine, one.version) == version) for version in versions]
    return [wanted, back, *told]
