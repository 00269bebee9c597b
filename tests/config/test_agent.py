"""What agent.yaml says about a node's directories and fabrics."""

from pathlib import Path

import pytest

from llmgw.config.load import load_agent
from tests.config.test_load import AGENT, refused


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.yaml"


def test_directories_and_fabrics_are_read(path: Path) -> None:
    path.write_text(
        AGENT + "weights: [/srv/weights, more]\ndiscovery_root: machine\n"
        "fabrics:\n  ib-a: [mlx5_0, 'mlx5_1:2']\n  ib-b: [mlx5_1]\n  none: []\n"
    )
    config = load_agent(path)
    assert config.weights == (Path("/srv/weights"), path.parent / "more")
    assert config.discovery_root == path.parent / "machine"
    assert config.fabrics == {"ib-a": ("mlx5_0", "mlx5_1:2"), "ib-b": ("mlx5_1",), "none": ()}


def test_nothing_of_it_needs_to_be_said(path: Path) -> None:
    path.write_text(AGENT)
    config = load_agent(path)
    assert (config.weights, config.fabrics, config.discovery_root) == ((), {}, None)


RULE = "must be an adapter such as mlx5_0, or mlx5_0:2 for its second port"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fabrics: [mlx5_0]", "4: fabrics: must be a mapping of keys to values, not a list"),
        ("fabrics: {a: mlx5_0}", "4: fabrics.a: must be a list, not 'mlx5_0'"),
        ("fabrics: {a: ['mlx5 0']}", f"4: fabrics.a.0: {RULE}, not 'mlx5 0'"),
        ("fabrics: {a: ['mlx5_0:']}", f"4: fabrics.a.0: {RULE}, not 'mlx5_0:'"),
        ("fabrics: {a: ['../x']}", f"4: fabrics.a.0: {RULE}, not '../x'"),
        (
            "fabrics:\n  a: [mlx5_0]\n  b: [x, mlx5_0]",
            "6: fabrics.b: names mlx5_0, which fabric a names, too; an adapter is on one fabric",
        ),
        (
            "fabrics:\n  a: [mlx5_0]\n  b: ['mlx5_0:1']",
            "6: fabrics.b: names mlx5_0:1, which fabric a names, too; an adapter is on one fabric",
        ),
        ("fabrics: {a: [x, x]}", "4: fabrics.a: names x, which it names before; an adapter is on one fabric"),
        (
            "fabrics: {a: [" + ", ".join(f"x{n}" for n in range(33)) + "]}",
            "4: fabrics.a: must hold at most 32, not a list",
        ),
        ("weights: /srv", "4: weights: must be a list, not '/srv'"),
        ("discovery_root: ''", "4: discovery_root: must be a path, not ''"),
    ],
)
def test_what_is_wrong_is_one_line(path: Path, text: str, words: str) -> None:
    assert refused(load_agent, path, AGENT + text) == words


def test_a_name_of_a_fabric_has_the_grammar_of_names(path: Path) -> None:
    assert refused(load_agent, path, AGENT + "fabrics: {'IB a': []}").startswith("4: fabrics.IB a: must be [a-z0-9]")
