"""What is said of a name that the cluster does not have?"""

from collections.abc import Iterable

from llmgw.core.brief import some
from llmgw.core.errors import Rejected

_SHOWN = 5


class UnknownNode(Rejected):
    """No node of this name has joined; the nearest names, or some that there are."""

    code = "unknown_node"

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name, self.known = name, tuple(sorted(known))
        super().__init__(self.name, self.known)

    def __str__(self) -> str:
        from difflib import get_close_matches  # only for this mistake

        said = f"node {self.name[:80]!r} is unknown"
        if not self.known:
            return f"{said}; none has joined yet"
        if near := get_close_matches(self.name[:80], self.known, n=_SHOWN):
            return f"{said}; nearest: {', '.join(near)}"
        return f"{said}; known: {some(self.known, _SHOWN)}"
