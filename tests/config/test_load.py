"""What a configuration file may say, and the one line that a wrong one is answered with."""

import os
import socket
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmgw.config.address import Address
from llmgw.config.agent import Launcher, Ports
from llmgw.config.load import load_agent, load_client, load_router, load_server
from llmgw.config.tls import TlsFiles
from llmgw.core.catalog import Model
from llmgw.core.errors import BadConfig
from llmgw.core.facts import Exposure, Profile
from llmgw.core.names import ModelName
from llmgw.core.units import MIB, Bytes

TLS = "tls: {certificate: a.crt, key: a.key, authority: authority.crt}\n"
SERVER = f"""\
cluster: demo
listen: 127.0.0.1:7443
store: llmgw.db
{TLS}models:
  gemma:
    aliases: [gemma-270m, "Gemma:270M"]
    replicas: 2
    profile:
      engine: llama.cpp
      weights: /models/gemma.gguf
      context: 2048
      memory: 600MiB
      arguments: [--no-warmup]
"""
AGENT = f"control: [127.0.0.1:7443]\nnode: node01\n{TLS}"
ROUTER = f"control: ['[::1]:7443']\nlisten: 0.0.0.0:8080\n{TLS}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "it.yaml"


def refused(load, path: Path, text: str | bytes) -> str:
    """The error's text without the directory; it is one line and stands for exit 2."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadConfig) as caught:
        load(path)
    words = str(caught.value)
    assert len(words.splitlines()) == 1
    assert caught.value.exit_status == 2
    return words.removeprefix(f"{path}:").removeprefix(" ")


def test_a_server_file_is_read_with_defaults_and_paths_beside_the_file(path: Path) -> None:
    path.write_text(SERVER)
    config = load_server(path)
    assert config.listen == Address("127.0.0.1", 7443)
    assert (config.heartbeat, config.lost_after, config.settle, config.drain) == (2.0, 60.0, 15.0, 30.0)
    assert config.exposure is Exposure.LOOPBACK
    assert config.socket is None
    assert config.store == path.parent / "llmgw.db"
    assert config.tls == TlsFiles(path.parent / "a.crt", path.parent / "a.key", path.parent / "authority.crt")
    assert config.catalog() == {
        ModelName("gemma"): Model(
            name=ModelName("gemma"),
            aliases=("gemma-270m", "Gemma:270M"),
            replicas=2,
            profile=Profile(
                engine="llama.cpp",
                weights="/models/gemma.gguf",
                context=2048,
                memory=Bytes(600 * MIB),
                arguments=("--no-warmup",),
            ),
        )
    }


def test_an_agent_needs_control_and_tls_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "GPU-09")
    path.write_text(f"control: [cp1.lab:7443, 10.0.0.1:7443]\n{TLS}")
    config = load_agent(path)
    assert config.control == (Address("cp1.lab", 7443), Address("10.0.0.1", 7443))
    assert config.name == "gpu-09"
    assert config.state == Path("/var/lib/llmgw-agent")
    assert (config.engines, config.memory, config.address) == ({}, None, None)
    assert config.engine_ports == Ports(21000, 21999)
    assert config.launcher is Launcher.AUTO
    assert config.start_timeout == 600.0
    assert (config.labels, config.download_rate, config.install_packages) == ({}, None, True)
    assert config.check_engines == 600.0


def test_what_an_agent_says_about_installing_engines_is_read(path: Path) -> None:
    path.write_text(
        AGENT + "labels: {zone: b, gpus: 8}\ndownload_rate: 8MiB\ninstall_packages: false\ncheck_engines: 2s\n"
    )
    config = load_agent(path)
    assert config.labels == {"zone": "b", "gpus": "8"}
    assert (config.download_rate, config.install_packages, config.check_engines) == (8 * MIB, False, 2.0)


def test_a_router_and_a_client_are_read(path: Path) -> None:
    path.write_text(ROUTER + "drain: 0\nmax_body: 1MiB\n")
    router = load_router(path)
    assert (router.control, router.listen) == ((Address("::1", 7443),), Address("0.0.0.0", 8080))
    assert (router.drain, router.max_body) == (0.0, MIB)
    path.write_text("socket: run/llmgwd.sock\n")
    assert load_client(path).socket == path.parent / "run/llmgwd.sock"
    path.write_text(f"server: [127.0.0.1:7443]\n{TLS}")
    assert list(load_client(path).server) == [Address("127.0.0.1", 7443)]


def test_a_scalar_is_what_its_key_wants_and_not_what_it_looks_like(path: Path) -> None:
    """`1.10` as a version must not become 1.1, nor a node called `no` become false."""
    path.write_text(SERVER.replace("context: 2048", "context: 2048\n      version: 1.10").replace("gemma:", "no:", 1))
    assert load_server(path).catalog()[ModelName("no")].profile.version == "1.10"


def test_anchors_may_be_used(path: Path) -> None:
    path.write_text(
        SERVER.replace("profile:", "profile: &p") + "  other:\n    profile: *p\n",
    )
    assert load_server(path).models["other"].profile == load_server(path).models["gemma"].profile


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("600MiB", "lots", "13: models.gemma.profile.memory: must be a size such as 600MiB or 5GiB, not 'lots'"),
        ("600MiB", "10", "13: models.gemma.profile.memory: must be a size such as 600MiB or 5GiB, not '10'"),
        ("600MiB", "1KiB", "13: models.gemma.profile.memory: must be at least 1048576, not '1KiB'"),
        ("replicas", "replica", "8: models.gemma.replica: unknown key; did you mean replicas?"),
        ("store:", "listen:", "3: has the key 'listen' twice"),
        ("store:", "stroe:", "3: stroe: unknown key; did you mean store?"),
        ("store: llmgw.db\n", "", "1: store: is missing"),
        ("authority:", "autority:", "4: tls.autority: unknown key; did you mean authority?"),
        ("a.key", "[b]", "4: tls.key: must be a path, not a list"),
        ("a.key", "''", "4: tls.key: must be a path, not ''"),
        ("replicas: 2", "replicas: two", "8: models.gemma.replicas: must be a whole number, not 'two'"),
        ("replicas: 2", "replicas: -1", "8: models.gemma.replicas: must be at least 0, not '-1'"),
        ("replicas: 2", "replicas:", "8: models.gemma.replicas: must be a whole number, not nothing"),
        (
            "llama.cpp",
            "vllm",
            "10: models.gemma.profile.engine: must be an engine that llmgw knows: llama.cpp, not 'vllm'",
        ),
        ("llama.cpp", "[a]", "10: models.gemma.profile.engine: must be text, not a list"),
        (
            "/models/",
            "models/",
            "11: models.gemma.profile.weights: must be an absolute path on the nodes, not 'models/gemma.gguf'",
        ),
        ("gemma:", "Gemma:", "6: models.Gemma: must be [a-z0-9][a-z0-9._-]{0,62}, not 'Gemma'"),
        ("gemma-270m", "gemma", "7: models.gemma.aliases.0: gemma is already a name of gemma"),
        ("127.0.0.1:7443", "127.0.0.1", "2: listen: must be HOST:PORT (an IPv6 address in brackets), not '127.0.0.1'"),
        ("127.0.0.1:7443", "::1:7443", "2: listen: must be HOST:PORT (an IPv6 address in brackets), not '::1:7443'"),
        (
            "127.0.0.1:7443",
            "1.2.3.400:7",
            "2: listen: must be HOST:PORT with a DNS name without wildcard, or an IP address, not '1.2.3.400:7'",
        ),
        ("listen: 127.0.0.1:7443", "listen:", "2: listen: must be HOST:PORT, not nothing"),
        (
            "cluster: demo",
            "lost_after: 5s\ncluster: demo",
            "1: lost_after: must be at least three heartbeats, 6s, not 5s",
        ),
        (
            "cluster: demo",
            "heartbeat: fast\ncluster: demo",
            "1: heartbeat: must be a duration such as 500ms, 60s or 10m, not 'fast'",
        ),
        ("cluster: demo", "exposure: all\ncluster: demo", "1: exposure: must be 'loopback' or 'direct', not 'all'"),
        (
            "cluster: demo",
            f"socket: {'x' * 200}\ncluster: demo",
            f"1: socket: must be a path of at most 107 bytes once it is absolute, not '{'x' * 60}…'",
        ),
        ("models:\n  gemma:", "models:\n  - gemma:", "5: models: must be a mapping of keys to values, not a list"),
        (
            "cluster: demo",
            "cluster: !!python/name:os.system demo",
            "1: must be without tags, 'tag:yaml.org,2002:python/name:os.system' is one",
        ),
        ("cluster: demo", "cluster: *x", "1: has no anchor &x before this alias"),
        ("cluster: demo", "? [a]\n: demo", "1: has a key that is not a plain word"),
        ("models:", "---\nmodels:", "5: must be one document, a second one starts here"),
        ("cluster: demo", "cluster: 'demo", "15: is not YAML: found unexpected end of stream"),
        ("cluster: demo", "\tcluster: demo", "1: is not YAML: found character that cannot start any token"),
    ],
)
def test_a_wrong_server_file_is_one_line_with_line_key_rule_and_what_stood_there(
    path: Path, old: str, new: str, words: str
) -> None:
    assert refused(load_server, path, SERVER.replace(old, new, 1)) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (AGENT.replace("[127.0.0.1:7443]", "[]"), "1: control: must name at least one HOST:PORT"),
        (AGENT.replace("[127.0.0.1:7443]", "cp"), "1: control: must be a list, not 'cp'"),
        (
            AGENT.replace(":7443", ":0"),
            "1: control.0: must be HOST:PORT with a port from 1 to 65535, not '127.0.0.1:0'",
        ),
        (AGENT + "engine_ports: 80", "4: engine_ports: must be a range of ports such as 21000-21999, not '80'"),
        (
            AGENT + "engine_ports: 2200-2100",
            "4: engine_ports: must be a range of ports between 1024 and 65535, the smaller first, not '2200-2100'",
        ),
        (
            AGENT + "labels: {Zone: b}",
            "4: labels.Zone: must be [a-z0-9][a-z0-9._-]{0,62}, not 'Zone'",
        ),
        (AGENT + "download_rate: 8", "4: download_rate: must be a size such as 600MiB or 5GiB, not '8'"),
        (AGENT + "download_rate: 1KiB", "4: download_rate: must be at least 65536, not '1KiB'"),
        (AGENT + "install_packages: perhaps", "4: install_packages: must be true or false, not 'perhaps'"),
        (AGENT + "launcher: docker", "4: launcher: must be 'auto', 'systemd' or 'session', not 'docker'"),
        (AGENT + "address: '*.lab'", "4: address: must be a DNS name without wildcard, or an IP address, not '*.lab'"),
        ("", "1: control: is missing"),
        ("- a\n", "1: must be a mapping of keys to values, not a list"),
        (b"node: \xff\n", "1: must be UTF-8, byte 0xff is not"),
        (b"#" + b"x" * (1 << 20), "must be at most 1 MiB large"),
        ("a: " + "[" * 33 + "]" * 33, "1: is nested deeper than 32"),
        ("[" * 5000, "1: is not YAML: exceeded maximum nesting depth"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{i}: &a [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" for i in range(9)),
            "5: holds more than 50000 values",
        ),
        ("a: &a [*a]\n", "1: has no anchor &a before this alias"),
        ("a: \x01\n", "is not YAML: unacceptable character #x0001: control characters are not allowed"),
    ],
)
def test_a_wrong_agent_file_is_one_line(path: Path, text: str | bytes, words: str) -> None:
    assert refused(load_agent, path, text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "1: needs server: [HOST:PORT] with tls:, or socket: PATH"),
        ("server: [cp:1]", "1: tls: is missing; server: needs it"),
        (f"server: [cp:1]\n{TLS}socket: s", "3: socket: must not stand beside server: one of the two"),
    ],
)
def test_a_client_file_names_one_way(path: Path, text: str, words: str) -> None:
    assert refused(load_client, path, text) == words


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize(
    "text",
    [
        *[
            r'"\e[31mred\n": 1',
            r'"\uD800": 1',
            r'node: "\uD800"',
            r'node: "\UFFFFFFFF"',
            r'state: "\0"',
            r'state: "\uDC80"',
        ],
        *[r'tls: {certificate: "a\0", key: b, authority: c}', r'engines: {"\0": x}', r'address: "a\n"', "node: \x85a"],
    ],
)
def test_no_escape_reaches_the_terminal_and_nothing_else_is_raised(
    path: Path, text: str, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With either parser: the one in C may be missing."""
    monkeypatch.setattr("llmgw.config.yaml._Loader", getattr(yaml, loader))
    kept = [line for line in AGENT.splitlines() if line.split(":")[0] != text.split(":")[0]]
    words = refused(load_agent, path, "\n".join([*kept, text]))
    assert words.isprintable()
    words.encode()


