"""How does a node say what is installed on it, and what is being installed?

An engine that was ever ready stays `ready`, with the problem that it has: that it is being repaired, or made anew for
another driver, stands beside it in its subject, its bytes and its note.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llmgw.core.engines.installing import Made, Plan, Trial, trial_of
from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.units import NONE, Bytes

_BEFORE_FILES = (InstallStep.RESOLVE, InstallStep.DOWNLOAD, InstallStep.VERIFY)
"""Steps with which not all files are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An installed engine as it was last seen."""

    made: Made
    path: str
    """Of the program."""
    problem: str = ""
    since: float
    """Of this problem, or of its being whole."""
    checked_at: float | None = None
    """None before the first check of this agent's life: until then it is not reported as an engine."""

    @property
    def key(self) -> tuple[str, str]:
        """Engine and version."""
        return self.made.engine, self.made.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an attempt is with its step."""

    step: InstallStep
    since: float
    subject: str = ""
    done: Bytes = NONE
    total: Bytes = NONE
    rate: float = 0.0


def shown(seen: Iterable[Seen], plans: Sequence[Plan]) -> tuple[Seen, ...]:
    """Return the one of each engine and version that new shards are started with: a whole one before a broken one,
    then what is wanted, then the newest."""
    best = dict[tuple[str, str], Seen]()
    for one in seen:
        if one.key not in best or _rank(one, plans) > _rank(best[one.key], plans):
            best[one.key] = one
    return tuple(best[key] for key in sorted(best))


def _rank(seen: Seen, plans: Sequence[Plan]) -> tuple[bool, bool, float, str]:
    wanted = any(plan.target is not None and plan.target.is_met_by(seen.made) for plan in plans)
    return not seen.problem, wanted, seen.made.at, seen.made.name


def installs(
    seen: Iterable[Seen],
    plans: Sequence[Plan],
    attempt: tuple[Plan, Progress] | None,
    trials: Mapping[str, Trial],
    used: Collection[tuple[str, str]],
) -> tuple[Install, ...]:
    """Return all installs of the node: what is there, and what is on its way. `used`: engines that shards run with."""
    there = shown(seen, plans)
    found = [_ready(one, plans, attempt, trials, used) for one in there]
    found += _coming(plans, attempt, trials, {one.key for one in there})
    return tuple(sorted(found, key=lambda one: (one.engine, one.version)))


def _ready(
    seen: Seen,
    plans: Sequence[Plan],
    attempt: tuple[Plan, Progress] | None,
    trials: Mapping[str, Trial],
    used: Collection[tuple[str, str]],
) -> Install:
    made = seen.made
    install = Install(
        engine=made.engine,
        version=made.version,
        variant=made.variant,
        step=InstallStep.READY,
        since=seen.since,
        path=seen.path,
        problem=seen.problem,
        note=made.note,
        checked_at=seen.checked_at,
        used=seen.key in used,
    )
    plan = next((plan for plan in plans if _key(plan) == seen.key), None)
    if plan is None or plan.whole:
        return install
    return _changing(replace(install, turn=_needs_turn(plan, attempt)), plan, attempt, trials)


def _changing(
    install: Install, plan: Plan, attempt: tuple[Plan, Progress] | None, trials: Mapping[str, Trial]
) -> Install:
    """An install that is to be repaired, or to be of another variant."""
    if attempt is not None and _key(attempt[0]) == _key(plan):
        at = attempt[1]
        subject = f"{at.step.value} {at.subject}".rstrip()
        install = replace(install, subject=subject, done=at.done, total=at.total, rate=at.rate)
    variant = plan.target.variant if plan.target else ""
    trial = trial_of(plan, trials)
    if trial is None:
        note = "" if install.problem or variant in ("", install.variant) else f"{variant} is to take its place"
        return replace(install, note=note or plan.problem or install.note)
    install = replace(install, attempts=trial.attempts, retry_at=trial.retry_at)
    if not install.problem:
        return replace(install, note=f"{variant or 'what is wanted'} could not be installed: {trial.problem}")
    if trial.problem == install.problem:
        return install
    return replace(install, problem=f"{install.problem}; it could not be repaired: {trial.problem}")


def _coming(
    plans: Sequence[Plan],
    attempt: tuple[Plan, Progress] | None,
    trials: Mapping[str, Trial],
    there: Collection[tuple[str, str]],
) -> Iterator[Install]:
    """What was never ready; the control plane itself knows of an order that has no release yet."""
    for plan in plans:
        if not plan.order.releases or _key(plan) in there:
            continue
        install = Install(
            engine=plan.order.engine,
            version=plan.order.version,
            variant=plan.target.variant if plan.target else "",
            note=plan.target.note if plan.target else "",
            step=InstallStep.RESOLVE,
            since=plan.since,
            problem=plan.problem or plan.order.problem,
            turn=_needs_turn(plan, attempt),
        )
        trial = trial_of(plan, trials)
        if trial is not None:
            install = replace(install, attempts=trial.attempts)
        if attempt is not None and _key(attempt[0]) == _key(plan):
            at = attempt[1]
            yield replace(
                install, step=at.step, since=at.since, subject=at.subject, done=at.done, total=at.total, rate=at.rate
            )
        elif trial is not None:
            yield replace(install, step=trial.step, since=trial.since, problem=trial.problem, retry_at=trial.retry_at)
        else:
            yield install


def _needs_turn(plan: Plan, attempt: tuple[Plan, Progress] | None) -> bool:
    """Whether files are to be downloaded for it, or are being."""
    if attempt is not None and _key(attempt[0]) == _key(plan) and attempt[1].step not in _BEFORE_FILES:
        return False
    return plan.target is not None and not (plan.whole or plan.problem or plan.order.problem or plan.held)


def _key(plan: Plan) -> tuple[str, str]:
    return plan.order.engine, plan.order.version
