"""Archives that nobody of good will makes: each is refused by name and rule, before anything outside is touched."""

import gzip
import os
import time
from dataclasses import replace

import pytest

from llmgw.agent.engines.unpack.limits import LIMITS
from tests.agent.archives import END, directory, entry, hardlink, long_name, packed, pax, record, symlink
from tests.agent.unpack.place import Place

LEAVES = "leaves the directory"
GOOD = entry("good", b"good")

NAMES = {
    "up": ([entry("../x", b"x")], LEAVES),
    "up later": ([entry("a/../../x", b"x")], LEAVES),
    "up only": ([directory("..")], LEAVES),
    "absolute": ([entry("/etc/x", b"x")], "is absolute"),
    "absolute by prefix": ([entry("x", b"x", prefix=b"/etc")], "is absolute"),
    "up by prefix": ([entry("x", b"x", prefix=b"..")], LEAVES),
    "out and in again": ([entry("../evil/../dest/sub/f", b"x")], LEAVES),
    "pax name over a good one": ([pax(path="../x"), entry("good", b"x")], LEAVES),
    "pax link over a good one": ([GOOD, pax(linkpath="../x"), symlink("l", "good")], "outside of the archive"),
    "NUL in a pax name": ([pax(path=b"a\x00b"), entry("good", b"x")], "NUL in its name"),
    "NUL in a pax link": ([pax(linkpath=b"a\x00b"), symlink("l", "good")], "NUL in its link target"),
    "NUL within a name": ([entry(b"a\x00b", b"x")], "NUL in its name"),
    "NUL in a long name": ([long_name(b"a\x00b"), entry("good", b"x")], "NUL in its name"),
    "long name": ([long_name("../x"), entry("good", b"x")], LEAVES),
    "two long names": ([long_name("a"), long_name("b"), entry("good", b"x")], "second long name"),
    "two long links": ([long_name("a", b"K"), long_name("b", b"K"), symlink("l", "x")], "second long link target"),
    "two pax headers": ([pax(path="a"), pax(path="b"), entry("good", b"x")], "second extended header"),
    "long names of both kinds": ([long_name("a"), pax(path="b"), entry("good", b"x")], "two long names"),
    "header for nothing": ([GOOD, pax(path="a")], "for an entry that does not come"),
    "empty": ([entry("", b"x")], "empty name"),
    "empty by pax": ([pax(path=""), entry("good", b"x")], "empty name"),
    "the root as a file": ([entry(".", b"x")], "take the place of the directory"),
    "the root as a link": ([symlink(".", "good")], "take the place of the directory"),
    "a link with a slash": ([symlink("a/", "../victim")], "name of a directory, and is none"),
    "a file with a slash": ([entry("n/", b"x", kind=b"\x00")], "name of a directory, and is none"),
    "empty component": ([entry("a//b", b"x")], "empty component"),
    "dot component": ([entry("a/./b", b"x")], "empty component"),
    "line end": ([entry("a\nb", b"x")], "U+000A"),
    "escape": ([entry("a\x1b[2Jb", b"x")], "U+001B"),
    "C1": ([entry("a\x9bb", b"x")], "U+009B"),
    "backslash": ([entry("a\\b", b"x")], "U+005C"),
    "bidi": ([entry("a\u202eb", b"x")], "U+202E"),
    "zero width": ([entry("a\u200bb", b"x")], "U+200B"),
    "not UTF-8": ([entry(b"a\xff", b"x")], "not UTF-8"),
    "long": ([pax(path="a/" * 512 + "a"), entry("good", b"x")], "1025 bytes, 1024 are allowed"),
    "far too long": ([long_name("a" * 9000), entry("good", b"x")], "9001 bytes, 1025 are allowed"),
    "long component": ([long_name("é" * 128), entry("good", b"x")], "256 bytes, 255 are allowed"),
    "deep": ([entry("d/" * 32 + "f", b"x")], "33 directories deep, 32 are allowed"),
    "1,000 deep": ([pax(path="d/" * 1000 + "f"), entry("good", b"x")], "2001 bytes, 1024 are allowed"),
}

