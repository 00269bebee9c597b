"""llama.cpp's `llama-server`: its version, its flags, its command line, its health."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.agent.engines import llamacpp
from llmgw.agent.engines.adapter import Place, Ready
from llmgw.core.errors import BadProfile
from tests.agent.control import order

HELP = """----- common params -----
-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of CPU threads (env: LLAMA_ARG_THREADS)
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from model)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM
-fit,  --fit [on|off]                   whether to adjust unset arguments to fit in device memory
-m,    --model FNAME                    model path to load
-a,    --alias STRING                   set model name aliases, comma-separated
-np,   --parallel N                     number of server slots
-cram, --cache-ram N                    set the maximum cache size in MiB (default: 8192)
--host HOST  --port PORT  --metrics  --api-key KEY  --api-key-file FNAME  --mlock  --no-mmap
"""
KNOWN = llamacpp.flags(HELP)
OLD = KNOWN - {"-cram", "--cache-ram", "-fit", "--fit"}
PLACE = Place(host="127.0.0.1", port=21000, key_file=Path("/state/shards/tiny-0-0/key"))


def line(known: frozenset[str] = KNOWN, **profile: object) -> list[str]:
    return list(llamacpp.argv("/opt/llama-server", order("/w.gguf", **profile), PLACE, known))


def value(words: list[str], flag: str) -> str:
    assert words.count(flag) == 1
    return words[words.index(flag) + 1]


def test_all_that_is_reserved_is_said():
    words = line(context=4096, slots=3, threads=5)
    assert words[0] == "/opt/llama-server"
    said = {flag: value(words, flag) for flag in ("-m", "-a", "--host", "--port", "-c", "-np", "-t", "-ngl", "-fit")}
    assert said == {
        "-m": "/w.gguf",
        "-a": "tiny,Tiny:1b",
        "--host": "127.0.0.1",
        "--port": "21000",
        "-c": "12288",  # the engine divides it among its slots
        "-np": "3",
        "-t": "5",
        "-ngl": "0",
        "-fit": "off",
    }
    assert value(words, "-cram") == "0"
    assert value(words, "--api-key-file") == "/state/shards/tiny-0-0/key"
    assert "--metrics" in words
    assert "-fa" not in words


def test_threads_are_left_to_the_engine_when_nobody_says():
    assert "-t" not in line(threads=0)


def test_an_older_build_is_not_given_flags_that_it_does_not_know():
    words = line(OLD)
    assert "-fit" not in words
    assert "-cram" not in words


def test_a_build_that_lacks_what_is_needed_is_told_so():
    assert llamacpp.lacking(KNOWN) == ""
    assert llamacpp.lacking(KNOWN - {"--api-key-file"}) == "this build does not know --api-key-file"


def test_arguments_of_the_profile_come_last_as_they_are():
    assert line(arguments=("-fa", "on", "--mlock"))[-3:] == ["-fa", "on", "--mlock"]


def test_a_prompt_cache_that_is_counted_in_replaces_ours():
    words = line(arguments=("-cram", "64"))
    assert value(words, "-cram") == "64"


@pytest.mark.parametrize("given_value", ["-1", "lots", "", "99999999999"])
def test_a_prompt_cache_without_a_bound_is_refused(given_value: str):
    with pytest.raises(BadProfile, match="needs a number of MiB"):
        line(arguments=("--cache-ram", given_value))


@pytest.mark.parametrize(
    ("flag", "way_out"),
    [
        ("--port", "leave it out"),
        ("--host", "leave it out"),
        ("--host=0.0.0.0", "leave it out"),
        ("-m", "use `weights:`"),
        ("-hf", "use `weights:`"),
        ("-c", "use `context:`"),
        ("--parallel", "use `slots:`"),
        ("--threads", "use `threads:`"),
        ("--api-key", "leave it out"),
        ("--api-key-file", "leave it out"),
        ("-fit", "leave it out"),
        ("-ngl", "leave it out"),
        ("--ssl-key-file", "leave it out"),
        ("--api-prefix", "leave it out"),
    ],
)
def test_what_llmgw_sets_cannot_be_overridden(flag: str, way_out: str):
    with pytest.raises(BadProfile) as bad:
        line(arguments=("-fa", "on", flag, "1"))
    assert str(bad.value) == f"argument {flag.partition('=')[0]}: llmgw sets it itself; {way_out}"


def test_a_flag_that_the_build_does_not_know_is_refused_before_it_is_launched():
    with pytest.raises(BadProfile, match=r"argument --nosuchflag: this build of .* does not know it"):
        line(arguments=("--nosuchflag",))


def test_a_negative_number_is_no_flag():
    assert line(arguments=("--mlock", "-1"))[-1] == "-1"


@settings(deadline=None)
@given(st.lists(st.text(max_size=20), max_size=6))
def test_no_arguments_hide_ours(words: list[str]):
    try:
        made = line(arguments=tuple(words))
    except BadProfile:
        return
    assert made[len(made) - len(words) :] == words
    for flag in ("-m", "--host", "--port", "--api-key-file", "-c", "-np", "-ngl", "-fit"):
        assert made.count(flag) == 1


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("version: 10021 (33a75f41)\nbuilt with cc for x86_64", "b10021"),
        ("version: 0.1.0-dev (build 11549, commit 7e4c0a9)\n", "b11549"),
        ("version: 0.1.0-dev (build 1, commit 7e4c0a9)\n", "0.1.0-dev"),
        ("warning: no GPU\nversion: 4711 (abc)\n", "b4711"),
        ("usage: something else", None),
        ("", None),
    ],
)
def test_the_version_is_read_in_every_form(text: str, version: str | None):
    assert llamacpp.version(text) == version


def test_flags_are_read_from_help_and_nothing_else_is():
    assert {"-c", "--ctx-size", "-fit", "--api-key-file"} <= KNOWN
    assert "-dev" not in llamacpp.flags("0.1.0-dev ctx-size")


@pytest.mark.parametrize(("status", "ready"), [(200, Ready.READY), (503, Ready.LOADING), (404, Ready.WRONG)])
def test_health_by_status(status: int, ready: Ready):
    assert llamacpp.health(status) is ready


@pytest.mark.parametrize(
    ("metrics", "serving"),
    [
        (b"# HELP x\nllamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n", 3),
        (b"llamacpp:requests_processing 0\nllamacpp:requests_deferred 0\n", 0),
        (b"llamacpp:requests_processing 1e400\n", None),
        (b"llamacpp:requests_processing .e\n", None),
        (b"nothing", None),
    ],
)
def test_what_an_engine_serves_is_read_from_its_metrics(metrics: bytes, serving: int | None):
    assert llamacpp.serving(metrics) == serving


def test_devices_are_read_from_among_what_their_drivers_say():
    text = (
        "ggml_cuda_init: found 2 CUDA devices:\n  Device 0: NVIDIA L4, compute capability 8.9, VMM: yes\n"
        "Available devices:\n  CUDA0: NVIDIA L4 (23034 MiB, 22514 MiB free)\n"
        "  Vulkan0: AMD Radeon (RADV) (8192 MiB, 8000 MiB free)\n"
    )
    assert llamacpp.devices(text) == (
        "CUDA0: NVIDIA L4 (23034 MiB, 22514 MiB free)",
        "Vulkan0: AMD Radeon (RADV) (8192 MiB, 8000 MiB free)",
    )
    assert llamacpp.devices("Available devices:\n") == ()
