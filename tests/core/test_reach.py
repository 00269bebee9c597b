"""Whether routers reach a node: who is asked when, what follows from the answers, and what one that hangs holds up."""

from dataclasses import replace

import pytest

from llmgw.core.cluster import Cluster
from llmgw.core.effects import AskAddress, AskRouters, Effect, Publish
from llmgw.core.events import EventKind
from llmgw.core.facts import Exposure
from llmgw.core.inputs import AgentListens, Input, RouterCame, RouterGone, RouterTried
from llmgw.core.link import Listening
from llmgw.core.names import NodeName
from llmgw.core.reach import AGAIN, AT_ONCE, FAILING_AGAIN, HOLD, LISTEN, TRIAL
from llmgw.core.refusals import AddressNotTried, NotEnoughMemory, Refusal, UnreachableAddress
from llmgw.core.routes import Tried
from llmgw.core.settings import Settings
from llmgw.core.units import GIB
from llmgw.core.views import Noun, Reach
from llmgw.core.warnings import RouterCannotReach
from tests.core.stage import SETTINGS, Agent, Stage, inventory, model, three_nodes

REFUSED = "connection refused"
DIRECT = replace(SETTINGS, exposure=Exposure.DIRECT)


class Trials(Stage):
    """A stage with routers. Agents listen when asked; `words` says what each router finds, None for no answer."""

    def __init__(self, *models: object, words: dict[str, str | None] | None = None, **fields: object) -> None:
        self.words = words or {}
        self.asked: list[str] = []
        self.exposures: list[Exposure] = []
        self.deaf: set[str] = set()
        """Agents that answer nothing."""
        self.listening: dict[str, Listening] = {}
        """What an agent says instead of a host and a port of ours."""
        self.attempts: list[AskRouters] = []
        self.effects: list[Effect] = []
        self._sessions: dict[str, int] = {}
        self._routers = 100
        super().__init__(*models, **fields)  # type: ignore[arg-type]

    def apply(self, happened: Input) -> list[Effect]:
        effects = super().apply(happened)
        self.effects += effects
        for effect in effects:
            if isinstance(effect, AskAddress):
                self._ask(effect)
            if isinstance(effect, AskRouters):
                self.attempts.append(effect)
                for router in sorted(self.routers()):
                    if self.words.get(router, "") is not None:
                        self.says(router, effect.attempt.token, self.words.get(router) or "")
        return effects

    def _ask(self, effect: AskAddress) -> None:
        self.asked.append(effect.node)
        self.exposures.append(effect.question.exposure)
        assert effect.question.seconds == LISTEN
        agent = self.agents[effect.node]
        if effect.node in self.deaf or agent.session is None:
            return
        port = 21000 + len(self.asked) % 1000
        host = "127.0.0.1" if effect.question.exposure is Exposure.LOOPBACK else agent.address
        said = self.listening.get(effect.node, Listening(token="", host=host, port=port))
        said = replace(said, token=effect.question.token)
        self.apply(AgentListens(session=agent.session, node=effect.node, listening=said))

    def routers(self) -> set[str]:
        return set(self._sessions)

    def says(self, router: str, token: str, error: str = "") -> None:
        self.apply(RouterTried(session=self._sessions.get(router, 0), tried=Tried(token=token, error=error)))

    def session(self, router: str) -> int:
        return self._sessions[router]

    def come(self, *routers: str) -> None:
        """`r1#2` is another router with the certificate of `r1`."""
        for router in routers:
            self._routers += 1
            self._sessions[router] = self._routers
            self.apply(RouterCame(session=self._routers, router=router.partition("#")[0]))

    def go(self, router: str) -> None:
        self.apply(RouterGone(session=self._sessions.pop(router)))

    def refusal(self, node: str = "node01") -> Refusal | None:
        """What the node answers to one more replica."""
        why = self.cluster.why("gemma", self.now)
        return next((one for one in why.refusals if one.node == node), None)

    def unreached(self, node: str = "node01") -> UnreachableAddress:
        refusal = self.refusal(node)
        assert isinstance(refusal, UnreachableAddress), refusal
        return refusal


