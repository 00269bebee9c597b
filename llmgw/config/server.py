"""server.yaml: what a control plane is, the engines that nodes should have, and the models it declares."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from llmgw.config.engines import Engines
from llmgw.config.models import Duration, File, Listen, Section, Size, SocketFile, Tls, entry_error, named
from llmgw.core.catalog import MOST_REPLICAS, Model
from llmgw.core.engines.orders import EngineWish
from llmgw.core.facts import Exposure, Profile
from llmgw.core.names import ModelName, alias, model_name, node_name
from llmgw.core.units import MIB, Bytes

ClusterName = Annotated[str, AfterValidator(named(node_name))]
ENGINES = ("llama.cpp",)
"""The engines that agents of this version know how to start."""


def _engine(text: str) -> str:
    if text not in ENGINES:
        raise ValueError(f"must be an engine that llmgw knows: {', '.join(ENGINES)}")
    return text


EngineName = Annotated[str, AfterValidator(_engine)]


def _weights(text: str) -> str:
    # A path on the nodes, not here: there is nothing to resolve it against.
    if not text.startswith("/") or "\0" in text:
        raise ValueError("must be an absolute path on the nodes")
    return text


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("must be without NUL")
    return text


def _group(text: str) -> str:
    if re.match(r"[a-z_][a-z0-9_-]{0,31}\Z", text) is None:
        raise ValueError("must be the name of a group")
    return text


class ProfileSection(Section):
    """How a model runs."""

    engine: EngineName
    version: Annotated[str, StringConstraints(max_length=64)] = ""
    weights: Annotated[str, StringConstraints(max_length=4096), AfterValidator(_weights)]
    context: Annotated[int, Field(ge=1, le=1 << 24)] = 4096
    slots: Annotated[int, Field(ge=1, le=1024)] = 1
    memory: Annotated[Size, Field(ge=MIB, le=1 << 50)]
    threads: Annotated[int, Field(ge=0, le=4096)] = 0
    arguments: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=4096), AfterValidator(_argument)], ...], Field(max_length=256)
    ] = ()

    def profile(self) -> Profile:
        """The same as core has it."""
        return Profile(
            engine=self.engine,
            version=self.version,
            weights=self.weights,
            context=self.context,
            slots=self.slots,
            memory=Bytes(self.memory),
            threads=self.threads,
            arguments=self.arguments,
        )


class ModelSection(Section):
    """One model that clients may ask for."""

    aliases: Annotated[tuple[Annotated[str, AfterValidator(named(alias))], ...], Field(max_length=32)] = ()
    replicas: Annotated[int, Field(ge=0, le=MOST_REPLICAS)] = 1
    profile: ProfileSection


class ServerConfig(Section):
    """A control plane."""

    cluster: ClusterName
    listen: Listen
    socket: SocketFile | None = None
    socket_group: Annotated[str, AfterValidator(_group)] | None = None
    metrics: Listen | None = None
    store: File
    tls: Tls
    heartbeat: Annotated[Duration, Field(ge=0.1, le=60.0)] = 2.0
    lost_after: Annotated[Duration, Field(le=86400.0)] = 60.0
    settle: Annotated[Duration, Field(le=3600.0)] = 15.0
    exposure: Exposure = Exposure.LOOPBACK
    drain: Annotated[Duration, Field(le=86400.0)] = 30.0
    mirror: File | None = None
    """A directory of engines' files, which llmgwd serves to its agents."""
    downloads: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Nodes that may download an engine at once."""
    engines: Engines
    models: dict[Annotated[str, AfterValidator(named(model_name))], ModelSection] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _lost_after_silence(self) -> "ServerConfig":
        if self.lost_after < 3 * self.heartbeat:
            rule = f"must be at least three heartbeats, {3 * self.heartbeat:g}s"
            raise entry_error("entry", f"{rule}, not {self.lost_after:g}s", "lost_after")
        return self

    @model_validator(mode="after")
    def _one_listener_an_address(self) -> "ServerConfig":
        if self.metrics is not None and self.metrics.port and self.metrics == self.listen:
            raise entry_error("entry", f"must not be {self.listen}, which is `listen`; give another port", "metrics")
        return self

    @model_validator(mode="after")
    def _engines_can_be_had(self) -> "ServerConfig":
        for engine, section in self.engines.items():
            section.check(engine, mirrored=self.mirror is not None)
        return self

    @model_validator(mode="after")
    def _names_are_apart(self) -> "ServerConfig":
        owner = {name: name for name in self.models}
        for name, model in self.models.items():
            for index, other in enumerate(model.aliases):
                if other in owner:
                    rule = f"{other} is already a name of {owner[other]}"
                    raise entry_error("entry", rule, "models", name, "aliases", index)
                owner[other] = name
        return self

    def catalog(self) -> dict[ModelName, Model]:
        """The declared models."""
        return {
            ModelName(name): Model(
                name=ModelName(name), aliases=model.aliases, replicas=model.replicas, profile=model.profile.profile()
            )
            for name, model in self.models.items()
        }

    def wishes(self) -> tuple[EngineWish, ...]:
        """The engines that nodes should have."""
        served = self.mirror is not None
        return tuple(section.wish(engine, served=served) for engine, section in self.engines.items())
