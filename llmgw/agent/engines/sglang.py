"""Which version of SGLang is it? Its launcher has no flag for that: its environment is asked for the package."""

from packaging.version import InvalidVersion, Version

NAME = "sglang"

ASK = "import importlib.metadata; print(importlib.metadata.version('sglang'))"
"""For `python -I -c`."""


def version(text: str) -> str | None:
    """Return the version that its environment printed, without what it is built for; None when there is none."""
    lines = text.split()
    try:
        return Version(lines[-1]).public if lines and len(lines[-1]) <= 100 else None
    except InvalidVersion:
        return None