def test_a_host_whose_name_is_no_node_name_must_be_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "-odd host")
    words = refused(load_agent, path, AGENT.replace("node: node01\n", ""))
    assert words.startswith("1: node: is missing, and this host's name '-odd host' cannot stand in")


def test_a_file_that_is_not_one_is_named_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    cases = {"none": "no such file or directory", ".": "is a directory", "fifo": "must be a regular file"}
    for name, words in cases.items():
        with pytest.raises(BadConfig, match=words):
            load_server(tmp_path / name)
    with pytest.raises(BadConfig, match="must be a regular file"):
        load_server(Path("/dev/zero"))


@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.text(alphabet="abc:-[]{}&*!|>'\"# \n\t0~?,%@", max_size=60).map(str.encode),
        st.tuples(st.integers(0, len(SERVER)), st.text(alphabet=":-[]{}&*!'\n 0~", max_size=3)).map(
            lambda edit: (SERVER[: edit[0]] + edit[1] + SERVER[edit[0] + len(edit[1]) :]).encode()
        ),
    )
)
def test_no_text_raises_anything_but_bad_config(text: bytes) -> None:
    path = Path(os.environ["PYTEST_TMP_FILE"])
    path.write_bytes(text)
    for load in (load_server, load_agent, load_router, load_client):
        try:
            load(path)
        except BadConfig as error:
            assert "\n" not in str(error)  # success is fine too


@pytest.fixture(autouse=True)
def _file_for_hypothesis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Hypothesis refuses function-scoped fixtures as arguments; all its examples may share one file.
    monkeypatch.setenv("PYTEST_TMP_FILE", str(tmp_path / "any.yaml"))
