"""An error of the system in words: its number says the cause, whatever the library that raised it says."""

import asyncio
import errno
import os
import socket
import ssl

import pytest

from llmgw.wire.explain import not_reached, words


@pytest.mark.parametrize(
    ("error", "text"),
    [
        # as asyncio spells what create_connection met
        (OSError(errno.EHOSTUNREACH, "Connect call failed ('192.0.2.99', 7443)"), "no route to host"),
        (OSError(errno.ENETUNREACH, "Connect call failed ('2001:db8::1', 7443, 0, 0)"), "network is unreachable"),
        (
            OSError(
                "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 113] Connect "
                "call failed ('127.0.0.1', 1)"
            ),
            "connection refused; no route to host",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "no such file or directory"),
        # these have numbers of their own
        (ssl.SSLError(1, "[SSL: NO_CIPHERS] no ciphers"), "[ssl: no_ciphers] no ciphers"),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (OSError("of its own"), "of its own"),
        (TimeoutError(), "timeouterror"),
    ],
)
def test_the_cause_is_spelled(error: OSError, text: str):
    assert words(error) == text


def test_several_addresses_that_all_refuse_are_one_refusal():
    both = ", ".join(f"[Errno 111] Connect call failed ('{one}', 1)" for one in ("::1", "127.0.0.1"))
    told = not_reached("a:1", OSError(f"Multiple exceptions: {both}"))
    assert str(told) == "control plane a:1: connection refused; is llmgwd running there?"


async def test_what_asyncio_meets_in_earnest_is_spelled():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(OSError, match="Connect call failed") as met:
        await asyncio.open_connection("127.0.0.1", port)
    assert words(met.value) == os.strerror(errno.ECONNREFUSED).lower()
