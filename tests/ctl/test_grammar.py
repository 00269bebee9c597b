"""What can be typed, and what a mistake is told."""

from pathlib import Path

import pytest

from llmgw.ctl.grammar import VERBS, Asked, Form, parse, parser


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        parse(argv)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("llmgw: ") and said.count("\n") == 1 and "--help" in said
    return said


@pytest.mark.parametrize(
    "argv",
    [
        ["--dir", "d", "--server", "a", "--json", "nodes", "--server", "b:1"],
        ["nodes", "--json", "--server", "a", "--server", "b:1", "--dir", "d"],
        ["--server", "a", "--server", "b:1", "nodes", "--dir=d", "-o", "json"],
    ],
)
def test_common_options_stand_before_or_after_the_verb(argv: list[str]) -> None:
    assert parse(argv) == Asked(verb="nodes", directory=Path("d"), servers=("a", "b:1"), form=Form.JSON)


def test_the_form_after_the_verb_wins() -> None:
    assert parse(["-o", "wide", "nodes", "-o", "name"]).form is Form.NAME
    assert parse(["-o", "wide", "nodes"]).form is Form.WIDE


@pytest.mark.parametrize(
    ("argv", "seconds"),
    [
        (["scale", "gemma", "3"], None),
        (["scale", "--wait", "gemma", "3"], 600.0),
        (["scale", "gemma", "3", "--wait=90s"], 90.0),
        (["scale", "--wait=500ms", "gemma", "3"], 0.5),
    ],
)
def test_a_bare_wait_never_swallows_the_model(argv: list[str], seconds: float | None) -> None:
    asked = parse(argv)
    assert (asked.model, asked.replicas, asked.wait) == ("gemma", 3, seconds)


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        ([], "VERB"),
        (["nod"], "'nod'"),
        (["node"], "NODE"),
        (["nodes", "--jso"], "--jso"),
        (["nodes", "-o", "csv"], "csv"),
        (["scale", "gemma"], "N"),
        (["scale", "gemma", "-1"], "-1"),
        (["scale", "gemma", "10001"], "10000"),
        (["scale", "gemma", "٣"], "number"),
        (["scale", "gemma", "3", "--wait=soon"], "60s"),
        (["scale", "gemma", "3", "--watch"], "--watch"),
        (["events", "--watch"], "--watch"),
        (["events", "--last", "1000000"], "100000"),
        (["why"], "MODEL"),
        (["scale", "gemma", "3", "--wait", "5s"], "write --wait=5s"),
        (["scale", "--wait", "5s", "gemma", "3"], "write --wait=5s"),
        (["--bogus"], "--bogus"),
        (["--json", "--bogus"], "--bogus"),
        (["nodes", "more"], "more; see: llmgw ctl nodes --help"),
        (["nodes", "--json", "-o", "yaml"], "different forms"),
        (["-oyaml", "nodes", "--json"], "different forms"),
        (["status", "-o", "wide"], "nothing more"),
        (["events", "--last", "0"], "from 1 to"),
        (["engine", "lock", "vllm"], "vllm==0.33.0"),
        (["engine", "lock", "vllm==1", "vllm==2"], "vllm==2"),
        (["engine", "lock", "vllm=0.33.0"], "vllm==0.33.0"),
        (["engine", "lock", "vllm==0.33.0", "-o", "wide"], "nothing more"),
        (["engine", "retry"], "NODE"),
        (["engine", "retry", "node01", "--wait", "5s"], "write --wait=5s"),
        (["engine", "retr"], "'retr'"),
        (["engine", "--bogus"], "--bogus"),
        (["engines", "retry"], "retry; see: llmgw ctl engines --help"),
    ],
)
def test_a_mistake_is_told_in_one_line(argv: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word in refused(argv, capsys)


@pytest.mark.parametrize("verb", [[], ["engine"], *(verb.name.split() for verb in VERBS)])
def test_help_shows_an_example_and_every_exit_status(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse([*verb, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "llmgw ctl" in text and "example" in text
    assert all(f"\n  {status} " in text for status in (0, 2, 3, 4, 70, 74))


def test_every_verb_is_in_the_grammar_and_its_example_parses() -> None:
    for verb in VERBS:
        assert parse(verb.example.split()).verb == verb.name
    assert parser().prog == "llmgw ctl"


@pytest.mark.parametrize("argv", [["engine"], ["engine", "--json"]])
def test_the_first_of_two_words_alone_shows_which_come_second(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(argv)
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (2, "") and "  retry" in said.err and "  lock" in said.err


def test_options_stand_before_between_and_behind_two_words() -> None:
    argv = ["--server", "a", "engine", "--server", "b", "retry", "node01", "vllm", "--server", "c", "--wait"]
    found = Asked(verb="engine retry", servers=("a", "b", "c"), node="node01", engine="vllm", wait=600.0)
    assert parse(argv) == found


def test_what_is_said_of_a_lock_is_kept_and_nothing_else() -> None:
    asked = parse(["engine", "lock", "vllm==0.33.0", "--arch", "x86_64", "--arch", "aarch64", "--variant", "cuda"])
    assert asked.spec == ("vllm", "0.33.0")
    assert asked.lock == {"arches": ("x86_64", "aarch64"), "variant": "cuda"}
