"""Do routers reach this node where its engines would listen? When asked, listen there for a while and say a token.

    TryAddress ─▶ lease a port as a launch does ─▶ Listening ─▶ `llmgw-reach TOKEN` to whoever connects ─▶ close

One question at a time: a newer one takes the place of the one before.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection
from typing import cast

from llmgw.agent.launch.ports import NoPort
from llmgw.agent.leases import Leases, NoAddress
from llmgw.agent.news import News
from llmgw.config.agent import Ports
from llmgw.core.link import Listening, TryAddress, greeting
from llmgw.host.reason import reason
from llmgw.host.threads import aside

_log = logging.getLogger(__name__)

MOST = 64
"""Connections at once; more are closed without a word."""
LONGEST = 60.0
"""Seconds that it listens at most, whatever was asked."""
_LINGER = 2.0
"""Seconds that somebody who connects has to read one line."""


class Listener:
    """Listens when asked; `run` it in one task. An answer rings `news` and waits in `answer` to be taken."""

    def __init__(self, leases: Leases, ports: Ports, in_use: Callable[[], Collection[int]], news: News) -> None:
        self._leases, self._ports, self._in_use, self._news = leases, ports, in_use, news
        self._question: TryAddress | None = None
        self._asked = asyncio.Event()
        self._answer: Listening | None = None

    def ask(self, question: TryAddress) -> None:
        """Listen for this; what was asked before is over."""
        self._question = question
        self._answer = None
        self._asked.set()

    def answer(self) -> Listening | None:
        """The answer that was not told yet; it is told once."""
        answer, self._answer = self._answer, None
        return answer

    async def run(self) -> None:
        """Serve for ever."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            question, self._question = self._question, None
            if question is not None:
                await self._listen(question)

    async def _listen(self, question: TryAddress) -> None:
        token, host = question.token, ""
        try:
            host = await self._leases.host(question.exposure)
            if problem := await aside(unusable, host):
                # Routers try the address all the same: where a packet to it ends is half of what there is to know.
                self._tell(Listening(token=token, host=host, port=self._ports.first, problem=problem))
                return
            with self._leases.port(host, self._in_use()) as port:
                await self._serve(question, host, port)
        except (NoAddress, NoPort) as error:
            self._tell(Listening(token=token, host=host, problem=str(error)))
        except OSError as error:  # another program was faster; the control plane asks again
            self._tell(Listening(token=token, host=host, problem=f"cannot listen on {host}: {reason(error)}"))

    async def _serve(self, question: TryAddress, host: str, port: int) -> None:
        line, open_ones = greeting(question.token), set[asyncio.WriteTransport]()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Greeter(line, open_ones), host, port, backlog=MOST)
        try:
            self._tell(Listening(token=question.token, host=host, port=port))
            async with asyncio.timeout(min(question.seconds, LONGEST)):
                await self._asked.wait()
        except TimeoutError:
            return
        finally:
            server.close()
            for transport in list(open_ones):
                transport.abort()

    def _tell(self, answer: Listening) -> None:
        if self._question is not None:
            return  # nobody waits for it any more
        if answer.problem:
            _log.warning("whether routers reach this node cannot be tried: %s", answer.problem)
        self._answer = answer
        self._news.ring()


class _Greeter(asyncio.Protocol):
    """Says its line to one who connected, and is done."""

    def __init__(self, line: bytes, open_ones: set[asyncio.WriteTransport]) -> None:
        self._line, self._open = line, open_ones
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected."""
        transport = self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is none by its class
        if len(self._open) >= MOST:
            transport.abort()
            return
        self._open.add(transport)
        self._late = asyncio.get_running_loop().call_later(_LINGER, transport.abort)
        transport.write(self._line)
        transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone."""
        self._open.discard(self._transport)
        if self._late is not None:
            self._late.cancel()


def unusable(host: str) -> str:
    """Why nothing can listen on any port of `host`; empty when something can."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as probe:
            probe.bind(found[0][4])
    except OSError as error:
        return f"nothing can listen on {host}: {reason(error)}"
    return ""
