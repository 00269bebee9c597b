"""Progress as it is told: not too often, and at a rate that is of the last seconds."""

from llmgw.agent.transfer.pace import EVERY, Moved, Pace
from llmgw.core.units import Bytes


def told(*steps: tuple[float, int], before: int = 0, last: bool = False) -> list[Moved]:
    heard = list[Moved]()
    pace = Pace(Bytes(10_000), heard.append)
    pace.begins(before, 100.0)
    for at, (now, done) in enumerate(steps, 1):
        pace.at(done, 100.0 + now, last=last and at == len(steps))
    return heard


def test_it_is_told_at_most_twice_a_second_and_at_the_end():
    heard = told(*((at / 100, at) for at in range(1, 301)), last=True)
    assert [one.done for one in heard] == [0, 50, 100, 150, 200, 250, 300]
    assert [one.done for one in told((EVERY / 2, 10), last=True)] == [0, 10]


def test_what_was_there_before_has_no_part_in_the_rate():
    assert told((1.0, 6000), before=5000)[-1] == Moved(done=Bytes(6000), total=Bytes(10_000), rate=1000.0)


def test_the_rate_is_of_the_last_seconds():
    fast = [(float(at), at * 1000) for at in range(1, 6)]
    slow = [(5.0 + at, 5000 + at * 10) for at in range(1, 8)]
    assert told(*fast)[-1].rate == 1000.0
    assert told(*fast, *slow)[-1].rate == 10.0


def test_a_file_that_is_begun_again_has_no_rate_below_zero():
    heard = list[Moved]()
    pace = Pace(Bytes(10_000), heard.append)
    pace.begins(0, 0.0)
    pace.at(9000, 1.0)
    pace.begins(0, 2.0)
    pace.at(500, 3.0)
    assert [(one.done, one.rate) for one in heard] == [(0, 0.0), (9000, 9000.0), (0, 0.0), (500, 500.0)]
