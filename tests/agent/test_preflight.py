"""What an agent can tell before it runs, one thing at a time."""

import socket
from pathlib import Path

import pytest

from llmgw.agent import preflight
from llmgw.agent.discovery.root import Root
from llmgw.config.agent import Launcher, Ports
from llmgw.core.checks import Result
from llmgw.core.identity import Identity, Role
from llmgw.core.units import GIB


def test_the_certificate_is_for_this_node_or_not():
    who = Identity("demo", Role.AGENT, "node01")
    assert preflight.named(who, "node01", Path("/etc/llmgw/x")).result is Result.OK
    other = preflight.named(who, "node02", Path("/etc/llmgw/x"))
    assert other.result is Result.FAULT
    assert other.fix == (
        "on the machine with the authority (pki/): llmgw pki issue node02 --role agent --out node02; copy its files "
        "over those in /etc/llmgw/x; restart llmgw-agent; or, only if the node is meant to have another name than its "
        "host, set node: node01"
    )


def test_a_certificate_for_this_host_leaves_the_hosts_name_to_the_node():
    host = socket.gethostname().lower()
    other = preflight.named(Identity("demo", Role.AGENT, host), "node02", Path("/etc/llmgw/x"))
    assert other.fix.startswith(f"take node: out of agent.yaml, since this host is {host}; or on the machine with")


async def test_an_engine_runs_or_says_why_not(engine: Path):
    good, bad = await preflight.engines({"llama.cpp": engine, "vllm": Path("/bin/true")})
    assert good.result is Result.OK and good.fact.endswith(f" at {engine} runs")
    assert bad.result is Result.FAULT and "does not know how to run vllm" in bad.fact and bad.fix


def test_ports_outside_of_the_kernels_are_ok(monkeypatch: pytest.MonkeyPatch):
    """The range of the machine that runs the test may be any."""
    monkeypatch.setattr(preflight, "ephemeral", lambda: range(32768, 61000))
    assert preflight.ports(Ports(21000, 21999)).result is Result.OK
    check = preflight.ports(Ports(32000, 33000))
    assert check.result is Result.WARNING
    assert "engine_ports 32000-33000 overlaps the ports 32768-60999" in check.fact
    assert check.fix == "choose a range outside, such as 21000-21999"


def test_more_memory_than_there_is_is_a_fault(tmp_path: Path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
    root = Root.recorded(tmp_path)
    assert preflight.memory_stated(None, root) == [] and preflight.memory_stated(8 * GIB, root) == []
    (check,) = preflight.memory_stated(9 * GIB, root)
    assert check.result is Result.FAULT and check.fact == "memory: 9 GiB is more than this machine's 8 GiB"
    (check,) = preflight.memory_stated(9 * GIB, Root.recorded(tmp_path / "nothing"))
    assert check.result is Result.WARNING and "cannot be told" in check.fact


@pytest.mark.parametrize(
    ("chosen", "has", "result", "words"),
    [
        (Launcher.SYSTEMD, False, Result.FAULT, "launcher: systemd does not run this machine"),
        (Launcher.SYSTEMD, True, Result.OK, "by systemd"),
        (Launcher.AUTO, True, Result.OK, "by systemd"),
        (Launcher.AUTO, False, Result.OK, "by session"),
        (Launcher.SESSION, True, Result.OK, "by session"),
    ],
)
def test_the_launcher_is_there_or_not(chosen: Launcher, has: bool, result: Result, words: str):
    check = preflight.launcher(chosen, has=has)
    assert check.result is result and words in check.fact
