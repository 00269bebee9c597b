"""What keeps a file from coming, and what that means for the next try?"""

from pathlib import Path

from llmgw.core.units import Bytes, size


class SourceFailed(Exception):
    """A source does not give this file; the text is a fact about the source, without its name."""

    def __init__(self, fact: str, retry_after: float | None = None) -> None:
        super().__init__(fact)
        self.retry_after = retry_after
        """Seconds that it asked to be left alone."""


class Cut(SourceFailed):
    """A source that gave some of the file broke off; it may go on from there."""


class CannotDownload(Exception):
    """A file did not come; the text is one line: subject, fact, way out."""

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        """Seconds that a source asked for; None where none did."""


class NoRoom(CannotDownload):
    """The disk is too full; what came is kept, and the file goes on from there once there is room."""

    def __init__(self, name: str, place: Path, need: Bytes, free: Bytes, reserve: Bytes) -> None:
        fact = (
            f"{size(need)} more are needed at {place}, where {size(free)} are free and {size(reserve)} stay free; "
            "make room there"
        )
        if free >= need + reserve:
            fact = f"{place} takes no more though {size(free)} are free: are its inodes or a quota used up?"
        super().__init__(f"{name}: {fact}")
        self.need, self.free = need, free
