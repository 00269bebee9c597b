"""Nodes under one fabric's name that are on different subnets, and certificates that end: warnings of several turns."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.effects import Publish
from llmgw.core.inputs import AgentReported, Tick
from llmgw.core.inventory import Fabric, FabricAdapter, Inventory, LinkLayer, PortState
from llmgw.core.link import Report
from llmgw.core.names import NodeName
from llmgw.core.subnets import Subnets
from llmgw.core.symptoms import DEFAULT_PREFIX
from llmgw.core.views import Noun
from tests.core.stage import Agent, Stage, inventory, model

A, B = "fec0:0000:0000:0001", "fec0:0000:0000:0002"
DAY = 86400.0


def on(prefix: str, *, fabric: str = "ib-a") -> Inventory:
    port = FabricAdapter(name="mlx5_0", link_layer=LinkLayer.INFINIBAND, state=PortState.ACTIVE, gid_prefix=prefix)
    return replace(inventory(), adapters=(port,), fabrics=(Fabric(name=fabric, adapters=("mlx5_0",)),))


def differs(own: str, node: str, other: str) -> str:
    return f"fabric ib-a: mlx5_0 has GID prefix {own}, node {node} has {other}: two subnets"


def test_of_two_nodes_on_different_subnets_both_are_told_and_of_three_the_odd_one() -> None:
    stage = Stage(model(replicas=0))
    stage.join(Agent("node01", inventory=on(A)), Agent("node02", inventory=on(B)))
    assert stage.warned("node01") == [differs(A, "node02", B)]
    assert stage.warned("node02") == [differs(B, "node01", A)]
    stage.join(Agent("node03", inventory=on(A)))
    assert [stage.warned(f"node0{number}") for number in (1, 2, 3)] == [[], [differs(B, "node01", A)], []]
    stage.report(stage.agents["node02"], inventory=on(A))
    assert [stage.warned(f"node0{number}") for number in (1, 2, 3)] == [[], [], []]


def test_the_default_prefix_and_another_fabrics_name_prove_nothing() -> None:
    stage = Stage(model(replicas=0))
    stage.join(
        Agent("node01", inventory=on(A)),
        Agent("node02", inventory=on(DEFAULT_PREFIX)),
        Agent("node03", inventory=on(B, fabric="ib-b")),
    )
    assert [stage.warned(f"node0{number}") for number in (1, 2, 3)] == [[], [], []]


def published(stage: Stage, name: str, said: Inventory) -> set[str]:
    session = stage.agents[name].session
    assert session is not None
    effects = stage.apply(AgentReported(session=session, node=NodeName(name), report=Report(inventory=said)))
    return {effect.name for effect in effects if isinstance(effect, Publish) and effect.noun is Noun.NODES}


def test_the_others_are_shown_anew_only_when_their_warnings_change() -> None:
    stage = Stage(model(replicas=0))
    stage.join(*(Agent(f"node0{number}", inventory=on(A)) for number in range(1, 5)))
    assert published(stage, "node04", on(B)) == {"node01", "node02", "node03", "node04"}
    assert published(stage, "node03", inventory()) == {"node03"}
    assert published(stage, "node04", on(A)) == {"node01", "node02", "node04"}
    assert published(stage, "node03", on(A)) == {"node03"}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from([A, B, "fec0::3", DEFAULT_PREFIX])), max_size=20))
def test_whoever_is_not_told_to_be_shown_anew_has_the_warnings_it_had(steps: list[tuple[str, str]]) -> None:
    subnets, shown = Subnets(), dict.fromkeys(map(NodeName, "abcde"), ())
    for name, prefix in steps:
        node = NodeName(name)
        twin = subnets.copy()
        again = {*subnets.put(node, on(prefix)), node}
        assert twin.differing(node) == list(shown[node])
        shown |= {one: tuple(subnets.differing(one)) for one in again}  # type: ignore[misc]
        assert all(tuple(subnets.differing(one)) == warned for one, warned in shown.items())


def test_a_certificate_that_ends_is_said_at_fourteen_seven_three_and_one_days_and_at_its_end() -> None:
    stage = Stage(model(replicas=0))
    stage.join(Agent("node01", inventory=replace(inventory(), certificate_ends=stage.now + 20 * DAY)))
    ends, said = stage.now + 20 * DAY, []
    assert stage.warned("node01") == []
    while (due := stage.cluster.deadline()) is not None and stage.now < ends + 1:
        stage.now = max(stage.now, due)
        if Publish(Noun.NODES, "node01") in stage.apply(Tick()) and stage.warned("node01"):
            said.append(stage.warned("node01")[0])
    assert said == [
        "its certificate ends in 14 days",
        "its certificate ends in 7 days",
        "its certificate ends in 3 days",
        "its certificate ends in 23h59m",
        "its certificate ended 1s ago",
    ]
