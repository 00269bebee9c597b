"""Can a program of ours listen at its address?"""

import errno
import os

from llmgw.cli.examine import running
from llmgw.config.address import Address
from llmgw.core.checks import Check, fault, ok
from llmgw.core.errors import LlmgwError
from llmgw.wire import sockets

_FIRST_FREE = 1024
_NOT_HERE = os.strerror(errno.EADDRNOTAVAIL).lower()
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def free(at: Address, key: str) -> list[Check]:
    """Whether the address can be had; it is taken for a moment."""
    if at.port < _FIRST_FREE and os.geteuid() != 0:
        return []  # the service manager gives the program the right to it
    try:
        sockets.tcp(at.host, at.port, key).close()
    except LlmgwError as error:
        fact, _, _ = str(error).partition("; ")
        fact = f"{key}: {fact}"
        if _NOT_HERE in fact:
            return [fault("address", fact, f"name an address of this host with {key}: (`ip address` lists them)")]
        there = ", ".join(sorted({str(one) for one in running.on(at.port, running.listeners())}))
        held = f": {there} listens there" if there else ""
        return [fault("address", f"{fact}{held}", f"stop what listens there, or name another address with {key}:")]
    return [ok("address", f"{key}: {at} can be listened at")]


def dialled(at: Address) -> Address:
    """Where to dial what listens there: one that listens everywhere is found here."""
    return Address(_ANY.get(at.host, at.host), at.port)


def is_everywhere(at: Address) -> bool:
    """Whether it is no address to be dialled, but all that this host has."""
    return at.host in _ANY