def one_node(*models: object, **fields: object) -> Trials:
    """A settled cluster with node01; what each router finds is in `words`."""
    stage = Trials(*(models or (model(replicas=0),)), **fields)
    stage.join(Agent("node01"))
    stage.later(SETTINGS.settle)
    return stage


# --- the verdict ------------------------------------------------------------------------------------------------


def test_without_a_router_nobody_is_asked_and_nothing_is_refused() -> None:
    stage = one_node()
    assert (stage.asked, stage.refusal(), stage.node("node01").reach) == ([], None, ())


def test_a_node_that_a_router_reaches_takes_replicas() -> None:
    stage = one_node()
    stage.come("r1")
    assert stage.refusal() is None
    (said,) = stage.node("node01").reach
    assert (said.router, said.host, said.error, said.at) == ("r1", "127.0.0.1", "", stage.now)
    assert stage.node("node01").warnings == ()
    assert EventKind.ADDRESS_REACHED not in stage.kinds(), "it was never out of reach"


def test_a_node_that_no_router_reaches_is_refused_with_router_address_port_and_error() -> None:
    stage = one_node(words={"r1": REFUSED})
    stage.come("r1")
    (said,) = stage.node("node01").reach
    assert stage.unreached() == UnreachableAddress(
        node=NodeName("node01"), router="r1", address="127.0.0.1", port=said.port, error=REFUSED
    )
    event = stage.last(EventKind.ADDRESS_UNREACHABLE)
    assert (event.subject, event.text) == ("node01", f"router r1 does not reach 127.0.0.1:{said.port}: {REFUSED}")


def test_nothing_is_placed_on_it_until_it_is_reached_and_the_event_of_that_is_the_cause() -> None:
    stage = one_node(words={"r1": REFUSED})
    stage.come("r1")
    stage.scale("gemma", 1)
    assert stage.replicas() == {}
    assert stage.last(EventKind.PLACE_REFUSED).text == "1 more wanted; 1 node: 1 not now"
    stage.words = {}
    stage.later(FAILING_AGAIN + 2)
    assert stage.replicas() == {"gemma/0": "node01"}
    reached = stage.last(EventKind.ADDRESS_REACHED)
    assert stage.last(EventKind.REPLICA_PLACED).cause == reached.seq


def test_what_runs_there_stays() -> None:
    stage = one_node(model(replicas=1))
    stage.obey()
    stage.words = {"r1": REFUSED}
    stage.come("r1")
    assert isinstance(stage.refusal(), UnreachableAddress)
    stage.later(300)
    assert stage.replicas() == {"gemma/0": "node01"}


def test_of_several_routers_one_that_reaches_it_is_enough_and_the_others_are_a_warning() -> None:
    stage = one_node(words={"r1": REFUSED})
    stage.come("r1", "r2")
    assert stage.refusal() is None
    (port,) = {one.port for one in stage.node("node01").reach}
    warning = RouterCannotReach(router="r1", address="127.0.0.1", port=port, error=REFUSED)
    assert stage.node("node01").warnings == (warning,)
    assert [one.router for one in stage.node("node01").reach] == ["r1", "r2"]


def test_when_all_of_several_fail_the_first_by_name_is_named() -> None:
    stage = one_node(words={"r2": "no route to host", "r1": REFUSED, "r3": REFUSED, "r4": REFUSED})
    stage.come("r2", "r1", "r3", "r4")
    assert stage.unreached().router == "r1"
    assert stage.kinds("node01").count(EventKind.ADDRESS_UNREACHABLE) == 1
    assert len(stage.node("node01").warnings) == 3, "the rest is in `reach`"
    assert len(stage.node("node01").reach) == 4


