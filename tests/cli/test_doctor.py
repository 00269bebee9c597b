"""`llmgw doctor` as a command: its lines, its object, its exit status."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from llmgw.cli import doctor
from llmgw.cli.examine import clock, host, report, subjects
from llmgw.core.checks import Check, Examined, Result, fault, ok, warning, worst
from llmgw.core.identity import Role
from llmgw.pki import authority


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """A client.yaml in order, of a cluster whose socket is not there."""
    path = tmp_path / "client.yaml"
    path.write_text(f"socket: {tmp_path}/llmgwd.sock\n")
    return path


SOME = [
    Examined(
        subject="agent: /etc/llmgw/agent.yaml",
        checks=(
            ok("certificate", "it is for node05"),
            warning("clock", "it is 4 s behind", "set up NTP"),
            fault("engine", "evil\x1b[2J\nline \x9b31m", "mend \u202eit"),
        ),
    ),
    Examined(subject="host: node05", checks=(ok("memory", "64 GiB"),)),
]


def test_people_get_a_line_a_check_and_what_to_do_below_it():
    assert list(report.lines(SOME[:1], colour=False, ascii_only=True))[:4] == [
        "agent: /etc/llmgw/agent.yaml",
        "  ok      certificate it is for node05",
        "  warning clock       it is 4 s behind",
        "                      -> set up NTP",
    ]


def test_the_last_line_sums_up():
    assert list(report.lines(SOME, colour=False, ascii_only=False))[-1] == "1 fault, 1 warning, 2 ok"
    assert report.summary([ok("a", "b")]) == "1 ok"


def test_no_text_of_others_reaches_the_terminal_as_it_came():
    text = "\n".join(report.lines(SOME, colour=False, ascii_only=False))
    assert "\x1b" not in text and "\x9b" not in text and "\u202e" not in text and "␛[2J⏎line" in text


def test_colour_is_on_the_result_alone():
    lines = list(report.lines(SOME, colour=True, ascii_only=False))
    assert lines[2] == "  \x1b[33mwarning \x1b[0mclock       it is 4 s behind"
    assert all(line.count("\x1b") in (0, 2) for line in lines)


def test_the_object_has_every_check_with_its_subject():
    said = json.loads(report.shape(SOME, "node05", 1_800_000_000.0))
    assert {key: said[key] for key in ("at", "host", "result")} == {
        "at": "2027-01-15T08:00:00Z", "host": "node05", "result": "fault"
    }  # fmt: skip
    assert said["checks"][1] == {
        "subject": "agent: /etc/llmgw/agent.yaml",
        "name": "clock",
        "result": "warning",
        "fact": "it is 4 s behind",
        "fix": "set up NTP",
    }
    assert len(said["checks"]) == 4
    assert "\x1b" not in report.shape(SOME, "node05", 0.0)


def test_the_worst_of_nothing_is_ok():
    assert worst([]) is Result.OK


@pytest.mark.parametrize(
    ("check", "status"), [(ok("a", "b"), 0), (warning("a", "b", "c"), 1), (fault("a", "b", "c"), 2)]
)
def test_the_exit_status_is_the_worst_result(
    check: Check, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def examine(files: list[Path], seconds: float, more: object) -> list[Examined]:
        return [Examined(subject="x", checks=(ok("a", "b"), check))]

    monkeypatch.setattr(host, "examine", examine)
    assert doctor.main([]) == doctor.main(["--json"]) == status
    assert capsys.readouterr().err == ""


def test_a_file_that_is_named_is_looked_at(client: Path, capsys: pytest.CaptureFixture[str]):
    assert doctor.main([str(client), "--json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert {one["subject"].partition(":")[0] for one in said["checks"]} == {"client", "host"}
    (control,) = [one for one in said["checks"] if one["name"] == "control plane"]
    assert control["result"] == "fault" and "no such file or directory" in control["fact"]


def test_a_file_that_is_not_there_is_not_to_be_corrected_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert doctor.main([str(tmp_path / "agent.yaml")]) == 2
    assert "no such file or directory\n" in (said := capsys.readouterr().out)
    assert "→ name a file that is there; deploy/ has an example of each" in said


def test_a_laptop_is_looked_at_as_ctl_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    authority.init(tmp_path / "pki", "lab")
    authority.issue(tmp_path / "pki", "operator", Role.OPERATOR, [], tmp_path / "operator")
    assert doctor.main(["--server", "127.0.0.1:1", "--tls", str(tmp_path / "operator"), "--json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert {one["subject"] for one in said["checks"]} == {
        f"client: 127.0.0.1:1 by {tmp_path}/operator", f"host: {said['host']}"
    }  # fmt: skip
    assert [one["fact"] for one in said["checks"] if one["result"] == "fault"] == ["127.0.0.1:1: connection refused"]
    assert not [one for one in said["checks"] if one["name"] == "disk"]


def test_what_keeps_root_is_told_beside_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    context = tmp_path / "home" / ".config" / "llmgw" / "lab.yaml"
    context.parent.mkdir(parents=True)
    context.write_text(f"socket: {tmp_path}/llmgwd.sock\n")
    monkeypatch.setattr(subjects, "shut", lambda etc: True)
    monkeypatch.setattr(sys, "argv", ["/opt/llmgw/bin/llmgw", "doctor", "--timeout", "1 s"])
    assert doctor.main([]) == 2
    said = capsys.readouterr().out
    assert f"client: {context}" in said and "/etc/llmgw cannot be looked into by" in said
    assert "→ run as root: sudo /opt/llmgw/bin/llmgw doctor --timeout '1 s'" in said


def test_an_operators_certificate_is_judged_by_its_role(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    authority.init(tmp_path / "pki", "lab")
    issued = authority.issue(tmp_path / "pki", "node01", Role.AGENT, [], tmp_path)
    tls = {"certificate": str(issued.certificate), "key": str(issued.key), "authority": str(issued.authority)}
    path = tmp_path / "lab.yaml"
    path.write_text(yaml.safe_dump({"server": ["127.0.0.1:1"], "tls": tls}))
    assert doctor.main([str(path)]) == 2
    assert "is for the role agent, not operator or viewer" in capsys.readouterr().out


async def test_a_host_without_files_says_how_to_name_one_and_tells_what_it_is(tmp_path: Path):
    (told,) = await host.examine([], 1.0, etc=tmp_path / "etc")
    names = [one.name for one in told.checks]
    assert names[0] == "configuration" and told.checks[0].fix.endswith(" doctor FILE")
    assert " doctor --server HOST --tls DIR" in told.checks[0].fix
    assert {"machine", "processor", "memory", "clock"} <= set(names)
    assert "disk" not in names, "a laptop has none of an agent's directories"


async def test_a_file_on_storage_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A share whose server is dead cannot be had here."""

    async def hang(subject: object, seconds: float) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(host, "_look", hang)
    monkeypatch.setattr(host, "_LEAST", 0.05)
    told, _ = await host.examine([tmp_path / "agent.yaml"], 0.01)
    assert [one.result for one in told.checks] == [Result.FAULT]
    assert "does not answer" in told.checks[0].fact


async def test_the_clock_is_told_once_for_the_host(client: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clock, "by_kernel", lambda: True)
    told = await host.examine([client, client], 1.0)
    assert [one.name for examined in told for one in examined.checks].count("clock") == 1


@pytest.mark.parametrize("words", [["--timeout", "0"], ["--timeout", "soon"], ["--timeout", "2m"], ["--nope"]])
def test_a_mistake_is_one_line_and_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        doctor.main(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_help_says_the_exit_statuses_and_loads_nothing_heavy():
    code = (
        "import sys\nfrom llmgw.cli.main import main\nmain(['doctor', '--help'])\n"
        "print({'pydantic', 'cryptography', 'grpclib', 'sqlalchemy', 'psutil'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "  1   there are warnings, and no faults" in said and said.endswith("set()\n")


def test_a_plain_locale_does_not_end_it(client: Path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    argv = [sys.executable, "-m", "llmgw.cli.main", "doctor", str(client)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (2, "")
