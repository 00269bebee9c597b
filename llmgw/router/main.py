"""llmgw-router: the data plane, an OpenAI-compatible API in front of the cluster's engines.

Exit: 0 stopped on a signal, 2 the configuration or the caller's fault, 3 a certificate that nobody would trust, and
else as `host.program` says it.
"""

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from llmgw.config.load import load_router
from llmgw.core.errors import BadConfig
from llmgw.core.identity import Role
from llmgw.core.routes import Routes
from llmgw.host.machine import machine_id
from llmgw.host.program import command_line, run_program
from llmgw.host.systemd import set_up_logging
from llmgw.host.units import refuse_if_barred
from llmgw.router.run import Router
from llmgw.wire.tls import client_context, own_identity

if TYPE_CHECKING:
    from llmgw.client import ControlClient
    from llmgw.config.router import RouterConfig


DEFAULT = Path("/etc/llmgw/router.yaml")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit status."""
    does = "Serves the OpenAI API in front of the engines."
    arguments = command_line("llmgw-router", does, DEFAULT, {}).parse_args(argv)
    set_up_logging()
    return run_program("llmgw-router", lambda: _run(arguments.config, check=arguments.check))


def _run(file: Path, *, check: bool) -> None:
    config = load_router(file)
    _check_identity(config, file)
    if check:
        refuse_if_barred("llmgw-router", file, (config.tls.certificate, config.tls.key, config.tls.authority))
        print(f"{file}: good: router at {config.listen}")
        return
    gc.collect()
    gc.freeze()  # what was imported stays: looking through it again and again would hold up requests
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, file))


def _check_identity(config: "RouterConfig", file: Path) -> None:
    me = own_identity(config.tls)
    client_context(config.tls)
    if me.role is not Role.ROUTER:
        raise BadConfig(str(file), None, "tls.certificate", "must be a router's", f"one for {me}")


async def _serve(config: "RouterConfig", file: Path) -> None:
    router = Router(
        config, machine=machine_id(), watch=lambda: _watch(config), dial=lambda: _dial(config), file=str(file)
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, router.stop)
    await router.run()


def _dial(config: "RouterConfig") -> "ControlClient":
    # Imported late: `--check` and a bad configuration need no rpc library.
    from llmgw.client import ControlClient
    from llmgw.config.client import ClientConfig

    return ControlClient.open(ClientConfig(server=config.control, tls=config.tls))


async def _watch(config: "RouterConfig") -> AsyncGenerator[Routes, None]:
    async with _dial(config) as client, contextlib.aclosing(client.watch_routes()) as watch:
        async for routes in watch:
            yield routes


if __name__ == "__main__":
    sys.exit(main())
