"""How an answer reaches stdout: data only, flushed as it comes, and never a control sequence that is not ours."""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import TextIOWrapper
from typing import TextIO

from llmgw.core.safe import safe
from llmgw.core.views import Revision
from llmgw.ctl.grammar import Form
from llmgw.ctl.stdout import NotWritten
from llmgw.ctl.tables import clock
from llmgw.ctl.values import Shape, at

_HOME_AND_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer in all its forms; each is made only when it is asked for."""

    shape: Callable[[], Shape]
    lines: Callable[[bool], list[str]]
    """With True: the wide form."""
    now: float | None = None
    """The control plane's clock; None for one of many lines."""
    still: Callable[[bool], list[str]] | None = None
    """The lines without their ages: what reads the same is the same. None: the lines have no ages."""
    names: Callable[[], Iterable[str]]


def answer(
    revision: Revision,
    now: float,
    *,
    shape: Callable[[], Shape],
    lines: Callable[[bool], list[str]],
    names: Callable[[], Iterable[str]],
    still: Callable[[bool], list[str]] | None = None,
) -> Answer:
    """Return the answer; `revision` and `at` head its object."""
    return Answer(
        shape=lambda: {"revision": str(revision), "at": at(now), **shape()},
        lines=lines,
        names=names,
        now=now,
        still=still,
    )


class Output:
    """Writes answers in one form. `writing` is true while a reader that does not read may hold it up."""

    def __init__(self, form: Form, stream: TextIO | None = None) -> None:
        self._form, self._stream = form, stream or sys.stdout
        if isinstance(self._stream, TextIOWrapper):
            self._stream.reconfigure(errors="replace")  # a C locale must not end it
        self.writing = False
        self._last: object = None

    def show(self, answer: Answer) -> None:
        """Write one answer."""
        self._write(self._text(answer))

    def show_again(self, answer: Answer) -> None:
        """Write the answer of a watch: on a terminal in place of the last; elsewhere below it, if it is another.

        Ages grow and revisions count on their own: those alone are nothing new.
        """
        table = self._form in (Form.TABLE, Form.WIDE)
        if table and self._stream.isatty():
            self._write(_HOME_AND_CLEAR + self._text(answer, many=True))
            return
        told = self._told(answer)
        if told != self._last:
            self._last = told
            head = f"# {clock(answer.now)}\n" if table and answer.now is not None else ""
            self._write(head + self._text(answer, many=True))

    def _told(self, answer: Answer) -> object:
        match self._form:
            case Form.JSON | Form.YAML:
                return {key: value for key, value in answer.shape().items() if key not in ("revision", "at")}
            case Form.NAME:
                return list(answer.names())
            case Form.TABLE | Form.WIDE:
                return (answer.still or answer.lines)(self._form is Form.WIDE)

    def head(self, line: str) -> None:
        """Write what stands over the lines to come, in the forms that have such a thing."""
        if self._form in (Form.TABLE, Form.WIDE):
            self._write(f"{line}\n")

    def show_line(self, answer: Answer) -> None:
        """Write one of many that follow each other without an end."""
        self._write(self._text(answer, many=True))

    def _text(self, answer: Answer, *, many: bool = False) -> str:
        match self._form:
            case Form.JSON:
                # ASCII only: what a terminal could take for an order stays escaped.
                return json.dumps(answer.shape(), indent=None if many else 2) + "\n"
            case Form.YAML:
                return ("---\n" if many else "") + _yaml(answer.shape())
            case Form.NAME:
                return "".join(f"{safe(name)}\n" for name in answer.names())
            case Form.TABLE | Form.WIDE:
                return "".join(f"{line}\n" for line in answer.lines(self._form is Form.WIDE))

    def _write(self, text: str) -> None:
        self.writing = True
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise NotWritten(error) from None
        finally:
            self.writing = False


def _yaml(shape: Shape) -> str:
    import yaml  # 10 ms that the other forms do not need

    return yaml.safe_dump(shape, sort_keys=False, default_flow_style=False, width=120)


def talk(text: str) -> None:
    """Say something to the person, on stderr."""
    print(safe(text, 1024), file=sys.stderr, flush=True)
