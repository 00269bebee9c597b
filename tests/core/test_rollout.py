"""The wanted version of an engine changes: replicas move one by one, or the roll stops and the old ones serve on."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.catalog import Model
from llmgw.core.effects import Publish
from llmgw.core.engines.orders import EngineWish, Release, ReleaseFile
from llmgw.core.engines.terms import EngineKind, Install, Installs, InstallStep
from llmgw.core.events import EventKind
from llmgw.core.facts import EngineReport, Engines, FailureKind, ShardReport, Want
from llmgw.core.inputs import AgentInstalls, CatalogLoaded, ReleaseFound, RetryEngine
from llmgw.core.names import ModelName, NodeName, ReplicaId, ShardId
from llmgw.core.presence import NodeState
from llmgw.core.reconcile import Standing, gap
from llmgw.core.shard import ShardState
from llmgw.core.state import Replica, Shard
from llmgw.core.units import GIB, MIB, Bytes
from llmgw.core.views import Noun, ReplicaView
from tests.core.stage import SETTINGS, T0, Agent, Stage, inventory, model, running

OLD, NEW, NEWER = "b10980", "b10991", "b11000"


def wish(version: str) -> EngineWish:
    return EngineWish(engine="llama.cpp", version=version, kind=EngineKind.ARCHIVE)


def release(version: str) -> Release:
    file = ReleaseFile(
        name=f"llama-{version}.tar.gz", size=Bytes(MIB), digest=f"sha256:{'0' * 64}", url="https://a.test/a"
    )
    return Release(engine="llama.cpp", version=version, kind=EngineKind.ARCHIVE, files=(file,))


def reports(*versions: str, broken: str = "", by_hand: bool = False) -> Engines:
    found = [
        EngineReport(
            engine="llama.cpp",
            version=version,
            path=f"/engines/{version}",
            problem="libgomp.so.1 is missing" if version == broken else "",
            by_hand=by_hand,
        )
        for version in versions
    ]
    return Engines(probed_at=T0, engines=tuple(found))


class Rolling(Stage):
    """A cluster that wants llama.cpp at a version, and nodes that have some."""

    def __init__(self, *models: Model, version: str = OLD, **fields: object) -> None:
        super().__init__(*models, engines=(wish(version),), **fields)  # type: ignore[arg-type]
        self.declared, self.version = models, version
        self.found(version)

    def found(self, version: str) -> None:
        self.apply(ReleaseFound(wish=wish(version), release=release(version)))

    def want(self, version: str, *models: Model) -> None:
        """server.yaml names another version, or other models."""
        self.declared, self.version = models or self.declared, version
        self.apply(CatalogLoaded(models={one.name: one for one in self.declared}, engines=(wish(version),)))
        self.found(version)

    def has(self, name: str, *versions: str, broken: str = "", by_hand: bool = False) -> None:
        """A node says which versions it has."""
        agent = self.agents[name]
        agent.engines = reports(*versions, broken=broken, by_hand=by_hand)
        agent.installs = tuple(
            Install(engine="llama.cpp", version=version, step=InstallStep.READY, since=self.now)
            for version in versions
            if not by_hand
        )
        if agent.session is not None:
            self.say_installs(agent)
            self.report(agent, engines=agent.engines)

    def installing(self, name: str, version: str) -> None:
        """A node says that it is at a version, too."""
        agent = self.agents[name]
        coming = Install(engine="llama.cpp", version=version, step=InstallStep.UNPACK, since=self.now)
        agent.installs = (*agent.installs, coming)
        self.say_installs(agent)

    def say_installs(self, agent: Agent) -> None:
        assert agent.session is not None
        installs = Installs(installs=agent.installs)
        self.apply(AgentInstalls(session=agent.session, node=NodeName(agent.name), installs=installs))

    # --- what agents do, step by step ---------------------------------------------------------------------------

    def becomes(self, replica: str, state: ShardState) -> None:
        """The replica's shard is in this state now."""
        agent, shard = self._where(replica)
        agent.shards[shard] = running(shard, self.now, state=state)
        self.report(agent)

    def gone(self, replica: str) -> None:
        """The agent made the stop of a replica so."""
        agent, shard = self._where(replica)
        agent.shards[shard] = ShardReport(shard=shard, state=ShardState.STOPPED, since=self.now)
        self.report(agent)
        agent.shards.pop(shard)
        self.report(agent)

    def dies(self, replica: str, text: str = "illegal instruction", kind: FailureKind = FailureKind.EXITED) -> None:
        agent, shard = self._where(replica)
        self.fails(agent, shard, kind, text)

    def _where(self, replica: str) -> tuple[Agent, ShardId]:
        return self.agents[self.replicas()[replica].removesuffix(" leaving")], ShardId(f"{replica}.0")

    # --- looking ------------------------------------------------------------------------------------------------

    def versions(self) -> dict[str, str]:
        """Replica → the version that it is ordered with."""
        orders = (order for name in self.agents for order in self.cluster.desired(NodeName(name)).shards)
        return {order.shard.removesuffix(".0"): order.profile.version for order in orders}

    def outdated(self) -> set[str]:
        views = (self.cluster.view(Noun.REPLICAS, name) for name in self.cluster.names(Noun.REPLICAS))
        return {view.id for view in views if isinstance(view, ReplicaView) and view.outdated}

    def engines(self) -> list[str]:
        views = (self.cluster.view(Noun.REPLICAS, name) for name in self.cluster.names(Noun.REPLICAS))
        return [view.engine for view in views if isinstance(view, ReplicaView)]


