"""How does the agent run uv? Without a network, behind everybody else, bounded, and with the end of what it said.

Where systemd runs the machine it is a service of its own: the agent's sandbox and its place in the kernel's order of
victims are not for what unpacks gigabytes.
"""

import asyncio
import math
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGKILL

from llmgw.agent.engines.apart import MARK, killed_by, marked, own_services, transient
from llmgw.agent.engines.python.fault import EnvironmentFault
from llmgw.agent.run import Ran, run
from llmgw.host import uv

_GRACE = 10.0
"""Seconds that the service manager has beyond uv's own limit."""
_WORDS = 400
_PROPERTIES: Mapping[str, str] = {
    "KillMode": "control-group",
    "KillSignal": "SIGKILL",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "PrivateNetwork": "yes",
    "Nice": "10",
    "OOMScoreAdjust": "500",
    "LimitCORE": "0",
    "LimitNOFILE": "65536",
}


async def call(arguments: Sequence[str], *, cache: Path, writes: Path, limit: float) -> None:
    """Run uv to its end. Raises EnvironmentFault with its last words.

    `writes` is the one directory that it may change. `cache` is in it: between two, even of one disk, a service could
    not link.
    """
    try:
        argv = [str(uv.program()), *arguments, "--offline"]
    except uv.NoUv as error:
        raise EnvironmentFault(str(error)) from None
    environment = uv.environment(cache, TMPDIR=str(cache)) | {MARK: marked(writes)}
    if own_services():
        ran = await _service(argv, environment, writes, limit)
    else:
        behind = ["nice", "-n", "10"] if shutil.which("nice") else []
        ran = await run([*behind, *argv], timeout=limit, env=environment, directory=writes)
    if not ran.ok:
        raise EnvironmentFault(f"uv {' '.join(arguments[:2])}: {_last(ran)}", full="os error 28" in ran.err)


async def _service(argv: Sequence[str], environment: Mapping[str, str], writes: Path, limit: float) -> Ran:
    name = f"llmgw-uv-{secrets.token_hex(6)}.service"
    properties = {
        **_PROPERTIES,
        "RuntimeMaxSec": str(math.ceil(limit)),
        "ReadWritePaths": f'"{writes}"',
        "WorkingDirectory": str(writes),
    }
    inner = ["/bin/sh", "-c", '"$@"; exit $?', "sh", *argv]  # the shell tells a death by signal, systemd-run does not
    words = [*transient(name, properties, environment), *(word.replace("$", "$$") for word in inner)]
    try:
        ran = await run(words, timeout=limit + _GRACE)
    except asyncio.CancelledError:
        await asyncio.shield(run(["systemctl", "stop", name], timeout=_GRACE))
        raise
    if ran.problem:
        await run(["systemctl", "stop", name], timeout=_GRACE)
    return ran


def _last(ran: Ran) -> str:
    """The end of what it said: uv tells the cause last."""
    if ran.problem:
        return ran.problem
    if signal := killed_by(ran):
        return f"ended by signal {signal}" + ("; is there memory enough?" if signal == SIGKILL else "")
    text = ran.err[max(0, ran.err.find("error:")) :].removeprefix("error:")
    words = " ".join(word for word in text.split() if not set(word) <= set("×╰─▶│├"))
    shown = words if len(words) <= _WORDS else f"…{words[-_WORDS:]}"
    return shown.rstrip(".") or f"exit status {ran.status} without a word"
