"""Every verb against a served cluster: what it answers, in which form, and how it ends."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from llmgw.core.facts import Engines
from llmgw.core.shard import ShardState
from llmgw.core.views import Gone, ModelState, Noun, Page
from llmgw.ctl.grammar import parse
from llmgw.ctl.run import carry_out
from tests.ctl.conftest import Run
from tests.ctl.fixture import MODELS, NODES, NOW, REPLICAS, Operators, change, model, replica


async def answered(ctl: Run, *argv: str) -> dict[str, object]:
    said = await ctl(*argv, "--json")
    assert (said.status, said.err) == (0, "")
    found = json.loads(said.out)
    assert list(found)[:2] == ["revision", "at"]
    assert (found["revision"], found["at"]) == ("3.48", "2027-01-15T08:00:00.000Z")
    return found  # type: ignore[no-any-return]


async def test_nodes_as_json(ctl: Run) -> None:
    nodes = (await answered(ctl, "nodes"))["nodes"]
    first, silent, lost = nodes  # type: ignore[misc]
    assert set(first) >= {"name", "state", "flags", "warnings", "engines", "fabrics", "memory", "gpus"}
    assert first["warnings"] == [{"code": "exposed", "text": "engines listen openly", "fix": "exposure: loopback"}]
    assert first["memory"] == {
        "total": 5 << 30,
        "usable": 4 << 30,
        "promised": 600 << 20,
        "available": 3 << 30,
        "limit": None,
    }
    assert (silent["engines"], silent["engines_probed_at"], silent["memory"]["total"]) == ([], None, None)
    assert [gpu["name"] for gpu in lost["gpus"]] == ["H100", "H100"] and lost["state"] == "lost"


async def test_models_as_json_hold_their_replicas_and_shards(ctl: Run) -> None:
    models = (await answered(ctl, "models"))["models"]
    gemma = models[0]  # type: ignore[index]
    assert set(gemma) >= {"name", "state", "wanted", "ready", "replicas"}
    assert (gemma["name"], gemma["state"], gemma["wanted"], gemma["ready"]) == ("gemma", "degraded", 3, 1)
    assert [one["id"] for one in gemma["replicas"]] == ["gemma/0", "gemma/1"]
    shard = gemma["replicas"][0]["shards"][0]
    assert {key: shard[key] for key in ("node", "rank", "state", "pid", "port")} == {
        "node": "node01", "rank": 0, "state": "ready", "pid": 4242, "port": 21000,
    }  # fmt: skip
    assert gemma["replicas"][1]["shards"][0]["failure"]["exit_status"] == 1


async def test_a_model_that_left_the_catalog_shows_while_it_has_replicas(ctl: Run, operators: Operators) -> None:
    operators.models = MODELS[1:]
    gemma = (await answered(ctl, "models"))["models"][0]  # type: ignore[index]
    assert (gemma["name"], gemma["state"], gemma["wanted"], gemma["ready"]) == ("gemma", "unlisted", 0, 1)
    assert set(gemma) == set((await answered(ctl, "models"))["models"][1])  # type: ignore[index]
    for form in ([], ["-o", "wide"]):
        line = (await ctl("models", *form)).out.splitlines()[1]
        assert line.split()[:2] == ["gemma", "unlisted"] and line.endswith(
            "its replicas are still there; llmgw ctl scale gemma 0 ends them"
        )
    assert (await ctl("models", "-o", "name")).out == "gemma\ntiny\n"


async def test_why_as_json_holds_the_numbers_that_the_text_was_made_of(ctl: Run) -> None:
    why = await answered(ctl, "why", "gemma-270m")
    assert set(why) >= {"model", "wanted", "placed", "refusals"} and why["model"] == "gemma"
    assert why["counts"] == {"never": 1, "not now": 2}
    full = why["refusals"][0]  # type: ignore[index]
    assert full == {
        "node": "node01",
        "code": "not_enough_memory",
        "verdict": "not now",
        "numbers": {
            "need": 600 << 20,
            "free": 200 << 20,
            "total": 4 << 30,
            "more": 0,
            "by_hand": False,
            "limited": False,
        },
        "text": "memory: needs 600 MiB, 200 MiB of 4 GiB free",
        "clears": "400 MiB is freed",
    }


async def test_status_and_events_as_json(ctl: Run) -> None:
    status = await answered(ctl, "status")
    assert status["nodes"] == {"ready": 2, "unreachable": 0, "lost": 1}
    assert status["replicas"] == {"ready": 2, "away": 0, "wanted": 4}
    assert status["warnings"] == [
        {"node": "node01", "code": "exposed", "text": "engines listen openly", "fix": "exposure: loopback"}
    ]
    events = (await answered(ctl, "events"))["events"]
    assert [(one["seq"], one["cause"]) for one in events] == [(40, 0), (41, 40)]  # type: ignore[attr-defined]
    assert set(events[0]) >= {"seq", "at", "kind", "subject", "text", "cause"}  # type: ignore[index]


async def test_yaml_holds_what_json_holds(ctl: Run) -> None:
    for words in (["nodes"], ["node", "node01"], ["models"], ["why", "gemma"], ["events"]):
        assert yaml.safe_load((await ctl(*words, "-o", "yaml")).out) == await answered(ctl, *words)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["nodes"], "node01 node02 node03"),
        (["node", "node01"], "node01"),
        (["models"], "gemma tiny"),
        (["events"], "40 41"),
        (["why", "gemma"], "node01 node03 node02"),
        (["status"], "demo"),
        (["scale", "gemma", "2"], "gemma"),
    ],
)
async def test_names_come_one_a_line(words: list[str], names: str, ctl: Run) -> None:
    assert (await ctl(*words, "-o", "name")).out.split("\n")[:-1] == names.split()


async def test_a_snapshot_in_many_pages_is_one_answer(ctl: Run, operators: Operators) -> None:
    whole = (await ctl("nodes")).out
    operators.one_by_one = True
    assert (await ctl("nodes")).out == whole


async def test_status_says_that_it_settles_and_what_is_exposed(ctl: Run) -> None:
    assert (await ctl("status")).out.splitlines() == [
        "cluster   demo: llmgwd 0.1.0, up 1h00m, revision 3.48",
        "nodes     2 ready, 1 lost",
        "models    1 ready, 1 degraded",
        "replicas  2 of 4 ready",
        "settling  it waits for nodes to come back before it moves anything",
        "warning   engines listen with exposure: direct, in plain HTTP with a key each",
        "warning   node01: engines listen openly; exposure: loopback",
    ]


async def test_last_bounds_the_events(ctl: Run) -> None:
    said = await ctl("events", "--last", "1")
    assert [line.split()[0] for line in said.out.splitlines()] == ["SEQ", "41"]


@pytest.mark.parametrize("words", [["why", "qwen"], ["scale", "qwen", "2"]])
async def test_an_unknown_model_is_the_callers_fault(words: list[str], ctl: Run) -> None:
    said = await ctl(*words)
    assert (said.status, said.out) == (2, "")
    assert said.err == "llmgw: model 'qwen' is unknown; known: gemma, tiny\n"


# --- one node ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("node0", "nearest: node03, node02, node01"),
        ("Node 03", "nearest: node03"),
        ("x\x1b[2J", "known: node01, node02, node03"),
    ],
)
async def test_an_unknown_node_is_answered_with_the_nearest_names(name: str, told: str, ctl: Run) -> None:
    said = await ctl("node", name)
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    assert told in said.err and "\x1b" not in said.err


async def test_an_unknown_node_of_an_empty_cluster(ctl: Run, operators: Operators) -> None:
    operators.nodes = ()
    assert (await ctl("node", "node01")).err == "llmgw: node 'node01' is unknown; none has joined yet\n"


async def test_a_node_that_is_known_from_before_says_what_is_not_known(ctl: Run) -> None:
    lines = (await ctl("node", "node02")).out.splitlines()
    assert lines[0] == "node02" and "engines  never probed" in lines
    assert "  ! machine  known from before; its agent has not come back yet" in lines


async def test_a_node_is_watched_until_that_is_stopped(ctl: Run, operators: Operators) -> None:
    """A probe that came is news; that the same one is older is none."""
    operators.stop_after, operators.engines = 3, ()
    probe = replace(NODES[1], engines=Engines(probed_at=NOW, engines=()))
    for seq, one in ((50, NODES[1]), (51, probe), (52, probe)):
        operators.then.put_nowait(change(one, seq=seq))
    said = await ctl("node", "node02", "--watch")
    engines = [line for line in said.out.splitlines() if line.startswith("engines")]
    assert engines == ["engines  never probed", "engines  none, probed 1s ago"]


# --- scale ------------------------------------------------------------------------------------------------------


async def test_scale_returns_when_it_is_accepted(ctl: Run, operators: Operators) -> None:
    said = await ctl("scale", "gemma", "2")
    assert (said.status, said.out, said.err) == (0, "event 49: gemma: 3 → 2 replicas\n", "")
    assert operators.scaled == [("gemma", 2)]


def scaled(ready: int, *replicas: object, wanted: int = 2, seq: int = 50, **more: object) -> Page:
    state = ModelState.READY if ready == wanted else ModelState.STARTING
    return change(model("gemma", state, wanted, ready, aliases=("gemma-270m",), **more), *replicas, seq=seq)  # type: ignore[arg-type]


async def test_waiting_ends_when_the_replicas_are_ready(ctl: Run, operators: Operators) -> None:
    operators.then.put_nowait(scaled(1, seq=49))
    operators.then.put_nowait(scaled(2, replica("gemma", 1, "node02")))
    said = await ctl("scale", "gemma-270m", "2", "--wait=20s", "--json")
    found = json.loads(said.out)
    assert (said.status, found["ready"], found["event"]["seq"]) == (0, 2, 49)
    assert 0 <= found["waited"] < 20 and "waiting at most 20s" in said.err


async def test_no_wait_at_all_still_looks_once(ctl: Run, operators: Operators) -> None:
    """What is so already is done, and what is not is said at once."""
    operators.models = (model("gemma", ModelState.READY, 1, 1),)
    operators.replicas, operators.at = (REPLICAS[0],), 49
    assert (await ctl("scale", "gemma", "1", "--wait=0s")).status == 0
    operators.models = (model("gemma", ModelState.STARTING, 2, 1),)
    async with asyncio.timeout(2):
        said = await ctl("scale", "gemma", "2", "--wait=0s")
    assert said.status == 4 and "1 of 2 ready" in said.err


async def test_a_watch_that_is_no_terminal_is_told_only_what_is_new(
    ctl: Run, operators: Operators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat that changes nothing that is shown writes nothing; each table stands under its time."""
    operators.stop_after = 3
    for seq, ready in ((50, 2), (51, 2), (52, 3)):
        operators.then.put_nowait(change(model("gemma", ModelState.DEGRADED, 3, ready, refusals=()), seq=seq))
    said = await ctl("models", "--watch")
    assert [line.split()[2] for line in said.out.splitlines() if line.startswith("gemma")] == ["1/3", "2/3", "3/3"]
    assert sum(line.startswith("# 20") for line in said.out.splitlines()) == 3


