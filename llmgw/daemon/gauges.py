"""What does the control plane tell a monitoring system? Each figure of a node or a model, as a sample of a gauge.

The text form, its escaping included, is prometheus-client's. Families whose samples come in slices are written slice by
slice, so that a thousand nodes cost no long moment.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.facts import Engines
from llmgw.core.inventory import Gpu, Inventory, Usage
from llmgw.core.safe import safe
from llmgw.core.views import EngineView, ModelView, NodeView

MOST = 128
"""Disks, GPUs or engines of one node that are told of, and versions of engines at their steps in all."""

FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "llmgw_build_info": ("The running version.", ("version",)),
    "llmgw_cluster_settled": ("1 once nodes had their time to come back after a start.", ()),
    "llmgw_node_state": ("1 for the state that the node is in.", ("node", "state")),
    "llmgw_node_warning": ("Warnings on the node, by code.", ("node", "code")),
    "llmgw_node_memory_bytes": ("RAM of the node.", ("node", "kind")),
    "llmgw_node_gpus": ("GPUs of the node; parts of a divided one are not counted.", ("node", "vendor")),
    "llmgw_node_gpu_memory_bytes": ("Memory of a GPU, by its number; of a part, by its uuid.", ("node", "gpu", "kind")),
    "llmgw_node_disk_bytes": ("The filesystem under a directory of the node.", ("node", "directory", "kind")),
    "llmgw_node_engine": ("1 when the engine was seen to run, 0 when it failed.", ("node", "engine", "version")),
    "llmgw_engine_installs": ("Nodes where the engine is at this step.", ("engine", "version", "step")),
    "llmgw_engine_broken": (
        "Of these the nodes where a step failed, or where it no longer works.",
        ("engine", "version"),
    ),
    "llmgw_model_state": ("1 for the state that the model is in.", ("model", "state")),
    "llmgw_model_replicas": ("Replicas of the model.", ("model", "kind")),
    "llmgw_refusals": ("Nodes that refuse one more wanted replica of the model, by reason.", ("model", "code")),
}
"""By name, what it is and its labels; docs/metrics.md has the same."""

Samples = Iterable[tuple[str, tuple[str, ...], float]]
"""The family, the values of its labels in their order, and the value."""


def of_cluster(version: str, settled: bool) -> Samples:
    """What there is once."""
    yield "llmgw_build_info", (version,), 1
    yield "llmgw_cluster_settled", (), settled


def of_node(view: NodeView) -> Samples:
    """All of a node. What is not known has no sample."""
    node, inventory, usage = view.name, view.inventory, view.usage
    yield "llmgw_node_state", (node, view.state.value), 1
    for code, count in islice(Counter(warning.code for warning in view.warnings).items(), MOST):
        yield "llmgw_node_warning", (node, code), count
    memory = {"promised": view.promised, "usable": view.usable or None}
    if inventory is not None:
        memory["total"] = inventory.memory
        yield from _gpus(node, inventory, usage)
        yield from _disks(node, inventory)
    if usage is not None:
        memory["available"] = usage.memory_available
    for kind, size in memory.items():
        if size is not None:
            yield "llmgw_node_memory_bytes", (node, kind), size
    if view.engines is not None:
        yield from _engines(node, view.engines)


def _gpus(node: str, inventory: Inventory, usage: Usage | None) -> Samples:
    if not inventory.gpu_problem:
        for vendor, count in Counter(gpu.vendor.value for gpu in inventory.gpus if not gpu.parent).items():
            yield "llmgw_node_gpus", (node, vendor), count
    for gpu in islice(inventory.gpus, MOST):
        if gpu.memory is not None:
            yield "llmgw_node_gpu_memory_bytes", (node, _gpu(gpu), "total"), gpu.memory
    for gpu, used in islice(zip(inventory.gpus, usage.gpu_used if usage else (), strict=False), MOST):
        yield "llmgw_node_gpu_memory_bytes", (node, _gpu(gpu), "used"), used


def _gpu(gpu: Gpu) -> str:
    return gpu.uuid if gpu.parent else str(gpu.index)


def _disks(node: str, inventory: Inventory) -> Samples:
    for disk in islice(inventory.disks, MOST):
        if not disk.problem:
            yield "llmgw_node_disk_bytes", (node, disk.directory, "total"), disk.total
            yield "llmgw_node_disk_bytes", (node, disk.directory, "free"), disk.free


def _engines(node: str, engines: Engines) -> Samples:
    for one in islice(engines.engines, MOST):
        yield "llmgw_node_engine", (node, one.engine, one.version), not one.problem


def of_engines(views: Iterable[EngineView]) -> Samples:
    """Of all engines on all nodes, counted: what one node alone has is in its own figures."""
    steps, broken = Counter[tuple[str, str, str]](), Counter[tuple[str, str]]()
    for view in views:
        install = view.install
        if not view.by_hand:
            steps[install.engine, install.version, install.step.value] += 1
            broken[install.engine, install.version] += _is_broken(install)
    for labels, count in steps.most_common(MOST):
        yield "llmgw_engine_installs", labels, count
    for name, count in broken.most_common(MOST):
        yield "llmgw_engine_broken", name, count


def _is_broken(install: Install) -> bool:
    """One that waits for its turn says so, and is not."""
    return bool(install.problem) and (install.step is InstallStep.READY or install.attempts > 0)


def of_model(view: ModelView) -> Samples:
    """All of a model."""
    yield "llmgw_model_state", (view.name, view.state.value), 1
    for kind, count in (("wanted", view.wanted), ("ready", view.ready), ("away", view.away)):
        yield "llmgw_model_replicas", (view.name, kind), count
    for code, count in Counter(refusal.code for refusal in view.refusals).items():
        yield "llmgw_refusals", (view.name, code), count


# --- text -------------------------------------------------------------------------------------------------------


class Text:
    """The page as it grows, a list of pieces for each family."""

    def __init__(self) -> None:
        self._heads = {name: _written(_family(name)) for name in FAMILIES}
        self._bodies: dict[str, list[str]] = {name: [] for name in FAMILIES}

    def add(self, samples: Samples) -> None:
        """Write these samples below those of the same families; of two with the same labels the last counts."""
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for name, labels, value in samples:
            found.setdefault(name, {})[tuple(map(safe, labels))] = value
        for name, values in found.items():
            family = _family(name)
            for labels, value in values.items():
                family.add_metric(labels, value)
            self._bodies[name].append(_written(family).removeprefix(self._heads[name]))

    def whole(self) -> bytes:
        """All of it; a family without samples is left out."""
        told = ((self._heads[name], *bodies) for name, bodies in self._bodies.items() if bodies)
        return "".join(piece for pieces in told for piece in pieces).encode()


def _family(name: str) -> GaugeMetricFamily:
    said, labels = FAMILIES[name]
    return GaugeMetricFamily(name, said, labels=labels)


def _written(family: Metric) -> str:
    return generate_latest(_One(family)).decode()


class _One(Collector):
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
