"""Why is an archive refused? The one error of everything that reads it."""


class BadArchive(Exception):
    """An archive that is not unpacked; nothing of it is left.

    `entry` is the name as the archive has it, escaped where it would not print; `index` counts every header from 1,
    and is 0 where it is not about an entry. The text is `entry 3 (../x): leaves the directory`.
    """

    def __init__(self, rule: str, entry: str = "", index: int = 0) -> None:
        super().__init__(rule, entry, index)
        self.rule, self.entry, self.index = rule, entry, index

    def at(self, entry: str, index: int) -> "BadArchive":
        """The same, told of an entry unless it is told of one already."""
        return self if self.index else BadArchive(self.rule, entry, index)

    def __str__(self) -> str:
        if not self.index:
            return f"archive {self.rule}"
        return f"entry {self.index} ({self.entry}): {self.rule}" if self.entry else f"entry {self.index}: {self.rule}"