async def test_a_full_disk_is_told_in_a_line_and_is_no_fault_of_ours(directory: Path) -> None:
    with open("/dev/full", "w") as full:  # noqa: ASYNC230 # a device: it does not block
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "llmgw.cli.main", "ctl", "nodes", "--dir", str(directory)),
            stdout=full,
            stderr=asyncio.subprocess.PIPE,
        )
        _, words = await process.communicate()
    assert process.returncode == 74
    assert words == b"llmgw: stdout: the answer could not be written: no space left on device\n"


async def test_a_replica_that_still_leaves_is_waited_for(ctl: Run, operators: Operators) -> None:
    """Two are ready while a third is being drained: the cluster is not yet as it was asked to be."""
    operators.then.put_nowait(scaled(2, replica("gemma", 1, "node02", leaving=True)))
    said = await ctl("scale", "gemma", "2", "--wait=200ms")
    assert said.status == 4 and "gemma/1 still leaving" in said.err


async def test_what_waits_on_a_lost_node_is_said_and_not_waited_for(ctl: Run, operators: Operators) -> None:
    """It goes when the node comes back, which may be never."""
    operators.then.put_nowait(scaled(1, replica("gemma", 2, "node03", leaving=True), wanted=1, refusals=()))
    operators.then.put_nowait(scaled(1, Gone(noun=Noun.REPLICAS, name="gemma/1"), wanted=1, seq=51))
    said = await ctl("scale", "gemma", "1", "--wait=20s")
    assert (said.status, said.out.splitlines()[1:]) == (
        0,
        ["gemma/2 may still run on node03, which is lost; it is dealt with when the node comes back"],
    )


