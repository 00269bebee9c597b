"""`llmgw doctor` on a control host as the README sets it up, with the unit that we ship and a user of its own."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llmgw.core.identity import Role
from llmgw.pki import authority
from tests.lab.hosts import HOST, Host, NoLab, lab, missing

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
KEY = "/etc/llmgw/control/control01.key"
DROP_IN = f"""
[Service]
ExecStart=
ExecStart={sys.executable} -m llmgw.daemon.main --config /etc/llmgw/server.yaml
WorkingDirectory={ROOT}
PrivateTmp=no
ProtectHome=no
"""
"""The program is that of this checkout, wherever it is; everything else is as it ships."""

SERVER = f"""\
cluster: demo
listen: {HOST}:7443
socket: /run/llmgw/llmgwd.sock
socket_group: llmgw
store: /var/lib/llmgw/llmgw.db
tls: {{certificate: control/control01.crt, key: control/control01.key, authority: control/authority.crt}}
"""
_INSTALL = """
set -e
# Python may be below root's home; the host's files are a layer of its own.
path=$2; while [ "$path" != / ]; do path=$(dirname "$path"); chmod o+x "$path"; done
useradd --system --user-group --no-create-home llmgw
mkdir -p /etc/llmgw /etc/systemd/system/llmgwd.service.d
cp -r /lab/etc/. /etc/llmgw/; chown -R root: /etc/llmgw; chmod 755 /etc/llmgw /etc/llmgw/control
cp "$1/deploy/llmgwd.service" /etc/systemd/system/; cp /lab/drop-in.conf /etc/systemd/system/llmgwd.service.d/
systemctl daemon-reload
"""

Ran = subprocess.CompletedProcess[str]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    if problem := missing():
        pytest.skip(problem)
    authority.init(tmp_path / "pki", "demo")
    authority.issue(tmp_path / "pki", "control01", Role.CONTROL, [HOST], tmp_path / "etc" / "control")
    (tmp_path / "etc" / "server.yaml").write_text(SERVER)
    (tmp_path / "drop-in.conf").write_text(DROP_IN)
    binds = {tmp_path: "/lab"} | {Path(place): place for place in {str(ROOT), sys.base_prefix}}
    with ExitStack() as stack:
        try:
            made = stack.enter_context(lab(tmp_path, binds))
        except NoLab as problem:
            pytest.skip(str(problem))
        made.host.run("bash", "-c", _INSTALL, "bash", str(ROOT), sys.base_prefix)
        yield made.host


def ran(host: Host, *words: str) -> Ran:
    return subprocess.run(host.command(*words), capture_output=True, text=True, timeout=60)


def program(host: Host, module: str, *words: str) -> Ran:
    return ran(host, "env", f"PYTHONPATH={ROOT}", sys.executable, "-m", module, *words)


def told(host: Host) -> Callable[[str], list[str]]:
    """By result, what doctor says to root."""
    checks = json.loads(program(host, "llmgw.cli.main", "doctor", "--json").stdout)["checks"]
    lines = [(one["result"], f"{one['name']}: {one['fact']} → {one['fix']}") for one in checks]
    return lambda result: [text for said, text in lines if said == result]


def test_what_keeps_the_units_user_from_starting_is_told_to_root_and_its_way_out_helps(host: Host):
    key = f"{KEY} has mode 0600, owner root: user llmgw of unit llmgwd.service cannot read it"
    before = told(host)
    assert before("fault") == [f"files: {key} → chown llmgw: {KEY}"]
    assert any(text.startswith("llmgwd: is not running with this store; unit") for text in before("warning"))

    check = program(host, "llmgw.daemon.main", "--config", "/etc/llmgw/server.yaml", "--check")
    assert (
        check.returncode == 2
        and f"user llmgw of unit llmgwd.service cannot read it; chown llmgw: {KEY}" in check.stderr
    )

    assert ran(host, "systemctl", "start", "llmgwd").returncode != 0
    faults = told(host)("fault")
    assert (
        "llmgwd: is not running with this store; unit llmgwd.service failed (result exit-code, exit status 2) → "
        "journalctl -u llmgwd -n 20 says why"
    ) in faults

    host.run("chown", "-R", "llmgw:", "/etc/llmgw/control")
    assert told(host)("fault") == faults[-1:]
    host.run("systemctl", "start", "llmgwd")
    assert told(host)("fault") == []
