"""What a node says of its installs."""

from dataclasses import replace

from llmgw.core.engines import installed, installing
from llmgw.core.engines.installed import Progress, Seen
from llmgw.core.engines.installing import Plan
from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.units import Bytes
from tests.core.engines.test_installing import NOW, made, order, plan, target

AT = Progress(step=InstallStep.UNPACK, since=NOW + 1, subject="a.tar.gz", done=Bytes(3), total=Bytes(7), rate=2.0)


def seen(version: str = "b2", problem: str = "", **more) -> Seen:
    return Seen(made=made(version, **more), path=f"/x/{version}", problem=problem, since=NOW, checked_at=NOW)


def installs(there=(), plans=(), attempt=None, trials=None, used=()) -> tuple[Install, ...]:
    return installed.installs(there, plans, attempt, trials or {}, used)


def test_what_is_on_its_way_says_its_step_and_bytes():
    (install,) = installs(plans=[plan(since=NOW)], attempt=(plan(since=NOW), AT))
    assert install == Install(
        engine="llama.cpp",
        version="b2",
        variant="cpu",
        step=InstallStep.UNPACK,
        since=NOW + 1,
        subject="a.tar.gz",
        done=Bytes(3),
        total=Bytes(7),
        rate=2.0,
    )


def test_what_waits_for_its_turn_is_resolved_and_has_no_problem():
    (install,) = installs(plans=[plan(order=order(go=False), since=NOW)])
    assert (install.step, install.problem, install.since, install.variant) == (InstallStep.RESOLVE, "", NOW, "cpu")


def test_what_has_files_to_come_needs_a_turn_and_what_has_them_does_not():
    waiting = plan(order=order(go=False))
    at = {step: Progress(step=step, since=NOW) for step in InstallStep}
    for there, wanted, attempt, turn in (
        ((), waiting, None, True),
        ((), replace(waiting, held=True), None, False),
        ((), plan(target=None), None, False),
        ((), plan(problem="no build"), None, False),
        ((), plan(), (plan(), at[InstallStep.DOWNLOAD]), True),
        ((), plan(), (plan(), at[InstallStep.PROVE]), False),
        ((seen(),), plan(whole=True), None, False),
        ((seen(problem="x is missing"),), plan(), None, True),
        ((seen(),), plan(target=target(variant="cuda 13.3")), None, True),
    ):
        (install,) = installs(there, [wanted], attempt)
        assert install.turn is turn, (wanted, attempt)


def test_what_failed_stays_at_its_step_with_the_reason():
    trial = installing.failed(None, plan(), InstallStep.VERIFY, "wrong digest", since=NOW, now=NOW + 2)
    (install,) = installs(plans=[plan()], trials={"llama.cpp": trial})
    assert (install.step, install.problem, install.attempts) == (InstallStep.VERIFY, "wrong digest", 1)
    assert (install.since, install.retry_at) == (NOW, NOW + 12)
    (again,) = installs(plans=[plan()], trials={"llama.cpp": trial}, attempt=(plan(), AT))
    assert (again.step, again.problem, again.attempts, again.retry_at) == (InstallStep.UNPACK, "", 1, None)


def test_what_the_node_can_have_no_build_of_says_so():
    (install,) = installs(plans=[Plan(order=order(), problem="no build for s390x")])
    assert (install.step, install.problem) == (InstallStep.RESOLVE, "no build for s390x")


def test_an_order_without_a_release_is_the_control_planes_to_tell():
    assert installs(plans=[plan(target=None, order=order(releases=(), problem="404"))]) == ()


def test_a_new_version_is_told_beside_the_old_one():
    old, new = installs([seen("b1")], [plan("b2")], (plan("b2"), AT), used={("llama.cpp", "b1")})
    assert (old.version, old.step, old.path, old.used) == ("b1", InstallStep.READY, "/x/b1", True)
    assert (new.version, new.step, new.used) == ("b2", InstallStep.UNPACK, False)


def test_a_broken_one_stays_ready_with_its_problem_while_it_is_repaired():
    (install,) = installs([seen(problem="libgomp.so.1 is missing")], [plan()], (plan(), AT))
    assert (install.step, install.problem) == (InstallStep.READY, "libgomp.so.1 is missing")
    assert (install.subject, install.done, install.total) == ("unpack a.tar.gz", 3, 7)


def test_a_repair_that_failed_is_told_with_what_is_broken():
    trial = installing.failed(None, plan(), InstallStep.LIBRARIES, "no root", since=NOW, now=NOW)
    (install,) = installs([seen(problem="x is missing")], [plan()], trials={"llama.cpp": trial})
    assert install.problem == "x is missing; it could not be repaired: no root"
    assert (install.attempts, install.retry_at) == (1, NOW + 10)


def test_a_build_for_a_new_driver_is_a_note_of_the_one_that_serves():
    wanted = plan(target=target(variant="cuda 13.3"))
    (install,) = installs([seen()], [wanted])
    assert (install.problem, install.variant, install.note) == ("", "cpu", "cuda 13.3 is to take its place")
    trial = installing.failed(None, wanted, InstallStep.PROVE, "no device", since=NOW, now=NOW)
    (install,) = installs([seen()], [wanted], trials={"llama.cpp": trial})
    assert (install.problem, install.note) == ("", "cuda 13.3 could not be installed: no device")


def test_of_several_of_one_version_a_whole_one_is_shown_then_the_wanted_then_the_newest():
    cpu, cuda = seen(at=NOW + 9), seen(variant="cuda 13.3", at=NOW)
    wanted = [plan(target=target(variant="cuda 13.3"))]
    assert installed.shown([cpu, cuda], []) == (cpu,)
    assert installed.shown([cpu, cuda], wanted) == (cuda,)
    broken = replace(cuda, problem="x")
    assert installed.shown([broken, cpu], wanted) == (cpu,)
    assert installed.shown([seen("b3"), cpu], wanted) == (cpu, seen("b3"))


def test_it_needs_its_turn_until_all_files_are_there_also_when_it_is_ready_and_to_be_made_anew():
    def turns(one: Plan, *there: Seen, step: InstallStep | None = None) -> list[bool]:
        attempt = None if step is None else (one, replace(AT, step=step))
        return [install.turn for install in installs(there, [one], attempt)]

    assert turns(plan()) == turns(plan(), step=InstallStep.DOWNLOAD) == turns(plan(), step=InstallStep.VERIFY) == [True]
    assert turns(plan(), step=InstallStep.UNPACK) == turns(plan(held=True)) == turns(plan(target=None)) == [False]
    assert turns(plan(), seen(problem="a library is gone")) == [True]
    assert turns(plan(whole=True), seen()) == [False]