async def test_what_waits_on_a_lost_node_is_in_the_object(ctl: Run, operators: Operators) -> None:
    operators.models, operators.replicas = (model("gemma", ModelState.STOPPED, 0, 0),), (replica("gemma", 2, "node03"),)
    operators.then.put_nowait(change(model("gemma", ModelState.STOPPED, 0, 0)))
    found = json.loads((await ctl("scale", "gemma", "0", "--wait=20s", "--json")).out)
    assert found["away"] == [{"replica": "gemma/2", "nodes": ["node03"]}]


async def test_what_is_left_of_a_model_that_left_the_catalog_can_be_waited_for(ctl: Run, operators: Operators) -> None:
    """Scaling it to 0 is how an operator ends it; there is no model then to count what is ready."""
    operators.then.put_nowait(change(Gone(noun=Noun.MODELS, name="gemma"), Gone(noun=Noun.REPLICAS, name="gemma/0")))
    operators.then.put_nowait(change(Gone(noun=Noun.REPLICAS, name="gemma/1"), seq=51))
    said = await ctl("scale", "gemma", "0", "--wait=20s")
    assert (said.status, said.out.splitlines()) == (0, ["event 49: gemma: 3 → 0 replicas: 0 ready after 0s"])


async def test_a_replica_that_is_left_on_a_node_that_is_there_is_waited_for(ctl: Run, operators: Operators) -> None:
    """Also one that does not leave yet: what was asked for is that many, and no more."""
    operators.then.put_nowait(scaled(1, replica("gemma", 1, "node01", ShardState.STARTING), wanted=1))
    said = await ctl("scale", "gemma", "1", "--wait=200ms")
    assert said.status == 4 and "1 of 1 ready; gemma/1 starting" in said.err


