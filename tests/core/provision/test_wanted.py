"""Engines that server.yaml wants on nodes: who should have them, what is asked, ordered, told and shown."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.effects import Publish, SaveRelease, SendDesired
from llmgw.core.engines.orders import EngineOrder, EngineWish, Holder, Pin, Release, ReleaseFile, release_id
from llmgw.core.engines.terms import EngineKind, Install, Installs, InstallStep
from llmgw.core.errors import EngineNotWanted, UnknownNode
from llmgw.core.events import EventKind
from llmgw.core.facts import EngineReport, Engines
from llmgw.core.inputs import AgentInstalls, CatalogLoaded, LockEngine, ReleaseFound, ReleaseNotFound, RetryEngine, Tick
from llmgw.core.inventory import Fabric
from llmgw.core.names import NodeName
from llmgw.core.presence import NodeState
from llmgw.core.refusals import EngineBroken, EngineInstalling
from llmgw.core.units import MIB, Bytes
from llmgw.core.views import EngineView, Gone, ModelState, Noun
from tests.core.stage import SETTINGS, T0, Agent, Stage, inventory, model

S = InstallStep
K = EventKind
NONE = Engines(probed_at=T0)
BY_HAND = Engines(probed_at=T0, engines=(EngineReport(engine="llama.cpp", version="b9", path="/x", by_hand=True),))
WISH = EngineWish(engine="llama.cpp", version="b10991", kind=EngineKind.ARCHIVE, source="https://api.example.org")
VLLM = EngineWish(engine="vllm", version="0.33.0", kind=EngineKind.PYTHON)
FILE = ReleaseFile(
    name="llama-b10991-bin-ubuntu-x64.tar.gz", size=Bytes(16 * MIB), digest=f"sha256:{'a' * 64}", url="https://x/f"
)
RELEASE = Release(engine="llama.cpp", version="b10991", kind=EngineKind.ARCHIVE, files=(FILE,))
INSTALL = Install(engine="llama.cpp", version="b10991", step=S.RESOLVE, since=T0)
READY = replace(INSTALL, step=S.READY, path="/engines/llama-server", variant="cpu")
DOWNLOAD = replace(INSTALL, step=S.DOWNLOAD, subject=FILE.name, done=Bytes(MIB), total=FILE.size, turn=True)
REPORT = Engines(probed_at=T0, engines=(EngineReport(engine="llama.cpp", version="b10991", path="/engines/x"),))


def lock(variant: str = "cuda", version: str = "0.33.0", digit: str = "b") -> Release:
    wheel = ReleaseFile(name=f"vllm-{variant}.whl", size=Bytes(MIB), digest=f"sha256:{digit * 64}", package="vllm")
    return Release(
        engine="vllm", version=version, kind=EngineKind.PYTHON, variant=variant, python="3.12", files=(wheel,)
    )


def agent(name: str = "node01", **fields: object) -> Agent:
    return Agent(name, **({"engines": NONE} | fields))  # type: ignore[arg-type]


def wanting(*wishes: EngineWish, downloads: int = 16, **fields: object) -> Stage:
    at_once = replace(SETTINGS, downloads=downloads)
    return Stage(model(replicas=1), engines=wishes or (WISH,), settings=at_once, **fields)  # type: ignore[arg-type]


def resolved(*agents: Agent, downloads: int = 16) -> Stage:
    """Nodes that want llama.cpp, the files of which are known, settled."""
    stage = wanting(downloads=downloads)
    stage.join(*(agents or (agent(),)))
    stage.apply(ReleaseFound(wish=WISH, release=RELEASE))
    stage.later(SETTINGS.settle)
    return stage


def order(stage: Stage, node: str = "node01") -> EngineOrder:
    (one,) = stage.cluster.desired(NodeName(node)).engines
    return one


def view(stage: Stage, name: str = "node01/llama.cpp/b10991") -> EngineView:
    found = stage.cluster.view(Noun.ENGINES, name)
    assert isinstance(found, EngineView)
    return found


def going(stage: Stage) -> list[str]:
    """The nodes whose turn it is."""
    names = stage.cluster.names(Noun.NODES)
    return [name for name in names if any(one.go for one in stage.cluster.desired(NodeName(name)).engines)]


def jump(stage: Stage, seconds: float) -> None:
    """Let time pass at once; all that are there beat at its end."""
    stage.now += seconds
    for one in stage.agents.values():
        if one.session is not None:
            stage.beat(one)
    stage.apply(Tick())


# --- who should have it -----------------------------------------------------------------------------------------


def test_a_node_is_ordered_what_is_wanted_with_its_files_and_its_turn() -> None:
    stage = resolved()
    one = order(stage)
    assert (one.engine, one.version, one.kind, one.problem, one.go) == ("llama.cpp", "b10991", WISH.kind, "", True)
    assert [ref.id for ref in one.releases] == [release_id(RELEASE)]
    assert stage.cluster.release(release_id(RELEASE)) == RELEASE and stage.cluster.release("other") is None


@pytest.mark.parametrize(
    ("fields", "has"),
    [
        ({}, ["llama.cpp", "vllm"]),
        ({"engines": None}, []),
        ({"engines": BY_HAND}, ["vllm"]),
        ({"inventory": replace(inventory(), labels=("rack=a",))}, ["llama.cpp"]),
    ],
    ids=["all", "not probed yet", "by hand", "another label"],
)
def test_it_is_for_nodes_with_its_labels_that_do_not_name_it_by_hand(fields: dict[str, object], has: list[str]) -> None:
    stage = wanting(WISH, replace(VLLM, labels=("gpu=yes", "zone=1")))
    stage.join(agent(**({"inventory": replace(inventory(), labels=("gpu=yes", "zone=1"))} | fields)))
    assert [one.engine for one in stage.cluster.desired(NodeName("node01")).engines] == has


def test_a_node_that_gets_a_label_or_loses_what_it_has_by_hand_is_one_of_them_at_once() -> None:
    stage, node = wanting(replace(WISH, labels=("gpu=yes",))), agent(engines=BY_HAND)
    stage.join(node)
    assert not stage.resolves
    stage.report(node, inventory=replace(inventory(), labels=("gpu=yes",)))
    assert not stage.resolves and not stage.cluster.desired(NodeName("node01")).engines
    stage.report(node, engines=NONE)
    assert len(stage.resolves) == 1 and order(stage).version == "b10991"
    stage.report(node, inventory=inventory())
    assert not stage.cluster.desired(NodeName("node01")).engines
    assert stage.cluster.names(Noun.ENGINES) == []


def test_what_server_yaml_wants_is_told_when_it_changes_and_not_at_a_start() -> None:
    stage = resolved(agent(), agent("node02", engines=BY_HAND))
    assert K.ENGINE_WANTED not in stage.kinds()
    stage.apply(CatalogLoaded(models={}, engines=(replace(WISH, version="b11000"), VLLM)))
    assert [(one.subject, one.text) for one in stage.events if one.kind is K.ENGINE_WANTED] == [
        ("llama.cpp", "b10991 → b11000; for 1 node"),
        ("vllm", "0.33.0; for 2 nodes"),
    ]
    stage.apply(CatalogLoaded(models={}, engines=(replace(WISH, version="b11000", mirror="http://m"), VLLM)))
    assert stage.last(K.ENGINE_WANTED).text == "b11000, its entry in server.yaml changed; for 1 node"
    stage.apply(CatalogLoaded(models={}, engines=(VLLM,)))
    assert stage.last(K.ENGINE_WANTED_NO_MORE).subject == "llama.cpp"
    stage.apply(CatalogLoaded(models={}))
    assert not stage.cluster.desired(NodeName("node01")).engines and stage.kinds().count(K.ENGINE_WANTED_NO_MORE) == 2


# --- what it is made of -----------------------------------------------------------------------------------------


def test_it_is_asked_once_for_all_nodes_and_kept_for_the_next_start() -> None:
    stage = wanting()
    assert not stage.resolves, "nobody needs it"
    stage.join(agent(), agent("node02"))
    assert stage.resolves == [WISH]
    assert order(stage).problem == "the files of llama.cpp b10991 are being looked up"
    stage.apply(ReleaseFound(wish=WISH, release=RELEASE))
    after = wanting(stored=stage.stored(), epoch=2)
    after.join(agent(), agent("node03"))
    assert not after.resolves and order(after, "node03").releases == order(stage).releases
    assert after.cluster.wanted_engines() == stage.cluster.wanted_engines()


def test_a_version_that_points_on_is_ordered_as_what_it_points_to() -> None:
    stage = wanting(replace(WISH, version="v0.4.1"))
    stage.join(agent())
    assert order(stage).version == "v0.4.1" and stage.cluster.wanted_engines().engines[0].version == ""
    stage.apply(ReleaseFound(wish=stage.resolves[0], release=RELEASE))
    (one,) = stage.cluster.wanted_engines().engines
    assert order(stage).version == one.version == "b10991" and one.nodes == 1
    assert stage.last(K.RELEASE_RESOLVED).text == "v0.4.1 is b10991: 1 file, 16 MiB"
    assert stage.cluster.names(Noun.ENGINES) == ["node01/llama.cpp/b10991"]


@pytest.mark.parametrize(
    ("seconds", "waits"),
    [(None, [60, 120, 240, 480, 960, 1920, 3600, 3600]), (7_200.0, [7_200]), (0.0, [1]), (1e9, [86_400])],
)
def test_what_is_not_found_is_asked_again_later_and_later_or_when_the_source_says(
    seconds: float | None, waits: list[int]
) -> None:
    stage = wanting()
    stage.join(agent())
    for count, wait in enumerate(waits, 1):
        stage.apply(ReleaseNotFound(wish=WISH, problem="HTTP 403: too many requests", seconds=seconds))
        assert order(stage).problem == "HTTP 403: too many requests"
        jump(stage, wait - 0.5)
        assert len(stage.resolves) == count
        jump(stage, 1.0)
        assert len(stage.resolves) == count + 1
    assert stage.kinds().count(K.RELEASE_UNKNOWN) == 1
    stage.apply(ReleaseNotFound(wish=WISH, problem="HTTP 404"))
    assert stage.last(K.RELEASE_UNKNOWN).text == "HTTP 404" and stage.kinds().count(K.RELEASE_UNKNOWN) == 2
    stage.apply(ReleaseFound(wish=WISH, release=RELEASE))
    assert order(stage).problem == "" and order(stage).releases


def test_an_answer_that_never_comes_is_asked_for_again() -> None:
    stage = wanting()
    stage.join(agent())
    jump(stage, 890)
    assert len(stage.resolves) == 1
    jump(stage, 20)
    assert len(stage.resolves) == 2


def test_an_answer_to_what_nobody_wishes_any_more_is_dropped() -> None:
    stage = wanting()
    stage.join(agent())
    other = replace(WISH, version="b11000")
    stage.apply(CatalogLoaded(models={}, engines=(other,)))
    assert stage.resolves == [WISH, other], "the new wish does not wait for the old answer"
    assert not [one for one in stage.apply(ReleaseFound(wish=WISH, release=RELEASE)) if isinstance(one, SaveRelease)]
    stage.apply(ReleaseNotFound(wish=WISH, problem="HTTP 404"))
    assert not order(stage).releases and "looked up" in order(stage).problem
    labelled = replace(other, labels=())
    stage.apply(ReleaseFound(wish=labelled, release=replace(RELEASE, version="b11000")))
    assert order(stage).releases


def test_an_answer_that_is_none_is_no_loop() -> None:
    pinned = replace(WISH, pins=(Pin(name=FILE.name, digest=f"sha256:{'f' * 64}"),))
    stage = wanting(pinned)
    stage.join(agent())
    for answer in (RELEASE, replace(RELEASE, engine="sglang")):
        stage.apply(ReleaseFound(wish=pinned, release=answer))
        assert "not the digests" in order(stage).problem and not order(stage).releases
    assert len(stage.resolves) == 1


def test_other_pins_are_asked_for_anew_and_what_does_not_fit_them_is_not_ordered() -> None:
    stage = resolved()
    pinned = replace(WISH, pins=(Pin(name=FILE.name, digest=f"sha256:{'f' * 64}"),))
    stage.apply(CatalogLoaded(models={}, engines=(pinned,)))
    assert stage.resolves == [WISH, pinned] and not order(stage).releases
    other = replace(RELEASE, files=(replace(FILE, digest=pinned.pins[0].digest),))
    stage.apply(ReleaseFound(wish=pinned, release=other))
    assert [ref.id for ref in order(stage).releases] == [release_id(other)] != [release_id(RELEASE)]
    after = wanting(pinned, stored=stage.stored(), epoch=2)
    after.join(agent())
    assert not after.resolves
    unpinned = wanting(WISH, stored=resolved().stored(), epoch=2)
    unpinned.apply(CatalogLoaded(models={}, engines=(pinned,)))
    unpinned.join(agent())
    assert unpinned.resolves == [pinned]


def test_another_source_is_asked_while_what_is_known_is_used_on() -> None:
    stage = resolved()
    moved = replace(WISH, source="https://other.example.org")
    stage.apply(CatalogLoaded(models={}, engines=(moved,)))
    assert stage.resolves == [WISH, moved] and order(stage).releases and not order(stage).problem
    stage.apply(ReleaseNotFound(wish=moved, problem="no answer"))
    assert order(stage).releases and stage.cluster.wanted_engines().engines[0].problem == "no answer"
    stage.apply(ReleaseFound(wish=moved, release=RELEASE))
    assert stage.kinds().count(K.RELEASE_RESOLVED) == 1, "they are the same files"
    stage.apply(CatalogLoaded(models={}, engines=(replace(moved, labels=("gpu=yes",)),)))
    assert len(stage.resolves) == 2, "for whom it is says nothing about its files"


def test_a_python_engine_is_locked_by_an_operator_or_found_in_a_mirror() -> None:
    stage = wanting(VLLM)
    stage.join(agent())
    assert not stage.resolves
    assert order(stage).problem == "vllm 0.33.0 is not locked; run: llmgw ctl engine lock vllm==0.33.0"
    for variant in ("cuda", "cpu"):
        effects = stage.apply(LockEngine(release=lock(variant), by="root"))
        assert SaveRelease(lock(variant), "0.33.0") in effects and SendDesired(NodeName("node01")) in effects
    assert [ref.variant for ref in order(stage).releases] == ["cpu", "cuda"] and not order(stage).problem
    again = lock("cpu", digit="c")
    stage.apply(LockEngine(release=again, by="root"))
    assert release_id(again) in [ref.id for ref in order(stage).releases] and len(order(stage).releases) == 2
    event = stage.last(K.ENGINE_LOCKED)
    assert (event.subject, event.text, event.by) == ("vllm", "0.33.0 (cpu): 1 file, 1 MiB", "root")
    stage.apply(CatalogLoaded(models={}, engines=(replace(VLLM, variant="rocm"),)))
    assert "not locked" in order(stage).problem and not order(stage).releases
    stage.apply(CatalogLoaded(models={}, engines=(replace(VLLM, variant="cuda"),)))
    assert [ref.variant for ref in order(stage).releases] == ["cuda"]
    after = wanting(replace(VLLM, version="0.34.0", mirror="http://mirror"), stored=stage.stored(), epoch=2)
    after.join(agent())
    assert [wish.version for wish in after.resolves] == ["0.34.0"]


def test_a_lock_ahead_of_its_wish_is_kept_for_it() -> None:
    stage = wanting(VLLM)
    stage.join(agent())
    effects = stage.apply(LockEngine(release=lock(version="0.34.0"), by="root"))
    assert SendDesired(NodeName("node01")) not in effects
    stage.apply(CatalogLoaded(models={}, engines=(replace(VLLM, version="0.34.0"),)))
    assert order(stage).releases


# --- whose turn it is -------------------------------------------------------------------------------------------


def test_so_many_download_at_once_by_name_and_the_next_when_one_is_past_it() -> None:
    agents = [agent(f"node0{number}") for number in range(1, 5)]
    stage = resolved(*agents, downloads=2)
    assert going(stage) == ["node01", "node02"]
    assert view(stage, "node03/llama.cpp/b10991").install.problem == "waits for its turn to download"
    assert view(stage).install.problem == "about to begin"
    stage.installs(agents[0], DOWNLOAD)
    stage.installs(agents[0], replace(DOWNLOAD, step=S.VERIFY))
    assert going(stage) == ["node01", "node02"]
    effects = stage.installs(agents[0], replace(DOWNLOAD, step=S.UNPACK, turn=False))
    assert [one.node for one in effects if isinstance(one, SendDesired)] == ["node01", "node03"]
    assert going(stage) == ["node02", "node03"]
    stage.leave(agents[1])
    assert going(stage) == ["node03", "node04"]
    stage.join(agents[1])
    assert going(stage) == ["node03", "node04"]
    stage.installs(agents[2], READY)
    assert going(stage) == ["node02", "node04"]


def test_one_that_failed_gives_its_turn_back_until_it_tries_again() -> None:
    one, two = agent("node01"), agent("node02")
    stage = resolved(one, two, downloads=1)
    failed = replace(DOWNLOAD, problem="HTTP 500", attempts=1, retry_at=stage.now + 100)
    stage.installs(one, failed)
    assert going(stage) == ["node02"]
    stage.installs(two, READY)
    assert going(stage) == []
    stage.later(101)
    assert going(stage) == ["node01"]


def test_one_that_is_ready_and_to_be_made_anew_has_its_turn_too() -> None:
    stage = resolved(agent(installs=(READY,), engines=REPORT))
    node = stage.agents["node01"]
    assert going(stage) == []
    stage.installs(node, replace(READY, turn=True, note="cuda 13.3 is to take its place"))
    assert going(stage) == ["node01"] and not stage.node("node01").installing
    anew = replace(READY, turn=True, subject="download cudart.tar.gz", total=Bytes(9))
    stage.installs(node, anew)
    assert going(stage) == ["node01"]
    stage.installs(node, replace(READY, turn=True, attempts=1, retry_at=stage.now + 30))
    assert going(stage) == []
    jump(stage, 31)
    assert going(stage) == ["node01"]
    stage.installs(node, replace(READY, variant="cuda 13.3"))
    assert going(stage) == [] and stage.last(K.ENGINE_INSTALLED).text == "llama.cpp b10991 (cuda 13.3) is proven"


def test_one_that_says_nothing_does_not_hold_it_for_ever_and_one_that_moves_keeps_it() -> None:
    one, two = agent("node01"), agent("node02")
    stage = resolved(one, two, downloads=1)
    stage.installs(one, DOWNLOAD)
    for megabytes in range(2, 5):
        jump(stage, 200)
        stage.installs(one, replace(DOWNLOAD, done=Bytes(megabytes * MIB)))
    assert going(stage) == ["node01"]
    jump(stage, 310)
    assert going(stage) == ["node02"]
    jump(stage, 310)
    assert going(stage) == ["node01"]


def test_who_downloads_already_goes_on_after_a_restart() -> None:
    before = resolved(downloads=1)
    stage = wanting(downloads=1, stored=before.stored(), epoch=2)
    stage.join(agent("node01"))
    stage.installs(stage.agents["node01"], INSTALL)
    stage.join(agent("node02", installs=(DOWNLOAD,)), agent("node03"))
    assert going(stage) == ["node01"]
    stage.leave(stage.agents["node01"])
    assert going(stage) == ["node02"]


def test_files_come_from_nodes_of_the_same_fabric_others_for_each() -> None:
    fabric = replace(inventory(), fabrics=(Fabric(name="ib-a"),))
    holders = [
        agent(
            f"node{n:02}", inventory=fabric, installs=(READY,), files_port=7444, engines=REPORT, address=f"10.0.0.{n}"
        )
        for n in range(1, 6)
    ]
    other = agent("other", inventory=replace(inventory(), fabrics=(Fabric(name="ib-b"),)))
    new = [agent(f"new{n:02}", inventory=fabric) for n in range(12)]
    stage = resolved(*holders, other, *new, downloads=50)
    assert order(stage, "other").holders == () and order(stage).holders == ()
    asked = {one.name: order(stage, one.name).holders for one in new}
    assert {len(found) for found in asked.values()} == {3}
    assert {one.node for found in asked.values() for one in found} == {one.name for one in holders}
    assert asked["new00"][0] == Holder(
        node=asked["new00"][0].node, host=f"10.0.0.{int(asked['new00'][0].node[4:])}", port=7444
    )
    gone = asked["new00"][0].node
    stage.leave(stage.agents[gone])
    assert gone not in [one.node for one in order(stage, "new00").holders] and len(order(stage, "new00").holders) == 3
    stage.installs(stage.agents[asked["new00"][1].node], replace(READY, problem="a library is gone"))
    assert asked["new00"][1].node not in [one.node for one in order(stage, "new00").holders]


# --- what operators ask -----------------------------------------------------------------------------------------


def test_an_operator_lets_a_node_try_again() -> None:
    stage = resolved(agent(), agent("node02", engines=BY_HAND))
    stage.installs(stage.agents["node01"], replace(DOWNLOAD, problem="HTTP 500", attempts=3, retry_at=stage.now + 900))
    effects = stage.apply(RetryEngine(node="node01", engine="llama.cpp", by="root"))
    event = stage.last(K.ENGINE_RETRIED)
    assert (event.subject, event.text, event.by, event.cause) == ("node01", "llama.cpp b10991", "root", 0)
    assert order(stage).asked == 1 and SendDesired(NodeName("node01")) in effects
    stage.installs(stage.agents["node01"], INSTALL)
    stage.installs(stage.agents["node01"], replace(DOWNLOAD, problem="HTTP 404", attempts=1))
    assert stage.causes(stage.last(K.ENGINE_FAILED)) == [K.ENGINE_FAILED, K.ENGINE_RETRIED]
    stage.apply(RetryEngine(node="node01", engine="", by="root"))
    assert order(stage).asked == 2


@pytest.mark.parametrize(
    ("node", "engine", "error", "words"),
    [
        ("node09", "llama.cpp", UnknownNode, "node 'node09' is unknown; nearest: node03, node02, node01"),
        ("node01", "vllm", EngineNotWanted, "vllm is not to be installed on node01: wanted there: llama.cpp"),
        ("node02", "llama.cpp", EngineNotWanted, "llama.cpp is .* node02: its agent.yaml names llama.cpp by hand"),
        ("node02", "", EngineNotWanted, "nothing is to be installed on node02: its agent.yaml names llama.cpp by hand"),
        ("node03", "", EngineNotWanted, "nothing .* node03: the node has not described itself yet"),
    ],
)
def test_what_cannot_be_tried_again_is_said_and_changes_nothing(
    node: str, engine: str, error: type[Exception], words: str
) -> None:
    stage = resolved(agent(), agent("node02", engines=BY_HAND), agent("node03", engines=None))
    before = len(stage.events)
    with pytest.raises(error, match=words):
        stage.apply(RetryEngine(node=node, engine=engine, by="root"))
    assert len(stage.events) == before and order(stage).asked == 0


def test_a_try_again_asks_for_files_at_once_that_were_not_found() -> None:
    stage = wanting()
    stage.join(agent())
    stage.apply(ReleaseNotFound(wish=WISH, problem="no answer", seconds=3_000))
    stage.apply(RetryEngine(node="node01", engine="", by="root"))
    assert stage.resolves == [WISH, WISH]


def test_a_try_again_asks_anew_for_files_that_were_wrong_when_they_were_found_out() -> None:
    stage = resolved(agent())
    (before,) = order(stage).releases
    stage.apply(RetryEngine(node="node01", engine="", by="root"))
    assert stage.resolves[-2:] == [WISH, WISH] and order(stage).releases == (before,)
    mended = replace(RELEASE, files=tuple(replace(file, url=f"{file.url}?mended") for file in RELEASE.files))
    stage.apply(ReleaseFound(wish=WISH, release=mended))
    assert order(stage).releases != (before,)


# --- what nodes say ---------------------------------------------------------------------------------------------


def test_causes_lead_from_what_is_placed_back_to_what_was_wanted() -> None:
    stage, node = Stage(model(replicas=1)), agent()
    stage.join(node)
    stage.later(SETTINGS.settle)
    stage.apply(CatalogLoaded(models={"gemma": model(replicas=1)}, engines=(WISH,)))  # type: ignore[dict-item]
    stage.later(1)
    stage.apply(ReleaseFound(wish=WISH, release=RELEASE))
    for said in (INSTALL, DOWNLOAD, replace(DOWNLOAD, step=S.UNPACK), replace(INSTALL, step=S.PROVE), READY):
        stage.later(1)
        stage.installs(node, said)
    stage.report(node, engines=REPORT)
    chain = [
        K.REPLICA_PLACED,
        K.NODE_QUALIFIES,
        K.ENGINES_CHANGED,
        K.ENGINE_INSTALLED,
        K.ENGINE_INSTALLING,
        K.RELEASE_RESOLVED,
        K.ENGINE_WANTED,
    ]
    assert stage.causes(stage.last(K.REPLICA_PLACED)) == chain
    assert stage.last(K.ENGINE_INSTALLED).subject == "node01/llama.cpp/b10991"
    assert stage.last(K.ENGINE_INSTALLED).text == "llama.cpp b10991 (cpu) is proven"


def test_that_an_engine_works_is_one_event_whichever_the_node_says_first() -> None:
    stage = resolved()
    node = stage.agents["node01"]
    stage.installs(node, replace(INSTALL, step=S.PROVE))
    stage.report(node, engines=REPORT)
    assert view(stage).install.step is S.READY
    stage.installs(node, READY)
    assert stage.kinds().count(K.ENGINE_INSTALLED) == 1
    assert stage.causes(stage.last(K.REPLICA_PLACED))[1:4] == [K.NODE_QUALIFIES, K.ENGINES_CHANGED, K.ENGINE_INSTALLED]


def test_one_that_breaks_and_is_repaired_says_so_and_is_no_install() -> None:
    stage = resolved(agent(installs=(READY,), engines=REPORT))
    node = stage.agents["node01"]
    broken = replace(READY, problem="libgomp.so.1 is gone", since=stage.now)
    stage.installs(node, broken)
    assert stage.causes(stage.last(K.ENGINE_BROKEN)) == [K.ENGINE_BROKEN]
    assert stage.last(K.ENGINE_BROKEN).text == "libgomp.so.1 is gone"
    stage.installs(node, replace(broken, turn=True))
    stage.installs(node, replace(broken, turn=True, total=Bytes(9), done=Bytes(3), subject="download x"))
    stage.installs(node, READY)
    assert stage.causes(stage.last(K.ENGINE_REPAIRED)) == [K.ENGINE_REPAIRED, K.ENGINE_BROKEN]
    stage.installs(node)
    assert stage.last(K.ENGINE_REMOVED).subject == "node01/llama.cpp/b10991"
    for kind, count in ((K.ENGINE_BROKEN, 1), (K.ENGINE_REPAIRED, 1), (K.ENGINE_INSTALLED, 0)):
        assert stage.kinds().count(kind) == count


def test_a_failure_is_one_event_for_each_reason() -> None:
    stage = resolved()
    node = stage.agents["node01"]
    for attempts, problem in enumerate(["HTTP 500", "HTTP 500", "HTTP 404", "HTTP 404"], 1):
        stage.installs(node, DOWNLOAD)
        stage.installs(node, replace(DOWNLOAD, problem=problem, attempts=attempts, retry_at=stage.now + 9))
    failures = [event.text for event in stage.events if event.kind is K.ENGINE_FAILED]
    assert failures == ["at download: HTTP 500", "at download: HTTP 404"]
    assert stage.kinds().count(K.ENGINE_INSTALLING) == 1


def test_a_node_that_says_what_it_likes_does_not_fill_the_history() -> None:
    stage = resolved()
    before = len(stage.events)
    for number in range(90):
        stage.installs(stage.agents["node01"], replace(DOWNLOAD, problem=f"reason {number}", attempts=1))
    assert len(stage.events) - before <= 40


def test_what_a_node_has_when_it_comes_is_no_news_and_what_it_did_while_away_is() -> None:
    stage = resolved(agent(installs=(replace(DOWNLOAD, problem="HTTP 500", attempts=1),)))
    node = stage.agents["node01"]
    assert not {K.ENGINE_FAILED, K.ENGINE_INSTALLING} & set(stage.kinds())
    stage.leave(node)
    node.installs, node.engines = (READY,), REPORT
    stage.join(node)
    assert stage.kinds().count(K.ENGINE_INSTALLED) == 1
    after = wanting(stored=stage.stored(), epoch=2)
    after.join(node)
    assert K.ENGINE_INSTALLED not in after.kinds()


# --- what is shown ----------------------------------------------------------------------------------------------


def test_bytes_alone_are_shown_of_the_engine_and_touch_nothing_else() -> None:
    stage = resolved()
    node = stage.agents["node01"]
    stage.installs(node, DOWNLOAD)
    further = replace(DOWNLOAD, done=Bytes(2 * MIB), rate=3e6, subject="another.tar.gz")
    assert stage.installs(node, further) == [Publish(Noun.ENGINES, "node01/llama.cpp/b10991")]
    assert view(stage).install == further
    assert stage.installs(node, further) == []
    touched = stage.installs(node, replace(further, step=S.UNPACK))
    assert Publish(Noun.NODES, "node01") in touched
    assert stage.node("node01").installing == ("llama.cpp b10991: unpack",)


def test_refusals_say_how_far_it_is_and_are_followed_by_what_is_placed() -> None:
    stage = resolved()
    node = stage.agents["node01"]
    assert str(stage.model().refusals[0]) == "installing llama.cpp b10991: about to begin"
    stage.installs(node, DOWNLOAD)
    stage.later(2)
    (refusal,) = stage.model().refusals
    assert isinstance(refusal, EngineInstalling) and refusal.step is S.DOWNLOAD
    assert refusal.text == f"downloading {FILE.name} (16 MiB), 6 %"
    stage.installs(node, replace(DOWNLOAD, done=Bytes(8 * MIB)))
    stage.later(2)
    assert "50 %" in str(stage.model().refusals[0])
    events = len(stage.events)
    stage.installs(node, replace(DOWNLOAD, problem="HTTP 500", attempts=1, retry_at=stage.now + 99))
    stage.later(2)
    assert isinstance(stage.model().refusals[0], EngineBroken)
    assert len(stage.events) == events + 2, "it failed, and the model has another reason"
    stage.installs(node, READY)
    stage.report(node, engines=REPORT)
    stage.obey()
    assert stage.model().state is ModelState.READY and not stage.node("node01").installing


def test_engines_are_shown_as_wanted_by_hand_and_as_a_node_that_left_said_last() -> None:
    old = replace(READY, version="b10434", used=True)
    stage = resolved(
        agent(installs=(old, DOWNLOAD), engines=replace(REPORT, engines=())), agent("node02", engines=BY_HAND)
    )
    assert stage.cluster.names(Noun.ENGINES) == [
        "node01/llama.cpp/b10434",
        "node01/llama.cpp/b10991",
        "node02/llama.cpp/b9",
    ]
    assert (view(stage, "node01/llama.cpp/b10434").wanted, view(stage).wanted) == (False, True)
    hand = view(stage, "node02/llama.cpp/b9")
    assert hand.by_hand and not hand.wanted and (hand.install.step, hand.install.path) == (S.READY, "/x")
    stage.leave(stage.agents["node01"])
    stage.later(SETTINGS.lost_after)
    assert stage.node("node01").state is NodeState.LOST and view(stage).install == DOWNLOAD
    stage.join(stage.agents["node01"])
    gone = Publish(Noun.ENGINES, "node01/llama.cpp/b10434")
    assert gone in stage.installs(stage.agents["node01"], DOWNLOAD)
    assert isinstance(stage.cluster.view(Noun.ENGINES, gone.name), Gone)


def test_words_of_an_ended_session_are_no_news() -> None:
    stage = resolved()
    late = AgentInstalls(session=99, node=NodeName("node01"), installs=Installs(installs=(READY,)))
    assert stage.apply(late) == []


def test_a_fork_shares_no_engine() -> None:
    stage = resolved(agent(), agent("node02"), downloads=1)
    before = {name: stage.cluster.view(Noun.ENGINES, name) for name in stage.cluster.names(Noun.ENGINES)}
    orders, wanted = stage.cluster.desired(NodeName("node02")).engines, stage.cluster.wanted_engines()
    fork = stage.cluster.fork()
    fork.apply(RetryEngine(node="node02", engine="", by="root"), stage.now)
    fork.apply(LockEngine(release=lock(), by="root"), stage.now)
    session = stage.agents["node01"].session or 0
    ready = AgentInstalls(session=session, node=NodeName("node01"), installs=Installs(installs=(READY,)))
    fork.apply(ready, stage.now)
    fork.apply(CatalogLoaded(models={}, engines=(VLLM,)), stage.now)
    fork.check()
    stage.cluster.check()
    assert before == {name: stage.cluster.view(Noun.ENGINES, name) for name in stage.cluster.names(Noun.ENGINES)}
    assert stage.cluster.desired(NodeName("node02")).engines == orders and stage.cluster.wanted_engines() == wanted
    assert stage.cluster.release(release_id(lock())) is None and fork.release(release_id(lock())) == lock()


# --- laws -------------------------------------------------------------------------------------------------------

NODES = ["node01", "node02", "node03", "node04"]
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["leave", "join", "next", "next", "next", "fail", "break", "later", "want", "found", "lost"]),
        st.sampled_from(NODES),
        st.integers(0, 400),
    ),
    max_size=30,
)
NEXT = {S.RESOLVE: DOWNLOAD, S.DOWNLOAD: replace(DOWNLOAD, step=S.VERIFY), S.VERIFY: replace(INSTALL, step=S.UNPACK)}


@settings(max_examples=25, deadline=None)
@given(ACTS)
def test_laws_hold_whatever_happens_and_all_have_it_in_the_end(acts: list[tuple[str, str, int]]) -> None:
    """The invariants are asserted after each input; and when all is calm, every node gets its turn and is done."""
    stage, agents = wanting(downloads=2), {name: agent(name) for name in NODES}
    for act, name, number in acts:
        done(stage, agents[name], act, number)
    stage.join(*(one for one in agents.values() if one.session is None))
    stage.apply(CatalogLoaded(models={}, engines=(WISH,)))
    stage.apply(ReleaseFound(wish=WISH, release=RELEASE))
    for _ in range(6 * len(NODES)):
        jump(stage, 61)
        for one in agents.values():
            if order(stage, one.name).go or said(one).step not in (S.RESOLVE, S.DOWNLOAD):
                step(stage, one)
    assert all(said(one).step is S.READY and not said(one).problem for one in agents.values())
    assert going(stage) == []


def done(stage: Stage, one: Agent, act: str, number: int) -> None:
    match act:
        case "leave" if one.session is not None:
            stage.leave(one)
        case "join" if one.session is None:
            stage.join(one)
        case "next" if one.session is not None:
            step(stage, one)
        case "fail" if one.session is not None:
            stage.installs(one, replace(said(one), problem=f"no. {number % 3}", retry_at=stage.now + 60, turn=True))
        case "break" if one.session is not None and said(one).step is S.READY:
            stage.installs(one, replace(READY, problem="gone", turn=True))
        case "later":
            jump(stage, number)
        case "want":
            stage.apply(CatalogLoaded(models={}, engines=(WISH, VLLM)[: number % 3]))
        case "found":
            stage.apply(ReleaseFound(wish=WISH, release=RELEASE))
        case "lost":
            stage.apply(ReleaseNotFound(wish=WISH, problem=f"no. {number % 2}"))


def said(one: Agent) -> Install:
    return one.installs[0] if one.installs else INSTALL


def step(stage: Stage, one: Agent) -> None:
    """It gets one step further; what failed begins again."""
    before = said(one)
    if before.problem:
        stage.installs(one, DOWNLOAD)
    else:
        stage.installs(one, NEXT.get(before.step, READY))