TWO, ONE = model(), model(replicas=1)
FULL = model(replicas=1, memory=5 * GIB)
"""One to a node."""
BOTH_FULL = replace(FULL, replicas=2)


def cluster(*nodes: str, model: Model = TWO) -> Rolling:
    """Nodes that have the old version, settled, everything placed and ready."""
    stage = Rolling(model)
    for name in nodes:
        stage.join(Agent(name, engines=reports(OLD)))
        stage.has(name, OLD)
    stage.later(SETTINGS.settle)
    stage.obey()
    return stage


def test_a_replica_is_ordered_with_the_version_that_its_node_was_chosen_for() -> None:
    stage = cluster("node01", "node02")
    assert stage.versions() == {"gemma/0": OLD, "gemma/1": OLD}
    assert {one.profile.version for one in stage.assignments.values()} == {OLD}, "it is stored"
    assert stage.outdated() == set()


def test_replicas_move_one_by_one_and_each_successor_is_ready_before_one_goes() -> None:
    stage = cluster("node01", "node02")
    stage.want(NEW)
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02"}, "no node has it yet"
    assert stage.model().roll == "moves to llama.cpp b10991: 0 of 2 done"
    stage.has("node01", OLD, NEW)
    assert stage.outdated() == set(), "nobody is to scale what moves by itself"
    assert stage.engines() == ["llama.cpp b10980", "llama.cpp b10980", "llama.cpp b10991"]
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02", "gemma/2": "node01"}
    assert stage.versions()["gemma/2"] == NEW
    assert NEW in stage.last(EventKind.REPLICA_PLACED).text
    stage.has("node02", OLD, NEW)
    stage.becomes("gemma/2", ShardState.STARTING)
    stage.later(30)
    assert len(stage.replicas()) == 3 and "leaving" not in " ".join(stage.replicas().values()), "one at a time"
    stage.becomes("gemma/2", ShardState.READY)
    assert [name for name, where in stage.replicas().items() if "leaving" in where] == ["gemma/1"]
    stage.later(30)
    assert len(stage.replicas()) == 3, "what leaves is waited for"
    stage.gone("gemma/1")
    assert stage.model().roll == "moves to llama.cpp b10991: 1 of 2 done"
    assert stage.versions() == {"gemma/0": OLD, "gemma/2": NEW, "gemma/3": NEW}
    assert stage.replicas()["gemma/3"] == "node02"
    stage.becomes("gemma/3", ShardState.READY)
    stage.gone("gemma/0")
    assert stage.versions() == {"gemma/2": NEW, "gemma/3": NEW}
    assert stage.model().roll == "" and stage.model().ready == 2
    assert EventKind.ROLL_STOPPED not in stage.kinds()


def test_only_the_engines_version_moves_replicas() -> None:
    stage = cluster("node01", "node02")
    stage.want(OLD, model(context=9999))
    stage.later(60)
    assert stage.outdated() == {"gemma/0", "gemma/1"}
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02"}


def test_a_version_in_the_profile_moves_them_too() -> None:
    stage = cluster("node01", model=ONE)
    stage.has("node01", OLD, NEW)
    stage.want(OLD, model(replicas=1, version=NEW))
    assert stage.versions() == {"gemma/0": OLD, "gemma/1": NEW}


