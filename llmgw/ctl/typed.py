"""What do the words of a command line mean that are no names? Each raises argparse's error in words."""

import argparse
import re
from collections.abc import Callable

from llmgw.config.units import duration

WAIT = "10m"
"""How long a bare `--wait` waits."""


def spec(text: str) -> tuple[str, str]:
    """Return the engine and the version of `vllm==0.33.0`."""
    engine, equal, version = text.partition("==")
    if not (engine and equal and version) or "=" in version:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no engine at a version, as vllm==0.33.0")
    return engine, version


def count(most: int, least: int = 0) -> Callable[[str], int]:
    """Return what takes a number from `least` to `most`."""

    def counted(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a number from {least} to {most}")
        return int(text)

    return counted


def wait(text: str) -> float:
    """Return seconds; those of a bare `--wait` for an empty text."""
    try:
        return duration(text or WAIT)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} {error}") from None
