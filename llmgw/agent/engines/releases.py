"""What do the releases consist of that orders name? Asked of the control plane once, then kept."""

from collections.abc import Sequence

from llmgw.agent.engines.shelf import Shelf
from llmgw.config.address import Address
from llmgw.config.tls import TlsFiles
from llmgw.core.engines.orders import Release, release_id
from llmgw.core.errors import BadMessage, ControlUnreachable, LlmgwError
from llmgw.host.threads import aside
from llmgw.wire.agent import v1
from llmgw.wire.channel import Channel
from llmgw.wire.convert import from_wire
from llmgw.wire.engines import v1 as wire

PATH = "/agent.v1.AgentLink/GetRelease"


class Releases:
    """Releases by their id, which says what is in them: who gives another one is not believed."""

    def __init__(self, shelf: Shelf, control: Sequence[Address], files: TlsFiles) -> None:
        self._shelf, self._control, self._files = shelf, control, files
        self._read = dict[str, Release]()
        self._answered = next(iter(control), None)

    async def kept(self, id: str) -> Release | None:
        """One that was asked for before, in this life or an earlier one. Raises OSError and Unfit."""
        if id not in self._read:
            release = await aside(self._shelf.release, id)
            if release is None:
                return None
            self._read[id] = release
        return self._read[id]

    async def ask(self, id: str) -> Release:
        """Ask for it, and keep it. Raises LlmgwError of the last control plane, OSError, and Unfit."""
        trouble: LlmgwError = ControlUnreachable("control plane", "agent.yaml names none")
        for address in self._control:
            try:
                release = await self._asked(address, id)
            except LlmgwError as error:
                trouble = error
                continue
            await aside(self._shelf.save_release, release)
            self._read[id], self._answered = release, address
            return release
        raise trouble

    def dial(self) -> Channel:
        """A channel to the control plane that answered last. Raises BadConfig when our certificate cannot be used."""
        assert self._answered is not None  # agent.yaml names one
        return Channel(self._answered.host, self._answered.port, self._files)

    async def _asked(self, address: Address, id: str) -> Release:
        async with Channel(address.host, address.port, self._files) as channel:
            answer = await channel.call(PATH, v1.ReleaseRequest(id=id), wire.Release)
        release: Release = from_wire(answer, Release)
        if release_id(release) != id:
            raise BadMessage("Release", "id", f"is {release_id(release)}, {id} was asked for")
        return release
