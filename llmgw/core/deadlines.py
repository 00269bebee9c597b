"""When something is due, for many subjects whose due times mostly move later.

Pushing a due time back costs nothing: the heap keeps the earlier entry and looks again when that is reached.
"""

import heapq
from typing import Generic, TypeVar

Subject = TypeVar("Subject")


class Deadlines(Generic[Subject]):
    """Due times by subject; a subject has at most one."""

    def __init__(self) -> None:
        self._due: dict[Subject, float] = {}
        self._heap: list[tuple[float, int, Subject]] = []
        self._pushed: dict[Subject, float] = {}
        self._order = 0

    def copy(self) -> "Deadlines[Subject]":
        """An independent copy."""
        twin = Deadlines[Subject]()
        twin._due, twin._heap, twin._pushed = dict(self._due), list(self._heap), dict(self._pushed)
        twin._order = self._order
        return twin

    def set(self, subject: Subject, at: float | None) -> None:
        """Let `subject` be due at `at`; None takes its due time away."""
        if at is None:
            self._due.pop(subject, None)
            return
        self._due[subject] = at
        if self._pushed.get(subject, float("inf")) > at:
            self._push(subject, at)

    def next(self) -> float | None:
        """When the next subject may be due; sometimes early, never late."""
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> list[Subject]:
        """Return the subjects that are due, earliest first, and forget their due times."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            at, _, subject = heapq.heappop(self._heap)
            if self._pushed.get(subject) == at:
                del self._pushed[subject]
            real = self._due.get(subject)
            if real is None:
                continue
            if real <= now:
                del self._due[subject]
                due.append(subject)
            elif subject not in self._pushed:
                self._push(subject, real)
        return due

    def _push(self, subject: Subject, at: float) -> None:
        self._order += 1
        self._pushed[subject] = at
        heapq.heappush(self._heap, (at, self._order, subject))
