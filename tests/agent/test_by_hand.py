"""What agent.yaml states beside what is measured."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.agent.discovery.by_hand import by_hand
from llmgw.config.load import load_agent
from llmgw.config.tls import TlsFiles
from llmgw.core.inventory import ByHand
from llmgw.core.units import GIB, Bytes
from tests.agent.test_main import config


async def said(tmp_path: Path, files: TlsFiles, measured: int = 64 * GIB, **more: str) -> tuple[ByHand, ...]:
    return await by_hand(load_agent(config(tmp_path, files, **more)), Bytes(measured))


@pytest.mark.parametrize(("measured", "differs"), [(64, False), (63, False), (62, True), (48, True), (128, True)])
async def test_memory_differs_by_more_than_a_kernel_keeps(
    measured: int, differs: bool, tmp_path: Path, tls: Callable[..., TlsFiles]
):
    (one,) = await said(tmp_path, tls("node01"), measured * GIB, memory="64GiB")
    assert one == ByHand(
        field="memory", stated="64 GiB", measured=f"{measured} GiB", differs=differs, below=measured == 128
    )


async def test_a_limit_that_reads_like_the_measured_size_is_told_apart_from_it(
    tmp_path: Path, tls: Callable[..., TlsFiles]
):
    (one,) = await said(tmp_path, tls("node01"), int(1.04 * GIB), memory="1GiB")
    assert (one.stated, one.measured) == ("1.00 GiB", "1.04 GiB") and one.differs and one.below


@pytest.mark.parametrize(("address", "differs"), [("127.0.0.1", False), ("localhost", False), ("192.0.2.9", True)])
async def test_an_address_is_held_against_the_route_to_the_control_plane(
    address: str, differs: bool, tmp_path: Path, tls: Callable[..., TlsFiles]
):
    (one,) = await said(tmp_path, tls("node01"), address=address)
    assert one == ByHand(field="address", stated=address, measured="127.0.0.1", differs=differs)


async def test_a_name_that_is_not_known_here_differs_from_nothing(tmp_path: Path, tls: Callable[..., TlsFiles]):
    (one,) = await said(tmp_path, tls("node01"), address="no-such-host.invalid")
    assert one == ByHand(field="address", stated="no-such-host.invalid", measured="127.0.0.1", differs=False)


async def test_nothing_is_by_hand_where_nothing_is_stated(tmp_path: Path, tls: Callable[..., TlsFiles]):
    assert await said(tmp_path, tls("node01")) == ()
