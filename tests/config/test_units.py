"""Durations, sizes and addresses as people write them."""

import pytest

from llmgw.config.address import Address, address
from llmgw.config.units import byte_size, duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("60s", 60), ("10m", 600), ("1.5h", 5400), ("2d", 172800), ("0", 0)],
)
def test_a_duration(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "-1s", "1 s", "1e3s", "s", "1s\n", "١s", "1.s", "9" * 400 + "s", "1w"])
def test_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="such as 500ms"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("7B", 7), ("600MiB", 600 << 20), ("5GiB", 5 << 30), ("1.5 GiB", 3 << 29), ("2GB", 2 * 10**9), ("1TiB", 1 << 40)],
)
def test_a_size(text: str, count: int) -> None:
    assert byte_size(text) == count


@pytest.mark.parametrize("text", ["", "5", "5G", "5 gib", "-5GiB", "5GiB ", "nanGiB", "5MiBs"])
def test_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="such as 600MiB"):
        byte_size(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:7443", "127.0.0.1", 7443), ("[::1]:1", "::1", 1), ("cp-1.lab:65535", "cp-1.lab", 65535)],
)
def test_an_address_reads_as_it_is_written(text: str, host: str, port: int) -> None:
    assert address(text) == Address(host, port)
    assert str(address(text)) == text


def test_a_default_port_and_any_port_are_asked_for() -> None:
    assert address("cp", default_port=7443) == Address("cp", 7443)
    assert address("[::1]", default_port=7443) == Address("::1", 7443)
    assert address("cp:0", any_port=True) == Address("cp", 0)


@pytest.mark.parametrize(
    "text",
    [
        *["", ":1", "cp", "cp:", "cp:0", "cp:65536", "cp:-1", "cp:1x", "::1:7", "[::1", "[::1]", "[x]:1", "1.2.3:1"],
        *["*.lab:1", "a b:1", "a..b:1", "-a:1", "cp:١", "cp:1\n", f"{'a' * 300}:1"],
    ],
)
def test_not_an_address(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        address(text)
