"""The models: what the file declares, what was changed at run time, and which of the two holds.

`models:` in server.yaml is the declared catalog. A change at run time is an overlay of single fields; it holds until
the file's own value of that field changes, then the file holds and an event names both values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmgw.core.facts import Profile
from llmgw.core.names import ModelName

MOST_REPLICAS = 10_000
"""Of one model: a slip of the keyboard must not become a million orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A name that clients ask for, and how many replicas of it are wanted."""

    name: ModelName
    aliases: tuple[str, ...] = ()
    replicas: int = 1
    profile: Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """An overlay of one field: `replicas` of a model, set at run time."""

    model: ModelName
    replicas: int
    declared: int
    """What the file said when it was set; when the file says something else, the file wins."""
    by: str
    """Who asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overruled:
    """An overlay that ended because the file's own entry changed."""

    overlay: Scaled
    replicas: int
    """What the file says now."""


def merge(
    declared: Mapping[ModelName, Model], overlays: Mapping[ModelName, Scaled]
) -> tuple[dict[ModelName, Model], dict[ModelName, Scaled], list[Overruled]]:
    """Return the models that hold, the overlays that live on, and those that the file overruled.

    An overlay of a model that the file no longer has ends without a word: the model's end is its own event.
    """
    models, living, overruled = dict(declared), dict[ModelName, Scaled](), list[Overruled]()
    for name, overlay in overlays.items():
        model = declared.get(name)
        if model is None:
            continue
        if model.replicas == overlay.declared:
            models[name] = replace(model, replicas=overlay.replicas)
            living[name] = overlay
        else:
            overruled.append(Overruled(overlay=overlay, replicas=model.replicas))
    return models, living, overruled
