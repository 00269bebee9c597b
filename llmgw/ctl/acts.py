"""The acts: ask for a change, and with `--wait` watch until it is true or the deadline has passed."""

import asyncio
import time
from dataclasses import dataclass

from llmgw.client import ControlClient
from llmgw.core.errors import ClusterCannot
from llmgw.core.safe import safe
from llmgw.core.shard import ShardState
from llmgw.core.units import age
from llmgw.core.views import Done, ModelView, Noun, ReplicaView
from llmgw.ctl import shapes, tables
from llmgw.ctl.grammar import Asked
from llmgw.ctl.output import Answer, Output, answer, talk
from llmgw.ctl.world import World, worlds


async def scale(asked: Asked, client: ControlClient, out: Output) -> None:
    """Scale a model; ClusterCannot when `--wait` ended before it was so."""
    started = time.monotonic()
    done = await client.scale_model(asked.model, asked.replicas)
    if asked.wait is None:
        out.show(_scaled(done, asked.model, None, None))
        return
    talk(f"{done.event.subject}: {done.event.text}; waiting at most {age(asked.wait)}")
    ready = await _wait(_Goal(asked.model, asked.replicas, done), asked.wait, client)
    out.show(_scaled(done, asked.model, ready, time.monotonic() - started))


def _scaled(done: Done, model: str, ready: int | None, waited: float | None) -> Answer:
    outcome = "" if ready is None or waited is None else f": {ready} ready after {age(waited)}"
    return answer(
        done.revision,
        done.event.at,
        shape=lambda: shapes.done(done, model, ready, waited),
        lines=lambda _: [safe(f"event {done.event.seq}: {done.event.subject}: {done.event.text}{outcome}", 1024)],
        names=lambda: [model],
    )


@dataclass(slots=True)
class _Goal:
    """What is waited for, and how far it was when last seen."""

    name: str
    replicas: int
    done: Done
    model: ModelView | None = None
    all: tuple[ReplicaView, ...] = ()

    def look(self, world: World) -> bool:
        """Return whether it is reached; ClusterCannot when it never will be, since somebody wants something else."""
        asked, seen = self.done.revision, world.revision
        if seen.epoch == asked.epoch and seen.seq < asked.seq:
            return False  # what was so before the act
        self.model = world.model(self.name)
        if self.model is None:
            raise ClusterCannot(f"model {self.name} was taken out of the catalog meanwhile")
        if self.model.wanted != self.replicas:
            raise ClusterCannot(
                f"{self.name}: {self.model.wanted} replicas are wanted now, not {self.replicas}: another scaled it"
            )
        self.all = tuple(world.replicas_of(self.model.name))
        return self.model.ready == self.replicas and not any(replica.leaving for replica in self.all)

    def missing(self) -> str:
        """What is not so yet, with the reasons, on one line."""
        if self.model is None:
            return "the control plane did not say how it is"
        reasons = [_state(replica) for replica in self.all if replica.leaving or replica.state is not ShardState.READY]
        if self.model.refusals:
            first = self.model.refusals[0]
            more = len(self.model.refusals) - 1
            reasons.append(
                f"no node takes one more: {first.node}: {first}" + (f" (and {more} more nodes)" if more else "")
            )
        return f"{self.model.ready} of {self.replicas} ready" + "".join(f"; {reason}" for reason in reasons[:6])


def _state(replica: ReplicaView) -> str:
    state = "still leaving" if replica.leaving else replica.state.value
    failures = [f" on {one.node}: {tables.ended(one.failure)}" for one in replica.shards if one.failure is not None]
    return f"{replica.id} {state}{''.join(failures[:1])}"


async def _wait(goal: _Goal, seconds: float, client: ControlClient) -> int:
    try:
        async with asyncio.timeout(seconds):
            async for world in worlds(client, [Noun.MODELS, Noun.REPLICAS], follow=True):
                if goal.look(world):
                    return goal.replicas
    except TimeoutError:
        raise ClusterCannot(
            f"{goal.name} after {age(seconds)}: {goal.missing()}; it stays wanted; see: llmgw ctl why {goal.name}"
        ) from None
    raise AssertionError("a watch that follows ends only by raising")
