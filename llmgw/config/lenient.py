"""What of a faulty file can still be used, and what is wrong with the rest: all of it, not only the first line.

For whoever looks for faults. A program that runs on a file takes it whole or not at all (`checked.py`).
"""

from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from llmgw.config.checked import bad, keys, mapping, nearest
from llmgw.config.yaml import Node
from llmgw.core.errors import BadConfig

_MOST_ROUNDS = 16
"""How often what is wrong in a value is taken out before the whole value is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lenient:
    """A file as far as it can be used."""

    values: dict[str, Any] = field(default_factory=dict)
    """By key as the model has it: what is right in the file, and the default of what is wrong or not in it. A key that
    is needed and not there, or wrong, is missing."""
    faults: tuple[BadConfig, ...] = ()
    """Everything that is wrong, in the order of the file's lines."""

    def get(self, key: str) -> Any:
        """The value of a key, None when there is none that can be used."""
        return self.values.get(key)


def lenient(path: Path, model: type[BaseModel]) -> Lenient:
    """Read the file at `path` as a `model`, as far as it is one. Raises nothing."""
    try:
        root = mapping(path)
    except BadConfig as error:
        return Lenient(faults=(error,))
    reading = _Reading(path, root, model)
    values = reading.whole() if reading.right else None
    return Lenient(
        values=reading.parts() if values is None else values,
        faults=tuple(sorted(reading.faults, key=lambda fault: fault.line or 0)),
    )


def defaults(model: type[BaseModel]) -> dict[str, Any]:
    """The value of each key that a file need not have."""
    return {
        key: one.get_default(call_default_factory=True)
        for key, one in model.model_fields.items()
        if not one.is_required()
    }


class _Reading:
    """One file on its way through its model, key by key."""

    def __init__(self, path: Path, root: Node, model: type[BaseModel]) -> None:
        self._path, self._root, self._model = path, root, model
        self._context = {"base": path.absolute().parent}
        self.faults: list[BadConfig] = []
        self._usable: dict[str, Any] = {}
        """What each key is made of, once what is wrong was taken out."""
        self._made: dict[str, Any] = {}
        self._taken = set[tuple[str | int, ...]]()
        assert isinstance(root.value, dict)  # by `mapping`
        for key, value in root.value.items():
            if key in model.model_fields:
                self._key(key, value)
            else:
                self._fault((key,), nearest(key, list(model.model_fields)))
        for key in self._lacking():
            if key not in root.value:
                self._fault((key,), "is missing")

    @property
    def right(self) -> bool:
        """Every key that is needed is there, so that rules between keys can be looked at."""
        return not self._lacking()

    def whole(self) -> dict[str, Any] | None:
        """The values by the model as a whole, which knows rules between keys; None when one of those is broken."""
        try:
            made = self._model.model_validate(self._usable, context=self._context)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                self.faults.append(bad(self._path, self._root, detail))
            return None
        return {key: getattr(made, key) for key in self._model.model_fields}

    def parts(self) -> dict[str, Any]:
        """The values key by key."""
        return defaults(self._model) | self._made

    def _lacking(self) -> list[str]:
        return [key for key, one in self._model.model_fields.items() if one.is_required() and key not in self._made]

    def _key(self, key: str, value: object) -> None:
        """Make the value of a key; what is wrong in it is taken out, as long as something is left."""
        adapter = _adapter(self._model.model_fields[key])
        tree = {key: deepcopy(value)}
        for _ in range(_MOST_ROUNDS):
            try:
                self._made[key] = adapter.validate_python(tree[key], context=self._context)
            except ValidationError as error:
                if not self._without(key, tree, error):
                    return
            else:
                self._usable[key] = tree[key]
                return

    def _without(self, key: str, tree: dict[str, Any], error: ValidationError) -> bool:
        """Note what is wrong, and take it out of the tree; returns whether something is left to be tried."""
        wrong = [_within(key, detail) for detail in error.errors(include_url=False)]
        places = {keys(detail) for detail in wrong}
        for detail in wrong:
            if keys(detail) not in self._taken:  # what is missing since we took it out is no fault of the file
                self.faults.append(bad(self._path, self._root, detail))
        # From the end of a list to its start, so that places stay what they were.
        for where in sorted(places, key=_order, reverse=True):
            self._taken.add(_take_out(tree, where))
        return key in tree

    def _fault(self, where: tuple[str, ...], rule: str) -> None:
        self.faults.append(BadConfig(str(self._path), self._root.line_of(where), ".".join(where)[:80], rule))


def _adapter(one: FieldInfo) -> TypeAdapter[Any]:
    shape: Any = Annotated[one.annotation, one]  # no type that a checker can know
    return TypeAdapter(shape)


def _within(key: str, detail: ErrorDetails) -> ErrorDetails:
    detail["loc"] = (key, *detail["loc"])
    return detail


def _order(where: tuple[str | int, ...]) -> list[tuple[int, str]]:
    return [(step, "") if isinstance(step, int) else (-1, step) for step in where]


def _take_out(tree: Any, where: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Delete what `where` leads to, or the innermost thing around it that is there; returns its place."""
    holders = []
    for step in where:
        if not (step in tree if isinstance(tree, dict) else isinstance(tree, list) and step in range(len(tree))):
            break
        holders.append(tree)
        tree = tree[step]
    if holders:
        del holders[-1][where[len(holders) - 1]]
    return where[: len(holders)]
