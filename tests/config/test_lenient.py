"""All that is wrong in a file, and what is right in it all the same."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.config.address import Address
from llmgw.config.agent import AgentConfig, Ports
from llmgw.config.checked import checked
from llmgw.config.lenient import Lenient, lenient
from llmgw.config.models import ClientFile
from llmgw.config.server import ServerConfig
from llmgw.config.tls import TlsFiles
from llmgw.core.errors import BadConfig
from tests.config.test_load import AGENT, SERVER

AGENT_KEYS = sorted(AgentConfig.model_fields)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "it.yaml"


def told(path: Path, found: Lenient) -> list[str]:
    return [str(fault).removeprefix(f"{path}:") for fault in found.faults]


def test_a_file_that_is_right_says_what_a_program_would_read(path: Path) -> None:
    path.write_text(SERVER)
    found, config = lenient(path, ServerConfig), checked(path, ServerConfig)
    assert found.faults == ()
    assert found.values == {key: getattr(config, key) for key in ServerConfig.model_fields}


def test_every_fault_is_told_and_the_rest_is_kept(path: Path) -> None:
    path.write_text(
        "control: [10.0.0.1:7443, nope, 10.0.0.2:7443]\n"
        "tls:\n  certificate: a.crt\n  key: a.key\n  authority: authority.crt\n  extra: 1\n"
        "enginez: {}\n"
        "engines: {llama.cpp: /opt/llama-server, BAD NAME: /x}\n"
        "engine_ports: 5\n"
        "memory: lots\n"
        "node: node01\n"
    )
    found = lenient(path, AgentConfig)
    assert told(path, found) == [
        "1: control.1: must be HOST:PORT (an IPv6 address in brackets), not 'nope'",
        "6: tls.extra: unknown key; known: certificate, key, authority",
        "7: enginez: unknown key; did you mean engines?",
        "8: engines.BAD NAME: must be [a-z0-9][a-z0-9._-]{0,62}, not 'BAD NAME'",
        "9: engine_ports: must be a range of ports such as 21000-21999, not '5'",
        "10: memory: must be a size such as 600MiB or 5GiB, not 'lots'",
    ]
    assert found.get("control") == (Address("10.0.0.1", 7443), Address("10.0.0.2", 7443))
    assert found.get("tls") == TlsFiles(path.parent / "a.crt", path.parent / "a.key", path.parent / "authority.crt")
    assert found.get("engines") == {"llama.cpp": Path("/opt/llama-server")}
    assert (found.get("engine_ports"), found.get("memory"), found.get("node")) == (Ports(21000, 21999), None, "node01")


def test_a_section_that_lacks_something_goes_and_is_told_once(path: Path) -> None:
    path.write_text("tls: {certificate: a, kei: b, authority: c}\nnode: node01\n")
    found = lenient(path, AgentConfig)
    assert told(path, found) == [
        "1: tls.kei: unknown key; did you mean key?",
        "1: tls.key: is missing",
        "1: control: is missing",
    ]
    assert found.get("tls") is None and found.get("control") is None
    assert found.get("node") == "node01" and found.get("state") == Path("/var/lib/llmgw-agent")


def test_of_several_models_the_right_ones_stay(path: Path) -> None:
    profile = "{engine: llama.cpp, weights: /w, memory: 1GiB}"
    path.write_text(
        SERVER.partition("models:")[0] + "models:\n"
        f"  right: {{profile: {profile}}}\n"
        "  wrong: {profile: {engine: llama.cpp, weights: relative, memory: 1}}\n"
        "  lacking: {aliases: [x]}\n"
    )
    found = lenient(path, ServerConfig)
    assert [line.partition(" ")[2] for line in told(path, found)] == [
        "models.wrong.profile.weights: must be an absolute path on the nodes, not 'relative'",
        "models.wrong.profile.memory: must be a size such as 600MiB or 5GiB, not '1'",
        "models.lacking.profile: is missing",
    ]
    assert list(found.get("models")) == ["right"]


def test_rules_between_keys_are_looked_at_when_the_keys_themselves_are_right(path: Path) -> None:
    path.write_text(SERVER + "lost_after: 1s\n")
    found = lenient(path, ServerConfig)
    assert "lost_after: must be at least three heartbeats, 6s, not 1s" in told(path, found)[0]
    assert found.get("listen") == Address("127.0.0.1", 7443)
    path.write_text("socket: a.sock\nserver: [a:1]\n")
    assert "socket: must not stand beside server" in told(path, lenient(path, ClientFile))[0]


@pytest.mark.parametrize("content", [b"a: [1\n", b"- a\n", b"\xff", b"a: 1\na: 2\n"])
def test_what_is_no_mapping_in_yaml_is_one_fault(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    found = lenient(path, AgentConfig)
    with pytest.raises(BadConfig) as refused:
        checked(path, AgentConfig)
    assert found.values == {} and [str(one) for one in found.faults] == [str(refused.value)]


def test_a_file_that_is_not_there_is_one_fault(path: Path) -> None:
    assert "cannot be read: no such file" in told(path, lenient(path, AgentConfig))[0]


VALUES = st.recursive(
    st.sampled_from(["", "1", "10.0.0.1:7443", "/opt/x", "a.crt", "no", "5GiB", "21000-21999", "ü", "node01"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["certificate", "key", "authority", "a", "B"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*AGENT_KEYS, "enginez"]), VALUES, max_size=8))
@settings(deadline=None)
def test_it_has_faults_exactly_where_a_program_refuses(tmp_path_factory: pytest.TempPathFactory, content: dict) -> None:
    path = tmp_path_factory.mktemp("lenient") / "agent.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(AGENT) | content))
    found = lenient(path, AgentConfig)
    try:
        config = checked(path, AgentConfig)
    except BadConfig as refused:
        assert found.faults
        if refused.key in content:
            assert any(fault.key.startswith(refused.key) for fault in found.faults)
    else:
        assert found.faults == ()
        assert found.values == {key: getattr(config, key) for key in AgentConfig.model_fields}
