"""What may be a release, as text and as a value: what is written is read again, and nothing else is taken."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.engines.orders import Release, ReleaseFile, release_id
from llmgw.core.engines.releases import MOST_FILES, checked, read, without_digest, written
from llmgw.core.engines.terms import EngineKind
from llmgw.core.units import BOUND, Bytes

FILE = ReleaseFile(
    name="llama-b11057-bin-ubuntu-x64.tar.gz",
    size=Bytes(16876121),
    digest="sha256:" + "0123456789abcdef" * 4,
    url="https://github.com/ggml-org/llama.cpp/releases/download/b11057/llama-b11057-bin-ubuntu-x64.tar.gz",
)
WHEEL = replace(FILE, name="numpy-2.2.0-cp312-cp312-manylinux_2_28_x86_64.whl", url="", package="numpy")
LLAMA = Release(engine="llama.cpp", version="b11057", kind=EngineKind.ARCHIVE, files=(FILE,))
VLLM = Release(
    engine="vllm", version="0.33.0+cu130", kind=EngineKind.PYTHON, variant="cuda", python="3.12", files=(WHEEL, FILE)
)


@pytest.mark.parametrize("release", [LLAMA, VLLM])
def test_what_is_written_is_read_again_as_the_same(release: Release) -> None:
    again = read(written(release))
    assert again == release
    assert release_id(again) == release_id(release)
    assert "\n" not in written(release)


def test_what_need_not_be_said_may_be_left_out() -> None:
    text = '{"engine": "llama.cpp", "version": "b1", "kind": "archive", "files": [{"name": "a.tar.gz", "size": 1}]}'
    found = read(text)
    assert found.files == (ReleaseFile(name="a.tar.gz", size=Bytes(1)),)
    assert without_digest(found) == ("a.tar.gz",)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"engine": "vllm"}, "engine: 'vllm' is no engine of kind archive"),
        ({"engine": "a" * 500}, f"engine: {'a' * 80!r} is no engine"),
        ({"version": ""}, "version: '' is not a name for a version"),
        ({"version": "-rf"}, "version: '-rf'"),
        ({"version": "../x"}, "version: '../x'"),
        ({"version": "b1\n"}, "version: 'b1.n'"),
        ({"version": "b" * 65}, "version: 'bbb"),
        ({"variant": "a/b"}, "variant: 'a/b'"),
        ({"python": "3.12; rm"}, "python: '3.12; rm'"),
        ({"files": ()}, "files: 0 is not between 1 and 2000"),
        ({"files": (FILE, FILE)}, "files: 1: .* is there twice"),
        *[
            ({"files": (replace(FILE, name=name),)}, "files: 0: name: ")
            for name in ("", ".", "..", ".hidden", "a/b", "/etc/passwd", "a\0b", "a b", "-x", "ä", "x" * 256)
        ],
        *[({"files": (replace(FILE, size=size),)}, "files: 0: size: ") for size in (0, -1, BOUND + 1)],
        *[
            ({"files": (replace(FILE, digest=digest),)}, "files: 0: digest: ")
            for digest in ("sha256:", "sha256:" + "A" * 64, "md5:" + "0" * 32, FILE.digest + "\n")
        ],
        *[
            ({"files": (replace(FILE, url=url),)}, "files: 0: url: ")
            for url in ("x", "file:///x", "http://u:p@h/", "https://h/x\r\nHost: y", "https://h/x#sha256=1")
        ],
        ({"files": (replace(FILE, package="a b"),)}, "files: 0: package: 'a b' is not the name of a package"),
    ],
)
def test_what_breaks_a_rule_is_named_with_its_place(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        checked(replace(LLAMA, **fields))


GOOD: dict[str, Any] = json.loads(written(LLAMA))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        (f'{{"size": {"9" * 5000}}}', "is not JSON"),
        ("[]", "the whole: is not an object"),
        (json.dumps(GOOD | {"extra": 1}), "the whole: 'extra' is not known"),
        (json.dumps(GOOD | {"kind": "container"}), "kind: 'container' is not archive, python"),
        (json.dumps(GOOD | {"engine": None}), "engine: is not text"),
        (json.dumps(GOOD | {"files": {}}), "files: is not a list"),
        (json.dumps(GOOD | {"files": [1]}), "files: 0: is not an object"),
        (json.dumps(GOOD | {"files": [{"name": "a", "size": 1.5}]}), "files: 0: size: is not a whole number"),
        (json.dumps(GOOD | {"files": [{"name": "a", "size": True}]}), "files: 0: size: is not a whole number"),
        (json.dumps(GOOD | {"files": [{"name": "a", "size": 1, "url": None}]}), "files: 0: url: is not text"),
        (json.dumps(GOOD | {"files": [{"name": "a", "size": 1, "mode": 7}]}), "files: 0: 'mode' is not known"),
        (json.dumps(GOOD | {"files": [{}] * (MOST_FILES + 1)}), "files: 2001 is not between"),
    ],
    ids=range(14),
)
def test_text_that_is_no_release_is_named_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        read(text)
    assert len(str(caught.value)) < 300


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(GOOD)), inner, max_size=6),
    max_leaves=8,
)


@settings(max_examples=50)
@given(_JSON, st.sampled_from([*GOOD, ""]))
def test_no_text_raises_anything_but_value_error(value: object, key: str) -> None:
    whole = GOOD | {key: value} if key else value
    try:
        read(json.dumps(whole))
    except ValueError as error:
        assert str(error)