def test_a_router_that_fails_fast_is_no_verdict_while_another_is_still_trying() -> None:
    stage = one_node(words={"r1": None, "r2": None})
    stage.come("r1", "r2")
    stage.join(Agent("node02"))
    token = stage.attempts[-1].attempt.token
    stage.says("r1", token, REFUSED)
    assert stage.refusal("node02") == AddressNotTried(node=NodeName("node02"))
    stage.says("r2", token)
    assert stage.refusal("node02") is None
    stage.later(TRIAL)
    assert stage.refusal() is None
    assert EventKind.ADDRESS_UNREACHABLE not in stage.kinds()


# --- routers and agents that hang -------------------------------------------------------------------------------


def test_a_node_is_held_back_until_a_router_has_tried_but_not_for_long() -> None:
    stage = Trials(model(replicas=1), words={"r1": None})
    stage.later(SETTINGS.settle)
    stage.come("r1")
    stage.join(Agent("node01"))
    assert stage.refusal() == AddressNotTried(node=NodeName("node01"))
    assert stage.replicas() == {}
    stage.later(HOLD - 2)
    assert stage.replicas() == {}
    stage.later(2)
    assert stage.replicas() == {"gemma/0": "node01"}, "a router that hangs does not hold the fleet"
    qualifies = stage.last(EventKind.NODE_QUALIFIES)
    assert stage.last(EventKind.REPLICA_PLACED).cause == qualifies.seq
    stage.later(200)
    assert stage.refusal() is None, "nor again with each trial"


@pytest.mark.parametrize("way", ["reached", "let through"])
def test_what_is_placed_once_a_node_was_tried_is_placed_because_it_qualifies(way: str) -> None:
    stage = Trials(model(replicas=1), words={"r1": None})
    stage.later(SETTINGS.settle)
    stage.come("r1")
    stage.join(Agent("node01"))
    if way == "reached":
        stage.says("r1", stage.attempts[-1].attempt.token)
    stage.later(HOLD)
    placed = stage.last(EventKind.REPLICA_PLACED)
    assert stage.causes(placed) == [EventKind.REPLICA_PLACED, EventKind.NODE_QUALIFIES, EventKind.NODE_JOINED]


def test_what_a_node_became_while_it_was_tried_is_the_cause_of_what_it_gets() -> None:
    stage = Trials(model(replicas=1, memory=10 * GIB), words={"r1": None})
    stage.later(SETTINGS.settle)
    stage.come("r1")
    stage.join(Agent("node01"))
    stage.report(stage.agents["node01"], inventory=inventory(16 * GIB))
    assert stage.replicas() == {}
    stage.says("r1", stage.attempts[-1].attempt.token)
    placed = stage.last(EventKind.REPLICA_PLACED)
    assert stage.causes(placed) == [EventKind.REPLICA_PLACED, EventKind.NODE_QUALIFIES, EventKind.NODE_CHANGED]


def test_that_a_node_is_being_tried_is_no_event() -> None:
    stage = Trials(model(replicas=1))
    stage.later(SETTINGS.settle)
    stage.come("r1")
    stage.join(Agent("node01"))
    assert stage.kinds().count(EventKind.PLACE_REFUSED) == 1, "there was no node at first"
    assert stage.replicas() == {"gemma/0": "node01"}


def test_a_router_that_hangs_beside_one_that_fails_is_waited_for_until_the_trial_ends() -> None:
    stage = one_node(words={"r1": None, "r2": REFUSED})
    stage.come("r1", "r2")
    stage.later(TRIAL)  # the first was of r1 alone
    assert [one.router for one in stage.node("node01").reach] == ["r2"]
    assert stage.refusal() is None
    stage.later(TRIAL)
    assert stage.unreached().router == "r2"


