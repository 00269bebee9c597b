"""What can operators ask about engines? Each rpc converts, calls and converts."""

from llmgw.core.brief import cut
from llmgw.core.engines.orders import Release
from llmgw.core.engines.releases import checked, without_digest
from llmgw.core.engines.terms import EngineKind
from llmgw.core.errors import BadMessage
from llmgw.core.inputs import LockEngine, RetryEngine
from llmgw.daemon.brain import Brain
from llmgw.wire.convert import from_wire, to_wire
from llmgw.wire.engines import v1 as engines_v1
from llmgw.wire.operator import v1 as operator_v1
from llmgw.wire.operator.engines import v1
from llmgw.wire.server import current_peer


class EngineCalls(v1.EnginesBase):
    """The service for engines."""

    def __init__(self, brain: Brain) -> None:
        self._brain = brain

    async def retry_engine(self, message: v1.RetryEngineRequest) -> operator_v1.Done:
        """Let a node try again at once."""
        act = RetryEngine(node=message.node, engine=message.engine, by=str(current_peer().identity))
        return to_wire(await self._brain.ask(act), operator_v1.Done)

    async def engines_wanted(self, message: v1.EnginesWantedRequest) -> engines_v1.WantedEngines:
        """Say which engines nodes should have."""
        return to_wire(self._brain.cluster.wanted_engines(), engines_v1.WantedEngines)

    async def lock_engine(self, message: v1.LockEngineRequest) -> operator_v1.Done:
        """Keep the files of a Python engine; the answer means that they are on disk."""
        if message.release is None:
            raise BadMessage("LockEngineRequest", "release", "is missing")
        act = LockEngine(release=_lock(from_wire(message.release, Release)), by=str(current_peer().identity))
        return to_wire(await self._brain.ask(act), operator_v1.Done)


def _lock(release: Release) -> Release:
    """Return a release that an operator made, or raise BadMessage: it is checked as a stranger's."""
    try:
        checked(release)
    except ValueError as error:
        raise BadMessage("Release", "it", f"cannot be: {cut(str(error))}") from None
    if release.kind is not EngineKind.PYTHON:
        raise BadMessage("Release", "kind", f"must be python; the files of {release.engine} are found by themselves")
    if bare := without_digest(release):
        raise BadMessage("Release", "files", f"must all have a digest; {cut(bare[0])} has none")
    return release
