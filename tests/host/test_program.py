"""What a program of ours ends with, and what it says."""

import logging
from collections.abc import Callable

import pytest

from llmgw.core.errors import BadConfig, ClusterCannot, ControlUnreachable, LlmgwError
from llmgw.host.program import exits, run_program


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def test_work_that_ends_well_is_0_or_what_it_says() -> None:
    assert run_program("llmgwd", lambda: None) == 0
    assert run_program("llmgwd", lambda: 4) == 4


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadConfig("server.yaml", 3, "lost_after", "must be a\nduration", "\x1b[2J"), 2),
        (ControlUnreachable("127.0.0.1:1", "connection refused"), 3),
        (ClusterCannot("llmgw.db: is in use"), 4),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_was_in_its_way_is_one_line_and_its_own_status(
    error: LlmgwError,
    status: int,
    wrapped: bool,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A task group wraps an error in groups, one in another."""
    raised = BaseExceptionGroup("tasks", [ExceptionGroup("more", [error])]) if wrapped else error
    assert run_program("llmgwd", raising(raised)) == status
    said = capsys.readouterr().err
    assert said.startswith("llmgwd: ")
    assert (said.count("\n"), "\x1b" in said) == (1, False)
    assert caplog.records == []


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("boom"), ExceptionGroup("tasks", [ClusterCannot("x"), ZeroDivisionError("boom")])]
)
def test_a_fault_of_ours_is_70_with_its_trace_in_the_log(
    error: Exception, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert run_program("llmgw-agent", raising(error)) == 70
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.CRITICAL, "llmgw-agent: a fault of ours ends it")
    assert "ZeroDivisionError: boom" in caplog.text
    assert capsys.readouterr().err == ""


def test_an_interrupt_before_signals_are_listened_to_is_130() -> None:
    assert run_program("llmgw-router", raising(KeyboardInterrupt())) == 130


def test_the_statuses_of_all_programs_and_its_own_are_told_in_order() -> None:
    lines = exits({3: "no port", 2: "its own words"}).splitlines()
    assert lines[0] == "exit status:"
    assert [line.split(maxsplit=1)[0] for line in lines[1:]] == ["0", "2", "3", "70"]
    assert lines[2].endswith("its own words")