async def test_what_was_so_before_the_act_does_not_count(ctl: Run, operators: Operators) -> None:
    """The snapshot's revision is older than the act's: its counts are of the time before."""
    operators.models = (model("gemma", ModelState.READY, 1, 1),)
    operators.replicas = (REPLICAS[0],)
    said = await ctl("scale", "gemma", "1", "--wait=200ms")
    assert said.status == 4 and "did not say" in said.err


async def test_a_deadline_that_passes_says_what_is_missing_and_why(ctl: Run, operators: Operators) -> None:
    operators.then.put_nowait(scaled(1, refusals=MODELS[0].refusals))
    said = await ctl("scale", "gemma", "2", "--wait=300ms")
    assert (said.status, said.out) == (4, "")
    assert said.err.splitlines()[-1] == (
        "llmgw: gemma after 0s: 1 of 2 ready; gemma/1 failed on node02: ended by itself with exit status 1; no "
        "node takes one more: node01: memory: needs 600 MiB, 200 MiB of 4 GiB free (and 2 more nodes); it stays "
        "wanted; see: llmgw ctl why gemma"
    )


async def test_waiting_ends_when_somebody_else_scales_it(ctl: Run, operators: Operators) -> None:
    operators.then.put_nowait(scaled(1, wanted=5))
    said = await ctl("scale", "gemma", "2", "--wait")
    assert said.status == 4 and "another scaled it meanwhile to 5 replicas, not 2" in said.err


# --- where ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--dir", "a", "--context", "b"], 2, "--dir and --context name different clusters"),
        (["--tls", "a"], 2, "--tls goes with --server"),
        (["--context", "../x"], 2, "must be the name of a file"),
        (["--server", "host:99999"], 2, "HOST:PORT"),
        (["--dir", "/nowhere"], 2, "is there a demo? start one with `llmgw demo --dir /nowhere`"),
        ([], 3, "/run/llmgw/llmgwd.sock: there is no such socket"),
    ],
)
async def test_a_place_that_is_none_is_told(
    words: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await carry_out(parse(["nodes", *words])) == status
    said = capsys.readouterr()
    assert text in said.err and said.err.count("\n") == 1 and said.out == ""


async def test_a_control_plane_that_is_gone_is_unreachable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "client.yaml").write_text("socket: gone.sock\n")
    assert await carry_out(parse(["nodes", "--dir", str(tmp_path)])) == 3
    assert "gone.sock" in capsys.readouterr().err