def test_nothing_moves_while_unsettled_and_a_restart_goes_on_where_it_was() -> None:
    stage = cluster("node01", "node02", model=ONE)
    stage.has("node02", OLD, NEW)
    stage.want(NEW)
    assert stage.versions() == {"gemma/0": OLD, "gemma/1": NEW}
    after = Rolling(ONE, version=NEW, stored=stage.stored(), epoch=2)
    agents = list(stage.agents.values())
    after.join(agents[0])
    after.later(5)
    assert set(after.replicas()) == {"gemma/0", "gemma/1"}
    after.join(agents[1])
    assert after.cluster.settled
    assert set(after.replicas()) == {"gemma/0", "gemma/1"}, "the surge is no surplus"
    after.becomes("gemma/1", ShardState.READY)
    assert after.replicas() == {"gemma/0": "node01 leaving", "gemma/1": "node02"}


def test_nothing_moves_or_stops_while_unsettled_not_even_where_an_operator_acts() -> None:
    stage = cluster("node01", "node02", model=ONE)
    stage.has("node02", OLD, NEW)
    stage.want(NEW)
    nodes = [stage.agents[name] for name in ("node01", "node02")]
    stage.join(Agent("node03"))
    after = Rolling(ONE, version=NEW, stored=stage.stored(), epoch=2)
    after.join(*nodes)
    after.becomes("gemma/1", ShardState.STARTING)
    after.dies("gemma/1")
    after.scale("gemma", 1)
    assert not after.cluster.settled and EventKind.ROLL_STOPPED not in after.kinds()
    after.join(Agent("node03"))
    assert after.last(EventKind.ROLL_STOPPED).subject == "gemma"
    after = Rolling(ONE, version=NEWER, stored=cluster("node01", "node02", model=ONE).stored(), epoch=2)
    after.join(Agent("node01", engines=reports(OLD, NEWER)))
    after.scale("gemma", 1)
    assert after.versions() == {"gemma/0": OLD}


def test_a_replica_that_was_ready_before_a_restart_stops_nothing() -> None:
    stage = cluster("node01", model=ONE)
    stage.has("node01", OLD, NEW)
    stage.want(NEW)
    agent, shard = stage.agents["node01"], ShardId("gemma/1.0")
    stage.becomes("gemma/1", ShardState.STARTING)
    stage.dies("gemma/1")
    for launch, stopped in ((9, False), (1, True)):
        after = Rolling(ONE, version=NEW, stored=surging().stored(), epoch=2)
        agent.shards[shard] = replace(agent.shards[shard], launch=launch, attempts=1)
        after.join(agent)
        assert after.cluster.settled
        assert (EventKind.ROLL_STOPPED in after.kinds()) == stopped


def surging() -> Rolling:
    """What is stored while one more is placed."""
    stage = cluster("node01", model=ONE)
    stage.has("node01", OLD, NEW)
    stage.want(NEW)
    return stage


def test_adopted_replicas_do_not_move() -> None:
    stage = cluster("node01", model=ONE)
    bare = Rolling(ONE, version=NEW, epoch=2)
    agent = stage.agents["node01"]
    bare.join(agent)
    bare.has("node01", OLD, NEW)
    bare.later(SETTINGS.settle)
    assert bare.replicas() == {"gemma/0": "node01"}
    bare.later(60)
    assert bare.versions() == {"gemma/0": OLD}
    bare.scale("gemma", 1)
    assert bare.versions() == {"gemma/0": OLD, "gemma/1": NEW}, "an operator's word makes it an ordinary one"


def test_what_is_named_by_hand_does_not_move() -> None:
    stage = Rolling(ONE)
    stage.join(Agent("node01", engines=reports("my own", by_hand=True)))
    stage.later(SETTINGS.settle)
    stage.obey()
    assert stage.versions() == {"gemma/0": ""}
    stage.join(Agent("node02", engines=reports(NEW)))
    stage.has("node02", NEW)
    stage.want(NEW)
    assert stage.versions() == {"gemma/0": ""} and stage.outdated() == set()


# --- where there is no room for one more -------------------------------------------------------------------------


def test_one_makes_room_where_no_node_takes_one_more() -> None:
    stage = cluster("node01", "node02", model=BOTH_FULL)
    stage.want(NEW)
    stage.has("node01", OLD, NEW)
    assert stage.replicas() == {"gemma/0": "node01 leaving", "gemma/1": "node02"}
    assert "makes room" in stage.last(EventKind.REPLICA_DRAINED).text
    stage.has("node02", OLD, NEW)
    stage.gone("gemma/0")
    assert stage.replicas() == {"gemma/1": "node02", "gemma/2": "node01"}, "one at a time"
    stage.becomes("gemma/2", ShardState.READY)
    assert stage.replicas() == {"gemma/1": "node02 leaving", "gemma/2": "node01"}
    stage.gone("gemma/1")
    stage.becomes("gemma/3", ShardState.READY)
    assert stage.versions() == {"gemma/2": NEW, "gemma/3": NEW}


