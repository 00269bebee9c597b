"""How is llama.cpp's `llama-server` started and asked? Its arguments, its version, its health.

What is reserved for a replica is what the engine is told: the whole context, no prompt cache beyond what the profile
counts in, no fitting of arguments behind our back.
"""

import re
from collections.abc import Mapping, Sequence

from llmgw.agent.engines.adapter import Place, Ready
from llmgw.core.errors import BadProfile
from llmgw.core.facts import ShardOrder

NAME = "llama.cpp"

_VERSION = re.compile(r"version: (?:(\d+) \((\w+)\)|(\S+) \(build (\d+), commit (\w+)\))")
_FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
_DEVICE = re.compile(r"^ +[A-Za-z]+\d+: .+ \(\d+ MiB, \d+ MiB free\)[ \t]*$", re.M)

_WANTED: Mapping[str, tuple[str, ...]] = {
    "model": ("-m", "--model"),
    "host": ("--host",),
    "port": ("--port",),
    "alias": ("-a", "--alias"),
    "context": ("-c", "--ctx-size"),
    "slots": ("-np", "--parallel"),
    "key": ("--api-key-file",),
    "metrics": ("--metrics",),
}
"""What every build must understand, each with its spellings."""

_WHERE_KNOWN: Mapping[str, tuple[str, ...]] = {
    "cache": ("-cram", "--cache-ram"),
    "fit": ("-fit", "--fit"),
    "gpu": ("-ngl", "--gpu-layers", "--n-gpu-layers"),
    "threads": ("-t", "--threads"),
}
"""What is said where a build knows it: an older one without the flag does not do what it turns off."""

_OURS: Mapping[str, str] = {
    **dict.fromkeys((*_WANTED["model"], "-mu", "--model-url", "-hf", "--hf-repo", "-hff", "--hf-file"), "`weights:`"),
    **dict.fromkeys((*_WANTED["model"], "-dr", "--docker-repo", "--models-dir", "--models-preset"), "`weights:`"),
    **dict.fromkeys(_WANTED["context"], "`context:`"),
    **dict.fromkeys(_WANTED["slots"], "`slots:`"),
    **dict.fromkeys(_WHERE_KNOWN["threads"], "`threads:`"),
    **dict.fromkeys(_WANTED["alias"], "the model's name and `aliases:`"),
    **dict.fromkeys(("--host", "--port", "--reuse-port", "--api-prefix", "--ssl-key-file", "--ssl-cert-file"), ""),
    **dict.fromkeys(("--api-key", "--api-key-file", "--metrics", *_WHERE_KNOWN["fit"], *_WHERE_KNOWN["gpu"]), ""),
    **dict.fromkeys(("--log-file", "--log-disable", "-h", "--help", "--usage", "--version"), ""),
}
"""Flags that a profile may not set, with the key of the profile that says it instead."""


def version(text: str) -> str | None:
    """Return the version that `--version` printed (on either stream), `b10021` where there is a build number."""
    match = _VERSION.search(text)
    if match is None:
        return None
    build = match[1] or match[4]
    return f"b{build}" if int(build) > 1 else match[3] or f"b{build}"


def flags(text: str) -> frozenset[str]:
    """Return the flags that `--help` lists."""
    return frozenset(_FLAG.findall(text))


def lacking(known: frozenset[str]) -> str:
    """Return what a build with these flags cannot be told, as a problem; empty when nothing."""
    missing = [spellings[-1] for spellings in _WANTED.values() if not known.intersection(spellings)]
    return f"this build does not know {', '.join(missing)}" if missing else ""


def argv(program: str, order: ShardOrder, place: Place, known: frozenset[str]) -> tuple[str, ...]:
    """Return the command line. Raises BadProfile for arguments that a profile may not have."""
    profile = order.profile
    _allowed(order, known)
    said: dict[str, str | None] = {
        "model": profile.weights,
        "alias": ",".join((order.model, *order.aliases)),
        "host": place.host,
        "port": str(place.port),
        "key": str(place.key_file),
        "context": str(profile.context * profile.slots),
        "slots": str(profile.slots),
        "metrics": None,
        "fit": "off",
        "gpu": "0",
    }
    if cache_ram(profile.arguments) is None:
        said["cache"] = "0"
    if profile.threads:
        said["threads"] = str(profile.threads)
    words = [program]
    for meaning, value in said.items():
        spelling = _spelling(meaning, known)
        words += [] if spelling is None else [spelling] if value is None else [spelling, value]
    return (*words, *profile.arguments)


def proof(program: str, weights: str, place: tuple[str, int], known: frozenset[str], layers: int) -> tuple[str, ...]:
    """Return the command line that loads a small model with so many layers on a GPU, as plainly as a build can."""
    host, port = place
    said = {"model": weights, "host": host, "port": str(port), "context": "256", "slots": "1", "fit": "off"}
    said |= {"cache": "0", "threads": "2", "gpu": str(layers)}
    spelled = [(_spelling(meaning, known), value) for meaning, value in said.items()]
    return (program, *(word for spelling, value in spelled if spelling for word in (spelling, value)))


def devices(text: str) -> tuple[str, ...]:
    """Return the devices that `--list-devices` named: `CUDA0: NVIDIA A100 (40536 MiB, 40112 MiB free)`."""
    return tuple(match[0].strip() for match in _DEVICE.finditer(text))


def cache_ram(arguments: Sequence[str]) -> int | None:
    """Return the MiB of prompt cache that a profile's arguments ask for, None when they do not speak of it.

    Raises BadProfile when it is no bounded number: the engine's own default would take up to 8 GiB.
    """
    asked: int | None = None
    for word, value in zip(arguments, (*arguments[1:], ""), strict=False):
        if word in _WHERE_KNOWN["cache"]:
            if not value.isdecimal() or len(value) > 9:
                raise BadProfile(
                    f"argument {word}", f"needs a number of MiB, not {value[:40]!r}", "count it in `memory:`"
                )
            asked = int(value)
    return asked


def _allowed(order: ShardOrder, known: frozenset[str]) -> None:
    for word in order.profile.arguments:
        if "\0" in word or len(word) > 4096:
            raise BadProfile(f"argument {word[:40]!r}", "holds a NUL or is longer than 4096 characters")
        flag = word.partition("=")[0]
        if flag in _OURS:
            key = _OURS[flag]
            raise BadProfile(f"argument {flag}", "llmgw sets it itself", f"use {key}" if key else "leave it out")
        if _FLAG.fullmatch(word) and word not in known:
            raise BadProfile(f"argument {word[:80]}", "this build of llama.cpp does not know it", "see its --help")


def _spelling(meaning: str, known: frozenset[str]) -> str | None:
    spellings = _WANTED.get(meaning) or _WHERE_KNOWN[meaning]
    return next((spelling for spelling in spellings if spelling in known), None)


# --- health -----------------------------------------------------------------------------------------------------

HEALTH = "/health"
OWN = "/v1/models"
METRICS = "/metrics"

_PROCESSING = re.compile(rb"^llamacpp:(?:requests_processing|requests_deferred)(?:\{[^}]*\})? ([0-9.eE+-]+)\s*$", re.M)


def health(status: int) -> Ready:
    """What the status of `/health` means."""
    match status:
        case 200:
            return Ready.READY
        case 503:
            return Ready.LOADING
        case _:
            return Ready.WRONG


def serving(metrics: bytes) -> int | None:
    """Return how many requests the engine has in work or waiting, None when its metrics do not say."""
    found = _PROCESSING.findall(metrics)
    try:
        return sum(int(float(number)) for number in found) if found else None
    except (ValueError, OverflowError):
        return None
