"""What may a host be called, and who is reached there?"""

import pytest

from llmgw.core.errors import BadName
from llmgw.core.hosts import host_name, is_loopback, stays_here


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("node01", "node01"),
        ("gpu-01.rack_3.example", "gpu-01.rack_3.example"),
        ("10.0.0.1", "10.0.0.1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("0xcafe.example", "0xcafe.example"),
        (".".join(["a" * 63] * 3 + ["b" * 61]), ".".join(["a" * 63] * 3 + ["b" * 61])),
    ],
)
def test_a_name_or_an_address_is_taken_in_its_shortest_form(text: str, shortest: str) -> None:
    assert host_name(text) == shortest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "*.example",
        "a b",
        "-a",
        "a..b",
        "a" * 64,
        "a." * 127 + "a",
        "a\n",
        "1.2.3",
        "300.1.1.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0X7F.0.0.1",
        "017700000001",
        "fe80::1%",
        "fe80::1%a b",
        "::1%\x1b[2J",
        "::1%" + "a" * 33,
        "1.2.3.4%eth0",
        "[::1]",
        "http://a",
    ],
)
def test_what_is_neither_is_refused_however_a_resolver_would_take_it(text: str) -> None:
    with pytest.raises(BadName):
        host_name(text)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.8.9.10",
        "::1",
        "::1%lo",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "localhost",
        "LocalHost",
        "localhost.",
        "a.localhost",
        "ip6-localhost",
    ],
)
def test_only_the_machine_itself_reaches_what_listens_on_loopback(host: str) -> None:
    assert is_loopback(host)
    assert stays_here(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::ffff:0.0.0.0", "::%eth0"])
def test_all_reach_what_listens_everywhere_and_who_connects_there_stays_on_his_machine(host: str) -> None:
    assert not is_loopback(host)
    assert stays_here(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "2001:db8::1", "fe80::1%eth0", "::ffff:10.0.0.1", "node01", "localhosts"])
def test_another_machine_is_elsewhere(host: str) -> None:
    assert not is_loopback(host)
    assert not stays_here(host)
