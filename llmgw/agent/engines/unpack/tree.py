"""What would an archive make, entry by entry? Decided from its names alone, before anything is made.

Links are followed in here and never on the disk: what lies on the way there does not matter.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

from llmgw.agent.engines.unpack.bad import BadArchive
from llmgw.agent.engines.unpack.entries import Kind
from llmgw.agent.engines.unpack.limits import Limits
from llmgw.agent.engines.unpack.names import Parts, shown, told

_HOPS = 40
"""Links on the way of one link; the kernel's own bound."""


@dataclass(slots=True, kw_only=True)
class Node:
    """A file, a link or a directory of the archive."""

    kind: Kind
    mode: int = 0o755
    size: int = 0
    target: str = ""
    said: bool = True
    """An entry of its own named it; a directory may also be named only on the way to something else."""
    made: bool = False
    """It is on the disk."""
    children: dict[str, "Node"] = field(default_factory=dict)
    folded: set[str] = field(default_factory=set)
    """The children's names as a file system takes them that does not tell case."""


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link of the archive, and where it came."""

    parts: Parts
    target: str
    index: int


class Tree:
    """All that was named so far. Each `add_…` raises BadArchive where the archive may not name this now."""

    def __init__(self, limits: Limits, *, case_pairs: bool) -> None:
        self._limits, self._case_pairs = limits, case_pairs
        self._root = Node(kind=Kind.DIRECTORY, said=False, made=True)
        self._nodes = self._size = self._steps = 0
        self.links = list[Link]()

    def add_file(self, parts: Parts, size: int, mode: int) -> None:
        """Add a file of `size` bytes."""
        self._count(size)
        self._add(parts, Node(kind=Kind.FILE, size=size, mode=mode))

    def add_copy(self, parts: Parts, source: Parts, mode: int) -> int:
        """Add what is the same as an earlier file; returns its size."""
        found = self._find(source)
        if found is None or found.kind is not Kind.FILE:
            raise BadArchive(f"is a hard link to {told(source)}, which is not an earlier file of the archive")
        self.add_file(parts, found.size, mode)
        return found.size

    def add_link(self, parts: Parts, target: str, index: int) -> None:
        """Add a symbolic link. Where it leads is known at the end; that it leads out by itself is known at once."""
        steps = target.split("/")
        ups = next((at for at, part in enumerate(steps) if part != ".."), len(steps))
        if ups >= max(len(parts), 1):
            raise BadArchive(f"link points to {shown(target.encode())}, which is outside of the archive")
        self._add(parts, Node(kind=Kind.LINK, target=target))
        self.links.append(Link(parts, target, index))

    def add_directory(self, parts: Parts, mode: int) -> None:
        """Add a directory; it may have been named on the way to something before."""
        if parts:
            self._add(parts, Node(kind=Kind.DIRECTORY, mode=mode))
        else:
            self._say(self._root, mode)

    def make_way(self, parts: Parts) -> int:
        """Take the directories on the way there for made; returns how many of them are already."""
        way = list(self._way(parts[:-1]))[1:]
        known = sum(node.made for node in way)
        for node in way[known:]:
            node.made = True
        return known

    def all(self) -> Iterator[tuple[Parts, Node]]:
        """Yield everything, a directory before what is in it."""
        yield from _below((), self._root)

    def follow(self, link: Link) -> None:
        """Follow it to something in the archive. Raises BadArchive where it leads elsewhere or nowhere."""
        path = list(self._way(link.parts[:-1]))
        todo = link.target.split("/")[::-1]
        hops = 0
        while todo:
            self._step()
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                path.pop()
                if not path:
                    raise BadArchive(f"link points to {shown(link.target.encode())}, which is outside of the archive")
                continue
            found = path[-1].children.get(part)
            if found is None or (found.kind is Kind.FILE and todo):
                raise BadArchive(f"link points to {shown(link.target.encode())}, which is not in the archive")
            if found.kind is Kind.DIRECTORY:
                path.append(found)
            elif found.kind is Kind.LINK:
                hops += 1
                if hops > _HOPS:
                    raise BadArchive(f"link points to {shown(link.target.encode())}, and over {_HOPS} links to nothing")
                todo += found.target.split("/")[::-1]

    def _way(self, parts: Parts) -> Iterator[Node]:
        """Yield the directories on the way there, the root first."""
        node = self._root
        yield node
        for part in parts:
            node = node.children[part]
            yield node

    def _find(self, parts: Parts) -> Node | None:
        node: Node | None = self._root
        for part in parts:
            node = node.children.get(part) if node else None
        return node

    def _add(self, parts: Parts, node: Node) -> None:
        if not parts:
            raise BadArchive("would take the place of the directory that the archive goes into")
        directory = self._root
        for depth, part in enumerate(parts[:-1], start=1):
            child = directory.children.get(part)
            if child is None:
                child = self._put(directory, part, Node(kind=Kind.DIRECTORY, said=False))
            elif child.kind is not Kind.DIRECTORY:
                raise BadArchive(f"lies in {told(parts[:depth])}, which is a {_WORDS[child.kind]}")
            directory = child
        there = directory.children.get(parts[-1])
        if there is None:
            self._put(directory, parts[-1], node)
        elif there.kind is Kind.DIRECTORY and node.kind is Kind.DIRECTORY:
            self._say(there, node.mode)
        else:
            raise BadArchive(f"has a name that an earlier {_WORDS[there.kind]} has")

    def _put(self, directory: Node, name: str, node: Node) -> Node:
        self._nodes += 1
        if self._nodes > self._limits.entries:
            raise BadArchive(f"has more than {self._limits.entries} entries")
        folded = name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()
        if folded in directory.folded and not self._case_pairs:
            raise BadArchive("has a name that differs from an earlier one in case only")
        directory.folded.add(folded)
        directory.children[name] = node
        return node

    def _say(self, directory: Node, mode: int) -> None:
        if directory.said:
            raise BadArchive("has a name that an earlier directory has")
        directory.said, directory.mode = True, mode

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._limits.out:
            raise BadArchive(f"brings it to {self._size} bytes unpacked, {self._limits.out} are allowed")

    def _step(self) -> None:
        self._steps += 1
        if self._steps > self._limits.steps:
            raise BadArchive(f"link cannot be followed: all links together take more than {self._limits.steps} steps")


def _below(parts: Parts, directory: Node) -> Iterator[tuple[Parts, Node]]:
    for name, node in directory.children.items():
        yield (*parts, name), node
        yield from _below((*parts, name), node)


_WORDS = {Kind.FILE: "file", Kind.COPY: "file", Kind.LINK: "link", Kind.DIRECTORY: "directory"}
