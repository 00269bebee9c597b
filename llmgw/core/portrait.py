"""What is there to say about one node to a person? The same words for every front end, in groups.

Texts that the node chose are as they came: whoever shows them to a terminal makes them safe.
"""

from collections.abc import Callable, Iterator, Sequence

from llmgw.core import devices, engine_words
from llmgw.core.engines import progress
from llmgw.core.groups import Group, Line, bar, listed, table
from llmgw.core.hosts import host_port
from llmgw.core.inventory import Cpu, Disk, Inventory, NumaNode, memory_stated
from llmgw.core.presence import NodeState
from llmgw.core.symptoms import nearly_full
from llmgw.core.units import age, several, size
from llmgw.core.views import EngineView, NodeView

_VECTORS = ("avx", "avx2", "avx512f", "avx512_vnni", "asimd", "sve", "i8mm", "bf16")
"""The kernel's words for the vector extensions that engines are built for; AMX has several, all beginning so."""
_AMX = "amx"

AWAY = "known from before; its agent has not come back yet"

Ago = Callable[[float], str]


def portrait(
    view: NodeView, engines: Sequence[EngineView], now: float, *, ago: Ago = age, wide: bool = False
) -> tuple[Group, ...]:
    """All groups of one node, in the order to read them; `ago` writes the seconds since something, `wide` says more."""
    groups = [_identity(view, now, ago)]
    inventory = view.inventory
    if inventory is not None:
        groups += [_machine(inventory, now, ago), _processors(inventory)]
    groups.append(_memory(view))
    if inventory is not None:
        groups += [_disks(inventory), *devices.groups(inventory, view.usage, wide=wide)]
    groups.append(_engines(view, engines, now, ago))
    if inventory is not None and inventory.by_hand:
        groups.append(_by_hand(inventory))
    return (*groups, _reach(view, now, ago))


def warnings(view: NodeView) -> Group:
    """What is wrong with it, each with what to do under it; a group of its own, since it may stand elsewhere."""
    if not view.warnings:
        return Group(title="warnings", note="none")
    lines: list[Line] = []
    for warning in view.warnings:
        lines.append(Line(cells=(warning.code, str(warning)), heed=True))
        if warning.fix:
            lines.append(Line(cells=("", warning.fix), under=True))
    return listed("warnings", lines)


def probed(view: NodeView, now: float, ago: Ago = age) -> str:
    """When its engines were looked at; "never probed" is not "has none"."""
    return "never probed" if view.engines is None else f"probed {ago(now - view.engines.probed_at)} ago"


# --- groups -----------------------------------------------------------------------------------------------------


def _identity(view: NodeView, now: float, ago: Ago) -> Group:
    since = f"{view.state.value} for {ago(now - view.since)}"
    lines = [
        Line(cells=("state", since), heed=view.state is not NodeState.READY),
        Line(cells=("address", view.address or "not known")),
        Line(cells=("agent", view.agent_version or "not known")),
    ]
    if view.inventory is None:
        lines.append(Line(cells=("machine", AWAY), heed=True))
    return Group(title=view.name, lines=tuple(lines))


def _machine(inventory: Inventory, now: float, ago: Ago) -> Group:
    virtual = {"": "not known", "none": "none, bare metal"}.get(inventory.virtualization, inventory.virtualization)
    lines = [
        Line(cells=("os", inventory.os)),
        Line(cells=("kernel", ", ".join(filter(None, (inventory.kernel, inventory.arch))))),
        Line(cells=("virtual", virtual)),
    ]
    if inventory.machine_problem:
        lines.append(Line(cells=("from before", inventory.machine_problem), heed=True))
    ends = inventory.certificate_ends
    if ends is not None:
        text = f"ends in {ago(ends - now)}" if ends > now else f"ended {ago(now - ends)} ago"
        lines.append(Line(cells=("certificate", text), heed=ends <= now))
    if inventory.recorded:
        lines.append(Line(cells=("recorded", f"this is the machine in {inventory.recorded}, not its own"), heed=True))
    return Group(title="machine", lines=tuple(lines))


