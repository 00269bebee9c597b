"""Which `uv` makes Python environments, and what may it know? The one that llmgw depends on; nothing on PATH."""

import os
from collections.abc import Mapping
from pathlib import Path

import uv

_NAMES = frozenset({"PATH", "LANG", "TMPDIR"})
_NETWORK = frozenset(
    {"HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
)  # HOME has the .netrc


class NoUv(Exception):
    """There is no `uv`; the text says what to do about it."""


def program() -> Path:
    """The program. Raises NoUv."""
    try:
        found = Path(uv.find_uv_bin())
    except FileNotFoundError:
        raise NoUv("uv is missing from llmgw's own installation; install llmgw again, with all that it needs") from None
    if not os.access(found, os.X_OK):
        raise NoUv(f"uv at {found} cannot be started; install llmgw again, with all that it needs")
    return found


def environment(cache: Path, *, network: bool = False, **settings: str) -> dict[str, str]:
    """Its environment: what the user of this process set for an `uv` of their own says nothing here.

    `settings` are uv's own variables. With `network` it also learns of proxies and certificates.
    """
    return {
        **_kept(os.environ, network),
        "UV_CACHE_DIR": str(cache),
        "UV_NO_CONFIG": "1",
        "UV_NO_ENV_FILE": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "NO_COLOR": "1",
        **settings,
    }


def _kept(all_of_it: Mapping[str, str], network: bool) -> dict[str, str]:
    return {
        name: value
        for name, value in all_of_it.items()
        if (name in _NAMES or name.startswith("LC_") or (network and name.upper() in _NETWORK)) and "\n" not in value
    }
