"""Each recorded machine is described as what it is, and warned about as it should be."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.agent.discovery.inventory import LIMIT, inventory
from llmgw.agent.discovery.root import root_of
from llmgw.config.tls import TlsFiles
from llmgw.core.symptoms import of_inventory
from llmgw.host import clock
from tests.agent import recorded

ELSEWHERE = {"recorded_machine", "disk_nearly_full"}
"""Warnings that are not about the recorded machine: it is one, and the disk is that of the tests' machine."""


@pytest.mark.parametrize("name", recorded.NAMES)
async def test_a_recorded_machine_is_described_as_it_is(name: str, tmp_path: Path, tls: Callable[..., TlsFiles]):
    machine = recorded.load(name)
    config = machine.agent(tmp_path, tls("node01"))
    found = await inventory(config, root_of(config), limit=1.0 if machine.hangs else LIMIT)
    assert recorded.differences(machine.expected, recorded.plain(found)) == []
    now = clock.now() if machine.now is None else machine.now
    codes = sorted(one.code for one in of_inventory(found, now) if one.code not in ELSEWHERE)
    assert codes == machine.warnings
    assert found.recorded == str(tmp_path / "root")


def test_the_comparison_sees_what_differs():
    found = {"cpu": {"cores": 4}, "memory": 1 << 30, "gpus": [{"index": 0, "name": "L4"}]}
    assert recorded.differences({"memory": "1GiB", "gpus": [{"name": "/L[0-9]/"}]}, found) == []
    assert recorded.differences({"cpu": {"cores": 5}}, found) == ["cpu.cores: expected 5, found 4"]
    assert recorded.differences({"gpus": []}, found) == ["gpus: expected [], found [{'index': 0, 'name': 'L4'}]"]
    assert recorded.differences({"gpus": [{"nam": 1}]}, found) == ["gpus[0].nam: is no field"]
