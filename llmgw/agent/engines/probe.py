"""Which engines does this node have, and do they run? Those that agent.yaml names, and nothing else."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llmgw.agent.engines import llamacpp
from llmgw.agent.engines.adapter import Adapter
from llmgw.agent.engines.obstacle import Obstacle, obstacle
from llmgw.agent.run import run
from llmgw.core.facts import EngineReport
from llmgw.host.threads import once

ADAPTERS: Mapping[str, Adapter] = {llamacpp.NAME: llamacpp}

TIMEOUT = 20.0
"""Seconds for `--version` or `--help`: a program on a slow share takes its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine as it was last seen."""

    report: EngineReport
    flags: frozenset[str] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)
    """What this one needs in addition to what all engines get."""
    directory: str = ""
    """Of an installed one: all that is its own."""


async def probe(named: Mapping[str, Path], environment: Mapping[str, str]) -> dict[str, Engine]:
    """Run every engine that is named once, with the environment that engines get; each has an answer, never raises."""
    found = await asyncio.gather(*(_probe(name, str(path), environment) for name, path in named.items()))
    return {engine.report.engine: engine for engine in found}


async def _probe(name: str, path: str, environment: Mapping[str, str]) -> Engine:
    version, flags, problem = "", frozenset[str](), ""
    adapter = ADAPTERS.get(name)
    if adapter is None:
        problem = f"this agent does not know how to run {name}; it knows {', '.join(sorted(ADAPTERS))}"
    else:
        in_the_way = await hindrance(path)
        problem = in_the_way.fact if in_the_way else ""
    if adapter is not None and not problem:
        version, flags, problem = await _asked(adapter, path, environment)
    report = EngineReport(engine=name, version=version, path=path, problem=problem, by_hand=True)
    return Engine(report=report, flags=flags)


async def _asked(adapter: Adapter, path: str, environment: Mapping[str, str]) -> tuple[str, frozenset[str], str]:
    said = await run([path, "--version"], timeout=TIMEOUT, env=environment)
    version = adapter.version(said.out + "\n" + said.err) if said.ok else None
    if version is None:
        return "", frozenset(), f"{path} --version: {said.words()}"
    told = await run([path, "--help"], timeout=TIMEOUT, env=environment)
    if not told.ok:
        return version, frozenset(), f"{path} --help: {told.words()}"
    flags = adapter.flags(told.out + "\n" + told.err)
    return version, flags, adapter.lacking(flags)


async def hindrance(path: str) -> Obstacle | None:
    """What keeps the program from being started; its storage has a limit to show it."""
    try:
        return await once(("engine", path), TIMEOUT, obstacle, path)
    except TimeoutError as error:
        fix = "see to the storage that it is on, or correct engines: in agent.yaml"
        return Obstacle(fact=f"the storage of {path} {error.strerror}", fix=fix)
