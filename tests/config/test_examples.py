"""The example files in `deploy/` are what the programs read, with and without their commented lines."""

import re
from pathlib import Path

import pytest

from llmgw.config import load
from llmgw.config.agent import AgentConfig
from llmgw.config.engines import EngineSection
from llmgw.config.models import ClientFile, Section
from llmgw.config.router import RouterConfig
from llmgw.config.server import ModelSection, ProfileSection, ServerConfig

DEPLOY = Path(__file__).parents[2] / "deploy"
KINDS: dict[str, tuple[type[Section], ...]] = {
    "server": (ServerConfig, EngineSection, ModelSection, ProfileSection),
    "agent": (AgentConfig,),
    "router": (RouterConfig,),
    "client": (ClientFile,),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_example_is_good_and_names_every_key(kind: str, tmp_path: Path) -> None:
    path, read = DEPLOY / f"{kind}.yaml", getattr(load, f"load_{kind}")
    read(path)
    text = path.read_text()
    keys = set(re.findall(r"^ *(?:# )?([a-z_]+):", text, re.MULTILINE))
    assert {name for section in KINDS[kind] for name in section.model_fields} <= keys
    if kind != "client":  # there the commented line is the other way
        whole = tmp_path / path.name
        whole.write_text(re.sub(r"^( *)# (?=[a-z_]+: )", r"\1", text, flags=re.MULTILINE).replace("# /etc", "## /etc"))
        read(whole)