def test_nothing_else_moves_until_what_was_made_room_for_is_ready() -> None:
    stage = cluster("node01", "node02", model=BOTH_FULL)
    stage.want(NEW)
    stage.has("node01", OLD, NEW)
    stage.gone("gemma/0")
    stage.join(Agent("node03", engines=reports(OLD, NEW)))
    stage.has("node03", OLD, NEW)
    assert stage.replicas() == {"gemma/1": "node02", "gemma/2": "node01"}
    stage.becomes("gemma/2", ShardState.READY)
    assert stage.replicas()["gemma/3"] == "node03"


def test_the_only_one_waits_for_a_node_that_is_installing_where_it_fits() -> None:
    stage = cluster("node01", "node02", model=FULL)
    stage.want(NEW)
    stage.installing("node02", NEW)
    stage.has("node01", OLD, NEW)
    assert stage.replicas() == {"gemma/0": "node01"}
    stage.has("node02", OLD, NEW)
    assert stage.versions() == {"gemma/0": OLD, "gemma/1": NEW}
    assert stage.replicas()["gemma/1"] == "node02"


def test_nobody_makes_room_while_another_node_is_about_to_have_it() -> None:
    stage = cluster("node01", "node02", "node03", model=BOTH_FULL)
    stage.want(NEW)
    stage.installing("node03", NEW)
    before = stage.replicas()
    stage.has("node01", OLD, NEW)
    stage.has("node02", OLD, NEW)
    assert stage.replicas() == before
    stage.has("node03", OLD, NEW)
    assert stage.replicas() == before | {"gemma/2": "node03"}
    assert stage.versions()["gemma/2"] == NEW


def test_the_only_one_makes_room_where_no_other_node_is_large_enough() -> None:
    stage = cluster("node01", model=FULL)
    stage.join(Agent("small", inventory=inventory(GIB), engines=reports(OLD)))
    stage.want(NEW)
    stage.installing("small", NEW)
    stage.has("node01", OLD, NEW)
    assert stage.replicas() == {"gemma/0": "node01 leaving"}
    stage.gone("gemma/0")
    assert stage.versions() == {"gemma/1": NEW}


def crowded(*models: Model) -> Rolling:
    """Two nodes of two places each, and what runs there, all of it ready."""
    stage = Rolling(*(replace(model(replicas=1, memory=4 * GIB), name=one.name) for one in models))
    for name in ("node01", "node02"):
        stage.join(Agent(name, engines=reports(OLD)))
        stage.has(name, OLD)
    stage.later(SETTINGS.settle)
    stage.obey()
    return stage


def test_the_last_one_waits_for_the_room_that_the_change_of_another_model_frees() -> None:
    stage = crowded(model("alpha"), model("beta"), model("gamma"))
    stage.want(NEW)
    stage.has("node01", OLD, NEW)
    stage.has("node02", OLD, NEW)
    for name in ("alpha", "beta", "gamma"):
        assert "leaving" not in " ".join(stage.replicas().values()), "each is the last of its model that serves"
        assert stage.versions()[f"{name}/1"] == NEW
        stage.becomes(f"{name}/1", ShardState.READY)
        stage.gone(f"{name}/0")
    assert set(stage.versions().values()) == {NEW}


def test_one_moves_when_another_model_freed_the_room_for_it() -> None:
    stage = crowded(model("alpha"), model("beta"), model("gamma"), model("delta"))
    home = stage.replicas()["alpha/0"]
    (other,) = {"node01", "node02"} - {home}
    stage.want(NEW)
    stage.has(other, OLD, NEW)
    assert len(stage.replicas()) == 4, "its own node does not have the version, the other has no room"
    (gone,) = (name for name, node in stage.replicas().items() if node == other and not name.startswith("beta"))
    stage.scale(gone.partition("/")[0], 0)
    stage.gone(gone)
    assert list(stage.versions().values()).count(NEW) == 1


def test_one_that_is_down_makes_room_before_one_that_serves() -> None:
    stage = cluster("node01", "node02", model=BOTH_FULL)
    stage.want(NEW)
    stage.dies("gemma/1")
    stage.has("node01", OLD, NEW)
    assert "leaving" not in " ".join(stage.replicas().values()), "the last that serves stays"
    stage.has("node02", OLD, NEW)
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02 leaving"}


