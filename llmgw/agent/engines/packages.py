"""How does a shared library come onto the node? By a package of the system's own package manager.

Only as root, where agent.yaml allows it, one install at a time. It runs outside of the agent's sandbox, and is never
killed half-way: that would leave the system's packages broken. An agent that ends meanwhile leaves it to finish.
"""

import asyncio
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llmgw.agent.engines.apart import own_services, transient
from llmgw.core.brief import some
from llmgw.host.reason import reason
from llmgw.host.threads import aside

LIMIT = 900.0
"""Seconds that are waited for an install."""
_LOCK = 300
"""Seconds to wait for another who installs packages."""
_RUN_AT_MOST = 3600
"""Seconds after which the service manager ends it."""
_LAST = 4096
"""Bytes of its output that are read when it failed, and lines that are told."""
_LINES = 3


class CannotInstall(Exception):
    """A library that no package can be installed for; the text is one line with the way out."""


class Names(NamedTuple):
    """What a library's package is called."""

    apt: str
    dnf: str
    zypper: str


PACKAGES: Mapping[str, Names] = {
    "libgomp.so.1": Names("libgomp1", "libgomp", "libgomp1"),
    "libstdc++.so.6": Names("libstdc++6", "libstdc++", "libstdc++6"),
    "libgcc_s.so.1": Names("libgcc-s1", "libgcc", "libgcc_s1"),
    "libatomic.so.1": Names("libatomic1", "libatomic", "libatomic1"),
    "libssl.so.3": Names("libssl3", "openssl-libs", "libopenssl3"),
    "libcrypto.so.3": Names("libssl3", "openssl-libs", "libopenssl3"),
    "libcurl.so.4": Names("libcurl4", "libcurl", "libcurl4"),
    "libvulkan.so.1": Names("libvulkan1", "vulkan-loader", "libvulkan1"),
    "libnuma.so.1": Names("libnuma1", "numactl-libs", "libnuma1"),
    "libz.so.1": Names("zlib1g", "zlib", "libz1"),
    "libopenblas.so.0": Names("libopenblas0", "openblas-openmp", "libopenblas_openmp0"),
    "libibverbs.so.1": Names("libibverbs1", "libibverbs", "libibverbs1"),
    "librdmacm.so.1": Names("librdmacm1", "librdmacm", "librdmacm1"),
}
"""From the file lists of Debian 12, Fedora 40 and openSUSE Leap 15.6. In later Debians and Ubuntus a package such as
`libcurl4t64` provides the name that stands here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A package manager."""

    name: str
    """As in `Names`."""
    program: str
    install: tuple[str, ...]
    """Its words before the names of packages."""
    refresh: tuple[str, ...] = ()
    """Its words that fetch the lists of packages; empty where it does so by itself."""
    unknown: re.Pattern[str] | None = None
    """What it says when its lists are too old for a package."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def package(self, library: str) -> str:
        """The package that has a library; empty when that is not known."""
        if names := PACKAGES.get(library):
            return str(getattr(names, self.name))
        # RPM names what a package provides; a library of 64 bits so.
        return "" if self.name == "apt" else f"{library}()(64bit)"

    def command(self, packages: Sequence[str]) -> str:
        """What a person would type."""
        return f"{self.program} install {' '.join(map(_quoted, packages))}"


MANAGERS = (
    Manager(
        name="apt",
        program="apt-get",
        install=(
            *("apt-get", "--yes", "--no-install-recommends", "--no-remove"),
            *("-o", f"DPkg::Lock::Timeout={_LOCK}", "-o", "Dpkg::Use-Pty=0"),
            *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold", "install"),
        ),
        refresh=("apt-get", "-o", f"DPkg::Lock::Timeout={_LOCK}", "update"),
        unknown=re.compile(r"Unable to locate package|has no installation candidate|Failed to fetch|Unable to fetch"),
        environment={
            "DEBIAN_FRONTEND": "noninteractive",
            "APT_LISTCHANGES_FRONTEND": "none",
            "NEEDRESTART_SUSPEND": "1",  # else Ubuntu restarts services that use the library, the agent among them
        },
    ),
    Manager(
        name="zypper",
        program="zypper",
        install=("zypper", "--non-interactive", "install", "--no-recommends"),
        environment={"ZYPP_LOCK_TIMEOUT": str(_LOCK)},
    ),
    Manager(
        name="dnf",
        program="dnf",
        install=("dnf", "--assumeyes", "--setopt=install_weak_deps=False", "install"),
    ),
)
"""In the order in which they are looked for: dnf can be installed on SUSE, too."""

_PASSED = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
_one_at_a_time = asyncio.Lock()


async def install(libraries: Sequence[str], *, allowed: bool, tell: Callable[[str], None]) -> None:
    """Install the packages that have these libraries. Raises CannotInstall."""
    manager = await aside(manager_here)
    names = some(list(dict.fromkeys(libraries)), 4)
    if manager is None:
        raise CannotInstall(f"{names} is missing, and no package manager is known here; install what has it by hand")
    packages = [manager.package(library) for library in libraries]
    if "" in packages:
        unknown = libraries[packages.index("")]
        raise CannotInstall(f"{unknown} is missing and its package is not known; find it: apt-file search {unknown}")
    packages = list(dict.fromkeys(packages))
    if why_not := "" if allowed else "agent.yaml says install_packages: false":
        raise CannotInstall(f"{names} is missing: {manager.command(packages)} ({why_not})")
    if os.geteuid() != 0:
        raise CannotInstall(f"{names} is missing: {manager.command(packages)} (this agent is not root)")
    async with _one_at_a_time:
        tell(f"{manager.program} install {' '.join(packages)}")
        await _install(manager, packages, names, tell)


def manager_here() -> Manager | None:
    """The package manager of this system."""
    return next((manager for manager in MANAGERS if shutil.which(manager.program)), None)


async def _install(manager: Manager, packages: Sequence[str], names: str, tell: Callable[[str], None]) -> None:
    words = (*manager.install, *packages)
    status, said = await _to_its_end(words, manager)
    if status and manager.unknown is not None and manager.unknown.search(said):
        tell(f"{manager.program} update")
        await _to_its_end(manager.refresh, manager)  # one source of many may fail; the install tells what counts
        tell(f"{manager.program} install {' '.join(packages)}")
        status, said = await _to_its_end(words, manager)
    if status:
        why = " / ".join(telling(said))[:300]
        raise CannotInstall(f"{names} is missing and could not be installed: {manager.command(packages)}: {why}")


def telling(said: str) -> list[str]:
    """The last lines of what a package manager said, without its warnings: apt tells these after the reason."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return ([line for line in lines if not line.startswith(("W:", "Warning"))] or lines)[-_LINES:]


