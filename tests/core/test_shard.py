"""The table of shard states, walked whole."""

from itertools import product

import pytest

from llmgw.core.errors import InvalidTransition
from llmgw.core.shard import ShardEvent, ShardState, advance, combined, table

GOLDEN = """\
placed
  fetch      → fetching
  launched   → starting
  gone       → stopped
  failed     → failed
fetching
  launched   → starting
  gone       → stopped
  failed     → failed
starting
  healthy    → ready
  drain      → draining
  gone       → stopped
  failed     → failed
ready
  unhealthy  → starting
  drain      → draining
  gone       → stopped
  failed     → failed
draining
  gone       → stopped
  failed     → stopped
stopped
  fetch      → fetching
  launched   → starting
  failed     → failed
failed
  fetch      → fetching
  launched   → starting
  failed     → failed
  gone       → stopped
"""


def test_the_table_is_as_reviewed() -> None:
    assert table() == GOLDEN


def test_every_pair_of_state_and_event_leads_somewhere_known_or_is_refused_by_name() -> None:
    refused = 0
    for state, event in product(ShardState, ShardEvent):
        try:
            assert advance("gemma/0.0", state, event) in ShardState
        except InvalidTransition as error:
            refused += 1
            assert str(error) == f"shard gemma/0.0 is {state.value}; {event.value} cannot happen now"
    assert refused == len(ShardState) * len(ShardEvent) - GOLDEN.count("→")


@pytest.mark.parametrize("state", ShardState)
def test_no_state_is_without_a_way_out(state: ShardState) -> None:
    ways = []
    for event in ShardEvent:
        try:
            ways.append(advance("s", state, event))
        except InvalidTransition:
            continue
    assert any(way is not state for way in ways)


@pytest.mark.parametrize(
    ("states", "together"),
    [
        ("ready ready", "ready"),
        ("ready starting", "starting"),
        ("ready placed", "placed"),
        ("ready failed draining", "failed"),
        ("ready draining", "draining"),
        ("stopped stopped", "stopped"),
        ("stopped ready", "ready"),
        ("", "stopped"),
    ],
)
def test_a_replicas_state_comes_from_its_shards(states: str, together: str) -> None:
    assert combined(ShardState(word) for word in states.split()).value == together