def test_the_room_that_one_made_is_taken_by_no_other_model() -> None:
    stage = Rolling(replace(FULL, name=ModelName("zeta")), replace(FULL, name=ModelName("alpha"), replicas=0))
    stage.join(Agent("node01", engines=reports(OLD)))
    stage.has("node01", OLD)
    stage.later(SETTINGS.settle)
    stage.obey()
    stage.scale("alpha", 1)
    assert stage.model("alpha").refusals
    stage.want(NEW)
    stage.has("node01", OLD, NEW)
    stage.gone("zeta/0")
    assert stage.replicas() == {"zeta/1": "node01"}


def test_a_model_that_is_short_of_replicas_does_not_move() -> None:
    stage = cluster("node01", model=BOTH_FULL)
    stage.want(NEW)
    stage.has("node01", OLD, NEW)
    assert stage.replicas() == {"gemma/0": "node01"}


def test_installs_that_fail_over_and_over_are_no_news_of_each_model_that_waits() -> None:
    stage = Rolling(ONE)
    stage.join(Agent("node01", engines=reports()))
    stage.later(SETTINGS.settle)
    agent = stage.agents["node01"]
    for attempt in range(1, 9):
        tried = Install(engine="llama.cpp", version=OLD, step=InstallStep.PROVE, since=stage.now, attempts=attempt)
        for one in (tried, replace(tried, problem="illegal instruction", retry_at=stage.now + 10)):
            agent.installs = (one,)
            stage.say_installs(agent)
            stage.later(4)
        assert "illegal instruction" in str(stage.model().refusals[0])
    assert stage.kinds().count(EventKind.PLACE_REFUSED) == 2, "that it waits, and that an install fails"


# --- where it fails ----------------------------------------------------------------------------------------------


def failed_roll() -> Rolling:
    stage = cluster("node01", "node02")
    stage.want(NEW)
    stage.has("node01", OLD, NEW)
    stage.becomes("gemma/2", ShardState.STARTING)
    stage.dies("gemma/2")
    return stage


def test_the_first_that_fails_stops_it_and_the_old_ones_serve_on() -> None:
    stage = failed_roll()
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02", "gemma/2": "node01 leaving"}
    stopped = stage.last(EventKind.ROLL_STOPPED)
    assert stopped.subject == "gemma" and stopped.lines == ("last words",)
    assert stopped.text == (
        "gemma/2 on node01 failed with llama.cpp b10991: illegal instruction; the others stay as they are; "
        "`llmgw ctl engine retry node01` tries again, or name b10980 in engines: of server.yaml"
    )
    assert EventKind.SHARD_FAILED in stage.causes(stopped)
    stage.gone("gemma/2")
    stage.has("node02", OLD, NEW)
    stage.later(600)
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02"}, "it is not tried again by itself"
    assert stage.kinds().count(EventKind.ROLL_STOPPED) == 1
    stage.scale("gemma", 3)
    assert stage.versions()["gemma/3"] == OLD, "what serves is what is placed"


def test_a_change_that_stopped_is_said_as_long_as_it_stands() -> None:
    stage = failed_roll()
    stage.gone("gemma/2")
    stage.later(600)
    assert stage.model().roll == (
        "its change to llama.cpp b10991 stopped: gemma/2 on node01: illegal instruction; "
        "`llmgw ctl engine retry node01` tries again, or name b10980 in engines: of server.yaml"
    )
    effects = stage.apply(RetryEngine(node="node01", engine="llama.cpp", by="root"))
    assert Publish(Noun.MODELS, "gemma") in effects
    assert stage.model().roll == "moves to llama.cpp b10991: 0 of 2 done"
    stage.want(OLD)
    assert stage.model().roll == ""


def test_the_way_out_of_a_change_that_stopped_is_not_cut() -> None:
    stage = cluster("node01", "node02")
    stage.want(NEW)
    stage.has("node01", OLD, NEW)
    stage.dies("gemma/2", text="x" * 500)
    words = stage.model().roll
    assert len(words) < 256 and words.endswith("or name b10980 in engines: of server.yaml")


def test_what_only_a_scale_changes_is_outdated_while_no_change_of_versions_replaces_it() -> None:
    stage = cluster("node01", "node02")
    stage.want(NEW, model(context=9999))
    assert stage.outdated() == set(), "what moves gets all of the new profile"
    stage.has("node01", OLD, NEW)
    stage.dies("gemma/2")
    assert stage.outdated() >= {"gemma/0", "gemma/1"}


