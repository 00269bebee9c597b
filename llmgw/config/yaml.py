"""What a YAML file says, as nested values that know their lines.

Only what a configuration needs: mappings, lists and text. A scalar stays the text that stands in the file (its type
is the reader's to decide, so `version: 1.10` is not a number and `no` not a boolean); an empty one, `~` or `null` is
None. Refused: duplicate keys, tags, several documents, and more than MOST_NODES values once aliases are followed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

MOST_NODES = 50_000
DEEPEST = 32

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C parser is ten times faster; both turn text into events without recursion."""

_NOTHING = {"", "~", "null", "Null", "NULL"}


class NotYaml(Exception):
    """The text is not YAML of the kind read here."""

    def __init__(self, line: int | None, rule: str) -> None:
        super().__init__(line, rule)
        self.line, self.rule = line, rule


@dataclass(slots=True)
class Node:
    """A value and where it stands; `size` counts the values in it, those behind aliases each time they are used."""

    value: object
    line: int
    size: int = 1
    children: dict[str | int, "Node"] = field(default_factory=dict)

    def line_of(self, path: tuple[str | int, ...]) -> int:
        """The line of what `path` names, or of the nearest thing around it."""
        node = self
        for step in path:
            if step not in node.children:
                break
            node = node.children[step]
        return node.line


def read(text: str) -> Node:
    """Return the document in `text`, or raise NotYaml."""
    try:
        return _Reader(yaml.parse(text, Loader=_Loader)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = " ".join(str(error.problem or error.context or "is not YAML").split())
        raise NotYaml(None if mark is None else mark.line + 1, f"is not YAML: {words}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        words = str(error).split("\n", 1)[0]
        raise NotYaml(None, f"is not YAML: {words}") from None


class _Reader:
    """Builds nodes from the parser's events; recursion is bounded by DEEPEST."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._anchors: dict[str, Node] = {}

    def document(self) -> Node:
        next(self._events)  # the stream's start
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            return Node(None, 1)
        root = self._node(next(self._events), 0)
        next(self._events)  # the document's end
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise NotYaml(_line(after), "must be one document, a second one starts here")
        return root

    def _node(self, event: yaml.Event, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if depth > DEEPEST:
            raise NotYaml(_line(event), f"is nested deeper than {DEEPEST}")
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)  # all that the parser has left
        if event.tag is not None:
            raise NotYaml(_line(event), f"must be without tags, {event.tag[:40]!r} is one")
        if isinstance(event, yaml.ScalarEvent):
            plain = event.style is None or event.style == ""
            node = Node(None if plain and event.value in _NOTHING else _text(event), _line(event))
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, depth)
        else:
            node = self._mapping(event, depth)
        if node.size > MOST_NODES:
            raise NotYaml(node.line, f"holds more than {MOST_NODES} values")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: yaml.AliasEvent) -> Node:
        # An anchor is known once its value is complete, so nothing can hold itself.
        name = event.anchor or ""
        target = self._anchors.get(name)
        if target is None:
            raise NotYaml(_line(event), f"has no anchor &{name[:40]} before this alias")
        return target

    def _sequence(self, start: yaml.Event, depth: int) -> Node:
        values: list[object] = []
        node = Node(values, _line(start))
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            child = self._node(event, depth + 1)
            node.children[len(values)] = child
            node.size += child.size
            values.append(child.value)
        return node

    def _mapping(self, start: yaml.Event, depth: int) -> Node:
        values: dict[str, object] = {}
        node = Node(values, _line(start))
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, values)
            child = self._node(next(self._events), depth + 1)
            # The key's line, not the value's: it is where a reader looks.
            node.children[key] = Node(child.value, _line(event), child.size, child.children)
            node.size += child.size
            if node.size > MOST_NODES:
                raise NotYaml(_line(event), f"holds more than {MOST_NODES} values")
            values[key] = child.value
        return node

    def _key(self, event: yaml.Event, values: dict[str, object]) -> str:
        if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
            raise NotYaml(_line(event), "has a key that is not a plain word")
        key = _text(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = Node(key, _line(event))
        if key in values:
            raise NotYaml(_line(event), f"has the key {key[:80]!r} twice")
        return key


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # the parser marks every event
    return event.start_mark.line + 1


def _text(event: yaml.ScalarEvent) -> str:
    try:
        event.value.encode()
    except UnicodeEncodeError:
        raise NotYaml(_line(event), "holds half of a surrogate pair, which is no character") from None
    return str(event.value)