async def _to_its_end(words: Sequence[str], manager: Manager) -> tuple[int, str]:
    """How it ended, and the last of what it said. It is waited for, not ended: see above. Raises CannotInstall."""
    environment = _environment(manager)
    if own_services():
        name = f"llmgw-packages-{secrets.token_hex(6)}.service"
        prefix = transient(name, {"RuntimeMaxSec": str(_RUN_AT_MOST)}, environment)
        words = [*prefix, *(word.replace("$", "$$") for word in words)]
    output = os.memfd_create("packages")  # a pipe would end it when we do; a file needs a place that we may write
    try:
        process = _started(words, environment, output)
        async with asyncio.timeout(LIMIT):
            status = await aside(process.wait)
        return status, _last(output)
    except TimeoutError:
        raise CannotInstall(f"{words[0]} has not ended within {LIMIT:.0f}s and goes on") from None
    except OSError as error:
        raise CannotInstall(f"{words[0]} cannot be started: {reason(error)}") from None
    finally:
        os.close(output)


def _started(words: Sequence[str], environment: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
    )


def _last(output: int) -> str:
    size = os.fstat(output).st_size
    return os.pread(output, _LAST, max(0, size - _LAST)).decode("utf-8", "replace")


def _environment(manager: Manager) -> dict[str, str]:
    """Ours has what is not its business."""
    proxies = {name: value for name, value in os.environ.items() if name.lower() in _PASSED and "\n" not in value}
    path = os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    return {**proxies, "PATH": path, "HOME": "/root", "LC_ALL": "C", **manager.environment}


def _quoted(package: str) -> str:
    return f"'{package}'" if "(" in package else package