LINKS = {
    "absolute": ([symlink("l", "/etc/passwd")], "/etc/passwd, which is absolute"),
    "up, then a file through it": ([symlink("l", ".."), entry("l/f", b"x")], "outside of the archive"),
    "up from a directory": ([symlink("a/l", "../..")], "outside of the archive"),
    "up over another link": (
        [directory("a/b"), symlink("a/b/c", ".."), symlink("l", "a/b/c/../../v")],
        "outside of the archive",
    ),
    "file through a link": ([directory("d"), symlink("l", "d"), entry("l/f", b"x")], "lies in l, which is a link"),
    "directory through a link": ([directory("d"), symlink("l", "d"), directory("l/f")], "lies in l, which is a link"),
    "to nothing": ([symlink("lib.so", "lib.so.1")], "lib.so.1, which is not in the archive"),
    "chain to nothing": ([symlink("a", "b"), symlink("b", "c")], "which is not in the archive"),
    "through a file": ([GOOD, symlink("l", "good/x")], "which is not in the archive"),
    "to a file as a directory": ([GOOD, symlink("l", "good/")], "which is not in the archive"),
    "to itself": ([symlink("l", "l")], "over 40 links to nothing"),
    "in a ring": ([symlink("a", "b"), symlink("b", "a")], "over 40 links to nothing"),
    "empty": ([symlink("l", "")], "empty link target"),
    "odd": ([GOOD, symlink("l", "good\x1b")], "U+001B in its link target"),
    "not UTF-8": ([symlink("l", b"\xfe")], "link target that is not UTF-8"),
    "hard, to a link": ([GOOD, symlink("l", "good"), hardlink("h", "l")], "not an earlier file"),
    "hard, to a deep link": (
        [GOOD, symlink("a/b/l", "../../good"), hardlink("l", "a/b/l")],
        "not an earlier file",
    ),
    "hard, through a link": ([entry("d/f", b"x"), symlink("l", "d"), hardlink("h", "l/f")], "not an earlier file"),
    "hard, to a directory": ([directory("d"), hardlink("h", "d")], "not an earlier file"),
    "hard, up": ([hardlink("h", "../v")], "hard link to ../v, which leaves the directory"),
    "hard, absolute": ([hardlink("h", "/v")], "hard link to /v, which is absolute"),
    "hard, to a later entry": ([hardlink("h", "good"), GOOD], "not an earlier file"),
    "hard, to itself": ([hardlink("h", "h")], "not an earlier file"),
}

TWICE = {
    "directory, then link": ([directory("a"), symlink("a", "b"), entry("a/f", b"x")], "an earlier directory has"),
    "link, then directory": ([GOOD, symlink("a", "good"), directory("a")], "an earlier link has"),
    "link, then file": ([GOOD, symlink("a", "good"), entry("a", b"x")], "an earlier link has"),
    "file": ([entry("f", b"1"), entry("f", b"2")], "an earlier file has"),
    "directory": ([directory("a"), directory("a/")], "an earlier directory has"),
    "root": ([directory("."), directory("./")], "an earlier directory has"),
    "by ./": ([entry("f", b"1"), entry("./f", b"2")], "an earlier file has"),
    "case pair": ([entry("Lib", b"1"), entry("lib", b"2")], "in case only"),
    "case pair on the way": ([entry("Lib/a", b"1"), entry("lib/b", b"2")], "in case only"),
    "composed pair": ([entry("\u00e9", b"1"), entry("e\u0301", b"2")], "in case only"),
    "file, then in it": ([entry("f", b"1"), entry("f/x", b"2")], "lies in f, which is a file"),
}

