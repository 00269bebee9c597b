"""One measured figure, as the line that `make bench` prints."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A value that is good when it is at most `goal`; with a peer, `ratio` is what the goal is about."""

    name: str
    value: float
    unit: str
    goal: float
    peer: str = ""
    peer_value: float = 0.0
    failed: str = ""
    """Why there is no true value; such a figure is not ok, however small it is."""

    @property
    def ratio(self) -> float:
        return self.value / self.peer_value if self.peer_value else 0.0

    @property
    def ok(self) -> bool:
        return not self.failed and (self.ratio if self.peer else self.value) <= self.goal

    def line(self) -> str:
        shown: dict[str, object] = {
            "name": self.name,
            "value": round(self.value, 3),
            "unit": self.unit,
            "goal": self.goal,
            "ok": self.ok,
        }
        if self.peer:
            shown |= {"peer": self.peer, "peer_value": round(self.peer_value, 3), "ratio": round(self.ratio, 3)}
        if self.failed:
            shown["failed"] = self.failed
        return json.dumps(shown)
