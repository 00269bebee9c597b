"""What is said of a model's change to another version of its engine? The same words in every front end."""

from llmgw.core import rollout
from llmgw.core.brief import cut
from llmgw.core.catalog import Model
from llmgw.core.ledger import Ledger
from llmgw.core.roll import Roll

_REASON = 96
"""The longest reason, in characters: the way out behind it is to be read too. Its event has all of it."""


def words(ledger: Ledger, model: Model) -> str:
    """Return `moves to llama.cpp b10991: 1 of 2 done`, or why that stopped with the way out; empty without a change."""
    if (roll := rollout.stopped(ledger, model)) is not None:
        why = cut(roll.problem, _REASON)
        return f"its change to {_engine(model, roll.version)} stopped: {why}; {way_out(model, roll)}"
    if (moved := rollout.moved(ledger, model)) is None:
        return ""
    done, whole = moved
    return f"moves to {_engine(model, rollout.target(ledger, model))}: {done} of {whole} done"


def way_out(model: Model, roll: Roll) -> str:
    """Return what to do about a change that stopped."""
    place = "its profile" if model.profile.version else "engines: of server.yaml"
    other = f"name {roll.former or 'another version'} in {place}"
    return f"`llmgw ctl engine retry {roll.failed_on}` tries again, or {other}" if roll.failed_on else other


def _engine(model: Model, version: str) -> str:
    return f"{model.profile.engine} {version}"
