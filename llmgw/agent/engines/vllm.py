"""Which version of vLLM is it?"""

from packaging.version import InvalidVersion, Version

NAME = "vllm"


def version(text: str) -> str | None:
    """Return the version that `vllm --version` printed, without what it is built for (`+cpu`); None when there is none.

    It may log lines of its own before.
    """
    for line in reversed(text.splitlines()):
        words = line.split()
        if 1 <= len(words) <= 2 and len(line) <= 100:  # `0.33.0`, or `vllm 0.33.0`
            try:
                return Version(words[-1]).public
            except InvalidVersion:
                continue
    return None