def test_a_node_with_nothing_but_the_version_that_failed_says_so() -> None:
    stage = failed_roll()
    stage.gone("gemma/2")
    stage.has("node01", NEW)
    stage.has("node02", NEW)
    stage.scale("gemma", 3)
    words = [str(one) for one in stage.model().refusals]
    assert words == ["engine broken: llama.cpp b10991 did not run gemma: gemma/2 on node01: illegal instruction"] * 2


@pytest.mark.parametrize("way", ["retry", "another version", "another profile"])
def test_it_is_tried_again_when_somebody_changed_something(way: str) -> None:
    stage = failed_roll()
    stage.gone("gemma/2")
    stage.has("node01", OLD, NEW, NEWER)
    assert len(stage.replicas()) == 2
    match way:
        case "retry":
            stage.apply(RetryEngine(node="node01", engine="llama.cpp", by="root"))
        case "another version":
            stage.want(NEWER)
        case _:
            stage.want(NEW, model(threads=1))
    assert stage.versions()["gemma/3"] == (NEWER if way == "another version" else NEW)


def test_the_old_version_in_server_yaml_ends_it() -> None:
    stage = failed_roll()
    stage.gone("gemma/2")
    stage.want(OLD)
    stage.later(60)
    assert stage.versions() == {"gemma/0": OLD, "gemma/1": OLD} and stage.outdated() == set()


def test_a_version_in_the_profile_that_fails_is_not_given_to_more() -> None:
    stage = cluster("node01", model=ONE)
    stage.has("node01", OLD, NEW)
    stage.want(OLD, model(replicas=1, version=NEW))
    stage.dies("gemma/1")
    assert stage.last(EventKind.ROLL_STOPPED).text.endswith("or name b10980 in its profile")
    stage.gone("gemma/1")
    stage.scale("gemma", 2)
    assert stage.versions() == {"gemma/0": OLD, "gemma/2": OLD} and stage.outdated() == set()
    assert stage.model().roll.endswith("or name b10980 in its profile")


def test_nodes_that_get_ready_one_after_the_other_do_not_fill_the_history() -> None:
    stage = Rolling(model(replicas=9, memory=5 * GIB), version=NEW)
    for number in range(6):
        stage.join(Agent(f"node{number}", engines=reports()))
        stage.installing(f"node{number}", NEW)
    stage.later(SETTINGS.settle)
    told = stage.kinds().count(EventKind.PLACE_REFUSED)
    for number in range(3):
        stage.has(f"node{number}", NEW)
    assert len(stage.replicas()) == 3 and len(stage.model().refusals) == 6
    assert stage.kinds().count(EventKind.PLACE_REFUSED) - told == 3, "that a node is full is said"
    assert told == 1


def test_all_that_fail_with_it_give_way_to_the_old_version() -> None:
    stage = cluster("node01", "node02")
    stage.has("node01", OLD, NEW)
    stage.has("node02", OLD)
    stage.want(NEW)
    stage.scale("gemma", 4)
    assert stage.versions() == {"gemma/0": OLD, "gemma/1": OLD, "gemma/2": NEW, "gemma/3": NEW}
    stage.dies("gemma/2")
    stage.gone("gemma/2")
    stage.dies("gemma/3")
    stage.gone("gemma/3")
    assert stage.kinds().count(EventKind.ROLL_STOPPED) == 1
    assert stage.versions() == dict.fromkeys(["gemma/0", "gemma/1", "gemma/4", "gemma/5"], OLD)


def test_nothing_surges_onto_an_engine_that_is_named_by_hand() -> None:
    stage = cluster("node01", model=ONE)
    stage.join(Agent("hand", engines=reports(NEW, by_hand=True)))
    stage.want(NEW)
    stage.later(60)
    assert stage.replicas() == {"gemma/0": "node01"}


def test_what_moved_before_it_stopped_stays() -> None:
    stage = cluster("node01", "node02")
    stage.want(NEW)
    stage.has("node01", OLD, NEW)
    stage.becomes("gemma/2", ShardState.READY)
    stage.gone("gemma/1")
    stage.dies("gemma/3")
    stage.gone("gemma/3")
    assert stage.versions() == {"gemma/0": OLD, "gemma/2": NEW} and stage.model().ready == 2
    assert stage.kinds().count(EventKind.ROLL_STOPPED) == 1


