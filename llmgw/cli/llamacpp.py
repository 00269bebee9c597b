"""llama.cpp's own server out of the `xllamacpp` package, behind the flags of `llama-server`.

The demo and the journeys use it as their engine: a two-line script that runs this module with this interpreter stands
where a node's `llama-server` would (`script`). It logs, fails and ends as that program does: words on stderr, status 1
when it cannot start, an end at once on SIGTERM. Flags that it does not have are refused, never ignored.
"""

import importlib.util
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from llmgw.core.errors import Rejected

_PORT = 8080
_SLOTS = 4


class NoEngine(Rejected):
    """There is no llama.cpp to run."""

    code = "no_engine"


class _BadArgument(Exception):
    """Words as llama-server says them."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: the names it goes by, what its value is called, and where that goes in xllamacpp's CommonParams."""

    names: tuple[str, ...]
    value: str
    """Empty for a switch."""
    text: str
    set: Callable[[Any, str], None]


def script(path: Path) -> Path:
    """Write an executable at `path` that takes llama-server's flags, and return it."""
    # Not `-m`: with it a working directory that holds a folder `llmgw` would win over the installed package.
    code = "from llmgw.cli.llamacpp import main; main()"
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -c {shlex.quote(code)} "$@"\n')
    path.chmod(0o755)
    return path


