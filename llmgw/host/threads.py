"""How is something done that may hang in the kernel for ever, such as reading from a dead share?"""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_asked = dict[Hashable, tuple[Future[Any], float]]()
"""Questions without an answer yet, and when they were asked."""


async def aside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` in a thread of its own, which nobody waits for at the end of the program.

    The event loop's own threads are joined when the program ends, so one that hangs would keep it alive.
    """
    answer = Future[T]()
    _work(answer, lambda: function(*args, **kwargs), f"aside {function.__name__}")
    return await asyncio.wrap_future(answer)


async def once(what: Hashable, limit: float, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `aside`, for `limit` seconds at most; raises TimeoutError, whose words are `did not answer within 5s`.

    Each question that hangs holds a thread: `what` names it, and while one of its name is without an answer, no other
    is asked. An answer that comes too late is dropped, and the next question is asked anew.
    """
    answer, since = _asked.get(what) or _ask(what, lambda: function(*args, **kwargs))
    waiting: asyncio.Future[T] = asyncio.wrap_future(answer)
    left = since + limit - time.monotonic()
    await asyncio.wait([waiting], timeout=max(0.0, left))
    if not waiting.done():
        waiting.cancel()
        raise TimeoutError(errno.ETIMEDOUT, f"did not answer within {limit:g}s")
    return waiting.result()


def _ask(what: Hashable, question: Callable[[], T]) -> tuple[Future[T], float]:
    answer = Future[T]()
    answer.add_done_callback(lambda _: _asked.pop(what, None))  # before whoever waits hears of it
    asked = _asked[what] = answer, time.monotonic()
    _work(answer, question, f"once {what}")
    return asked


def _work(answer: Future[T], question: Callable[[], T], name: str) -> None:
    """Let a thread find the answer."""
    answer.set_running_or_notify_cancel()  # who stops waiting takes the answer from nobody

    def work() -> None:
        try:
            found = question()
        except Exception as error:  # whatever it is belongs to the caller
            answer.set_exception(error)
        else:
            answer.set_result(found)

    threading.Thread(target=work, name=name, daemon=True).start()
