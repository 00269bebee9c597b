"""How is an archive unpacked? In one pass over it: the header decides before anything is made.

    gzip ─▶ inflate ─▶ entries (header, pax) ─▶ names ─▶ tree: may it be? ─▶ write
                                                            └─▶ at the end: what has no bytes

Directories that nothing is in, empty files and links are made once all of the archive is known to be good: they cost
nothing in an archive, so they may be many; and as links come last, nothing is ever reached over one.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

from llmgw.agent.engines.unpack.bad import BadArchive
from llmgw.agent.engines.unpack.entries import Entry, Kind, entries
from llmgw.agent.engines.unpack.inflate import Inflated
from llmgw.agent.engines.unpack.limits import Limits
from llmgw.agent.engines.unpack.names import Parts, parts, shown, target, told
from llmgw.agent.engines.unpack.tree import Node, Tree
from llmgw.agent.engines.unpack.write import Piece, Writer

Tell = Callable[[int, int], None]
"""Given the compressed bytes taken so far, and the bytes and entries made."""


def extract(archive: int, into: int, *, tell: Tell, limits: Limits, case_pairs: bool = False) -> None:
    """Unpack what `archive` is open on into the open directory `into`, which is empty. Raises BadArchive, and OSError
    where the disk fails or is full; what was made until then is left to the caller to remove.

    `case_pairs` allows names that differ in case only, as a terminal database has them.
    """
    work = _Work(archive, into, tell, limits, case_pairs=case_pairs)
    with closing(work.writer):
        work.run()


class _Work:
    def __init__(self, archive: int, into: int, tell: Tell, limits: Limits, *, case_pairs: bool) -> None:
        self._tell, self._limits = tell, limits
        self._taken = self._made = 0
        self._stream = Inflated(archive, limits, self._took)
        self._tree = Tree(limits, case_pairs=case_pairs)
        self.writer = Writer(into)

    def run(self) -> None:
        for entry in entries(self._stream, self._limits):
            try:
                self._take(entry)
            except BadArchive as bad:
                raise bad.at(entry.shown, entry.index) from None
        self._stream.end()
        for link in self._tree.links:
            try:
                self._tree.follow(link)
            except BadArchive as bad:
                raise bad.at(told(link.parts), link.index) from None
        for name, node in self._tree.all():
            self._finish(name, node)
            self._did(1)

    def _take(self, entry: Entry) -> None:
        """Add it to the tree, and make it where it has bytes."""
        name = parts(entry.name, self._limits)
        match entry.kind:
            case Kind.DIRECTORY:
                self._tree.add_directory(name, entry.mode)
            case Kind.LINK:
                self._tree.add_link(name, target(entry.link, self._limits), entry.index)
            case Kind.FILE:
                self._tree.add_file(name, entry.size, entry.mode)
                if entry.size:
                    pieces = self._counted(self._stream.pieces(entry.size))
                    self.writer.file(name, self._tree.make_way(name), entry.mode, pieces)
            case Kind.COPY:
                source = _source(entry, self._limits)
                if self._tree.add_copy(name, source, entry.mode):
                    self.writer.copy(name, self._tree.make_way(name), entry.mode, source, self._counted)

    def _finish(self, name: Parts, node: Node) -> None:
        """Make what has no bytes."""
        if node.kind is Kind.DIRECTORY:
            self.writer.directory(name, len(name) - (not node.made), node.mode)
        elif node.kind is Kind.LINK:
            self.writer.link(name, node.target)
        elif not node.size:
            self.writer.file(name, len(name), node.mode, ())

    def _counted(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            yield piece
            self._did(len(piece))

    def _took(self, taken: int) -> None:
        self._taken = taken
        self._tell(self._taken, self._made)

    def _did(self, made: int) -> None:
        self._made += made
        self._tell(self._taken, self._made)


def _source(entry: Entry, limits: Limits) -> Parts:
    try:
        return parts(entry.link, limits)
    except BadArchive as bad:
        raise BadArchive(f"is a hard link to {shown(entry.link)}, which {bad.rule}") from None
