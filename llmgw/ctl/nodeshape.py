"""The object of one node in `--json`; the promise of `shapes` holds for it, too."""

from itertools import zip_longest

from llmgw.core.facts import Engines
from llmgw.core.inventory import ByHand, Disk, Fabric, FabricAdapter, Gpu, GpuHolder, Inventory, Usage
from llmgw.core.views import NodeView, Reach
from llmgw.ctl.values import Shape, at


def node(view: NodeView) -> Shape:
    """One of `nodes`."""
    inventory, usage = view.inventory, view.usage
    return {
        "name": view.name,
        "state": view.state.value,
        "since": at(view.since),
        "flags": [],
        "warnings": warnings(view),
        "engines": _engines(view.engines),
        "engines_probed_at": at(view.engines.probed_at) if view.engines else None,
        "installing": list(view.installing),
        "fabrics": [_fabric(one) for one in inventory.fabrics] if inventory else [],
        "memory": {
            "total": inventory.memory if inventory else None,
            "usable": view.usable or None,
            "promised": view.promised,
            "available": usage.memory_available if usage else None,
            "limit": inventory.memory_limit if inventory else None,
        },
        "load": usage.load_average if usage else None,
        "gpus": _gpus(inventory, usage) if inventory else [],
        "gpu_problem": inventory.gpu_problem if inventory else "",
        "gpu_holders": [_holder(one) for one in inventory.gpu_holders] if inventory else [],
        "adapters": [_adapter(port) for port in inventory.adapters] if inventory else [],
        "adapter_problem": inventory.adapter_problem if inventory else "",
        "disks": [_disk(disk) for disk in inventory.disks] if inventory else [],
        "machine_problem": inventory.machine_problem if inventory else "",
        "address": view.address,
        "agent_version": view.agent_version,
        "host": _host(inventory),
        "by_hand": [_by_hand(one) for one in inventory.by_hand] if inventory else [],
        "reach": [_reach(one) for one in view.reach],
        "certificate_ends": at(inventory.certificate_ends) if inventory else None,
        "recorded": inventory.recorded if inventory else "",
    }


def warnings(view: NodeView) -> list[dict[str, str]]:
    """What is wrong with a node, each with what to do."""
    return [{"code": warning.code, "text": str(warning), "fix": warning.fix} for warning in view.warnings]


def _engines(engines: Engines | None) -> list[Shape]:
    if engines is None:
        return []
    return [
        {
            "engine": engine.engine,
            "version": engine.version,
            "variant": engine.variant,
            "path": engine.path,
            "problem": engine.problem,
            "by_hand": engine.by_hand,
        }
        for engine in engines.engines
    ]


def _gpus(inventory: Inventory, usage: Usage | None) -> list[Shape]:
    used = usage.gpu_used if usage else ()
    return [_gpu(gpu, one) for gpu, one in zip_longest(inventory.gpus, used[: len(inventory.gpus)])]


def _gpu(gpu: Gpu, used: int | None) -> Shape:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "memory": gpu.memory,
        "driver": gpu.driver,
        "used": used,
        "vendor": gpu.vendor.value,
        "compute": gpu.compute,
        "pci": gpu.pci,
        "numa": gpu.numa,
        "unified": gpu.unified,
        "divided": gpu.divided,
        "parent": gpu.parent,
    }


def _holder(one: GpuHolder) -> Shape:
    return {"gpu": one.gpu, "pid": one.pid, "command": one.command, "memory": one.memory}


def _adapter(port: FabricAdapter) -> Shape:
    return {
        "name": port.name,
        "port": port.port,
        "link_layer": port.link_layer.value,
        "state": port.state.value,
        "physical_state": port.physical_state,
        "rate": port.rate,
        "node_guid": port.node_guid,
        "port_guid": port.port_guid,
        "gid_prefix": port.gid_prefix,
        "pkey": port.pkey,
        "netdev": port.netdev,
        "pci": port.pci,
        "numa": port.numa,
        "gpu": port.gpu,
    }


def _fabric(one: Fabric) -> Shape:
    return {"name": one.name, "adapters": list(one.adapters)}


def _disk(disk: Disk) -> Shape:
    known = not disk.problem
    return {
        "directory": disk.directory,
        "uses": list(disk.uses),
        "total": disk.total if known else None,
        "free": disk.free if known else None,
        "problem": disk.problem,
    }


def _by_hand(one: ByHand) -> Shape:
    measured = one.measured or None
    return {"field": one.field, "stated": one.stated, "measured": measured, "differs": one.differs}


def _reach(one: Reach) -> Shape:
    return {"router": one.router, "host": one.host, "port": one.port, "error": one.error, "at": at(one.at)}


def _host(inventory: Inventory | None) -> Shape | None:
    if inventory is None:
        return None
    cpu = inventory.cpu
    return {
        "os": inventory.os,
        "kernel": inventory.kernel,
        "arch": inventory.arch,
        "cpu": {"model": cpu.model, "cores": cpu.cores, "features": list(cpu.features), "quota": cpu.quota},
        "by_hand": [one.field for one in inventory.by_hand],
        "os_id": inventory.os_id,
        "os_version": inventory.os_version,
        "virtualization": inventory.virtualization,
        "numa": [{"index": one.index, "cores": one.cores, "memory": one.memory} for one in inventory.numa],
    }