def test_an_agent_that_does_not_answer_is_let_through_and_asked_again() -> None:
    stage = one_node()
    stage.deaf = {"node01"}
    stage.come("r1")
    assert stage.refusal() == AddressNotTried(node=NodeName("node01"))
    stage.later(HOLD)
    assert stage.refusal() is None
    stage.deaf = set()
    stage.later(FAILING_AGAIN + 2)
    assert stage.asked == ["node01", "node01"]
    assert stage.node("node01").reach[0].error == ""


@pytest.mark.parametrize("port", [None, 0, 1 << 16, 4_000_000_000])
def test_a_node_that_has_no_port_to_listen_on_is_not_called_unreachable(port: int | None) -> None:
    stage = one_node()
    stage.listening["node01"] = Listening(token="", host="127.0.0.1", port=port, problem="no port is free")
    stage.come("r1")
    assert (stage.attempts, stage.refusal()) == ([], None)


def test_a_node_whose_address_is_not_its_own_is_tried_there_and_both_have_their_say() -> None:
    stage = Trials(model(replicas=0), words={"r1": "no answer within 3 s"}, settings=DIRECT)
    words = "nothing can listen on 192.0.2.1: cannot assign requested address"
    stage.listening["node01"] = Listening(token="", host="192.0.2.1", port=21000, problem=words)
    stage.join(Agent("node01", address="192.0.2.1"))
    stage.come("r1")
    refusal = stage.unreached()
    assert (refusal.address, refusal.port) == ("192.0.2.1", 21000)
    assert refusal.error == f"no answer within 3 s; the node's own words: {words}"


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        (SETTINGS, "0.0.0.0"),
        (SETTINGS, "::"),
        (SETTINGS, "::ffff:127.0.0.1"),
        (SETTINGS, "127.0.0.2"),
        (SETTINGS, "localhost"),
        (SETTINGS, "10.0.0.1"),
        (SETTINGS, "intranet.example"),
        (DIRECT, "127.0.0.1"),
        (DIRECT, "10.0.0.2"),
        (DIRECT, "::ffff:10.0.0.1"),
        (DIRECT, "intranet.example"),
        (DIRECT, "x" * 4096),
        (DIRECT, "10.0.0.1\n"),
    ],
)
def test_routers_are_sent_to_a_node_and_not_to_whatever_it_names(settings: Settings, host: str) -> None:
    """Else whoever has a node's key could look from each router's machine which ports are open where."""
    stage = one_node(settings=settings)
    stage.listening["node01"] = Listening(token="", host=host, port=22)
    stage.come("r1")
    assert (stage.attempts, stage.refusal(), stage.node("node01").reach) == ([], None, ())
    event = stage.last(EventKind.ADDRESS_UNREACHABLE)
    assert event.subject == "node01"
    assert event.text.startswith("not tried at ")
    assert len(event.text) < 300
    stage.later(300)
    assert stage.attempts == []
    assert len(stage.asked) >= 4, "it is asked again each minute"
    assert stage.kinds().count(EventKind.ADDRESS_UNREACHABLE) == 1


@pytest.mark.parametrize(
    ("settings", "address", "host"),
    [
        (SETTINGS, "10.0.0.1", "127.0.0.1"),
        (SETTINGS, "", "::1"),
        (DIRECT, "10.0.0.1", "10.0.0.1"),
        (DIRECT, "2001:db8::1", "2001:DB8:0::1"),
        (DIRECT, "fe80::1%eth0", "fe80::1%eth0"),
        (DIRECT, "Node01.example", "node01.example"),
    ],
)
def test_a_node_is_tried_where_its_engines_would_listen(settings: Settings, address: str, host: str) -> None:
    stage = Trials(model(replicas=0), settings=settings)
    stage.listening["node01"] = Listening(token="", host=host, port=21000)
    stage.join(Agent("node01", address=address))
    stage.come("r1")
    assert [one.attempt.host for one in stage.attempts] == [host]