def test_one_that_was_ready_and_fails_later_halts_the_rest_and_is_started_again_by_its_node() -> None:
    stage = cluster("node01", "node02")
    stage.want(NEW)
    stage.has("node01", OLD, NEW)
    stage.becomes("gemma/2", ShardState.READY)
    stage.gone("gemma/1")
    stage.dies("gemma/2")
    stage.becomes("gemma/3", ShardState.READY)
    assert EventKind.ROLL_STOPPED not in stage.kinds()
    assert stage.replicas() == {"gemma/0": "node01", "gemma/2": "node01", "gemma/3": "node01"}
    stage.becomes("gemma/2", ShardState.READY)
    assert stage.replicas()["gemma/0"] == "node01 leaving"


def test_a_failure_of_the_only_one_that_made_room_brings_the_old_version_back() -> None:
    stage = cluster("node01", model=FULL)
    stage.want(NEW)
    stage.has("node01", OLD, NEW)
    stage.gone("gemma/0")
    stage.dies("gemma/1")
    assert stage.replicas() == {"gemma/1": "node01 leaving"}
    stage.gone("gemma/1")
    assert stage.versions() == {"gemma/2": OLD}


def test_a_node_that_refuses_the_new_version_of_what_it_ran_stops_it() -> None:
    stage = cluster("node01", model=FULL)
    stage.want(NEW)
    stage.has("node01", OLD, NEW)
    stage.gone("gemma/0")
    stage.dies("gemma/1", "engine llama.cpp: cannot load", FailureKind.REFUSED)
    assert stage.last(EventKind.ROLL_STOPPED).subject == "gemma"
    stage.gone("gemma/1")
    assert stage.versions() == {"gemma/2": OLD}, "it was the version that the node refused"


def test_a_node_that_refuses_one_more_is_passed_over() -> None:
    stage = cluster("node01", "node02", model=ONE)
    stage.want(NEW)
    stage.has("node02", OLD, NEW)
    stage.dies("gemma/1", "weights /w/m.gguf: no such file", FailureKind.REFUSED)
    assert EventKind.ROLL_STOPPED not in stage.kinds()
    stage.gone("gemma/1")
    stage.has("node01", OLD, NEW)
    assert stage.versions() == {"gemma/0": OLD, "gemma/2": NEW} and stage.replicas()["gemma/2"] == "node01"


def test_a_replica_serves_on_though_its_engine_broke() -> None:
    stage = cluster("node01", "node02")
    stage.has("node01", OLD, broken=OLD)
    stage.later(60)
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02"} and stage.model().ready == 2
    stage.scale("gemma", 3)
    assert stage.replicas()["gemma/2"] == "node02"


def test_a_node_qualifies_when_its_engine_is_ready_and_no_longer_when_it_broke() -> None:
    stage = Rolling(ONE, version=NEW)
    stage.join(Agent("node01", engines=reports()))
    told = stage.last(EventKind.NODE_DISQUALIFIED).text
    assert told.startswith("not for gemma: installing llama.cpp b10991: ")
    stage.later(SETTINGS.settle)
    stage.installing("node01", NEW)
    (refusal,) = stage.model().refusals
    assert refusal.code == "engine_installing"
    stage.has("node01", NEW)
    assert stage.last(EventKind.NODE_QUALIFIES).text == "for gemma: engine llama.cpp b10991 is newly there"
    assert stage.replicas() == {"gemma/0": "node01"}
    stage.has("node01", NEW, broken=NEW)
    assert stage.last(EventKind.NODE_DISQUALIFIED).text == "no longer for gemma: engine broken: libgomp.so.1 is missing"
    stage.has("node01", NEW)
    assert stage.last(EventKind.NODE_QUALIFIES).text == "for gemma: engine llama.cpp b10991 works now"


def test_a_fork_does_not_share_what_is_remembered_of_a_roll() -> None:
    stage = failed_roll()
    stage.gone("gemma/2")
    fork = stage.cluster.fork()
    fork.apply(RetryEngine(node="node01", engine="", by="root"), stage.now)
    assert len(fork.names(Noun.REPLICAS)) == 3
    stage.later(60)
    assert len(stage.replicas()) == 2


def living(number: int, state: ShardState, *, adopted: bool = False) -> Replica:
    shard = Shard(
        id=ShardId(f"gemma/{number}.0"),
        node=NodeName("node01"),
        rank=0,
        since=T0,
        report=ShardReport(shard=ShardId(f"gemma/{number}.0"), state=state, since=T0),
    )
    return Replica(
        id=ReplicaId(f"gemma/{number}"),
        model=ModelName("gemma"),
        profile=TWO.profile,
        want=Want.RUN,
        placed_at=T0,
        adopted=adopted,
        shards=(shard,),
    )


