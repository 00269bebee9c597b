"""`llmgw demo`: a whole cluster on this machine, for as long as its console (or a signal) keeps it."""

import argparse
import asyncio
import json
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw.cli.console import terminal
from llmgw.cli.main import state_home
from llmgw.cli.parser import Parser
from llmgw.core.errors import LlmgwError, Rejected

if TYPE_CHECKING:
    from llmgw.cli.local.cluster import LocalCluster
    from llmgw.cli.local.layout import Plan

_MOST_NODES = 20
_CHECKED = "20s"
"""How often nodes look whether their engine is whole: oftener than others, for those who break it to see."""
_WATCHED_RATE = "8MiB"
"""Bytes a second of each node's download where somebody watches: some five seconds."""


@dataclass
class Checked:
    """What `--check` prints; every field is there also when it failed."""

    ok: bool = False
    nodes_ready: int = 0
    replicas_ready: int = 0
    model: str = ""
    completion_tokens: int = 0
    streamed_chunks: int = 0
    first_token_ms: float = 0.0
    seconds: float = 0.0
    error: str = ""
    """Why it failed; empty when it did not."""


def main(argv: Sequence[str]) -> int:
    """Run the demo and return its exit status."""
    parser = _parser()
    asked = parser.parse_args(argv)
    if not 1 <= asked.nodes <= _MOST_NODES:
        parser.error(f"--nodes must be from 1 to {_MOST_NODES}")
    if asked.json and not (asked.headless or asked.check):
        parser.error("--json goes with --headless or --check")
    if not (asked.headless or asked.check) and not terminal():
        raise Rejected("the console needs a terminal; use --headless to do without it, or --check for a short test")
    return asyncio.run(_Demo(asked).run())


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "llmgw demo",
        "Bring up a whole cluster on this machine: an authority, the control plane, a router, nodes with\n"
        "their agents, which install the engine, and two replicas of a small real model. Open the console\n"
        "on it; leaving the console ends everything. Ended by a signal it exits with 0 when it was up, and\n"
        "with 128 + the signal (SIGTERM: 143) when it was not yet.",
        example="llmgw demo\n  llmgw demo --headless --dir /tmp/demo &\n  llmgw ctl nodes --dir /tmp/demo",
    )
    parser.add_argument("--dir", type=Path, metavar="D", help=f"its directory (default {state_home() / 'demo'})")
    parser.add_argument("--nodes", type=int, default=3, metavar="N", help="how many nodes (default 3)")
    parser.add_argument("--model", type=Path, metavar="FILE", help="a GGUF file (default: the one of llmgw[demo])")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--headless", action="store_true", help="no console; run until SIGTERM or ctrl-C")
    mode.add_argument("--check", action="store_true", help="bring it up, ask it twice, bring it down, print JSON")
    parser.add_argument("--json", action="store_true", help="with --headless: say that it is ready as a JSON object")
    return parser


