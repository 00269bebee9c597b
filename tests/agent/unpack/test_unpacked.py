"""Archives as real projects publish them come out as they are."""

import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from llmgw.agent.engines.elf import broken_links
from llmgw.agent.engines.unpack.limits import LIMITS
from tests.agent.archives import END, directory, entry, hardlink, long_name, packed, pax, symlink, tree
from tests.agent.unpack.place import Place

LIBRARY = os.urandom(3000)


def test_libraries_with_chains_of_links(place: Place) -> None:
    files: dict[str, bytes | str] = {
        "llama-b10991/libggml.so": "libggml.so.0",  # before what it leads to
        "llama-b10991/libggml.so.0": "libggml.so.0.9.4",
        "llama-b10991/libggml.so.0.9.4": LIBRARY,
        "llama-b10991/bin/llama-server": b"#!/bin/sh\n",
        "llama-b10991/lib": ".",
        "llama-b10991/bin/libggml.so": "../lib/libggml.so",
    }
    place.extract(tree(place.archive, files).read_bytes())
    assert (place.into / "llama-b10991/bin/libggml.so").read_bytes() == LIBRARY
    assert place.made()["llama-b10991/libggml.so"] == "-> libggml.so.0"
    assert place.made()["llama-b10991/bin/llama-server"] == "755 b'#!/bin/sh\\n'"
    assert broken_links(place.into) == []
    place.check()


def test_modes_are_bounded_and_owners_left_out(place: Place) -> None:
    place.extract(
        packed(
            [
                directory("d", mode=0o7777),
                directory("closed", mode=0),
                entry("closed/f", b"1", mode=0),
                entry("d/all", b"1", mode=0o6777, owner=b"\x80\x00\x00\x00\xff\xff\xff\xff"),
                entry("d/read", b"2", mode=0o444),
                entry("d/empty", mode=0o755),
            ]
        )
    )
    assert place.made() == {
        "closed": "700",
        "closed/f": "400 b'1'",
        "d": "755",
        "d/all": "755 b'1'",
        "d/empty": "755 b''",
        "d/read": "444 b'2'",
    }
    assert (place.into / "d/all").stat().st_uid == os.geteuid()


def test_hard_links_are_copies(place: Place) -> None:
    place.extract(
        packed([entry("a/f", LIBRARY), hardlink("b/g", "./a/f"), entry("e"), hardlink("h", "e"), hardlink("i", "b/g")])
    )
    assert (place.into / "b/g").read_bytes() == (place.into / "i").read_bytes() == LIBRARY
    assert {path.stat().st_nlink for path in place.into.rglob("*") if path.is_file()} == {1}
    assert (place.into / "h").read_bytes() == b""


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        pytest.param([directory("./"), directory("./d"), entry("./d/f", b"x")], ["d/f"], id="as tar of . writes it"),
        pytest.param([directory("."), entry("f", b"x")], ["f"], id="the root"),
        pytest.param([entry("a/b/f", b"x"), directory("a/b"), directory("a")], ["a/b/f"], id="directories later"),
        pytest.param([entry("f", b"x", kind=b"\x00")], ["f"], id="old type"),
        pytest.param([entry("f", b"x", prefix=b"a/b")], ["a/b/f"], id="prefix"),
        pytest.param([entry("f", b"x", magic=b"ustar  \x00")], ["f"], id="GNU"),
        pytest.param([long_name("n/" * 20 + "f"), entry("cut", b"x")], ["n/" * 20 + "f"], id="long name"),
        pytest.param([pax(path="é/f", mtime="1.5"), entry("cut", b"x")], ["é/f"], id="pax name"),
        pytest.param([pax(size="1"), entry("f", b"x")], ["f"], id="pax size"),
        pytest.param([pax(kind=b"g", comment="c0ffee"), entry("f", b"x")], ["f"], id="comment for all"),
        pytest.param([entry("f", b"x", size=b"\x80" + (1).to_bytes(11, "big"))], ["f"], id="size in base 256"),
    ],
)
def test_ways_to_write_a_name(entries: list[bytes], names: list[str], place: Place) -> None:
    place.extract(packed(entries))
    assert place.files() == names


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_python_writes_in_each_format(format_: int, place: Place, tmp_path: Path) -> None:
    source = tmp_path / "source"
    deep = source / ("d" * 90) / ("e" * 90)
    deep.mkdir(parents=True)
    (deep / "f").write_bytes(LIBRARY)
    (source / "link").symlink_to("d" * 90)
    if format_ != tarfile.USTAR_FORMAT:  # it has no long link targets
        os.link(deep / "f", source / "hard")
        (source / "far").symlink_to(Path("d" * 90, "e" * 90, "f"))
    with tarfile.open(place.archive, "w:gz", format=format_) as archive:
        archive.add(source, ".")
    place.extract(place.archive.read_bytes())
    for path in source.rglob("*"):
        made = place.into / path.relative_to(source)
        assert made.is_symlink() == path.is_symlink()
        assert made.is_dir() or made.read_bytes() == LIBRARY


def test_interpreters_may_have_names_that_differ_in_case(place: Place) -> None:
    place.extract(packed([entry("terminfo/A/x", b"1"), entry("terminfo/a/x", b"2")]), case_pairs=True)
    assert place.files() == ["terminfo/A/x", "terminfo/a/x"]


def test_just_within_the_limits(place: Place) -> None:
    deep = "d/" * 31 + "f"
    entries = [entry(deep, b"x"), entry("f", bytes(1000)), symlink("l", "f")]
    exact = replace(LIMITS, entries=34, depth=32, component=1, out=len(b"".join(entries)) + len(END))
    place.extract(packed(entries), exact)
    assert place.files() == [deep, "f", "l"]


def test_broken_links_are_found_and_whole_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libx.so.1").write_text("x")
    (tmp_path / "lib/libx.so").symlink_to("libx.so.1")
    (tmp_path / "up").symlink_to("lib")
    assert broken_links(tmp_path) == []
    (tmp_path / "lib/libx.so.1").unlink()
    (tmp_path / "ring").symlink_to("ring")
    assert broken_links(tmp_path) == ["lib/libx.so -> libx.so.1", "ring -> ring"]
