"""The wire: generated messages, conversion to and from core, and the only TLS contexts."""

import sys
import typing
from functools import cache
from types import ModuleType

CODEC_VERSION = "0.10.0"
"""Of betterproto2, as pinned in pyproject.toml; a test compares it with what is installed."""


def _import_codec() -> None:
    """Import betterproto2 without two imports of its own that cost every `ctl` call 40 ms.

    It imports pydantic wherever that is installed, to ask of each message whether it is a pydantic dataclass (ours
    never are), and importlib.metadata, to learn its own version.
    """
    if "betterproto2" in sys.modules:
        return
    metadata = ModuleType("importlib.metadata")
    metadata.version = lambda _: CODEC_VERSION  # type: ignore[attr-defined]
    stand_in: dict[str, ModuleType | None] = {"pydantic": None}  # None: as if it were not installed
    if "importlib.metadata" not in sys.modules:
        stand_in["importlib.metadata"] = metadata
    hidden = {name: sys.modules[name] for name in stand_in if name in sys.modules}
    sys.modules.update(stand_in)  # type: ignore[arg-type]
    try:
        import betterproto2  # noqa: F401 -- so that it is there when the generated modules ask for it
    finally:
        for name in stand_in:
            del sys.modules[name]
        sys.modules.update(hidden)


@cache
def _hints(message: type) -> dict[str, typing.Any]:
    return typing.get_type_hints(message, vars(sys.modules[message.__module__]), {})


def _speed_up_codec() -> None:
    """Let the codec evaluate a message's annotations once, and not all of them again for each of its fields."""
    import betterproto2

    betterproto2.Message._type_hints = classmethod(_hints)  # type: ignore[method-assign, assignment, arg-type]


_import_codec()
_speed_up_codec()
