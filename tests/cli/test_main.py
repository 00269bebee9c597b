"""The `llmgw` command: which sub-command is meant, and what becomes of its errors."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from llmgw import __version__
from llmgw.cli import demo
from llmgw.cli import main as cli
from llmgw.core.errors import ClusterCannot, ControlUnreachable, Rejected


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A sub-command `x` whose `main` a test may set."""
    module = ModuleType("llmgw_test_command")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(cli, "COMMANDS", (cli.Command("x", module.__name__, ""),))
    return module


def raising(error: BaseException):
    def main(argv: list[str]) -> int:
        raise error

    return main


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"], ["help"]])
def test_help_names_every_command_and_every_exit_status(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {one.name} " in out for one in cli.COMMANDS)
    assert all(f"\n  {status} " in out for status in (0, 2, 3, 4, 70))


@pytest.mark.parametrize("word", ["nope", "--nope", "--demo", "", "--debug"])
def test_an_unknown_command_is_one_line_and_exit_2(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word, "x"]) == 2
    assert capsys.readouterr().err.endswith("is not a command; see: llmgw --help\n")


def test_a_command_gets_its_own_arguments_and_its_status_is_ours(command: ModuleType) -> None:
    given = []
    command.main = lambda argv: given.append(argv) or 7
    assert cli.main(["x", "a", "--debug"]) == 7
    assert given == [["a", "--debug"]]