class _Demo:
    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._started = time.monotonic()
        self._stopped: int | None = None
        """The signal that asked for the end."""
        self._ready = False
        self._held: list[str] | None = None
        """What is said while the console has the terminal; told when it is left."""

    async def run(self) -> int:
        with self._signals():
            try:
                if self._asked.check:
                    return await self._check()
                return await self._show()
            except asyncio.CancelledError:
                if self._stopped is None:
                    raise
                self._say("everything is down")
                return 0 if self._ready else 128 + self._stopped

    async def _show(self) -> int:
        """Hold the cluster up until the console is left or a signal comes."""
        from llmgw.cli.local.cluster import running

        async with running(await self._plan(), self._say) as cluster:
            if self._asked.headless:
                await cluster.until_ready(self._say)
                await cluster.until_routed()
            else:
                await cluster.until_there(self._say)  # how the engine is installed is seen in the console
            self._ready = True
            self._tell(cluster)
            if self._asked.headless:
                await asyncio.Event().wait()
            self._held = []
            try:
                status = await _console(cluster)
            finally:
                held, self._held = self._held, None
                for line in held:
                    print(line, file=sys.stderr, flush=True)
        self._say("everything is down")
        return status

    async def _check(self) -> int:
        found = Checked()
        try:
            await self._try(found)
            found.ok = True
        except asyncio.CancelledError:
            found.error = "ended by a signal"
            raise
        except LlmgwError as error:
            found.error = str(error)
            raise
        finally:
            found.seconds = round(time.monotonic() - self._started, 1)
            print(json.dumps(asdict(found)), flush=True)
        return 0

    async def _try(self, found: Checked) -> None:
        """Fill in `found` as far as it comes."""
        from llmgw.cli.local.check import served
        from llmgw.cli.local.cluster import running

        plan = await self._plan()
        found.model = plan.model
        async with running(plan, self._say) as cluster:
            seen = await cluster.until_ready(self._say)
            found.nodes_ready, found.replicas_ready = seen.nodes_ready, seen.replicas_ready
            await cluster.until_routed()
            answer = await served(cluster.made.gateway, plan.model)
            found.completion_tokens, found.streamed_chunks = answer.completion_tokens, answer.streamed_chunks
            found.first_token_ms = answer.first_token_ms
            self._say("two requests were answered")

    async def _plan(self) -> "Plan":
        # Here, not above: `--help` and wrong options need neither certificates nor a client.
        from llmgw.cli.llamacpp import engine_is_installed
        from llmgw.cli.local.layout import Plan, model_name
        from llmgw.cli.local.weights import given_model, real_model

        engine_is_installed()
        directory = (self._asked.dir or state_home() / "demo").resolve()
        watched = not (self._asked.headless or self._asked.check)
        ours = partial(
            Plan,
            directory=directory,
            nodes=self._asked.nodes,
            install=True,
            download_rate=_WATCHED_RATE if watched else "",
            check_engines=_CHECKED,
        )
        if self._asked.model is not None:
            weights = given_model(self._asked.model)
            name = model_name(weights)
            return ours(weights=weights, model=name, large=f"{name}-large")
        weights = await asyncio.to_thread(real_model)
        return ours(weights=weights, aliases=("gemma-270m",), large="gemma-large")

    def _tell(self, cluster: "LocalCluster") -> None:
        """How to use it, on stdout."""
        plan, made = cluster.plan, cluster.made
        if self._asked.json:
            gateway = f"{made.gateway}/v1"
            facts = {"ready": True, "dir": str(plan.directory), "gateway": gateway, "control": made.control}
            print(json.dumps(facts | {"model": plan.model, "nodes": plan.names}), flush=True)
            return
        from llmgw.cli.local.check import request

        body = shlex.quote(json.dumps(request(plan.model) | {"stream": True}))
        where = shlex.quote(str(plan.directory))
        print(
            f"\nthe gateway is at {made.gateway}/v1; try:\n\n"
            f"  curl -N {made.gateway}/v1/chat/completions -H 'Content-Type: application/json' -d {body}\n"
            f"  {_llmgw()} ctl nodes --dir {where}\n"
            f"  {_llmgw()} console --dir {where}\n",
            flush=True,
        )

    def _say(self, text: str) -> None:
        """A line of progress, on stderr."""
        line = f"{time.monotonic() - self._started:6.1f}s  {text}"
        if self._held is not None:
            self._held.append(line)
        else:
            print(line, file=sys.stderr, flush=True)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first signal ends the demo in order; a second one has its usual effect."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

        def stop(number: int) -> None:
            for one in numbers:
                loop.remove_signal_handler(one)
            self._stopped = number
            self._say("ending everything")
            task.cancel()

        for number in numbers:
            loop.add_signal_handler(number, stop, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


def _llmgw() -> str:
    """What to type for this program: its name, or its path where the shell would not find it."""
    ours = Path(sys.argv[0]).absolute()
    if shutil.which("llmgw") is not None or ours.name != "llmgw":
        return "llmgw"
    return shlex.quote(str(ours))


async def _console(cluster: "LocalCluster") -> int:
    """Run the console in this terminal, as a process of its own: whatever becomes of it, we end the cluster."""
    from llmgw.cli.local.children import environment

    directory = cluster.plan.directory
    # Not by --dir: reading a YAML file would double what stands before the first frame.
    where = ("--server", cluster.made.control, "--tls", str(directory / "tls"))
    note = ("--note", f"gateway {cluster.made.gateway}/v1")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "llmgw.cli.main", "console", *where, *note), env=environment(directory)
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
