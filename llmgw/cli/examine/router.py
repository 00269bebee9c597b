"""What is right and wrong with a router, by its router.yaml?"""

import asyncio
import json
from pathlib import Path

from llmgw.cli.examine import places, running
from llmgw.cli.examine.certificate import Wanted, certificate, own_found
from llmgw.cli.examine.control import control_planes
from llmgw.cli.examine.files import configuration
from llmgw.cli.examine.findings import Findings, bounded
from llmgw.cli.examine.listening import dialled, free
from llmgw.cli.examine.runner import Runner, not_running, runner
from llmgw.cli.local.http import ask
from llmgw.config.address import Address
from llmgw.config.lenient import Lenient
from llmgw.config.router import RouterConfig
from llmgw.core.checks import Check, fault, ok, warning
from llmgw.core.errors import ClusterCannot
from llmgw.core.identity import Role
from llmgw.host.threads import aside

_LIMIT = 10.0
_HEALTH = "/health"
_PROGRAM = "llmgw-router"


async def router(path: Path, seconds: float) -> Findings:
    """Look at files, state and certificate, ask the router that runs, and try every control plane."""
    read, checks = await aside(configuration, path, RouterConfig)
    found = Findings(checks)
    runs_as, wrong = await runner(_PROGRAM, path)
    found.checks += wrong
    async with asyncio.TaskGroup() as group:
        own = group.create_task(bounded("files", "what router.yaml names", aside(_own, path, read, runs_as), _LIMIT))
        listening = group.create_task(_listening(read.get("listen"), path, runs_as, seconds))
        control = group.create_task(control_planes(read.get("control") or (), read.get("tls"), seconds))
    reached = control.result()
    found.add(await aside(own_found, own.result(), read.get("tls"), reached))
    found.checks += listening.result()
    found.add(reached)
    return found


def _own(path: Path, read: Lenient, runs_as: Runner) -> list[Check]:
    found = places.own_file(path, runs_as)
    if (tls := read.get("tls")) is not None:
        found += places.tls_files(tls, runs_as)
        found += certificate(tls, Wanted(roles=(Role.ROUTER,), program=_PROGRAM))
    if (state := read.get("state")) is not None:
        found += places.own_directory(state, "state", runs_as, private=True)
    return found


async def _listening(at: Address | None, path: Path, runs_as: Runner, seconds: float) -> list[Check]:
    """Whether the router runs, or else could listen."""
    if at is None:
        return []
    there = await aside(lambda: list(running.on(at.port, running.listeners())))
    if not there:
        start = f"{_PROGRAM} --config {path}"
        stopped = not_running("router", f"no router runs at {at}", runs_as.started_by, start)
        return [*free(at, "listen"), stopped]
    try:
        async with asyncio.timeout(seconds), ask(f"http://{dialled(at)}", _HEALTH) as answer:
            said = json.loads(await answer.text())
            status, routes = str(said["status"]), str(said["routes"])
    except (OSError, ClusterCannot, ValueError, TypeError, KeyError):
        fact = f"{there[0]} listens at {at} and does not answer as a router does"
        return [fault("address", fact, "stop it, or name another port with listen:")]
    if status == "ok":
        return [ok("router", f"runs at {at}, its routes are {routes}")]
    return [
        warning("router", f"runs at {at} and says {status}; its routes are {routes}", "see the control planes below")
    ]
