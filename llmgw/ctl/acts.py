"""The acts: ask for a change, and with `--wait` watch until it is true or the deadline has passed."""

import asyncio
import time
from dataclasses import dataclass

from llmgw.client import ControlClient
from llmgw.core.errors import ClusterCannot
from llmgw.core.fold import Fold
from llmgw.core.names import ModelName
from llmgw.core.presence import NodeState
from llmgw.core.safe import safe
from llmgw.core.shard import ShardState
from llmgw.core.units import age, several
from llmgw.core.views import Done, ModelView, Noun, ReplicaView
from llmgw.ctl import shapes
from llmgw.ctl.grammar import Asked
from llmgw.ctl.output import Answer, Output, answer, talk
from llmgw.ctl.world import worlds

_MOST_REASONS = 6
_LOOK = 5.0
"""Seconds for the first look, however short the wait: `--wait=0s` asks whether it is so already."""


async def scale(asked: Asked, client: ControlClient, out: Output) -> None:
    """Scale a model; ClusterCannot when `--wait` ended before it was so."""
    started = time.monotonic()
    done = await client.scale_model(asked.model, asked.replicas)
    if asked.wait is None:
        out.show(_accepted(done, asked.model))
        return
    talk(f"{done.event.subject}: {done.event.text}; waiting at most {age(asked.wait)}")
    reached = await _wait(_Goal(asked.model, asked.replicas, done), asked.wait, client)
    out.show(_reached(reached, time.monotonic() - started))


def _accepted(done: Done, model: str) -> Answer:
    return answer(
        done.revision,
        done.event.at,
        shape=lambda: shapes.done(done, model),
        lines=lambda _: [_line(done)],
        names=lambda: [model],
    )


@dataclass(slots=True)
class _Goal:
    """What is waited for, and how far it was when last seen."""

    name: str
    replicas: int
    done: Done
    known: bool = False
    """Something later than the act was seen."""
    model: ModelView | None = None
    """None for one that is not in the catalog and still has replicas; those can be scaled to 0."""
    here: tuple[ReplicaView, ...] = ()
    """The model's replicas on nodes that are there."""
    away: tuple[ReplicaView, ...] = ()
    """Those that only a node's return can end: nobody knows when that is."""

    def look(self, world: Fold) -> bool:
        """Return whether it is reached; ClusterCannot when it never will be, since somebody wants something else."""
        asked, seen = self.done.revision, world.revision
        if seen.epoch == asked.epoch and seen.seq < asked.seq:
            return False  # what was so before the act
        self.known, self.model = True, world.model(self.name)
        if self.model is None and self.replicas > 0:
            raise ClusterCannot(f"model {self.name} was taken out of the catalog meanwhile")
        if self.model is not None and self.model.wanted != self.replicas:
            now = several(self.model.wanted, "replica")
            raise ClusterCannot(f"{self.name}: another scaled it meanwhile to {now}, not {self.replicas}")
        every = world.replicas_of(self.model.name if self.model else ModelName(self.name))
        self.away = tuple(one for one in every if _is_away(one, world))
        self.here = tuple(one for one in every if one not in self.away)
        return self.ready == self.replicas == len(self.here) and not any(one.leaving for one in self.here)

    @property
    def ready(self) -> int:
        """As the control plane counts; what the catalog does not have serves nobody."""
        return self.model.ready if self.model else 0

    def missing(self) -> str:
        """What is not so yet, with the reasons, on one line."""
        if not self.known:
            return "the control plane did not say how it is"
        reasons = [_state(replica) for replica in self.here if replica.leaving or replica.state is not ShardState.READY]
        if self.model and self.model.refusals:
            first, more = self.model.refusals[0], len(self.model.refusals) - 1
            reasons.append(
                f"no node takes one more: {first.node}: {first}"
                + (f" (and {several(more, 'more node')})" if more else "")
            )
        said = [f"{self.ready} of {self.replicas} ready", *reasons[:_MOST_REASONS]]
        if len(reasons) > _MOST_REASONS:
            said.append(f"and {len(reasons) - _MOST_REASONS} more like that")
        return "; ".join(said)


def _is_away(replica: ReplicaView, world: Fold) -> bool:
    """All its nodes are lost: nothing that is asked of it now can happen before one comes back."""
    known = [world.nodes.get(shard.node) for shard in replica.shards]
    return bool(known) and all(node is None or node.state is NodeState.LOST for node in known)


def _state(replica: ReplicaView) -> str:
    state = "still leaving" if replica.leaving else replica.state.value
    failures = [f" on {one.node}: {one.failure.text}" for one in replica.shards if one.failure is not None]
    return f"{replica.id} {state}{''.join(failures[:1])}"


def _reached(goal: _Goal, waited: float) -> Answer:
    done, name = goal.done, goal.name
    return answer(
        done.revision,
        done.event.at,
        shape=lambda: shapes.done(done, name, goal.replicas, waited, goal.away),
        lines=lambda _: [_line(done, f": {goal.replicas} ready after {age(waited)}"), *map(_left, goal.away)],
        names=lambda: [name],
    )


def _line(done: Done, outcome: str = "") -> str:
    return safe(f"event {done.event.seq}: {done.event.subject}: {done.event.text}{outcome}", 1024)


def _left(replica: ReplicaView) -> str:
    nodes = " and ".join(shard.node for shard in replica.shards)
    return safe(
        f"{replica.id} may still run on {nodes}, which is lost; it is dealt with when the node comes back", 1024
    )


async def _wait(goal: _Goal, seconds: float, client: ControlClient) -> _Goal:
    ends = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout(max(seconds, _LOOK)) as limit:
            async for world in worlds(client, [Noun.NODES, Noun.MODELS, Noun.REPLICAS], follow=True):
                if goal.look(world):
                    return goal
                limit.reschedule(ends)
    except TimeoutError:
        raise ClusterCannot(
            f"{goal.name} after {age(seconds)}: {goal.missing()}; it stays wanted; see: llmgw ctl why {goal.name}"
        ) from None
    raise AssertionError("a watch that follows ends only by raising")
