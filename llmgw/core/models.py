"""The catalog and an operator's say in it: which models there are and how many replicas are wanted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from llmgw.core import qualify, show
from llmgw.core.catalog import MOST_REPLICAS, Model, Scaled, merge
from llmgw.core.effects import DropOverlay, SaveOverlay
from llmgw.core.errors import TooMany, UnknownModel
from llmgw.core.events import Event, EventKind
from llmgw.core.inputs import CatalogLoaded, ScaleModel
from llmgw.core.ledger import Ledger
from llmgw.core.names import ModelName
from llmgw.core.units import several

_MOST_COUNTED = 50_000
"""Nodes × models that are looked at to count who qualifies: about a third of a second."""


def find(ledger: Ledger, name: str) -> Model:
    """Return the model of this name or alias, or raise UnknownModel."""
    if name not in ledger.names:
        raise UnknownModel(name, ledger.models)
    return ledger.models[ledger.names[name]]


def load(ledger: Ledger, loaded: CatalogLoaded) -> None:
    """Take what server.yaml says: at the start, and again when it was read anew."""
    before, ledger.declared = ledger.declared, dict(loaded.models)
    ledger.models, living, overruled = merge(ledger.declared, ledger.overlays)
    for end in overruled:
        text = f"server.yaml now says {end.replicas} replicas and overrules the {end.overlay.replicas} set at run time"
        ledger.emit(EventKind.OVERLAY_OVERRULED, end.overlay.model, text)
    for name in ledger.overlays.keys() - living.keys():
        ledger.do(DropOverlay(name))
    ledger.overlays = living
    ledger.names = {name: model.name for model in ledger.models.values() for name in (*model.aliases, model.name)}
    if ledger.loaded:
        _say(ledger, before)
    else:
        _say_start(ledger)
    ledger.turn.models |= ledger.models.keys() | before.keys()
    ledger.turn.models |= {replica.model for replica in ledger.replicas.values()}


def _say_start(ledger: Ledger) -> None:
    ledger.loaded = True
    remembered = several(len(ledger.replicas), "replica")
    old = sum(1 for replica in ledger.replicas.values() if show.older(ledger, replica))
    text = f"epoch {ledger.epoch}; {several(len(ledger.models), 'model')} declared, {remembered} remembered"
    note = f", {old} of them with an older profile" if old else ""
    ledger.emit(EventKind.CONTROL_STARTED, ledger.settings.cluster, text + note)


def _say(ledger: Ledger, before: Mapping[ModelName, Model]) -> None:
    for name in before.keys() | ledger.declared.keys():
        if before.get(name) != ledger.declared.get(name):  # whether they are outdated may be another now
            ledger.turn.replicas.update(replica.id for replica in ledger.replicas_of(name))
    for name in sorted(before.keys() - ledger.declared.keys()):
        ledger.refusals.pop(name, None)
        ledger.reasons.pop(name, None)
        ledger.words = {key: words for key, words in ledger.words.items() if key[0] != name}
        event = ledger.emit(EventKind.MODEL_REMOVED, name, "no longer in server.yaml")
        ledger.turn.because[name] = event.seq
    changed = [name for name in sorted(ledger.declared) if before.get(name) != ledger.declared[name]]
    qualifying = _qualifying(ledger, changed)
    for name in changed:
        if name not in before:
            text = f"{several(ledger.models[name].replicas, 'replica')} wanted{qualifying.get(name, '')}"
            ledger.turn.because[name] = ledger.emit(EventKind.MODEL_ADDED, name, text).seq
        else:
            _say_changed(ledger, name, qualifying.get(name, ""))


def _qualifying(ledger: Ledger, names: Sequence[ModelName]) -> dict[ModelName, str]:
    """`; 3 of 5 nodes qualify`, by model; nothing of so many that counting would keep everybody waiting."""
    if len(names) * len(ledger.nodes) > _MOST_COUNTED:
        return {}
    empty = [qualify.as_empty(node) for node in ledger.nodes.values()]
    return {name: f"; {qualify.how_many(ledger.models[name], empty)}" for name in names}


def _say_changed(ledger: Ledger, name: ModelName, qualifying: str) -> None:
    old = [replica for replica in ledger.replicas_of(name) if show.older(ledger, replica)]
    note = f"; {several(len(old), 'replica')} with the old profile" if old else ""
    event = ledger.emit(EventKind.MODEL_CHANGED, name, f"its entry in server.yaml changed{qualifying}{note}")
    ledger.turn.because[name] = event.seq


def scale(ledger: Ledger, asked: ScaleModel) -> None:
    """Want another number of replicas; raises UnknownModel or TooMany, then nothing changed."""
    if asked.model not in ledger.names and asked.replicas == 0 and ledger.replicas_of(ModelName(asked.model)):
        _end_unlisted(ledger, ModelName(asked.model), asked.by)
        return
    model = find(ledger, asked.model)
    if not 0 <= asked.replicas <= MOST_REPLICAS:
        raise TooMany(f"model {model.name}", asked.replicas, MOST_REPLICAS)
    declared = ledger.declared[model.name].replicas
    text = f"{model.replicas} → {several(asked.replicas, 'replica')}"
    event = ledger.emit(EventKind.MODEL_SCALED, model.name, text, by=asked.by)
    if asked.replicas == declared:
        ledger.overlays.pop(model.name, None)
        ledger.do(DropOverlay(model.name))
    else:
        overlay = Scaled(model=model.name, replicas=asked.replicas, declared=declared, by=asked.by)
        ledger.overlays[model.name] = overlay
        ledger.do(SaveOverlay(overlay))
    ledger.models[model.name] = replace(model, replicas=asked.replicas)
    _decided(ledger, model.name, event)


def _end_unlisted(ledger: Ledger, name: ModelName, by: str) -> None:
    """What was found running of a model that server.yaml does not have goes when an operator says so."""
    event = ledger.emit(EventKind.MODEL_SCALED, name, "0 replicas; it is not in server.yaml", by=by)
    _decided(ledger, name, event)


def _decided(ledger: Ledger, name: ModelName, event: Event) -> None:
    """An operator has decided about this model: what was adopted of it is ordinary from now on."""
    ledger.turn.because[name] = event.seq
    for replica in ledger.replicas_of(name):
        if replica.adopted:
            ledger.put_replica(replace(replica, adopted=False), save=True)
    ledger.turn.models.add(name)
    ledger.turn.asked.add(name)