def test_a_node_that_registered_without_an_address_has_none_to_be_tried_at() -> None:
    stage = Trials(model(replicas=0), settings=DIRECT)
    stage.listening["node01"] = Listening(token="", host="10.0.0.7", port=21000)
    stage.join(Agent("node01", address=""))
    stage.come("r1")
    assert stage.attempts == []
    assert stage.last(EventKind.ADDRESS_UNREACHABLE).text == (
        "not tried at 10.0.0.7: the node has registered without an address"
    )


def test_answers_that_nobody_waits_for_change_nothing() -> None:
    stage = one_node(words={"r1": None})
    stage.come("r1")
    token = stage.attempts[-1].attempt.token
    stage.says("r9", token)
    stage.says("r1", "1-999")
    stage.apply(AgentListens(session=77, node=NodeName("node01"), listening=Listening(token=token, host="h", port=1)))
    stage.apply(AgentListens(session=77, node=NodeName("nobody"), listening=Listening(token=token)))
    stage.apply(RouterGone(session=4711))
    assert stage.node("node01").reach == ()
    stage.says("r1", token)
    stage.says("r1", token, "and now the other way round")
    assert [one.error for one in stage.node("node01").reach] == [""]


# --- when -------------------------------------------------------------------------------------------------------


def test_a_node_that_registers_is_tried_when_routers_are_there() -> None:
    stage = three_of()
    stage.come("r1")
    assert stage.asked == ["node01", "node02", "node03"]
    stage.join(Agent("node04"))
    assert stage.asked[3:] == ["node04"]
    stage.join(stage.agents["node02"])
    assert stage.asked[4:] == ["node02"], "a new session is a new question"


def test_each_question_has_the_exposure_and_a_token_of_its_own() -> None:
    stage = three_of(settings=DIRECT)
    stage.come("r1")
    assert set(stage.exposures) == {Exposure.DIRECT}
    assert len({one.attempt.token for one in stage.attempts}) == 3
    assert {one.attempt.machine for one in stage.attempts} == {f"machine-of-node0{n}" for n in (1, 2, 3)}


def test_a_failing_node_is_tried_each_minute_and_a_good_one_each_ten() -> None:
    stage = three_of(words={"r1": REFUSED})
    stage.come("r1")
    stage.asked.clear()
    stage.later(FAILING_AGAIN - 2)
    assert stage.asked == []
    stage.later(4)
    assert sorted(stage.asked) == ["node01", "node02", "node03"]
    stage.words = {}
    stage.later(FAILING_AGAIN + 2)
    stage.asked.clear()
    stage.later(AGAIN - 60)
    assert stage.asked == []
    stage.later(60)
    assert sorted(stage.asked) == ["node01", "node02", "node03"]


@pytest.mark.parametrize(("settings", "pause"), [(SETTINGS, AGAIN), (DIRECT, FAILING_AGAIN)])
def test_that_a_router_elsewhere_does_not_reach_loopback_is_not_asked_each_minute(
    settings: Settings, pause: float
) -> None:
    stage = one_node(words={"r1": REFUSED}, settings=settings)
    stage.come("r1", "r2")
    stage.asked.clear()
    stage.later(pause - 4)
    assert stage.asked == []
    stage.later(6)
    assert stage.asked == ["node01"]


def test_the_same_failure_again_is_neither_an_event_nor_shown_anew() -> None:
    stage = one_node(words={"r1": REFUSED})
    stage.come("r1")
    port = stage.unreached().port
    stage.later(FAILING_AGAIN - 2)
    stage.effects.clear()
    stage.later(4)
    assert stage.unreached().port != port, "it was tried again, and elsewhere"
    assert not [one for one in stage.effects if isinstance(one, Publish)]
    assert stage.kinds("node01").count(EventKind.ADDRESS_UNREACHABLE) == 1


