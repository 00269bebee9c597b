"""Is this host's clock right? A control plane's clock tells, and where none answers, what the kernel knows of NTP.

Certificates are judged by the clock: one that is made begins five minutes before, so more skew than that keeps a new
one from being taken.
"""

import ctypes
import shutil
import struct
from collections.abc import Sequence
from datetime import UTC, datetime

from llmgw.cli.examine.findings import Skew
from llmgw.core.checks import Check, fault, ok, warning
from llmgw.core.skew import WARN_FROM

_NAME = "clock"
_WRONG = 300.0
"""Seconds off from which it is a fault; it is a warning from as many on as a node is warned of."""
SET = "chronyc makestep" if shutil.which("chronyc") else "timedatectl set-ntp true"
"""The command that sets the clock right now, by chrony where that keeps it."""
_NTP = f"{SET} (by chrony or systemd-timesyncd, which must be installed); `timedatectl` shows whether it works"

_STATUS_AT, _TIMEX_SIZE = 40, 512
"""In the kernel's `struct timex` of 64-bit machines (adjtimex(2)); it is smaller than the size."""
_UNSYNCHRONISED = 0x40
"""STA_UNSYNC in its status."""


def clock(skews: Sequence[Skew], *, alone: bool) -> Check:
    """The clock by the control planes that answered, the nearest first; `alone` when the cluster is this machine."""
    if skews:
        return _by(min(skews, key=lambda one: one.round_trip))
    if alone:
        return ok(_NAME, "the whole cluster is on this machine: there is no other clock to agree with")
    synchronised = by_kernel()
    if synchronised is None:
        return warning(_NAME, "the kernel does not say whether the clock is synchronised", _NTP)
    if not synchronised:
        fact = "no control plane told its time, and by the kernel's word nothing keeps this clock right"
        return warning(_NAME, fact, _NTP)
    return ok(_NAME, "the kernel says that it is kept right (NTP)")


def _by(skew: Skew) -> Check:
    off = max(0.0, abs(skew.seconds) - skew.round_trip / 2)
    way = "behind" if skew.seconds > 0 else "ahead of"
    fact = f"this clock is {abs(skew.seconds):.1f} s {way} that of control plane {skew.address}"
    if off >= _WRONG:
        return fault(_NAME, f"{fact}: certificates seem expired, or not valid yet", f"set it right now: {_NTP}")
    if off >= WARN_FROM:
        return warning(_NAME, fact, f"{_NTP}, on both hosts")
    return ok(_NAME, f"within {max(abs(skew.seconds), skew.round_trip):.2f} s of control plane {skew.address}")


def behind(fact: str) -> Check:
    """A clock that is behind all that it is compared with, by this fact."""
    now = datetime.now(UTC)
    told = f"by this clock it is {now:%Y-%m-%d %H:%M:%S} UTC, which must be wrong: {fact}"
    return fault(_NAME, told, f"set it right now: {_NTP}")


def by_kernel() -> bool | None:
    """Whether the kernel calls the clock synchronised; None when it cannot be asked."""
    timex = ctypes.create_string_buffer(_TIMEX_SIZE)  # all zero: only asks
    try:
        answer = ctypes.CDLL(None).adjtimex(timex)
    except (AttributeError, OSError):
        return None
    if answer < 0 or struct.calcsize("l") != 8:
        return None
    (status,) = struct.unpack_from("i", timex.raw, _STATUS_AT)
    return not status & _UNSYNCHRONISED
