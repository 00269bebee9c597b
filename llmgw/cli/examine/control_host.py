"""What is right and wrong with a control host, by its server.yaml?"""

import grp
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

from llmgw.cli.examine import places, running
from llmgw.cli.examine.certificate import Wanted, certificate, fingerprint, own_found
from llmgw.cli.examine.control import by_socket, failed, is_strange
from llmgw.cli.examine.files import configuration
from llmgw.cli.examine.findings import Findings, bounded
from llmgw.cli.examine.listening import dialled, free, is_everywhere
from llmgw.cli.examine.runner import Runner, not_running, runner
from llmgw.cli.examine.user import as_root, user
from llmgw.config.address import Address
from llmgw.config.client import ClientConfig
from llmgw.config.lenient import Lenient
from llmgw.config.server import ServerConfig
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Check, fault, ok, warning
from llmgw.core.errors import BadConfig, LlmgwError
from llmgw.core.hosts import is_loopback
from llmgw.core.identity import Role
from llmgw.daemon import place, schema
from llmgw.host.accounts import READ, WRITE, name_of
from llmgw.host.threads import aside
from llmgw.host.units import hindrance
from llmgw.wire import onlooker

_LIMIT = 10.0
_STORE, _RUNS = "store", "llmgwd"
_PROGRAM = "llmgwd"


async def control_host(path: Path, seconds: float) -> Findings:
    """Look at all that server.yaml names, and at the llmgwd that runs with it."""
    read, checks = await aside(configuration, path, ServerConfig)
    found = Findings(checks)
    runs_as, wrong = await runner(_PROGRAM, path)
    found.checks += wrong
    own = await bounded("files", "what server.yaml names", aside(_own, path, read, runs_as), _LIMIT)
    pid = await aside(_llmgwd, read)
    if pid is None:
        reached = Findings(await bounded("address", "the address", aside(_stopped, path, read, runs_as), _LIMIT))
    else:
        reached = await _running(read, pid, seconds)
    found.add(await aside(own_found, own, read.get("tls"), reached))
    found.add(reached)
    listen: Address | None = read.get("listen")
    found.alone = listen is not None and is_loopback(listen.host)
    return found


def _own(path: Path, read: Lenient, runs_as: Runner) -> list[Check]:
    found = places.own_file(path, runs_as)
    if (tls := read.get("tls")) is not None:
        found += places.tls_files(tls, runs_as)
        found += certificate(tls, _wanted(read))
    if (group := read.get("socket_group")) is not None:
        found.append(_group(group))
    if (store := read.get("store")) is not None:
        found += places.own_directory(store.parent, "store", runs_as, private=False)
        found += _store(store, read.get("cluster") or "", runs_as)
    return found


def _wanted(read: Lenient) -> Wanted:
    listen: Address | None = read.get("listen")
    dialled = "" if listen is None or is_everywhere(listen) else listen.host
    cluster = read.get("cluster") or ""
    return Wanted(roles=(Role.CONTROL,), cluster=cluster, address=dialled, program=_PROGRAM)


def _group(name: str) -> Check:
    try:
        members = grp.getgrnam(name).gr_mem
    except KeyError:
        return fault("socket", f"socket_group {name} is no group of this host", f"adduser --system --group {name}")
    return ok("socket", f"root and group {name} may use it ({', '.join(members[:8]) or 'no members'})")


def _store(path: Path, cluster: str, runs_as: Runner) -> list[Check]:
    for file in (path, place.lock_file(path)):
        if (wrong := _unusable(file, runs_as)) is not None:
            return [wrong]
    if not os.path.lexists(path):
        return [ok(_STORE, f"{path} is not there yet; llmgwd makes it")]
    return [_content(path, cluster)]


