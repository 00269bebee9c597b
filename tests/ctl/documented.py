"""The small cluster that the examples of docs/ctl.md are of: an entry of each kind, with nothing left empty."""

from dataclasses import replace

from llmgw.core.device_warnings import GpuHeld
from llmgw.core.engines.terms import InstallStep
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import EngineReport, Engines
from llmgw.core.inventory import (
    ByHand,
    Disk,
    Fabric,
    FabricAdapter,
    Gpu,
    GpuHolder,
    LinkLayer,
    NumaNode,
    PortState,
    Usage,
)
from llmgw.core.presence import NodeState
from llmgw.core.shard import ShardState
from llmgw.core.units import GIB, MIB, TIB, Bytes
from llmgw.core.views import ModelState, Reach
from tests.ctl.fixture import ARCHIVE, AWAY, FAILED, FULL, NOW, Operators, engine, model, node, replica

_GPU = Gpu(
    index=0, uuid="GPU-a", name="H100", memory=Bytes(80 * GIB), driver="570", compute="9.0", pci="0000:17:00.0", numa=0,
    divided=True,
)  # fmt: skip
_PART = Gpu(index=0, uuid="MIG-b", name="1g.10gb", memory=Bytes(10 * GIB), driver="570", parent="GPU-a")
_HOLDER = GpuHolder(gpu="GPU-a", pid=4711, command="python train.py", memory=Bytes(2 * GIB))
_PORT = FabricAdapter(
    name="mlx5_0",
    link_layer=LinkLayer.INFINIBAND,
    state=PortState.ACTIVE,
    physical_state="LinkUp",
    rate="200 Gb/sec (4X HDR)",
    node_guid="a088:c203:0084:9e10",
    port_guid="a288:c2ff:fe84:9e10",
    gid_prefix="fec0:0000:0000:0001",
    pkey="0xffff",
    netdev="ib0",
    pci="0000:18:00.0",
    numa=0,
    gpu="GPU-a",
)
_DISK = Disk(directory="/srv/models", uses=("weights",), total=Bytes(2 * TIB), free=Bytes(TIB))
_BY_HAND = ByHand(field="memory", stated="5 GiB", measured="7.8 GiB")
_REACH = Reach(router="router01", host="10.0.0.1", port=21000, at=NOW - 30)
_ENGINE = EngineReport(engine="llama.cpp", version="b10991", path="/opt/llama-server", by_hand=True)
_WARNING = GpuHeld(gpu=0, pid=_HOLDER.pid, command=_HOLDER.command, memory=_HOLDER.memory)
_ENGINES = (
    engine("node01", by_hand=True, wanted=False, variant="", path=_ENGINE.path, checked_at=NOW - 9, since=NOW - 252),
    engine(
        "node02",
        InstallStep.DOWNLOAD,
        subject=ARCHIVE,
        done=Bytes(9 * MIB),
        total=Bytes(15 * MIB),
        rate=3.0 * MIB,
        note="its GPU driver 470 is too old for CUDA 12.4, so this is the build for processors",
    ),
    engine(
        "node03",
        problem="libgomp.so.1 is missing",
        attempts=2,
        retry_at=NOW + 38,
        checked_at=NOW - 300,
        path="/var/lib/llmgw-agent/engines/llama.cpp/b10991-cpu/tree/llama-b10991/llama-server",
        used=True,
    ),
)
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
    probed = Engines(probed_at=NOW - 9, engines=(_ENGINE,))
    first = node("node01", warnings=(_WARNING,), engines=probed, installing=("vllm 0.33.0: unpack",))
    assert first.inventory is not None
    machine = replace(
        first.inventory,
        os_id="debian",
        os_version="12",
        virtualization="kvm",
        cpu=replace(first.inventory.cpu, quota=6.0),
        numa=(NumaNode(index=0, cores=8, memory=Bytes(8 * GIB)),),
        memory_limit=Bytes(6 * GIB),
        disks=(_DISK,),
        gpus=(_GPU, _PART),
        gpu_holders=(_HOLDER,),
        adapters=(_PORT,),
        fabrics=(Fabric(name="ib-a", adapters=("mlx5_0",)),),
        by_hand=(_BY_HAND,),
        certificate_ends=NOW + 80 * 86400,
    )
    usage = Usage(memory_available=Bytes(3 * GIB), load_average=0.25, gpu_used=(Bytes(2 * GIB), Bytes(512 * MIB)))
    first = replace(first, inventory=machine, usage=usage, reach=(_REACH,))
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
        engines=_ENGINES,
        settled=True,
        exposure="loopback",
    )