@pytest.mark.parametrize(
    ("error", "status"),
    [(Rejected("this"), 2), (ControlUnreachable("cp:1", "refused"), 3), (ClusterCannot("this"), 4)],
)
def test_an_error_of_ours_is_its_line_and_its_exit_status(
    command: ModuleType, error: Exception, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main = raising(error)
    assert cli.main(["x"]) == status
    assert capsys.readouterr().err == f"llmgw: {error}\n"


def test_errors_of_several_tasks_are_one_line_too(command: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """A task group wraps what its tasks raise."""
    command.main = raising(ExceptionGroup("tasks", [ClusterCannot("this"), ClusterCannot("that")]))
    assert cli.main(["x"]) == 4
    assert capsys.readouterr().err == "llmgw: this\n"


def test_what_a_peer_said_in_an_error_cannot_steer_the_terminal(
    command: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main = raising(Rejected("it said \x1b[2J"))
    assert cli.main(["x"]) == 2
    assert capsys.readouterr().err.removesuffix("\n").isprintable()


def test_a_fault_is_one_line_with_the_traceback_in_a_private_file(
    command: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main = raising(KeyError("a\nb"))
    assert cli.main(["x"]) == 70
    log = tmp_path / "state" / "llmgw" / "fault.log"
    assert capsys.readouterr().err == f"llmgw: a fault of llmgw: KeyError: 'a\\nb'; the traceback is in {log}\n"
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_fault_is_told_also_where_nothing_can_be_written(
    command: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").write_text("in the way")
    command.main = raising(KeyError("x"))
    assert cli.main(["x"]) == 70
    assert capsys.readouterr().err == "llmgw: a fault of llmgw: KeyError: 'x'; --debug shows the traceback\n"


def test_debug_shows_the_traceback(command: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    command.main = raising(KeyError("x"))
    assert cli.main(["--debug", "x"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_is_130(command: ModuleType) -> None:
    command.main = raising(KeyboardInterrupt())
    assert cli.main(["x"]) == 130


def test_a_reader_that_leaves_is_no_fault() -> None:
    """As in `llmgw --help | head -1`: nothing but the first line may be seen, no complaint."""
    code = "import sys; from llmgw.cli.main import main; sys.exit(main(['version']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(10) == 0


def test_the_version_is_told_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"llmgw {__version__} (Python 3.")
    assert cli.main(["--version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == __version__


def test_a_command_costs_only_its_own_imports() -> None:
    """`ctl` must start fast, so nothing of the console, the daemons or the models is loaded on its way."""
    code = "import sys, llmgw.cli.main; print({'textual', 'pydantic', 'yaml', 'grpclib', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["demo", "console", "ctl", "pki", "version"])
def test_every_command_has_help_with_its_exit_codes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert "exit status:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["console", "--context", "a/b"], "--context 'a/b' must be the name of a file"),
        (
            ["console", "--dir", "none"],
            "is there a demo? start one with `llmgw demo --dir none`",
        ),
        (["console", "--dir", "x", "--server", "cp"], "name different clusters"),
        (["console", "--server", "cp"], "name the directory that holds one with --tls DIR"),
        (["demo"], "the console needs a terminal"),
        (["demo", "--headless", "--model", "/none.gguf"], "/none.gguf: cannot be read: no such file or directory"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(argv) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["demo", "--nodes", "0"], "--nodes must be from 1 to 20"),
        (["demo", "--json"], "--json goes with --headless or --check"),
        (["demo", "--headless", "--check"], "not allowed with"),
        (["pki"], "required: ACT"),
        (["pki", "issue", "x", "--role", "boss"], "invalid choice: 'boss'"),
    ],
)
def test_a_mistyped_call_is_one_line_and_exit_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_control_plane_without_an_address_is_warned_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is a good certificate all the same, so it is no error; a client needs none of that."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["pki", "init", "pki", "--cluster", "lab"]) == 0
    assert cli.main(["pki", "issue", "cp1", "--role", "control"]) == 0
    assert "cp1 can be dialled by that name only" in capsys.readouterr().err
    assert cli.main(["pki", "issue", "cp2", "--role", "control", "--address", "10.0.0.2"]) == 0
    assert cli.main(["pki", "issue", "ada", "--role", "operator"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [["version"], ["--help"], ["ctl", "--help"]])
def test_a_full_disk_is_no_fault_of_ours(words: list[str]) -> None:
    code = ("-c", "import sys; from llmgw.cli.main import main; sys.exit(main())", *words)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, *code], stdout=full, stderr=subprocess.PIPE, env=buffered)
    assert (done.returncode, done.stderr.count(b"\n")) == (74, 1)


def test_demo_check_that_fails_early_says_why_in_its_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["demo", "--check", "--model", "/none.gguf", "--dir", str(tmp_path)]) == 2
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["ok"] is False and found["error"] == "/none.gguf: cannot be read: no such file or directory"
    assert found["error"] in said.err


def test_what_the_demo_says_to_type_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make demo` runs it by its path; without .venv/bin on PATH its bare name would not be found."""
    monkeypatch.setattr(sys, "argv", ["/src/.venv/bin/llmgw", "demo"])
    monkeypatch.setattr(demo.shutil, "which", lambda _: None)
    assert demo._llmgw() == "/src/.venv/bin/llmgw"
    monkeypatch.setattr(demo.shutil, "which", lambda _: "/usr/bin/llmgw")
    assert demo._llmgw() == "llmgw"


def test_pki_makes_an_authority_and_issues(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["pki", "init", "pki", "--cluster", "lab"]) == 0
    assert "keep it offline" in capsys.readouterr().out
    issue = [
        "pki",
        "issue",
        "cp1",
        "--role",
        "control",
        "--address",
        "10.0.0.1",
        "--address",
        "cp1.lab",
        "--out",
        "tls",
    ]
    assert cli.main([*issue, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["cluster"], said["role"], said["name"]) == ("lab", "control", "cp1")
    assert (said["certificate"], said["key"], said["authority"]) == ("tls/cp1.crt", "tls/cp1.key", "tls/authority.crt")
    assert Path(said["key"]).stat().st_mode & 0o777 == 0o600
    assert cli.main(issue) == 2
    assert capsys.readouterr().err == "llmgw: tls/cp1.crt: exists already; move it away, or choose another place\n"
    assert cli.main(["pki", "init", "pki", "--cluster", "lab"]) == 2
