"""How do pages become bytes without encoding an entity once per reader? An item's bytes are made once and joined.

The server's codec passes bytes through where it expects a message.
"""

from llmgw.core.routes import Routes
from llmgw.core.views import Item, Revision
from llmgw.wire.convert import to_wire
from llmgw.wire.operator import v1

MOST_ITEMS, MOST_BYTES = 256, 256 * 1024
"""Of one page; a single item may be larger and then travels alone."""

_ITEMS = (6 << 3) | 2
"""The key of the field Page.items on the wire: field 6, length-delimited."""


def encode_item(value: Item) -> bytes:
    """Return one item as a page holds it, key and length included."""
    body = bytes(to_wire(value, v1.Item))
    return bytes([_ITEMS]) + _varint(len(body)) + body


def encode_routes(routes: Routes) -> bytes:
    """Return a whole route table."""
    return bytes(to_wire(routes, v1.Routes))


class Page:
    """A page that is being filled."""

    def __init__(self) -> None:
        self._items: list[bytes] = []
        self._size = 0

    def has_room(self, item: bytes) -> bool:
        """Whether `item` still fits; a first one always does."""
        fits = len(self._items) < MOST_ITEMS and self._size + len(item) <= MOST_BYTES
        return fits or not self._items

    def add(self, item: bytes) -> None:
        """Append an item that `encode_item` made."""
        self._items.append(item)
        self._size += len(item)

    def encoded(
        self, revision: Revision, now: float, *, snapshot: bool = False, first: bool = False, complete: bool = False
    ) -> bytes:
        """Return the page as bytes; fields of a message may stand in any order, so the items go last."""
        head = v1.Page(
            revision=v1.Revision(epoch=revision.epoch, seq=revision.seq),
            now=now,
            snapshot=snapshot,
            first=first,
            complete=complete,
        )
        return b"".join((bytes(head), *self._items))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
