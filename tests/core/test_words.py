"""Names, sizes, ages, identities, overlays and gaps."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core import errors, names
from llmgw.core.catalog import Scaled, merge
from llmgw.core.errors import BadName, LlmgwError
from llmgw.core.facts import Secret, Want
from llmgw.core.identity import Identity, Role, identity
from llmgw.core.names import ModelName, NodeName, ReplicaId, ShardId
from llmgw.core.presence import NodeState
from llmgw.core.reconcile import Gap, gap
from llmgw.core.shard import ShardState
from llmgw.core.state import Replica, Shard
from llmgw.core.units import age, size
from tests.core.stage import model, profile, running


@pytest.mark.parametrize("text", ["node01", "a", "gpu-01.rack_3", "0", "a" * 63])
def test_a_good_name_is_taken(text: str) -> None:
    assert names.node_name(text) == text


@pytest.mark.parametrize(
    "text", ["a/07.0", "a/0.00", "a/١.0", "a/0", "a/0.0.0", "a/1234567890.0", "a/-1.0", "A/0.0", "/0.0"]
)
def test_a_number_in_a_shards_id_is_written_in_one_way_only(text: str) -> None:
    """Two spellings of one shard would share its files and its unit."""
    with pytest.raises(BadName):
        names.split_shard(text)


@pytest.mark.parametrize("text", ["", "Node", "-a", ".a", "a b", "a/b", "a\n", "ä", "a" * 64, "\x1b[2J", "../x"])
def test_a_bad_name_is_refused_without_being_printed_raw(text: str) -> None:
    with pytest.raises(BadName) as caught:
        names.model_name(text)
    assert "\x1b" not in str(caught.value)


def test_a_shards_id_says_what_it_is_part_of() -> None:
    shard = names.shard_id(names.replica_id(ModelName("a.b"), 12), 3)
    assert shard == "a.b/12.3"
    assert names.split_shard(shard) == ("a.b", 12, 3)
    assert names.replica_of(shard) == "a.b/12"
    assert names.file_name(shard) == "a.b-12-3"


def test_an_alias_may_be_written_as_the_hub_does() -> None:
    assert names.alias("Qwen/Qwen3-32B:q4") == "Qwen/Qwen3-32B:q4"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (600 << 20, "600 MiB"),
        (1536 << 20, "1.5 GiB"),
        (300 << 30, "300 GiB"),
        (3 << 40, "3 TiB"),
    ],
)
def test_sizes_read_well(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (float("-inf"), "0s"),
        (1e308, "?"),
        (float("nan"), "?"),
        (3.9, "3s"),
        (252, "4m12s"),
        (11220, "3h07m"),
        (273600, "3d04h"),
    ],
)
def test_ages_read_well(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_an_identity_is_what_its_uri_says_to_the_letter() -> None:
    assert identity("llmgw://prod-a/agent/node01") == Identity("prod-a", Role.AGENT, "node01")
    assert identity("llmgw://prod-a/agent/node01").uri == "llmgw://prod-a/agent/node01"


@pytest.mark.parametrize(
    "uri",
    [
        "spiffe://prod/agent/n", "llmgw://prod/agent/n/", "llmgw://prod/agent/../control/n", "llmgw://prod/AGENT/n",
        "llmgw://prod/root/n", "llmgw://u@prod/agent/n", "llmgw://prod/agent/n?x", "llmgw://prod/agent/%6e", "llmgw://prod/agent/",
        "llmgw://prod/agent/n\n",
    ],
)  # fmt: skip
def test_any_other_uri_names_nobody(uri: str) -> None:
    with pytest.raises(BadName):
        identity(uri)


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret("sesame")
    assert "sesame" not in repr(running(ShardId("a/0.0"), 0.0, key=secret))
    assert "sesame" not in repr(secret)
    assert secret == "sesame"


@pytest.mark.parametrize(
    "error",
    [
        errors.BadConfig("server.yaml", 3, "models.a", "must be a list", "7"),
        errors.UnknownModel("x", ["b", "a"]),
        errors.TooMany("model a", 10_001, 10_000),
        errors.ControlUnreachable("h:1", "refused"),
        errors.ClusterCannot("no node has room"),
        errors.NotAllowed("agent n", "scale", "an operator"),
    ],
)
def test_an_error_is_one_line_and_survives_pickling(error: LlmgwError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and type(again) is type(error)
    assert "\n" not in str(error) and not str(error).endswith(".")


def test_every_error_has_a_code_of_its_own() -> None:
    def below(base: type[LlmgwError]) -> list[type[LlmgwError]]:
        return [base, *(one for sub in base.__subclasses__() for one in below(sub))]

    codes = [error.code for error in below(LlmgwError) if not error.__name__.startswith("_")]
    assert len(codes) == len(set(codes))


def test_an_overlay_holds_until_the_file_says_something_else() -> None:
    declared = {ModelName("gemma"): model(replicas=2), ModelName("b"): model("b", replicas=1)}
    overlays = {
        ModelName("gemma"): Scaled(model=ModelName("gemma"), replicas=5, declared=2, by="root"),
        ModelName("b"): Scaled(model=ModelName("b"), replicas=5, declared=3, by="root"),
        ModelName("gone"): Scaled(model=ModelName("gone"), replicas=5, declared=3, by="root"),
    }
    models, living, overruled = merge(declared, overlays)
    assert models[ModelName("gemma")].replicas == 5 and models[ModelName("b")].replicas == 1
    assert list(living) == ["gemma"]
    assert [(end.overlay.model, end.replicas) for end in overruled] == [("b", 1)]


def replica(
    ordinal: int, state: str = "ready", node: str = "n1", want: Want = Want.RUN, adopted: bool = False
) -> Replica:
    shard = ShardId(f"m/{ordinal}.0")
    report = None if state == "placed" else running(shard, 0.0, state=ShardState(state))
    return Replica(
        id=ReplicaId(f"m/{ordinal}"),
        model=ModelName("m"),
        profile=profile(),
        want=want,
        placed_at=0.0,
        adopted=adopted,
        shards=(Shard(id=shard, node=NodeName(node), rank=0, since=0.0, report=report),),
    )


def states(**lost: NodeState):  # type: ignore[no-untyped-def]
    return lambda node: lost.get(node, NodeState.READY)


def test_the_least_useful_replica_goes_first() -> None:
    have = [replica(0), replica(1, "failed"), replica(2, "starting"), replica(3, node="n2"), replica(10)]
    away = states(n2=NodeState.UNREACHABLE)
    assert gap(0, have, away).surplus == ("m/1", "m/2", "m/3", "m/10", "m/0")
    assert gap(3, have, away).surplus == ("m/1", "m/2")


def test_a_replica_on_a_lost_node_is_replaced_and_not_ended() -> None:
    have = [replica(0, node="n2"), replica(1)]
    assert gap(2, have, states(n2=NodeState.LOST)).missing == 1
    assert gap(0, have, states(n2=NodeState.LOST)).surplus == ("m/0", "m/1")


def test_adopted_replicas_fill_places_and_take_none_from_others() -> None:
    """Else one node that says it runs this model could have all real replicas drained."""
    adopted = [replica(0, adopted=True), replica(1, adopted=True)]
    assert gap(2, adopted, states()) == Gap()
    assert gap(3, adopted, states()) == Gap(missing=1)
    assert gap(1, [*adopted, replica(2)], states()) == Gap()
    assert gap(1, [*adopted, replica(2), replica(3)], states()).surplus == ("m/3",)
    assert gap(0, adopted, states()).surplus == ()


@given(st.integers(0, 6), st.lists(st.sampled_from(["ready", "failed", "starting", "placed"]), max_size=6))
def test_after_the_gap_is_closed_there_is_none(wanted: int, have: list[str]) -> None:
    replicas = [replica(number, state) for number, state in enumerate(have)]
    first = gap(wanted, replicas, states())
    assert not (first.missing and first.surplus)
    left = [one for one in replicas if one.id not in first.surplus] + [replica(100 + i) for i in range(first.missing)]
    assert gap(wanted, left, states()) == Gap()