def test_another_address_is_tried_afresh() -> None:
    stage = one_node(words={"r1": REFUSED})
    stage.come("r1")
    stage.words = {"r1": None}
    stage.join(stage.agents["node01"])
    assert isinstance(stage.refusal(), UnreachableAddress), "the same address is what it was until it was tried"
    stage.join(stage.agents["node01"], address="10.0.0.9")
    assert stage.refusal() == AddressNotTried(node=NodeName("node01"))
    assert stage.node("node01").reach == ()
    stage.says("r1", stage.attempts[-1].attempt.token)
    assert stage.refusal() is None
    assert stage.last(EventKind.ADDRESS_REACHED).text.startswith("router r1 reaches 127.0.0.1:")


def test_a_node_that_goes_while_it_is_tried_is_not_judged() -> None:
    stage = one_node(words={"r1": REFUSED, "r2": None})
    stage.come("r2")
    stage.join(stage.agents["node01"])
    stage.come("r1")
    stage.leave(stage.agents["node01"])
    stage.later(300)
    assert EventKind.ADDRESS_UNREACHABLE not in stage.kinds()
    stage.words = {}
    stage.join(stage.agents["node01"])
    assert stage.refusal() is None


# --- routers that come and go -----------------------------------------------------------------------------------


def test_a_router_that_comes_later_tries_every_node() -> None:
    stage = three_of()
    stage.come("r1")
    stage.asked.clear()
    stage.come("r2")
    assert stage.asked == ["node01", "node02", "node03"]


def test_a_router_that_comes_during_a_trial_is_asked_after_it() -> None:
    stage = one_node(words={"r1": None, "r2": None})
    stage.come("r1")
    stage.come("r2")
    assert len(stage.attempts) == 1
    stage.says("r1", stage.attempts[0].attempt.token)
    assert len(stage.attempts) == 2
    stage.says("r2", stage.attempts[1].attempt.token)
    assert [one.router for one in stage.node("node01").reach] == ["r1", "r2"]


def test_a_router_that_restarts_changes_no_verdict() -> None:
    stage = one_node(words={"r1": REFUSED})
    stage.come("r1")
    stage.go("r1")
    assert isinstance(stage.refusal(), UnreachableAddress)
    asked = len(stage.asked)
    stage.come("r1")
    assert len(stage.asked) == asked, "it has said what it finds"
    stage.later(SETTINGS.lost_after + 4)
    assert isinstance(stage.refusal(), UnreachableAddress)


def test_a_router_that_stays_away_is_forgotten_with_all_it_said() -> None:
    stage = one_node(words={"r1": REFUSED})
    stage.come("r1")
    stage.go("r1")
    stage.later(SETTINGS.lost_after - 2)
    assert isinstance(stage.refusal(), UnreachableAddress)
    stage.later(4)
    assert (stage.refusal(), stage.node("node01").reach) == (None, ())
    assert EventKind.ADDRESS_REACHED not in stage.kinds(), "nobody reached it"
    stage.words = {}
    stage.come("r1")
    assert EventKind.ADDRESS_REACHED in stage.kinds()


def test_when_the_one_good_router_is_forgotten_the_others_decide() -> None:
    stage = one_node(words={"r1": REFUSED})
    stage.come("r1", "r2")
    stage.go("r2")
    assert stage.refusal() is None
    stage.later(SETTINGS.lost_after + 2)
    assert stage.unreached().router == "r1"


def test_a_router_that_goes_is_not_waited_for() -> None:
    stage = one_node(words={"r1": REFUSED, "r2": None})
    stage.come("r2")
    stage.come("r1")
    stage.go("r2")
    assert stage.unreached().router == "r1"
    stage.go("r1")
    stage.later(2 * SETTINGS.lost_after)
    stage.join(Agent("node02"))
    assert stage.refusal("node02") is None


def test_when_the_last_router_goes_nodes_that_wait_are_let_through() -> None:
    stage = one_node(words={"r1": None})
    stage.come("r1")
    assert isinstance(stage.refusal(), AddressNotTried)
    stage.go("r1")
    assert stage.refusal() is None


