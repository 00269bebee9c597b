"""Which engine of a node serves a profile, and what stands against it when none does?

    the profile states a version → exactly that one
    the node has the engine by hand → that one, whatever its version
    else → the version that server.yaml wants there, or another that works: availability comes before the version

Only what was seen to run serves; a version that is on its way is a refusal with the node's own words.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmgw.core.engines import progress
from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.facts import EngineReport, Engines, Profile
from llmgw.core.names import NodeName
from llmgw.core.refusals import EngineBroken, EngineInstalling, EngineMissing, EngineNotProbed, EngineVersion, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Which version of an installed engine is taken where the profile states none."""

    version: str = ""
    """In the place of the one that server.yaml wants."""
    avoid: str = ""
    """Not this one."""
    why: str = ""
    """Not that one, in words."""


NO_PREFERENCE = Preference()


def choose(
    profile: Profile, preference: Preference, engines: Engines | None, coming: Install | None
) -> EngineReport | None:
    """Return the engine that serves the profile; None when none does now.

    `coming` is the node's install of the version that server.yaml wants there.
    """
    reports = _of(profile, engines)
    if profile.version:
        able = [one for one in reports if not one.problem and one.version == profile.version]
    elif any(one.by_hand for one in reports):
        able = [one for one in reports if not one.problem and one.by_hand]
    else:
        able = [one for one in reports if not one.problem and one.version != (preference.avoid or None)]
    if len(able) <= 1:  # nearly always, and this is asked for every node of every model
        return able[0] if able else None
    wanted = _wanted(preference, coming)
    return max(able, key=lambda one: (one.by_hand, one.version == wanted, natural(one.version), one.path), default=None)


def as_run(profile: Profile, chosen: EngineReport | None) -> Profile:
    """The profile as it is stored and ordered: with the version of an installed engine.

    One that is named by hand may be replaced in place, so its version is no part of it.
    """
    if chosen is None or chosen.by_hand:
        return profile
    return replace(profile, version=chosen.version)


def is_second_best(profile: Profile, preference: Preference, chosen: EngineReport, coming: Install | None) -> bool:
    """Whether what would serve is another version than the one that is wanted."""
    wanted = _wanted(preference, coming)
    return bool(wanted) and not (profile.version or chosen.by_hand or chosen.version == wanted)


def against(
    profile: Profile,
    preference: Preference,
    node: NodeName,
    engines: Engines | None,
    coming: Install | None,
    now: float,
) -> Refusal:
    """Return why none serves it; only where `choose` found none."""
    if engines is None:
        return EngineNotProbed(node=node, engine=profile.engine)
    reports = _of(profile, engines)
    avoided = [one for one in reports if not one.problem and not profile.version and one.version == preference.avoid]
    if avoided:
        return EngineBroken(node=node, engine=profile.engine, version=preference.avoid, text=preference.why)
    broken = _broken(node, profile, reports)
    install = coming if coming is not None and profile.version in ("", coming.version) else None
    if install is not None and (broken is None or install.problem or install.step is not InstallStep.READY):
        return _on_its_way(node, install, now)
    if broken is not None:
        return broken
    if reports:
        has = ", ".join(sorted({one.version for one in reports}, key=natural))
        return EngineVersion(node=node, engine=profile.engine, needs=profile.version, has=has)
    return EngineMissing(node=node, engine=profile.engine, has=tuple(sorted({one.engine for one in engines.engines})))


def by_hand(engine: str, engines: Engines | None) -> bool:
    """Whether agent.yaml names this engine, as far as it was said."""
    return engines is not None and any(one.engine == engine and one.by_hand for one in engines.engines)


def _wanted(preference: Preference, coming: Install | None) -> str:
    return preference.version or (coming.version if coming else "")


def _of(profile: Profile, engines: Engines | None) -> Sequence[EngineReport]:
    return [one for one in engines.engines if one.engine == profile.engine] if engines else ()


def _on_its_way(node: NodeName, install: Install, now: float) -> Refusal:
    if progress.failed(install):
        return EngineBroken(
            node=node,
            engine=install.engine,
            version=install.version,
            text=install.problem,
            installed=install.step is InstallStep.READY,
            seconds=max(0.0, install.retry_at - now) if install.retry_at is not None else None,
        )
    return EngineInstalling(
        node=node,
        engine=install.engine,
        version=install.version,
        step=install.step,
        text=progress.words(install, now),
    )


def _broken(node: NodeName, profile: Profile, reports: Sequence[EngineReport]) -> EngineBroken | None:
    """Of an engine that would serve if it ran; one that does not run may not say its version."""
    broken = [one for one in reports if one.problem and (not profile.version or one.version in ("", profile.version))]
    report = max(broken, key=lambda one: (one.by_hand, natural(one.version)), default=None)
    if report is None:
        return None
    return EngineBroken(
        node=node, engine=report.engine, version=report.version, text=report.problem, by_hand=report.by_hand
    )


def natural(version: str) -> tuple[tuple[int, str], ...]:
    """Sorts `b9999` before `b10991`; by length, for a node may say numbers of any."""
    digits = [part.lstrip("0") for part in re.findall(r"[0-9]+", version)]
    return tuple((len(part), part) for part in digits)
