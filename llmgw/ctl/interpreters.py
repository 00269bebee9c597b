"""Which archive has a Python for nodes without one? uv knows those of python-build-standalone, as of its own build."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llmgw.host.uv import environment, program

AUTO = "auto"
"""Stands for the archive that uv would take."""
_LIMIT = 60.0


class NoInterpreter(Exception):
    """There is none; the text is one line."""


async def addresses(asked: Sequence[str], python: str, arches: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses that are asked for, with those of all `arches` where one is `auto`.

    Raises NoInterpreter, NoUv.
    """
    if AUTO not in asked:
        return tuple(asked)
    listed = await _listed(python)
    found = [address(listed, python, arch) for arch in arches]
    return (*(one for one in asked if one != AUTO), *found)


def address(listed: Sequence[Any], python: str, arch: str) -> str:
    """Return the address of the newest CPython `python` (`3.12`) for glibc and `arch` in uv's list of downloads."""
    wanted = {"implementation": "cpython", "os": "linux", "libc": "gnu", "variant": "default", "arch": arch}
    fitting = [
        one
        for one in listed
        if isinstance(one, dict)
        and all(one.get(key) == value for key, value in wanted.items())
        and f"{one.get('version', '')}.".startswith(f"{python}.")
        and isinstance(one.get("url"), str)
    ]
    newest = max(fitting, key=_patch, default=None)
    if newest is None:
        raise NoInterpreter(f"uv knows no Python {python} for {arch}; name an archive: --interpreter URL")
    return str(newest["url"])


def _patch(one: dict[str, Any]) -> int:
    patch = (one.get("version_parts") or {}).get("patch")
    return patch if isinstance(patch, int) else -1


async def _listed(python: str) -> list[Any]:
    with tempfile.TemporaryDirectory(prefix="llmgw-uv-") as cache:
        process = await asyncio.create_subprocess_exec(
            *(str(program()), "python", "list", python, "--only-downloads", "--all-arches", "--output-format", "json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment(Path(cache), UV_PYTHON_DOWNLOADS="manual"),
        )
        try:
            async with asyncio.timeout(_LIMIT):
                said, _ = await process.communicate()
            found = json.loads(said)
        except (TimeoutError, ValueError):
            raise NoInterpreter(f"uv did not list the downloads of Python {python}; --interpreter URL") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return found if isinstance(found, list) else []