def _processors(inventory: Inventory) -> Group:
    cpu = inventory.cpu
    quota = "" if cpu.quota is None else f", of which its control group allows the time of {cpu.quota:g}"
    lines = [
        Line(cells=("model", cpu.model or "not known")),
        Line(cells=("cores", f"{cpu.cores}{quota}")),
        Line(cells=("vectors", _vectors(cpu))),
    ]
    if inventory.numa:
        lines.append(Line(cells=("numa", "; ".join(map(_numa, inventory.numa[:16])))))
    return Group(title="processors", lines=tuple(lines))


def _vectors(cpu: Cpu) -> str:
    if not cpu.features:
        return "not known"
    found = [word for word in _VECTORS if word in cpu.features]
    found += [word for word in cpu.features if word.startswith(_AMX)]
    return " ".join(found) or "none that engines use"


def _numa(node: NumaNode) -> str:
    return f"node {node.index}: {several(node.cores, 'core')}, {size(node.memory)}"


def _memory(view: NodeView) -> Group:
    inventory, usage = view.inventory, view.usage
    lines: list[Line] = []
    if inventory is not None:
        by_hand = ", by hand" if memory_stated(inventory) else ""
        lines.append(Line(cells=("total", size(inventory.memory) + by_hand)))
        if inventory.memory_limit is not None:
            lines.append(Line(cells=("limit", f"{size(inventory.memory_limit)} by its control group")))
    of = size(view.usable) if view.usable else "?"
    promised = f"{bar(view.promised, view.usable)} {size(view.promised)} of {of} usable"
    lines.append(Line(cells=("promised", promised), heed=view.usable > 0 and view.promised > view.usable))
    if usage is not None:
        lines.append(Line(cells=("available", f"{size(usage.memory_available)} by the kernel")))
        lines.append(Line(cells=("load", f"{usage.load_average:.2f}")))
    return Group(title="memory", lines=tuple(lines))


def _disks(inventory: Inventory) -> Group:
    if not inventory.disks:
        return Group(title="disks", note="not known")
    return table("disks", ("DIRECTORY", "FILLED", "FREE", "FOR"), map(_disk, inventory.disks))


def _disk(disk: Disk) -> Line:
    uses = ", ".join(disk.uses)
    if disk.problem:
        return Line(cells=(disk.directory, "?", disk.problem, uses), heed=True)
    free = f"{size(disk.free)} of {size(disk.total)}"
    return Line(cells=(disk.directory, bar(disk.total - disk.free, disk.total), free, uses), heed=nearly_full(disk))


def _engines(view: NodeView, engines: Sequence[EngineView], now: float, ago: Ago) -> Group:
    when = probed(view, now, ago)
    if not engines:
        return Group(title="engines", note=when if view.engines is None else f"none, {when}")
    titles = ("ENGINE", "VERSION", "VARIANT", "STEP", "CHECKED", "PATH", "BY HAND", "SAID")
    return table("engines", titles, (_engine(one, now, ago) for one in engines), note=when)


def _engine(view: EngineView, now: float, ago: Ago) -> Line:
    install, how = view.install, engine_words.state(view.install)
    said = engine_words.remarks(view)
    if how is not engine_words.EngineState.READY:
        said.insert(0, engine_words.stuck(install, now) or progress.words(install, now))
    checked = "" if install.checked_at is None or view.by_hand else f"{ago(now - install.checked_at)} ago"
    return Line(
        cells=(
            *(install.engine, install.version, install.variant, engine_words.step(install), checked, install.path),
            "by hand" if view.by_hand else "",
            "; ".join(said),
        ),
        heed=how in (engine_words.EngineState.BROKEN, engine_words.EngineState.FAILED),
    )


def _by_hand(inventory: Inventory) -> Group:
    lines = (
        Line(cells=(one.field, one.stated, one.measured or "not measured"), heed=one.differs)
        for one in inventory.by_hand
    )
    return table("by hand", ("FIELD", "STATED", "MEASURED"), lines)


def _reach(view: NodeView, now: float, ago: Ago) -> Group:
    if not view.reach:
        return Group(title="routers", note="none has tried to reach it")
    return table("routers", ("ROUTER", "AT", "TRIED", "SAID"), _tried(view, now, ago))


def _tried(view: NodeView, now: float, ago: Ago) -> Iterator[Line]:
    for one in view.reach:
        tried = f"{ago(now - one.at)} ago"
        where = host_port(one.host, one.port)
        yield Line(cells=(one.router, where, tried, one.error or "reaches it"), heed=bool(one.error))
