"""Which Python a lock brings along, by uv's own list."""

import pytest

from llmgw.ctl.interpreters import NoInterpreter, address, addresses


def download(version: str, arch: str = "x86_64", **other: str) -> dict[str, object]:
    """As uv lists one."""
    patch = int(version.rpartition(".")[2])
    about = {"implementation": "cpython", "os": "linux", "libc": "gnu", "variant": "default", "arch": arch} | other
    url = "-".join(("https://x/cpython", version, *about.values()))
    return {"version": version, "version_parts": {"patch": patch}, "url": url, **about}


LISTED = [
    download("3.12.9"),
    download("3.12.16"),
    download("3.12.17", "x86_64_v4"),
    download("3.12.18", libc="musl"),
    download("3.12.19", variant="freethreaded"),
    download("3.12.20", implementation="pypy"),
    download("3.12.21", os="darwin"),
    download("3.1.22"),
    {"version": "3.12.23"},
    None,
]


def test_it_is_the_newest_that_nodes_can_run() -> None:
    assert address(LISTED, "3.12", "x86_64") == download("3.12.16")["url"]
    with pytest.raises(NoInterpreter, match=r"uv knows no Python 3\.12 for aarch64; name an archive"):
        address(LISTED, "3.12", "aarch64")


async def test_uv_knows_one_for_each_processor_and_what_is_named_stays() -> None:
    named, *found = await addresses(("https://x/python.tar.gz", "auto"), "3.12", ("x86_64", "aarch64"))
    assert named == "https://x/python.tar.gz"
    assert ["x86_64-unknown-linux-gnu" in found[0], "aarch64-unknown-linux-gnu" in found[1]] == [True, True]
    assert await addresses((), "3.12", ("x86_64",)) == ()
