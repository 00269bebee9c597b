"""How people write durations and sizes: `500ms 60s 10m 2h`, `600MiB 5GiB`."""

import re

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)\Z", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)\Z", re.ASCII)
_BYTES = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}


def duration(text: str) -> float:
    """Seconds of `500ms`, `60s`, `10m`, `2h`, `1d` or `0`; ValueError says the rule."""
    if text == "0":
        return 0.0
    match = _DURATION.match(text)
    if match is None:
        raise ValueError("must be a duration such as 500ms, 60s or 10m")
    return float(match[1]) * _SECONDS[match[2]]


def byte_size(text: str) -> int:
    """Bytes of `600MiB`, `5GiB`, `1.5GB`; ValueError says the rule."""
    match = _SIZE.match(text)
    if match is None:
        raise ValueError("must be a size such as 600MiB or 5GiB")
    return int(float(match[1]) * _BYTES[match[2]])
