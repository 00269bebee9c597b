"""How far is an install, in words for people? Of the same numbers `percent` and `left` are for bars."""

from dataclasses import replace

from llmgw.core.brief import cut
from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.units import age, size

_DOING = {
    InstallStep.RESOLVE: "finding out which files it needs",
    InstallStep.LIBRARIES: "checking libraries",
    InstallStep.PROVE: "proving",
    InstallStep.READY: "ready",
}
_MOVING = {
    InstallStep.DOWNLOAD: "downloading",
    InstallStep.VERIFY: "verifying",
    InstallStep.UNPACK: "unpacking",
}
"""Steps that are counted in bytes."""
_BY_NAME = {step.value: step for step in InstallStep}


def words(install: Install, now: float) -> str:
    """Return one line: `downloading NAME (16.1 MiB), 61 %, 3.1 MiB/s, 2s left`, or what stands in its way."""
    if is_repaired(install):
        return f"{repairing(install)}; {cut(install.problem)}"
    if install.problem:
        return _stuck(install, now)
    if install.step in _MOVING:
        return ", ".join([_moving(install), *_numbers(install)])
    doing = _DOING[install.step]
    return f"{doing}: {cut(install.subject)}" if install.subject and install.step is not InstallStep.READY else doing


def percent(install: Install) -> int | None:
    """Return how much of its step is done, 100 only at its end; None where that is not counted."""
    if install.total <= 0:
        return None
    return max(0, min(100, 100 * install.done // install.total))


def left(install: Install) -> float | None:
    """Return the seconds until the step is done, by its rate; None where that cannot be said."""
    if not (install.rate > 0.0 and install.total > install.done):
        return None
    return (install.total - install.done) / install.rate


def rate(install: Install) -> str:
    """Return `3 MiB/s`; empty while nothing moves."""
    return f"{size(int(install.rate))}/s" if 1.0 <= install.rate < float("inf") else ""


def failed(install: Install) -> bool:
    """Whether it was tried and failed, or broke; an install that only waits has its reason as a problem, too."""
    return bool(install.problem) and (
        install.step is InstallStep.READY or install.attempts > 0 or install.retry_at is not None
    )


def is_repaired(install: Install) -> bool:
    """Whether it was ready, something in it is broken, and it is being made anew now."""
    return install.step is InstallStep.READY and bool(install.problem and (install.subject or install.total))


def repairing(install: Install) -> str:
    """Return `repairing: downloading NAME (16.1 MiB), 61 %` of one that is made anew; its subject has the step."""
    name, _, subject = install.subject.partition(" ")
    if name not in _BY_NAME:
        return ", ".join(filter(None, (f"repairing: {cut(install.subject)}", *_numbers(install))))
    return f"repairing: {words(replace(install, step=_BY_NAME[name], subject=subject, problem=''), 0.0)}"


def again(install: Install, now: float) -> str:
    """Return `; tried again in 2m`, behind a reason; empty where that is not known."""
    return "" if install.retry_at is None else f"; tried again in {age(install.retry_at - now)}"


def _stuck(install: Install, now: float) -> str:
    problem = cut(install.problem)
    if not failed(install):
        return problem
    what = "broken" if install.step is InstallStep.READY else "failed"
    return f"{what}: {problem}{again(install, now)}"


def _moving(install: Install) -> str:
    text = f"{_MOVING[install.step]} {cut(install.subject)}".rstrip()
    return f"{text} ({size(install.total)})" if install.step is InstallStep.DOWNLOAD and install.total > 0 else text


def _numbers(install: Install) -> list[str]:
    share, seconds = percent(install), left(install)
    found = [] if share is None else [f"{share} %"]
    if install.step is InstallStep.DOWNLOAD and share is not None:
        found += filter(None, [rate(install)])
        found += [f"{age(seconds)} left"] if seconds is not None else []
    return found