HEADERS = {
    **{
        f"type {kind!r}": ([GOOD, entry("t", kind=kind)], "which is not unpacked")
        for kind in (b"3", b"4", b"6", b"7", b"Z", b"D", b"M", b"V", b"S", b"N", b"\xff")
    },
    "pax sparse": ([entry("pax", record("GNU.sparse.realsize", str(1 << 40)), kind=b"x"), GOOD], "sparse"),
    "unknown pax key": ([pax(hdrcharset="BINARY"), GOOD], "hdrcharset, which is not known"),
    "pax key twice": ([entry("p", record("path", "a") + record("path", "b"), kind=b"x"), GOOD], "path twice"),
    "pax length": ([entry("p", b"99 path=a\n", kind=b"x"), GOOD], "not well formed"),
    "pax length 0": ([entry("p", b"0 path=a\n", kind=b"x"), GOOD], "not well formed"),
    "pax without end": ([entry("p", b"9 path=ab", kind=b"x"), GOOD], "not well formed"),
    "pax size": ([pax(size="-1"), GOOD], "size that is not a number"),
    "two sizes": ([pax(size="1"), GOOD], "two sizes, 4 and 1 bytes"),
    "huge pax": ([entry("p", bytes(70_000), kind=b"x"), GOOD], "70000 bytes, 65536 are allowed"),
    "pax for all": ([pax(kind=b"g", path="x"), GOOD], "for all entries"),
    "negative size": ([GOOD, entry("f", size=b"\xff" * 10 + b"\xfe\x00")], "not a number of 0 or more"),
    "size with a minus": ([entry("f", size=b"-0000001000\x00")], "not a number of 0 or more"),
    "size with a NUL first": ([entry("f", size=b"\x00000000001\x00")], "not a number of 0 or more"),
    "1 TiB": ([entry("f", size=b"\x80" + (1 << 40).to_bytes(11, "big"))], "1099511627776 bytes"),
    "longer than the archive": ([entry("f", size=1 << 20)], "ends in the middle"),
    "link with bytes": ([GOOD, entry("l", b"x", kind=b"2", link="good")], "has 1 bytes, and is no file"),
    "directory with bytes": ([entry("d", b"x", kind=b"5")], "has 1 bytes, and is no file"),
    "checksum": ([GOOD, entry("f", b"x", checksum=1)], "wrong checksum"),
    "format": ([entry("f", b"x", magic=bytes(8))], "neither ustar nor GNU"),
    "GNU with a prefix": ([entry("f", b"x", magic=b"ustar  \x00", prefix=b"../..")], "where a GNU header has none"),
}


@pytest.mark.parametrize(
    ("entries", "rule"),
    [
        pytest.param(*row, id=f"{kind}: {name}")
        for kind, rows in (("name", NAMES), ("link", LINKS), ("twice", TWICE), ("header", HEADERS))
        for name, row in rows.items()
    ],
)
def test_refused(entries: list[bytes], rule: str, place: Place) -> None:
    bad = place.refused(packed(entries))
    assert rule in str(bad)
    assert 1 <= bad.index <= len(entries) or "ends after" in bad.rule
    assert str(bad).isprintable()
    assert not any(name.is_symlink() for name in place.into.rglob("*")), "a link was made"
    place.check()


def test_says_entry_index_and_rule(place: Place) -> None:
    bad = place.refused(packed([GOOD, entry("a\x1b]0;x\x07", b"x")]))
    assert str(bad) == "entry 2 (a\\u001b]0;x\\u0007): has the character U+001B in its name"
    assert (bad.entry, bad.index) == ("a\\u001b]0;x\\u0007", 2)


SECOND = gzip.compress(GOOD + END)
WHOLE = packed([GOOD])