@pytest.mark.parametrize("first", ["r1", "r1#2"])
def test_of_two_with_one_certificate_one_that_reaches_the_node_is_enough_whoever_is_faster(first: str) -> None:
    """A copied certificate, or one that lies: "connection refused" is mostly the faster answer."""
    stage = one_node(words={"r1": None, "r1#2": None})
    stage.come("r1", "r1#2")
    stage.join(Agent("node02"))
    token = stage.attempts[-1].attempt.token
    for router in (first, "r1" if first == "r1#2" else "r1#2"):
        stage.says(router, token, REFUSED if router == "r1#2" else "")
    assert stage.refusal("node02") is None
    assert [(one.router, one.error) for one in stage.node("node02").reach] == [("r1", "")]
    assert EventKind.ADDRESS_UNREACHABLE not in stage.kinds()


def test_a_copied_certificate_makes_no_fleet_unreachable_and_is_told_once() -> None:
    stage = three_of(words={"r1#2": REFUSED})
    stage.come("r1", "r1#2")
    stage.later(2 * AGAIN)
    assert [stage.refusal(name) for name in ("node01", "node02", "node03")] == [None] * 3
    assert EventKind.ADDRESS_UNREACHABLE not in stage.kinds()
    events = [event for event in stage.events if event.kind is EventKind.ROUTER_TWICE]
    assert len(events) in (1, 2), "again after ten minutes at the earliest"
    assert (events[0].subject, events[0].cause) == ("r1", 0)
    assert events[0].text.startswith("two routers use the certificate of router r1")


def test_the_other_under_a_name_is_waited_for_before_a_node_is_called_unreachable() -> None:
    stage = one_node(words={"r1": None, "r1#2": None})
    stage.come("r1#2", "r1")
    stage.says("r1#2", stage.attempts[0].attempt.token, REFUSED)
    stage.later(FAILING_AGAIN + 2)
    token = stage.attempts[-1].attempt.token
    before = stage.refusal()
    stage.says("r1#2", token, REFUSED)
    stage.says("r1#2", token)
    assert stage.refusal() == before, "each has one answer"
    stage.says("r1", token)
    assert stage.refusal() is None


def test_a_router_whose_stream_broke_and_came_again_is_not_two() -> None:
    stage = one_node(words={"r1": None, "r1#2": None})
    stage.come("r1", "r1#2")
    stage.join(Agent("node02"))
    stage.says("r1#2", stage.attempts[-1].attempt.token)
    stage.go("r1")
    stage.later(FAILING_AGAIN)
    assert EventKind.ROUTER_TWICE not in stage.kinds()


def test_streams_that_come_and_go_under_one_name_try_nobody_anew() -> None:
    stage = one_node()
    stage.come("r1")
    asked = len(stage.asked)
    for _ in range(5):
        stage.come("r1#2")
        stage.go("r1#2")
    assert len(stage.asked) == asked


def test_two_streams_of_one_router_are_one_router() -> None:
    stage = one_node()
    stage.apply(RouterCame(session=1, router="r1"))
    stage.apply(RouterCame(session=2, router="r1"))
    stage.apply(RouterGone(session=1))
    stage.later(300)
    stage.apply(RouterGone(session=2))
    stage.later(SETTINGS.lost_after - 2)
    stage.come("r1")
    assert stage.refusal() is None


# --- many, and after a start ------------------------------------------------------------------------------------


def test_a_large_fleet_is_tried_a_few_at_a_time() -> None:
    stage = Trials(model(replicas=0), words={"r1": None})
    for number in range(3 * AT_ONCE):
        stage.join(Agent(f"node{number:03}"))
    stage.come("r1")
    assert len(stage.asked) == AT_ONCE
    first = [one.attempt.token for one in stage.attempts]
    stage.says("r1", first[0])
    assert len(stage.asked) == AT_ONCE + 1, "each that is done lets one more in"
    stage.later(HOLD)
    assert stage.refusal(f"node{3 * AT_ONCE - 1:03}") is None, "those that wait are held no longer than others"
    stage.later(3 * TRIAL)
    assert len(set(stage.asked)) == 3 * AT_ONCE


