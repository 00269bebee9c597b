"""How does a file come from a program of the cluster? By its digest, over a connection of its own, trusted by both."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

from llmgw.agent.transfer.source import Flow, Patience, steady
from llmgw.agent.transfer.trouble import Cut, SourceFailed
from llmgw.config.tls import TlsFiles
from llmgw.core.engines.orders import Holder, ReleaseFile
from llmgw.core.errors import ControlUnreachable, LlmgwError, PeerNotTrusted
from llmgw.core.identity import Role
from llmgw.wire.agent.v1 import FileChunk
from llmgw.wire.channel import Channel
from llmgw.wire.files import read_file


class _RpcSource:
    """A server of files. A connection of its own: beside the link's heartbeats a large file would be in the way."""

    def __init__(self, name: str, dial: Callable[[], Channel]) -> None:
        self.name, self._dial = name, dial

    @asynccontextmanager
    async def open(self, file: ReleaseFile, offset: int, patience: Patience) -> AsyncIterator[Flow]:
        """Ask for the file from `offset` on; raises SourceFailed."""
        try:
            channel = self._dial()
        except LlmgwError as error:  # of our own certificate
            raise SourceFailed(str(error)) from None
        async with (
            channel,
            aclosing(read_file(channel, file.digest, offset)) as chunks,
            aclosing(_blocks(chunks, file)) as came,
            aclosing(steady(came, patience)) as blocks,
        ):
            yield Flow(offset, blocks)


class ControlSource(_RpcSource):
    """The control plane, which has a mirror's files."""

    def __init__(self, dial: Callable[[], Channel]) -> None:
        super().__init__("control plane", dial)


class HolderSource(_RpcSource):
    """A node that has the file: its certificate must be of that node, wherever it is dialled."""

    def __init__(self, holder: Holder, files: TlsFiles) -> None:
        def dial() -> Channel:
            return Channel(holder.host, holder.port, files, role=Role.AGENT, name=holder.node)

        super().__init__(f"node {holder.node}", dial)


async def _blocks(chunks: AsyncGenerator[FileChunk, None], file: ReleaseFile) -> AsyncGenerator[bytes, None]:
    got = False
    try:
        async for chunk in chunks:
            if not got and chunk.size != file.size:
                raise SourceFailed(f"the file has {chunk.size} bytes there, not {file.size}")
            got = True
            if chunk.data:
                yield chunk.data
    except (ControlUnreachable, PeerNotTrusted) as error:
        # Their whole text speaks of a control plane.
        raise (Cut if got else SourceFailed)(error.fact) from None
    except LlmgwError as error:
        raise SourceFailed(str(error)) from None
