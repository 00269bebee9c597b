"""A watch becomes one whole value, for ctl, the console and the demo alike."""

from dataclasses import replace

from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.fold import Fold
from llmgw.core.presence import NodeState
from llmgw.core.views import EngineView, Gone, Item, ModelState, Noun, Page
from tests import worlds

A, B, C = (worlds.node(name) for name in ("node01", "node02", "node03"))
GEMMA = worlds.model("gemma", ModelState.READY, 1, 1, aliases=("gemma-270m",))
ONE = worlds.replica("gemma", 0, "node01")


def snapshot(*items: Item, first: bool = True, complete: bool = True) -> Page:
    return Page(revision=worlds.REVISION, now=1.0, snapshot=True, first=first, complete=complete, items=items)


def change(*items: Item, seq: int = 48214) -> Page:
    return Page(revision=replace(worlds.REVISION, seq=seq), now=2.0, items=items)


def held() -> Fold:
    fold = Fold()
    fold.take(snapshot(A, B, GEMMA, ONE))
    return fold


def test_it_is_whole_only_with_the_last_page_of_the_snapshot() -> None:
    fold = Fold()
    assert fold.take(snapshot(A, complete=False)) is None and not fold.whole
    assert fold.take(snapshot(B, first=False)) == frozenset(Noun)
    assert fold.whole and set(fold.nodes) == {"node01", "node02"}


def test_what_was_known_stays_to_be_read_until_the_next_snapshot_is_whole() -> None:
    fold = held()
    assert fold.take(snapshot(C, complete=False)) is None
    assert set(fold.nodes) == {"node01", "node02"} and fold.models and fold.now == 1.0
    fold.take(snapshot(first=False))
    assert set(fold.nodes) == {"node03"} and not fold.models and not fold.replicas


def test_a_snapshot_that_begins_again_drops_what_had_come_of_the_first() -> None:
    fold = Fold()
    fold.take(snapshot(A, complete=False))
    fold.take(snapshot(B))
    assert set(fold.nodes) == {"node02"}


def test_a_change_says_of_which_nouns_it_is() -> None:
    fold = held()
    away = worlds.node("node01", NodeState.UNREACHABLE)
    assert fold.take(change(away, Gone(noun=Noun.NODES, name="node02"))) == {Noun.NODES}
    assert fold.nodes == {"node01": away} and fold.revision.seq == 48214 and fold.now == 2.0
    gone = (Gone(noun=Noun.MODELS, name="gemma"), Gone(noun=Noun.REPLICAS, name="gemma/0"))
    gone_too = Gone(noun=Noun.ENGINES, name="node01/llama.cpp/b10991"), Gone(noun=Noun.NODES, name="never-was")
    assert fold.take(change(*gone, *gone_too)) == set(Noun) - {Noun.EVENTS}
    assert not fold.models and not fold.replicas and set(fold.nodes) == {"node01"}
    assert fold.take(change()) == frozenset()


def test_a_change_between_the_pages_of_a_snapshot_is_not_lost() -> None:
    fold = Fold()
    fold.take(snapshot(A, B, complete=False))
    assert fold.take(change(Gone(noun=Noun.NODES, name="node02"))) is None
    fold.take(snapshot(C, first=False))
    assert set(fold.nodes) == {"node01", "node03"}


def test_news_are_the_events_of_the_last_step() -> None:
    fold, (first, second, *_) = Fold(), worlds.STORY
    fold.take(snapshot(first, complete=False))
    fold.take(snapshot(second, first=False))
    assert fold.news == (first, second)
    fold.take(change(A))
    assert fold.news == ()
    assert fold.take(change(first)) == {Noun.EVENTS} and fold.news == (first,)


def test_an_engine_is_known_by_node_name_and_version() -> None:
    install = Install(engine="llama.cpp", version="b10991", step=InstallStep.DOWNLOAD, since=1.0)
    older, on_other = replace(install, version="b10434"), EngineView(node=B.name, install=install)
    fold = held()
    assert fold.take(change(EngineView(node=A.name, install=install), EngineView(node=A.name, install=older))) == {
        Noun.ENGINES
    }
    fold.take(change(on_other))
    assert [view.install.version for view in fold.engines_of(A.name)] == ["b10434", "b10991"]
    fold.take(change(Gone(noun=Noun.ENGINES, name="node01/llama.cpp/b10434")))
    assert [view.install for view in fold.engines_of(A.name)] == [install]
    assert fold.engines["node02/llama.cpp/b10991"] == on_other
    fold.take(snapshot(A))
    assert not fold.engines


def test_replicas_come_by_their_number_and_a_model_by_its_alias() -> None:
    fold = Fold()
    many = [worlds.replica("gemma", ordinal, "node01") for ordinal in (10, 2, 1)]
    fold.take(snapshot(*many, worlds.replica("gemma.x", 0, "node01"), GEMMA))
    assert [one.id for one in fold.replicas_of(GEMMA.name)] == ["gemma/1", "gemma/2", "gemma/10"]
    assert fold.model("gemma-270m") == GEMMA == fold.model("gemma") and fold.model("other") is None
    assert fold.unlisted() == ["gemma.x"]
