"""How is an act taken back that could not be stored? By what the state was before, kept while the act is written.

The records of `core` are frozen and shared; only the containers that hold them and the few objects that own those are
copied: some ten milliseconds for a thousand nodes with two thousand replicas. Acts are rare, and reports need no undo.
"""

from collections import deque
from enum import Enum
from typing import Any


class Undo:
    """The state of `owner` and of every object below it that can change."""

    def __init__(self, owner: object) -> None:
        self._kept: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._keep(owner)

    def take_back(self) -> None:
        """Put everything back as it was; the objects stay the same ones."""
        for owner, attributes in self._kept.values():
            owner.__dict__.clear()
            owner.__dict__.update(attributes)

    def _keep(self, value: Any) -> Any:
        if isinstance(value, dict):
            return type(value)((key, self._keep(item)) for key, item in value.items())
        if isinstance(value, list | set | deque):
            return type(value)(self._keep(item) for item in value)
        if _can_change(value) and id(value) not in self._kept:
            self._kept[id(value)] = (value, {})
            self._kept[id(value)][1].update({name: self._keep(item) for name, item in vars(value).items()})
        return value


def _can_change(value: object) -> bool:
    """Records have slots; an enum's member has attributes but never changes."""
    return hasattr(value, "__dict__") and type(value).__module__.startswith("llmgw.") and not isinstance(value, Enum)
