"""A test host on this machine: a real systemd as its first process, with a network, a name and files of its own.

It is made of namespaces alone, and nothing but processes keeps those: they are all killed with the test process, even
when that is killed itself, and with them go their networks, mounts and files. The host sees this machine's files
through a layer of its own in memory; the machine's own network is not touched.

    lab      192.0.2.1    a network without a way out, for what the test itself runs
    host     192.0.2.11   the host
"""

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

LAB, HOST = "192.0.2.1", "192.0.2.11"
_NEW_NETWORK = 0x40000000
_TOOLS = ("unshare", "nsenter", "setpriv", "ip", "mount")
_SYSTEMD = Path("/lib/systemd/systemd")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_BOOT = """
set -e
root=$1/root; name=$2; shift 2
mount --make-rprivate /
mount -t tmpfs -o size=1g layer "${root%/root}"
mkdir -p "${root%/root}"/{upper,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=${root%/root}/upper,workdir=${root%/root}/work" "$root"
for pair in "$@"; do
  mkdir -p "$root/${pair#*:}"
  mount --bind "${pair%%:*}" "$root/${pair#*:}"
done
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t sysfs sysfs "$root/sys" 2>/dev/null || mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/sys/fs/cgroup" 2>/dev/null || true
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
echo "$name" >"$root/etc/hostname"; hostname "$name"
mkdir -p "$root/old" "$root/run/systemd/system"
cd "$root"; pivot_root . old; umount -l old
exec env -i container=lab PATH="$PATH" LANG=C.UTF-8 \\
  /lib/systemd/systemd --system --unit=basic.target --log-target=console --log-level=warning
"""


class NoLab(Exception):
    """Hosts cannot be made here; the text says what is missing."""


class Host:
    """A running host."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def command(self, *words: str) -> list[str]:
        """The words that run `words` on the host."""
        inside = ["nsenter", "-t", str(self.pid), "-a", "--root", "--wdns=/"]
        return [*inside, "env", "-i", f"PATH={_PATH}", "HOME=/root", "LANG=C.UTF-8", *words]

    def run(self, *words: str, timeout: float = 30.0) -> str:
        """Run a program on the host and return what it printed; CalledProcessError when it fails."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise AssertionError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Properties of a unit."""
        text = self.run("systemctl", "show", f"--property={','.join(properties)}", unit)
        return dict(line.partition("=")[::2] for line in text.splitlines())


class Lab:
    """A network with one host."""

    def __init__(self, holder: int, host: Host) -> None:
        self._holder, self.host = holder, host

    def command(self, *words: str) -> list[str]:
        """The words that run `words` in the lab's network, with this machine's files."""
        return ["nsenter", "-t", str(self._holder), "-n", *words]

    @contextmanager
    def network(self) -> Iterator[None]:
        """Sockets that are made inside belong to the lab's network."""
        libc = ctypes.CDLL(None, use_errno=True)
        ours = os.open("/proc/self/ns/net", os.O_RDONLY)
        theirs = os.open(f"/proc/{self._holder}/ns/net", os.O_RDONLY)
        try:
            _enter(libc, theirs)
            yield
        finally:
            _enter(libc, ours)
            os.close(ours)
            os.close(theirs)

    def cable(self, *, plugged: bool) -> None:
        """Cut the host's cable, or plug it in again."""
        _tool("nsenter", "-t", str(self._holder), "-n", "ip", "link", "set", "port1", "up" if plugged else "down")


def _enter(libc: ctypes.CDLL, handle: int) -> None:
    if libc.setns(handle, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def missing() -> str:
    """What is missing for a lab, as one line; empty when nothing is."""
    if os.geteuid() != 0:
        return "hosts of our own need root"
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        return f"hosts of our own need {', '.join(absent)} (apt install util-linux iproute2)"
    return "" if _SYSTEMD.exists() else f"hosts of our own need {_SYSTEMD} (apt install systemd)"


@contextmanager
def lab(directory: Path, binds: Mapping[Path, str] | None = None) -> Iterator[Lab]:
    """Make a host named `node01`. `binds`: directories of this machine and where the host sees them.

    Raises NoLab when this machine does not allow it.
    """
    with _held(["unshare", "--net", "sleep", "infinity"]) as holder, _held(_init(directory, binds or {})) as outer:
        _until(lambda: _has_own_network(holder.pid), "the lab has no network", holder)
        pid = _until(lambda: _child(outer.pid), "the host has no first process", outer)
        _cable(holder.pid, pid)
        host = Host(pid)
        _until(lambda: _booted(host), "the host did not boot", outer)
        yield Lab(holder.pid, host)


def _init(directory: Path, binds: Mapping[Path, str]) -> list[str]:
    script, layer = directory / "boot.sh", directory / "host"
    script.write_text(_BOOT)
    layer.mkdir()
    pairs = [f"{source}:{target}" for source, target in binds.items()]
    own = ("--net", "--pid", "--mount", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child")
    return ["unshare", *own, "bash", str(script), str(layer), "node01", *pairs]


@contextmanager
def _held(words: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with this block, and with us however we end."""
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _until(look: Callable[[], T | None], problem: str, process: subprocess.Popen[str]) -> T:
    """What `look` finds at last; a namespace that comes up has no event for us."""
    for _ in range(300):
        if found := look():
            return found
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    words = process.stdout.read().strip() if process.stdout else ""
    raise NoLab(f"{problem}: {words[-300:] or 'no word'}")


def _has_own_network(pid: int) -> bool:
    """What is set up too early would be set up in the machine's own network."""
    return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")


def _child(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _cable(holder: int, host: int) -> None:
    inside, on_host = ("nsenter", "-t", str(holder), "-n"), ("nsenter", "-t", str(host), "-n")
    for words in (
        (*inside, "ip", "link", "set", "lo", "up"),
        (*inside, "ip", "link", "add", "port1", "type", "veth", "peer", "name", "eth0", "netns", str(host)),
        (*inside, "ip", "addr", "add", f"{LAB}/24", "dev", "port1"),
        (*inside, "ip", "link", "set", "port1", "up"),
        (*on_host, "ip", "link", "set", "lo", "up"),
        (*on_host, "ip", "addr", "add", f"{HOST}/24", "dev", "eth0"),
        (*on_host, "ip", "link", "set", "eth0", "up"),
    ):
        _tool(*words)


def _tool(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise NoLab(f"{' '.join(words)}: {done.stderr.strip()}")


def _booted(host: Host) -> bool:
    asked = subprocess.run(host.command("systemctl", "is-system-running"), capture_output=True, text=True, timeout=20)
    return asked.stdout.strip() in ("running", "degraded")