def test_a_model_that_finds_no_node_is_not_looked_at_for_each_that_is_tried() -> None:
    stage = Trials(model(replicas=1, memory=64 * GIB))
    for number in range(50):
        stage.join(Agent(f"node{number:03}"))
    stage.later(SETTINGS.settle)
    stage.words = {"r1": REFUSED}
    stage.effects.clear()
    stage.come("r1")
    stage.later(2)
    assert len(stage.asked) == 50
    assert len([one for one in stage.effects if isinstance(one, Publish) and one.noun is Noun.MODELS]) <= 3


def test_the_reasons_of_a_model_follow_what_routers_find() -> None:
    stage = one_node(model(replicas=2, memory=5 * GIB))
    stage.words = {"r1": REFUSED}
    stage.come("r1")
    stage.later(4)
    assert [type(one) for one in stage.model().refusals] == [UnreachableAddress]
    stage.words = {}
    stage.later(FAILING_AGAIN + 4)
    assert [type(one) for one in stage.model().refusals] == [NotEnoughMemory]


def test_that_a_model_has_no_node_is_no_event_while_one_is_being_tried() -> None:
    stage = Trials(model(replicas=1, memory=5 * GIB), words={"r1": None})
    stage.later(SETTINGS.settle)
    told = stage.kinds().count(EventKind.PLACE_REFUSED)
    stage.come("r1")
    stage.join(Agent("node01"), Agent("small", inventory=inventory(GIB)))
    assert isinstance(stage.refusal("node01"), AddressNotTried)
    assert {type(one) for one in stage.model().refusals} == {AddressNotTried, NotEnoughMemory}
    stage.says("r1", stage.attempts[0].attempt.token)
    assert stage.replicas() == {"gemma/0": "node01"}
    assert stage.kinds().count(EventKind.PLACE_REFUSED) == told


def test_what_a_trial_found_is_told_of_a_model_that_has_no_node_for_it() -> None:
    stage = Trials(model(replicas=1), words={"r1": None})
    stage.later(SETTINGS.settle)
    stage.come("r1")
    stage.join(Agent("node01"))
    assert stage.last(EventKind.PLACE_REFUSED).text == "1 more wanted; there are no nodes yet"
    stage.says("r1", stage.attempts[-1].attempt.token, REFUSED)
    stage.later(4)
    assert stage.last(EventKind.PLACE_REFUSED).text == "1 more wanted; 1 node: 1 not now"


def test_an_unsettled_control_plane_tries_and_moves_nothing() -> None:
    before = three_nodes(model(replicas=2))
    stage = Trials(model(replicas=2), stored=before.stored(), words={"r1": REFUSED}, epoch=2)
    stage.come("r1")
    agents = [replace(agent, session=None) for agent in before.agents.values()]
    stage.join(agents[0])
    assert isinstance(stage.refusal("node01"), UnreachableAddress)
    stage.join(*agents[1:])
    stage.later(SETTINGS.settle)
    assert stage.replicas() == before.replicas()


def test_an_act_that_is_tried_on_a_fork_leaves_the_trials_alone() -> None:
    stage = one_node(words={"r1": None})
    stage.come("r1")
    fork: Cluster = stage.cluster.fork()
    token = stage.attempts[-1].attempt.token
    fork.apply(RouterTried(session=stage.session("r1"), tried=Tried(token=token)), stage.now)
    fork.check()
    stage.cluster.check()
    assert stage.node("node01").reach == ()
    stage.says("r1", token)
    assert [type(one) for one in stage.node("node01").reach] == [Reach]


def three_of(**fields: object) -> Trials:
    stage = Trials(model(replicas=0), **fields)
    stage.join(Agent("node01"), Agent("node02"), Agent("node03"))
    stage.later(SETTINGS.settle)
    return stage