@pytest.mark.parametrize(
    ("archive", "rule"),
    [
        pytest.param(packed([GOOD], end=END + GOOD + END), "archive has bytes after its end", id="second tar"),
        pytest.param(packed([GOOD], end=END + b"x"), "archive has bytes after its end", id="garbage inside"),
        pytest.param(packed([GOOD], end=END + bytes(2 << 20)), "archive has more than 1048576 zeros", id="zeros"),
        pytest.param(WHOLE + SECOND, "archive has bytes after its gzip member", id="second member"),
        pytest.param(WHOLE + b"\x00", "archive has bytes after its gzip member", id="byte after"),
        pytest.param(packed([GOOD], end=b""), "archive ends in the middle", id="no end"),
        pytest.param(packed([GOOD], end=bytes(512)), "archive ends in the middle", id="half an end"),
        pytest.param(packed([GOOD], end=bytes(512) + GOOD), "archive has a lone block of zeros", id="lone zeros"),
        pytest.param(WHOLE[:-4], "is cut off", id="no length"),
        pytest.param(WHOLE[:-20], "is cut off", id="cut"),
        pytest.param(WHOLE[:5], "is cut off", id="cut in the gzip header"),
        pytest.param(b"", "archive is cut off", id="nothing"),
        pytest.param(WHOLE[:-8] + b"\x00" + WHOLE[-7:], "is damaged", id="checksum"),
        pytest.param(WHOLE[:-1] + b"\x01", "is damaged", id="length"),
        pytest.param(b"PK\x03\x04" + bytes(60), "archive is zip; only .tar.gz is unpacked", id="zip"),
        pytest.param(b"BZh9" + bytes(60), "archive is not gzip; only .tar.gz is unpacked", id="bzip2"),
        pytest.param(gzip.compress(b"#!/bin/sh\n" * 100), "has a header with a", id="no tar"),
    ],
)
def test_streams_that_do_not_end_as_they_should(archive: bytes, rule: str, place: Place) -> None:
    assert rule in str(place.refused(archive))
    place.check()


SMALL = replace(LIMITS, out=64 << 10, entries=20, free=64 << 10)


@pytest.mark.parametrize(
    ("entries", "rule"),
    [
        pytest.param([entry("f", size=65 << 10)], "66560 bytes, 65536 are allowed", id="one file"),
        pytest.param([entry(f"f{n}", os.urandom(20_000)) for n in range(4)], "65536", id="all files"),
        pytest.param(
            [entry("f", b"x" * 20_000), *(hardlink(f"h{n}", "f") for n in range(4))],
            "entry 4 (h2): brings it to 80000 bytes unpacked, 65536 are allowed",
            id="copies",
        ),
        pytest.param([entry(f"f{n}") for n in range(30)], "more than 20 entries", id="entries"),
        pytest.param([directory(f"d{n}") for n in range(30)], "more than 20 entries", id="directories"),
        pytest.param([entry(f"{n}/a/b/c/d", b"x") for n in range(5)], "more than 20 entries", id="implied directories"),
        pytest.param([pax(kind=b"g", comment="x") for _ in range(30)], "more than 20 entries", id="headers of nothing"),
    ],
)
def test_limits(entries: list[bytes], rule: str, place: Place) -> None:
    assert rule in str(place.refused(packed(entries, level=0), SMALL))
    assert sum(path.stat().st_size for path in place.into.rglob("*") if path.is_file()) <= SMALL.out
    place.check()


def test_links_that_take_long_to_follow_are_refused(place: Place) -> None:
    far = "a/../" * 200 + "a"
    entries = [directory("a"), *(long_name(far, b"K") + symlink(f"l{n}", "a") for n in range(40))]
    assert "all links together" in place.refused(packed(entries), replace(LIMITS, steps=10_000)).rule


def test_a_bomb_stops_early(place: Place) -> None:
    bomb = packed([entry("bomb", bytes(100 << 20))], level=6)
    started = time.process_time()
    assert "times is a bomb" in place.refused(bomb).rule
    assert time.process_time() - started < 2
    assert (place.into / "bomb").stat().st_size < 80 << 20


def test_very_many_empty_entries_cost_a_reading_and_make_nothing(place: Place) -> None:
    limits = replace(LIMITS, entries=5_000)
    many = packed([b"".join(entry(f"e{n}") for n in range(6_000))])
    started = time.process_time()
    assert "more than 5000 entries" in place.refused(many, limits).rule
    assert time.process_time() - started < 1
    assert place.made() == {}
