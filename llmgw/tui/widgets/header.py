"""What do the lines over every screen say: who, where, how fresh, what is wrong, which keys?"""

from collections.abc import Sequence

from textual.content import Content

from llmgw.core.presence import NodeState
from llmgw.core.safe import Safe, safe
from llmgw.tui.keys import Group, Key
from llmgw.tui.rows.models import ready_of
from llmgw.tui.rows.row import rough_age
from llmgw.tui.text import EOL, Part, content, width
from llmgw.tui.view import Link, View

_FRESH = {Link.CONNECTING: "$warning bold", Link.LIVE: "$success", Link.STALE: "$error bold"}
_GAP = safe("  ")


def header(view: View, where: Safe, now: float, room: int, *, read_only: bool, note: Safe) -> Content:
    """Line 1 in at most `room` cells; the parts that matter least are left out first."""
    place, _, trust = where.partition("  ")
    left: list[tuple[int, Safe, str]] = [
        (0, safe("llmgw"), "bold"),
        (0, safe(view.about.cluster if view.about else "?"), "$primary bold"),
        (2, safe(place), ""),
        (3, safe(trust), "$text-muted"),
        (4, safe(f"rev {view.revision}" if view.revision else "rev –"), "$text-muted"),
        (0, freshness(view, now), _FRESH[view.link]),
    ]
    if note:
        left.append((1, note, "$accent"))
    if read_only:
        left.append((0, safe("read-only"), "$warning"))
    right = [(1, text, style) for text, style in _counts(view)]
    while (parts := left + right) and sum(width(text) + 2 for _, text, _ in parts) > room:
        worst = max(parts, key=lambda part: part[0])
        if worst[0] == 0:
            break
        (left if worst in left else right).remove(worst)
    used = sum(width(text) + 2 for _, text, _ in left + right)
    return content(*_spaced(left), safe(" " * max(0, room - used)), *_spaced(right))


def freshness(view: View, now: float) -> Safe:
    """`live`, `stale 14s` or `connecting`."""
    if view.link is Link.STALE:
        return safe(f"stale {rough_age(now - view.since)}")
    return safe(view.link.value)


def banner(view: View) -> tuple[Safe, str] | None:
    """What an operator should know before reading on, and its style; None when there is nothing."""
    if view.link is Link.STALE:
        return safe(f"! lost, trying again: {view.problem}", limit=1024), "$error"
    if view.link is Link.CONNECTING and view.problem:
        return safe(f"! trying again: {view.problem}", limit=1024), "$error"
    if view.about is not None and view.about.exposure == "direct":
        text = "! exposure: direct: engines answer on the network in plain HTTP, with a key"
        return safe(text), "$warning"
    if view.about is not None and not view.about.settled:
        return safe("settling: the control plane has just started and lets nodes return before it moves anything"), ""
    return None


def hints(own: Sequence[Key], usual: Sequence[Key], room: int) -> Content:
    """The keys of this screen on one line, those that it has in common with others on the next."""
    everywhere = [key for key in usual if key.hint]
    here = [key for key in own if key.group is Group.HERE]
    return content(*_keys(here, room), EOL, *_keys(everywhere, room))


def _keys(keys: Sequence[Key], room: int) -> list[Part]:
    parts: list[Part] = []
    for key in keys:
        mark = safe(f"<{key.shown}> ")
        room -= width(mark) + width(key.label) + 2
        if room >= 0:
            parts += [safe(" ") if not parts else _GAP, (mark, "$primary"), (key.label, "$text-muted")]
    return parts


def _counts(view: View) -> list[tuple[Safe, str]]:
    if not view.whole:
        return []
    nodes_ready = sum(node.state is NodeState.READY for node in view.nodes.values())
    counted = ("ready", "wanted", "away")
    ready, wanted, away = (sum(getattr(one, name) for one in view.models.values()) for name in counted)
    return [
        (safe(f"nodes {nodes_ready}/{len(view.nodes)}"), "" if nodes_ready == len(view.nodes) else "$warning"),
        (safe(f"replicas {ready_of(ready, wanted, away)}"), "" if ready >= wanted else "$warning"),
    ]


def _spaced(parts: Sequence[tuple[int, Safe, str]]) -> list[Part]:
    return [piece for _, text, style in parts for piece in (safe(" "), (text, style), safe(" "))]