READY, FAILED, PLACED = ShardState.READY, ShardState.FAILED, ShardState.PLACED


@pytest.mark.parametrize(
    ("wanted", "replicas", "behind", "pending", "surplus"),
    [
        (2, [living(0, READY), living(1, READY), living(2, PLACED)], {0, 1}, True, ()),
        (2, [living(0, READY), living(1, READY), living(2, READY)], {0, 1}, False, (1,)),
        (2, [living(0, READY), living(1, FAILED), living(2, READY)], {0, 1}, False, (1,)),
        (1, [living(0, READY), living(1, READY), living(2, PLACED)], {0, 1}, True, (2,)),
        (1, [living(0, READY), living(1, READY), living(2, READY)], {0, 1}, False, (1, 0)),
        (2, [living(0, READY), living(1, FAILED, adopted=True), living(2, READY)], {0}, False, ()),
        (2, [living(0, READY), living(1, READY, adopted=True), living(2, READY)], {0}, False, (0,)),
        (0, [living(0, READY), living(1, PLACED)], {0}, True, (1, 0)),
    ],
)
def test_who_is_too_many_in_a_roll(
    wanted: int, replicas: list[Replica], behind: set[int], pending: bool, surplus: tuple[int, ...]
) -> None:
    standing = Standing(behind=frozenset(ReplicaId(f"gemma/{one}") for one in behind), pending=pending)
    found = gap(wanted, replicas, lambda _: NodeState.READY, standing)
    assert found.surplus == tuple(f"gemma/{one}" for one in surplus) and found.missing == 0


# --- laws --------------------------------------------------------------------------------------------------------


NODES = ("node01", "node02", "node03")


@settings(max_examples=50, deadline=None)
@given(
    wanted=st.integers(1, 3),
    memory=st.sampled_from([2 * GIB, 5 * GIB]),
    ready_on=st.lists(st.sampled_from(NODES), unique=True),
    outcomes=st.lists(st.sampled_from(["ready", "ready", "ready", "dies", "refused"]), min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_laws_of_a_roll(
    wanted: int, memory: int, ready_on: list[str], outcomes: list[str], order: random.Random
) -> None:
    """It ends; memory holds; never fewer than one below what is wanted serve, and none below where one more fits."""
    stage = cluster(*NODES, model=model(replicas=wanted, memory=memory))
    stage.want(NEW)
    coming, left = list(ready_on), iter(outcomes)
    for _ in range(60):
        if coming and order.random() < 0.3:
            name = coming.pop(0)
            stage.has(name, OLD, NEW)
        elif not one_step(stage, left, order) and not coming:
            break
        watch(stage, wanted, memory, refusing="refused" in outcomes)
    else:
        raise AssertionError("it never came to rest")
    assert stage.model().ready == wanted
    if set(outcomes) == {"ready"} and set(ready_on) == set(NODES):
        assert set(stage.versions().values()) == {NEW}


def watch(stage: Rolling, wanted: int, memory: int, *, refusing: bool) -> None:
    yields = [one for one in stage.events if one.kind is EventKind.REPLICA_DRAINED and "makes room" in one.text]
    assert stage.model().ready >= wanted - bool(yields)
    assert len(stage.replicas()) <= wanted + 1
    for name in NODES:
        assert stage.node(name).promised <= 8 * GIB
        engines = stage.agents[name].engines
        just = yields and yields[-1] is stage.last(EventKind.REPLICA_DRAINED) and yields[-1].at == stage.now
        if just and not refusing and engines == reports(OLD, NEW):
            assert stage.node(name).promised + memory > 8 * GIB, "one more would have fitted there"


def one_step(stage: Rolling, outcomes: Iterator[str], order: random.Random) -> bool:
    """Let one thing happen that agents have to do; say whether there was any."""
    stage.now += 1
    leaving = [name for name, where in stage.replicas().items() if "leaving" in where]
    views = (stage.cluster.view(Noun.REPLICAS, name) for name in stage.replicas())
    coming = [one.id for one in views if isinstance(one, ReplicaView) and one.state is not ShardState.READY]
    todo = sorted({*leaving, *coming})
    if not todo:
        return False
    replica = order.choice(todo)
    if replica in leaving:
        stage.gone(replica)
        return True
    match next(outcomes, "ready") if stage.versions()[replica] == NEW else "ready":
        case "dies":
            stage.dies(replica)
        case "refused":
            stage.dies(replica, "not here", FailureKind.REFUSED)
        case _:
            stage.becomes(replica, ShardState.READY)
    return True
