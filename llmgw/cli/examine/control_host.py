"""What is right and wrong with a control host, by its server.yaml?"""

import grp
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from llmgw.agent.threads import aside
from llmgw.cli.examine import places, running
from llmgw.cli.examine.certificate import Wanted, certificate, fingerprint
from llmgw.cli.examine.control import by_socket, failed
from llmgw.cli.examine.files import configuration
from llmgw.cli.examine.findings import Findings, bounded
from llmgw.cli.examine.listening import dialled, free
from llmgw.cli.examine.user import AS_ROOT, user
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
from llmgw.wire import onlooker

_LIMIT = 10.0
_STORE, _RUNS = "store", "llmgwd"


async def control_host(path: Path, seconds: float) -> Findings:
    """Look at all that server.yaml names, and at the llmgwd that runs with it."""
    read, checks = await aside(configuration, path, ServerConfig)
    found = Findings(checks)
    found.checks += await bounded("files", "what server.yaml names", aside(_own, read), _LIMIT)
    pid = await aside(_llmgwd, read)
    if pid is None:
        found.checks += await bounded("address", "the address", aside(_stopped, read), _LIMIT)
    else:
        found.add(await _running(read, pid, seconds))
    listen: Address | None = read.get("listen")
    found.alone = listen is not None and is_loopback(listen.host)
    return found


def _own(read: Lenient) -> list[Check]:
    found: list[Check] = []
    if (tls := read.get("tls")) is not None:
        found += places.tls_files(tls)
        found += certificate(tls, Wanted(roles=(Role.CONTROL,), cluster=read.get("cluster") or ""))
    if (group := read.get("socket_group")) is not None:
        found.append(_group(group))
    if (store := read.get("store")) is not None:
        found += _store(store, read.get("cluster") or "")
        found += places.free_space(store.parent, "store")
    return found


def _group(name: str) -> Check:
    try:
        members = grp.getgrnam(name).gr_mem
    except KeyError:
        return fault("socket", f"socket_group {name} is no group of this host", f"adduser --system --group {name}")
    return ok("socket", f"root and group {name} may use it ({', '.join(members[:8]) or 'no members'})")


def _store(path: Path, cluster: str) -> list[Check]:
    try:
        place.check(path)
    except BadConfig as error:
        fact, _, fix = error.rule.partition("; ")
        if os.geteuid() != 0:
            return [warning(_STORE, f"{path}: {fact}", f"{AS_ROOT}; or {fix}")]
        return [fault(_STORE, f"{path}: {fact}", fix)]
    if not path.exists():
        return [ok(_STORE, f"{path} is not there yet; llmgwd makes it")]
    return [_content(path, cluster)]


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
        return fault(_STORE, f"{path} belongs to cluster {whose}, not to {cluster}", "name another file with store:")
    return ok(_STORE, f"{path} is of cluster {whose}, schema version {version}")


def _llmgwd(read: Lenient) -> int | None:
    """The pid of the llmgwd that has the store, 0 when only a listener at its address can be seen, None when none."""
    store: Path | None = read.get("store")
    try:
        return None if store is None else running.holder(place.lock_file(store))
    except OSError:
        listen: Address | None = read.get("listen")
        return 0 if listen is not None and any(running.on(listen.port, running.listeners())) else None


def _stopped(read: Lenient) -> list[Check]:
    listen: Address | None = read.get("listen")
    stopped = warning(_RUNS, "is not running with this store", "systemctl start llmgwd")
    return [stopped] if listen is None or listen.port == 0 else [stopped, *free(listen, "listen")]


async def _running(read: Lenient, pid: int, seconds: float) -> Findings:
    """Whether the llmgwd that runs can be reached, and shows the certificate that is on disk."""
    told = ok(_RUNS, f"runs (pid {pid})")
    if not pid:
        told = warning(_RUNS, f"somebody listens at its address; whether it has the store {user()} cannot see", AS_ROOT)
    found = Findings([told])
    listen: Address | None = read.get("listen")
    tls: TlsFiles | None = read.get("tls")
    if listen is not None and listen.port != 0 and tls is not None:
        found.checks.append(await _shows(dialled(listen), tls, seconds))
    if (path := read.get("socket")) is not None:
        found.add(await by_socket(ClientConfig(socket=path), seconds))
    return found


async def _shows(at: Address, tls: TlsFiles, seconds: float) -> Check:
    try:
        shown = await onlooker.look(at, tls.authority, seconds=seconds, as_host=False)
        mine = fingerprint(tls)
    except BadConfig as error:
        return warning("control plane", f"{at}: its certificate cannot be judged: {error}", "see the files above")
    except LlmgwError as error:
        return await failed(error, str(at), at)
    if shown.fingerprint != mine:
        fact = f"{at}: it shows another certificate (SHA-256 {shown.fingerprint}) than the file has ({mine})"
        return warning("control plane", fact, "systemctl restart llmgwd, so that it takes the new one")
    return ok("control plane", f"{at}: it listens, and shows the certificate that is in the file")
