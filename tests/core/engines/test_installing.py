"""What is installed next, when it is tried again, and what may go."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.engines import installing
from llmgw.core.engines.installing import Made, Plan, Target, Trial
from llmgw.core.engines.orders import EngineOrder, ReleaseFile, ReleaseRef
from llmgw.core.engines.terms import EngineKind, InstallStep
from llmgw.core.units import Bytes

NOW = 1_000_000.0


def order(version: str = "b2", **more) -> EngineOrder:
    about = {"engine": "llama.cpp", "kind": EngineKind.ARCHIVE, "releases": (ReleaseRef(id="r" + version),), **more}
    return EngineOrder(version=version, **about)


def target(version: str = "b2", variant: str = "cpu", digest: str = "d", **more) -> Target:
    file = ReleaseFile(name="a.tar.gz", size=Bytes(7), digest=digest + version + variant)
    about = {"engine": "llama.cpp", "kind": EngineKind.ARCHIVE, "release": "r" + version, "files": (file,), **more}
    return Target(version=version, variant=variant, **about)


def made(version: str = "b2", variant: str = "cpu", at: float = NOW, name: str = "", **more) -> Made:
    of = target(version, variant)
    about = {"engine": of.engine, "release": of.release, "digests": of.digests, "program": "tree/x", **more}
    return Made(version=version, variant=variant, at=at, name=name or f"{version}-{variant}", **about)


def plan(version: str = "b2", **more) -> Plan:
    about = {"order": order(version), "target": target(version), **more}
    return Plan(**about)


# --- what is next -----------------------------------------------------------------------------------------------


def test_an_order_is_for_now_unless_something_stands_in_its_way():
    assert installing.due([plan()], {}, NOW) == plan()
    assert installing.due([plan(target=None)], {}, NOW) is not None, "its release is asked for"
    for closed in (
        plan(whole=True),
        plan(problem="no build for s390x"),
        plan(order=order(problem="rate limit")),
        plan(order=order(releases=())),
        plan(order=order(go=False)),
    ):
        assert installing.due([closed], {}, NOW) is None
        assert installing.next_due([closed], {}) is None


def test_files_that_are_here_need_no_turn():
    waiting = plan(order=order(go=False))
    assert installing.due([waiting, replace(waiting, held=True)], {}, NOW) == replace(waiting, held=True)


def failing(plan: Plan, times: int, **more) -> Trial:
    trial: Trial | None = None
    for _ in range(times):
        trial = installing.failed(trial, plan, InstallStep.DOWNLOAD, "cut off", since=NOW - 5, now=NOW, **more)
    assert trial is not None
    return trial


@pytest.mark.parametrize(
    ("times", "more", "wait"),
    [
        (1, {}, 10),
        (2, {}, 20),
        (4, {}, 80),
        (7, {}, 600),
        (500, {}, 600),
        (1, {"full": True}, 60),
        (6, {"full": True}, 60),
        (1, {"asked_for": 90.0}, 90),
        (6, {"asked_for": 1.0}, 10),
        (1, {"asked_for": 1e9}, 3600),
    ],
)
def test_a_failure_waits_longer_each_time_or_as_long_as_it_was_asked_to(times: int, more: dict, wait: float):
    trial = failing(plan(), times, **more)
    assert (trial.attempts, trial.retry_at - NOW) == (times, wait)
    trials = {"llama.cpp": trial}
    assert installing.due([plan()], trials, NOW + wait - 0.1) is None
    assert installing.next_due([plan()], trials) == NOW + wait
    assert installing.due([plan()], trials, NOW + wait) == plan()


def test_a_failing_engine_does_not_hold_up_another():
    other = Plan(order=order(engine="vllm", kind=EngineKind.PYTHON), target=target(engine="vllm"))
    assert installing.due([plan(), other], {"llama.cpp": failing(plan(), 3)}, NOW) == other


@pytest.mark.parametrize(
    "changed",
    [
        plan("b3"),
        plan(order=order(asked=1)),
        plan(order=order(mirror="http://mirror/")),
        plan(order=order(releases=(ReleaseRef(id="other"),))),
        plan(target=target(variant="cuda 13.3")),
        plan(target=target(digest="pinned")),
    ],
)
def test_what_was_changed_about_a_failure_is_tried_at_once_and_counts_anew(changed: Plan):
    trials = {"llama.cpp": failing(plan(), 5)}
    assert installing.due([changed], trials, NOW) == changed
    again = installing.failed(trials["llama.cpp"], changed, InstallStep.PROVE, "x", since=NOW, now=NOW)
    assert again.attempts == 1


def test_a_turn_that_comes_or_goes_is_no_change():
    waiting = replace(plan(), order=order(go=False))
    assert installing.due([plan()], {"llama.cpp": failing(waiting, 1)}, NOW) is None


def test_an_attempt_goes_on_while_it_is_meant():
    assert installing.still_meant(plan(), [plan(order=order(go=False)), plan("b3")])
    assert installing.still_meant(plan(target=None), [plan()]), "it was resolved"
    for other in (plan("b3"), plan(target=target(variant="cuda 13.3")), plan(order=order(asked=1))):
        assert not installing.still_meant(plan(), [other])
    assert not installing.still_meant(plan(), [])


# --- what may go ------------------------------------------------------------------------------------------------


def names(gone: tuple[Made, ...]) -> set[str]:
    return {one.name for one in gone}


def surplus(there: list[Made], plans: list[Plan], **more) -> set[str]:
    about = {"broken": (), "in_use": (), "versions": (), "settled": True, **more}
    return names(installing.surplus(there, plans, **about))


OLD = [made(f"b{number}", at=NOW + number) for number in range(1, 6)]


def test_what_is_wanted_and_one_to_go_back_to_are_kept():
    assert surplus(OLD, [plan("b5", whole=True)]) == {"b1-cpu", "b2-cpu", "b3-cpu"}
    assert surplus(OLD, [plan("b2", whole=True)]) == {"b1-cpu", "b3-cpu", "b4-cpu"}, "also after a step back"


def test_what_shards_run_with_or_are_told_to_is_kept():
    gone = surplus(OLD, [plan("b5", whole=True)], in_use={"b1-cpu"}, versions={("llama.cpp", "b2"), ("vllm", "b3")})
    assert gone == {"b3-cpu"}


def test_nothing_goes_before_what_is_wanted_is_there():
    assert surplus(OLD, [plan("b9")]) == set()
    assert surplus(OLD, [plan("b9", target=None)]) == set()
    assert surplus(OLD, [plan("b5", problem="the driver does not answer")]) == set()


def test_what_is_wanted_no_more_goes_when_a_settled_leader_says_so():
    assert surplus(OLD, [], settled=False) == set()
    assert surplus(OLD, []) == {"b1-cpu", "b2-cpu", "b3-cpu", "b4-cpu"}


def test_a_broken_one_goes_when_another_took_its_place():
    repaired = [made("b1", at=NOW - 9), made("b2", at=NOW), made("b2", at=NOW - 5, name="b2-cpu-2")]
    gone = surplus(repaired, [plan("b2", whole=True)], broken={"b2-cpu"})
    assert gone == {"b2-cpu"}, "whatever the clock said"
    assert surplus(repaired, [plan("b2", whole=True)], broken={"b2-cpu"}, in_use={"b2-cpu"}) == set()


def test_another_variant_of_the_wanted_version_is_something_to_go_back_to():
    there = [made("b1", at=NOW - 9), made("b2"), made("b2", "cuda 13.3", at=NOW + 1)]
    wanted = Plan(order=order(), target=target(variant="cuda 13.3"), whole=True)
    assert surplus(there, [wanted]) == {"b1-cpu"}


there = st.lists(
    st.builds(
        made,
        version=st.sampled_from(["b1", "b2", "b3"]),
        variant=st.sampled_from(["cpu", "cuda 13.3"]),
        at=st.floats(0, 9),
        name=st.uuids().map(str),
    ),
    max_size=8,
)


@given(there, st.data())
def test_whatever_is_there_what_is_wanted_and_what_runs_stays(found: list[Made], data: st.DataObject):
    used = data.draw(st.sets(st.sampled_from([one.name for one in found]))) if found else set()
    broken = data.draw(st.sets(st.sampled_from([one.name for one in found]))) if found else set()
    whole = any(target().is_met_by(one) and one.name not in broken for one in found)
    wanted = [plan(whole=whole)] if data.draw(st.booleans()) else []
    kept = [
        one for one in found if one.name not in surplus(found, wanted, in_use=used, broken=broken, settled=not wanted)
    ]
    assert used <= {one.name for one in kept}
    assert bool(kept) == bool(found)
    if whole and wanted:
        assert any(target().is_met_by(one) and one.name not in broken for one in kept)
        assert len([one for one in kept if one.name not in used]) <= 2
