"""The small cluster that the examples of docs/ctl.md are of: an entry of each kind, with nothing left empty."""

from dataclasses import replace

from llmgw.core.events import Event, EventKind
from llmgw.core.facts import EngineReport, Engines, Gpu
from llmgw.core.shard import ShardState
from llmgw.core.state import NodeState
from llmgw.core.units import GIB, Bytes
from llmgw.core.views import ModelState, NodeWarning
from tests.ctl.fixture import AWAY, FAILED, FULL, NOW, Operators, model, node, replica

_GPU = Gpu(index=0, uuid="GPU-a", name="H100", memory=Bytes(80 * GIB), driver="570")
_ENGINE = EngineReport(engine="llama.cpp", version="b10991", path="/opt/llama-server", by_hand=True)
_WARNING = NodeWarning(code="gpu_probe_failed", text="nvidia-smi: no answer for 10 s", fix="look at its driver")
_EVENT = Event(
    seq=41,
    at=FAILED.at,
    kind=EventKind.SHARD_FAILED,
    subject="gemma/1.0",
    text=f"on node01: {FAILED.text}; tried again in 43s",
    cause=40,
    lines=FAILED.last_lines,
)


def documented() -> Operators:
    first = node("node01", warnings=(_WARNING,), engines=Engines(probed_at=NOW - 9, engines=(_ENGINE,)))
    assert first.inventory is not None
    first = replace(first, inventory=replace(first.inventory, gpus=(_GPU,)))
    failed = replica("gemma", 1, "node01", ShardState.FAILED, failure=FAILED, retry_at=NOW + 38, attempts=2)
    failed = replace(failed, shards=(replace(failed.shards[0], pid=None),))
    return Operators(
        nodes=(first, node("node03", NodeState.LOST, inventory=None, engines=None, usage=None, usable=Bytes(0))),
        models=(model("gemma", ModelState.DEGRADED, 3, 1, declared=2, aliases=("gemma-270m",), refusals=(FULL, AWAY)),),
        replicas=(
            replica("gemma", 0, "node01", outdated=True),
            failed,
        ),
        events=(_EVENT,),
        settled=True,
        exposure="loopback",
    )
