"""How is something done that may hang in the kernel for ever, such as reading from a dead share?"""

import asyncio
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def aside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` in a thread of its own, which nobody waits for at the end of the program.

    The event loop's own threads are joined when the program ends, so one that hangs would keep it alive.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type] # of type T whenever there is no error

    def work() -> None:
        result: T | None = None
        problem: Exception | None = None
        try:
            result = function(*args, **kwargs)
        except Exception as error:  # whatever it is belongs to the caller
            problem = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=work, name=f"aside {function.__name__}", daemon=True).start()
    return await answer
