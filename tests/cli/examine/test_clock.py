"""The clock, by a control plane's and by the kernel's word."""

import pytest

from llmgw.cli.examine import clock as module
from llmgw.cli.examine.clock import by_kernel, clock
from llmgw.cli.examine.findings import Skew
from llmgw.core.checks import Result


def skew(seconds: float, round_trip: float = 0.01) -> Skew:
    return Skew(address="10.0.0.1:7443", seconds=seconds, round_trip=round_trip)


@pytest.mark.parametrize(
    ("seconds", "result", "words"),
    [
        (0.2, Result.OK, "within 0.20 s of control plane 10.0.0.1:7443"),
        (-2.9, Result.OK, "within 2.90 s"),
        (3.5, Result.WARNING, "this clock is 3.5 s behind that of control plane 10.0.0.1:7443"),
        (-40.0, Result.WARNING, "this clock is 40.0 s ahead of that of"),
        (301.0, Result.FAULT, "certificates seem expired, or not valid yet"),
        (-4e6, Result.FAULT, "ahead of"),
    ],
)
def test_a_control_planes_clock_tells(seconds: float, result: Result, words: str):
    check = clock([skew(seconds)], alone=False)
    assert (check.result, bool(check.fix)) == (result, result is not Result.OK)
    assert words in check.fact


def test_what_the_way_to_it_takes_is_not_held_against_the_clock():
    assert clock([skew(4.0, round_trip=3.0)], alone=False).result is Result.OK


def test_the_nearest_control_plane_counts():
    assert clock([skew(100.0, round_trip=0.5), skew(0.1, round_trip=0.001)], alone=False).result is Result.OK


@pytest.mark.parametrize(("said", "result"), [(True, Result.OK), (False, Result.WARNING), (None, Result.WARNING)])
def test_without_one_the_kernel_tells(said: bool | None, result: Result, monkeypatch: pytest.MonkeyPatch):
    """Its word cannot be chosen here."""
    monkeypatch.setattr(module, "by_kernel", lambda: said)
    assert clock([], alone=False).result is result
    assert clock([], alone=True).result is Result.OK


def test_the_kernel_can_be_asked():
    assert by_kernel() in (True, False)