def _unusable(file: Path, runs_as: Runner) -> Check | None:
    """What keeps llmgwd from a file of the store; None when nothing does, or it is not there yet."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            return fault(_STORE, f"{file} is not a file", "move it away, or name another with store:")
        told = runs_as.unit and hindrance(runs_as.unit, file, READ | WRITE)
    except PermissionError:
        return warning(_STORE, f"{file} cannot be seen by {user()}", as_root())
    except OSError:
        return None  # not there; why it cannot be is told with the directory
    if told:
        return fault(_STORE, *told)
    if not os.access(file, os.R_OK | os.W_OK, effective_ids=True):
        whose = name_of(file.stat().st_uid)
        return warning(_STORE, f"{file} is {whose}'s and cannot be read and written by {user()}", as_root())
    return None


def _content(path: Path, cluster: str) -> Check:
    # Nobody's store is read as a file that does not change: else SQLite makes files beside it, and they would be ours.
    idle = running.holder(place.lock_file(path)) is None
    left = path.with_name(path.name + "-wal")
    if idle and left.exists() and left.stat().st_size:
        return ok(_STORE, f"{path} was not closed in order; the next start of llmgwd takes in what {left.name} holds")
    how = "mode=ro&immutable=1" if idle else "mode=ro"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=2.0)) as store:
            meta = dict(store.execute("SELECT name, value FROM meta LIMIT 100").fetchall())
    except sqlite3.Error as error:
        fix = "restore a backup, or move it away: engines that run are then adopted"
        return fault(_STORE, f"{path} cannot be read: {error}", fix)
    version, whose = str(meta.get("schema_version", "")), str(meta.get("cluster", ""))
    if not version.isdecimal() or int(version) > schema.VERSION:
        fact = f"{path} has schema version {version or 'none'}, this version of llmgw knows {schema.VERSION}"
        return fault(_STORE, fact, "run the newer llmgwd, or name another file with store:")
    if cluster and whose != cluster:
        fix = "correct cluster: in server.yaml; or, where this is to be a new cluster, name another file with store:"
        return fault(_STORE, f"{path} belongs to cluster {whose}, not to {cluster}", fix)
    return ok(_STORE, f"{path} is of cluster {whose}, schema version {version}")


def _llmgwd(read: Lenient) -> int | None:
    """The pid of the llmgwd that has the store, 0 when only a listener at its address can be seen, None when none."""
    store: Path | None = read.get("store")
    try:
        return None if store is None else running.holder(place.lock_file(store))
    except PermissionError:
        listen: Address | None = read.get("listen")
        return 0 if listen is not None and any(running.on(listen.port, running.listeners())) else None
    except OSError:
        return None  # below what is no directory nobody has a store


def _stopped(path: Path, read: Lenient, runs_as: Runner) -> list[Check]:
    start = f"{_PROGRAM} --config {path}"
    found = [not_running(_RUNS, "is not running with this store", runs_as.started_by, start)]
    for key in ("listen", "metrics"):
        at: Address | None = read.get(key)
        if at is not None and at.port != 0:
            found += free(at, key)
    return found


async def _running(read: Lenient, pid: int, seconds: float) -> Findings:
    """Whether the llmgwd that runs can be reached, and shows the certificate that is on disk."""
    told = ok(_RUNS, f"runs (pid {pid})")
    if not pid:
        told = warning(
            _RUNS, f"somebody listens at its address; whether it has the store {user()} cannot see", as_root()
        )
    found = Findings([told])
    listen: Address | None = read.get("listen")
    tls: TlsFiles | None = read.get("tls")
    if listen is not None and listen.port != 0 and tls is not None:
        found.add(await _shows(dialled(listen), tls, seconds))
    if (path := read.get("socket")) is not None:
        found.add(await by_socket(ClientConfig(socket=path), seconds))
    return found


async def _shows(at: Address, tls: TlsFiles, seconds: float) -> Findings:
    try:
        shown = await onlooker.look(at, tls.authority, seconds=seconds, as_host=False)
        mine = fingerprint(tls)
    except BadConfig as error:
        told = f"{at}: its certificate cannot be judged: {error}"
        return Findings([warning("control plane", told, "see the files above")])
    except LlmgwError as error:
        return Findings([await failed(error, str(at), at)], strange=is_strange(error))
    if shown.fingerprint != mine:
        fact = f"{at}: it shows another certificate (SHA-256 {shown.fingerprint}) than the file has ({mine})"
        return Findings([warning("control plane", fact, "systemctl restart llmgwd, so that it takes the new one")])
    return Findings([ok("control plane", f"{at}: it listens, and shows the certificate that is in the file")])