def engine_is_installed() -> None:
    """Raise NoEngine when it is not."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise NoEngine("the engine is not installed: there is no package xllamacpp; pip install 'llmgw[demo]'")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Serve until SIGTERM or SIGINT."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        engine_is_installed()
    except NoEngine as error:
        raise SystemExit(f"error: {error}") from None
    asked = {"-h": _help, "--help": _help, "--version": _version, "--list-devices": _devices}
    for argument in arguments:
        if argument in asked:
            asked[argument]()
            raise SystemExit(0)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.port, params.n_parallel = _PORT, 0
    try:
        _apply(params, arguments)
    except _BadArgument as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from None
    if params.n_parallel < 1:  # as `-np -1`: some slots, which share one cache
        params.n_parallel, params.kv_unified = _SLOTS, True
    _serve(xllamacpp, params)


def _serve(xllamacpp: Any, params: Any) -> NoReturn:
    # Signals keep their defaults while the model loads: a handler could not run then, and the default ends us at once.
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        # The cause was logged by the server itself, in a thread of its own: an orderly end lets it finish writing.
        raise SystemExit(1) from None
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not by unwinding: the server's end waits for its open streams.
        signal.signal(number, lambda *_: os._exit(0))
    while server:
        signal.pause()
    os._exit(0)


def _apply(params: Any, arguments: Sequence[str]) -> None:
    flags = {name: flag for flag in FLAGS for name in flag.names}
    rest = iter(arguments)
    for name in rest:
        flag = flags.get(name)
        if flag is None:
            raise _BadArgument(f"error: invalid argument: {name}")
        try:
            flag.set(params, _value(flag, rest))
        except (ValueError, OSError) as error:
            usage = "\n".join(_usage(flag))
            raise _BadArgument(
                f'error while handling argument "{name}": {error}\n\nusage:\n{usage}\n\n'
                "to show complete usage, run with -h"
            ) from None


def _value(flag: Flag, rest: Iterator[str]) -> str:
    if not flag.value:
        return ""
    value = next(rest, None)
    if value is None:
        raise ValueError("expected value for argument")
    return value


# --- what a value means -----------------------------------------------------------------------------------------


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError("stoi") from None
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError("stoi")
    return number


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("stof") from None


def _words(text: str) -> set[str]:
    return {word for word in text.split(",") if word}


def _one_of(choices: dict[str, Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        if text not in choices:
            raise ValueError(f"unknown value: '{text}', must be one of {', '.join(choices)}")
        return choices[text]

    return parse


def _to(path: str, parse: Callable[[str], Any] = str) -> Callable[[Any, str], None]:
    """Set the attribute `path` (dots go deeper) to the parsed value."""
    *way, last = path.split(".")

    def put(params: Any, text: str) -> None:
        for step in way:
            params = getattr(params, step)
        setattr(params, last, parse(text))

    return put


def _always(path: str, value: object) -> Callable[[Any, str], None]:
    return _to(path, lambda _: value)


def _keys(params: Any, text: str) -> None:
    params.api_keys = [*params.api_keys, *(key for key in text.split(",") if key)]


def _key_file(params: Any, name: str) -> None:
    try:
        lines = Path(name).read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"failed to open file '{name}'") from None
    params.api_keys = [*params.api_keys, *(line for line in lines if line and not line.startswith("#"))]


_GPU_LAYERS = {"auto": -1, "all": -2}
_ON_OFF = _one_of({"on": True, "off": False})
_ON_OFF_AUTO = _one_of({"on": 1, "off": 0, "auto": -1})
_CACHE_TYPES = _one_of({"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30})
_LOAD_MODES = _one_of({"auto": -1, "none": 0, "mmap": 1, "mlock": 2, "mmap+mlock": 3, "dio": 4})
_POOLING = _one_of({"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4})

FLAGS = (
    Flag(("-t", "--threads"), "N", "CPU threads for generation (default: all)", _to("cpuparams.n_threads", _whole)),
    Flag(("-tb", "--threads-batch"), "N", "CPU threads for prompts", _to("cpuparams_batch.n_threads", _whole)),
    Flag(("-c", "--ctx-size"), "N", "context over all slots, 0: the model's", _to("n_ctx", _whole)),
    Flag(("-n", "--predict", "--n-predict"), "N", "tokens to generate, -1: no limit", _to("n_predict", _whole)),
    Flag(("-b", "--batch-size"), "N", "logical batch size", _to("n_batch", _whole)),
    Flag(("-ub", "--ubatch-size"), "N", "physical batch size", _to("n_ubatch", _whole)),
    Flag(("-fa", "--flash-attn"), "[on|off|auto]", "flash attention", _to("flash_attn_type", _ON_OFF_AUTO)),
    Flag(("-ctk", "--cache-type-k"), "TYPE", "type of the cache's keys", _to("cache_type_k", _CACHE_TYPES)),
    Flag(("-ctv", "--cache-type-v"), "TYPE", "type of the cache's values", _to("cache_type_v", _CACHE_TYPES)),
    Flag(("-np", "--parallel"), "N", "slots, -1: auto", _to("n_parallel", _whole)),
    Flag(("-kvu", "--kv-unified"), "", "one cache for all slots", _always("kv_unified", True)),
    Flag(("-no-kvu", "--no-kv-unified"), "", "a cache for each slot", _always("kv_unified", False)),
    Flag(("-cram", "--cache-ram"), "N", "MiB of the prompt cache, 0: none", _to("cache_ram_mib", _whole)),
    Flag(("-ctxcp", "--ctx-checkpoints"), "N", "context checkpoints per slot", _to("n_ctx_checkpoints", _whole)),
    Flag(("-fit", "--fit"), "[on|off]", "fit unset arguments to memory", _to("fit_params", _ON_OFF)),
    Flag(("-fitc", "--fit-ctx"), "N", "least context that --fit may set", _to("fit_params_min_ctx", _whole)),
    Flag(
        ("-ngl", "--gpu-layers", "--n-gpu-layers"),
        "N",
        "layers on the GPU: a number, auto or all",
        _to("n_gpu_layers", lambda text: _GPU_LAYERS[text] if text in _GPU_LAYERS else _whole(text)),
    ),
    Flag(("-lm", "--load-mode"), "MODE", "auto|none|mmap|mlock|mmap+mlock|dio", _to("load_mode", _LOAD_MODES)),
    Flag(("-m", "--model"), "FNAME", "the model's GGUF file", _to("model.path")),
    Flag(("-a", "--alias"), "STRING", "names of the model, comma-separated", _to("model_alias", _words)),
    Flag(("--host",), "HOST", "address to listen on", _to("hostnames", lambda text: text.split(","))),
    Flag(("--port",), "PORT", f"port to listen on (default: {_PORT})", _to("port", _whole)),
    Flag(("-to", "--timeout"), "N", "seconds to wait for a client", _to("timeout_read", _whole)),
    Flag(("--threads-http",), "N", "threads that serve HTTP", _to("n_threads_http", _whole)),
    Flag(("--api-key",), "KEY", "keys, comma-separated", _keys),
    Flag(("--api-key-file",), "FNAME", "file with a key per line", _key_file),
    Flag(("--metrics",), "", "serve /metrics", _always("endpoint_metrics", True)),
    Flag(("--props",), "", "let POST change /props", _always("endpoint_props", True)),
    Flag(("--slots",), "", "serve /slots (default)", _always("endpoint_slots", True)),
    Flag(("--no-slots",), "", "do not serve /slots", _always("endpoint_slots", False)),
    Flag(("--ui", "--webui"), "", "serve the web page (default)", _always("ui", True)),
    Flag(("--no-ui", "--no-webui"), "", "do not serve the web page", _always("ui", False)),
    Flag(("--embedding", "--embeddings"), "", "serve embeddings only", _always("embedding", True)),
    Flag(("--pooling",), "TYPE", "none|mean|cls|last|rank", _to("pooling_type", _POOLING)),
    Flag(("--jinja",), "", "use the model's chat template (default)", _always("use_jinja", True)),
    Flag(("--no-jinja",), "", "do not use it", _always("use_jinja", False)),
    Flag(("--chat-template",), "TEMPLATE", "another chat template", _to("chat_template")),
    Flag(("--warmup",), "", "run once before serving (default)", _always("warmup", True)),
    Flag(("--no-warmup",), "", "do not", _always("warmup", False)),
    Flag(("--no-mmproj",), "", "no multimodal projector", _always("no_mmproj", True)),
    Flag(("--offline",), "", "no network for models", _always("offline", True)),
    Flag(("-s", "--seed"), "N", "seed of the sampling", _to("sampling.seed", lambda text: _whole(text) & 0xFFFFFFFF)),
    Flag(("--temp", "--temperature"), "N", "temperature", _to("sampling.temp", _real)),
    Flag(("-lv", "--verbosity"), "N", "how much is logged", _to("verbosity", _whole)),
)  # fmt: skip


# --- what it says about itself ----------------------------------------------------------------------------------


def _usage(flag: Flag) -> list[str]:
    head = ", ".join(flag.names) + (f" {flag.value}" if flag.value else "")
    return [f"{head:<40}{flag.text}"] if len(head) < 40 else [head, f"{'':<40}{flag.text}"]


def _help() -> None:
    print("----- llama.cpp's server from the xllamacpp package -----\n")
    print("\n".join(line for flag in FLAGS for line in _usage(flag)))
    print("-h, --help                              this text")
    print("--version                               version and build, on stderr")
    print("--list-devices                          the devices that it can use")


def _version() -> None:
    import importlib.metadata  # not above: it would be half of what `--help` costs

    import xllamacpp

    version = importlib.metadata.version("xllamacpp")
    build, info = version.rpartition(".")[2], xllamacpp.BUILD_INFO
    print(f"version: {version} (build {build}, commit {info['commit']})", file=sys.stderr)
    print(f"built with {info['compiler']} for {info['build_target']}", file=sys.stderr)


def _devices() -> None:
    import xllamacpp

    print("Available devices:")
    for device in xllamacpp.get_device_info():
        # The processor is not a device in llama-server's list.
        if device["name"] != "CPU":
            total, free = device["memory_total"] >> 20, device["memory_free"] >> 20
            print(f"  {device['name']}: {device['description']} ({total} MiB, {free} MiB free)")
