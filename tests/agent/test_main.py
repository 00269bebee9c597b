"""What the command line says before anything is started."""

import subprocess
import sys
from pathlib import Path

import pytest

from llmgw.agent import main as main_module
from llmgw.agent import preflight
from llmgw.core.identity import Role


def config(tmp_path: Path, files, **more: str) -> Path:
    text = f"control: [127.0.0.1:1]\ntls: {{certificate: {files.certificate}, key: {files.key}, "
    text += f"authority: {files.authority}}}\nnode: node01\nstate: state\n"
    path = tmp_path / "agent.yaml"
    path.write_text(text + "".join(f"{key}: {value}\n" for key, value in more.items()))
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main_module.main(arguments)
    out = capsys.readouterr()
    return status, out.out + out.err


def test_a_good_configuration_is_good_and_starts_nothing(tmp_path: Path, tls, capsys):
    path = config(tmp_path, tls("node01"))
    assert said(capsys, "--config", str(path), "--check") == (0, f"{path}: good: node node01 of cluster demo\n")
    assert not (tmp_path / "state").exists()


def test_check_names_all_that_would_keep_the_node_from_being_of_use(tmp_path: Path, tls, capsys):
    """Each of these starts, and then serves nothing."""
    more = {
        "engines": "{llama.cpp: /nonexistent/llama-server, vllm: /bin/true}",
        "memory": "900TiB",
        "engine_ports": "30000-60999",
    }
    path = config(tmp_path, tls("node02"), **more)
    status, text = said(capsys, "--config", str(path), "--check")
    assert status == 2
    assert all(line.startswith(f"{path}: ") for line in text.splitlines())
    for words in ("certificate is for node02, the node is node01", "/nonexistent/llama-server", "vllm", "900 TiB"):
        assert words in text
    assert "30000-60999" in text
    assert len(text.splitlines()) == 5


def test_a_warning_keeps_no_agent_from_starting(tmp_path: Path, tls, capsys, monkeypatch: pytest.MonkeyPatch):
    """It starts, and leases ports around the kernel's own while there are any."""
    monkeypatch.setattr(preflight, "ephemeral", lambda: range(32768, 61000))
    path = config(tmp_path, tls("node01"), engine_ports="32000-33000")
    assert said(capsys, "--config", str(path), "--check") == (
        0,
        f"{path}: good: node node01 of cluster demo\n{path}: engine_ports 32000-33000 overlaps the ports 32768-60999 "
        "that the kernel takes for outgoing connections: an engine may find its port in use; choose a range outside, "
        "such as 21000-21999\n",
    )


def test_an_unknown_key_is_one_line_with_file_and_line(tmp_path: Path, tls, capsys):
    path = config(tmp_path, tls("node01"), enginez="{}")
    status, text = said(capsys, "--config", str(path), "--check")
    assert (status, text.count("\n")) == (2, 1)
    assert f"{path}:5: enginez" in text


def test_a_missing_file_is_one_line(tmp_path: Path, capsys):
    status, text = said(capsys, "--config", str(tmp_path / "no.yaml"))
    assert (status, text.count("\n")) == (2, 1)
    assert "no.yaml" in text


def test_a_certificate_of_another_role_is_refused(tmp_path: Path, tls, capsys):
    path = config(tmp_path, tls("router", Role.ROUTER))
    status, text = said(capsys, "--config", str(path))
    assert status == 2
    assert "must be a certificate of the role agent (llmgw pki issue node01 --role agent), not router router" in text


def test_a_key_that_others_may_read_is_refused(tmp_path: Path, tls, capsys):
    files = tls("node07")
    files.key.chmod(0o644)
    status, text = said(capsys, "--config", str(config(tmp_path, files)))
    assert status == 2
    assert "chmod 600" in text


def test_a_state_that_cannot_be_made_is_one_line(tmp_path: Path, tls, capsys):
    (tmp_path / "state").write_text("a file")
    status, text = said(capsys, "--config", str(config(tmp_path, tls("node01"))))
    assert (status, text.count("\n")) == (2, 1)
    assert f"state {tmp_path}/state cannot be used: file exists; set `state:`" in text


def test_a_fault_of_ours_ends_it_with_70_and_its_trace(monkeypatch: pytest.MonkeyPatch, capsys):
    """1 is what Python gives a program that says nothing of how it ends."""

    def boom(_: Path) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(main_module, "load_agent", boom)
    status, text = said(capsys, "--config", "x")
    assert status == 70
    assert "RuntimeError: boom" in text


def test_the_agent_starts_without_what_it_does_not_need():
    """A node's agent shares the machine with engines: its memory counts."""
    code = (
        "import sys, llmgw.agent.serve\n"
        "print([m for m in ('textual', 'sqlalchemy', 'aiohttp', 'cryptography', 'httptools') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "[]\n"
