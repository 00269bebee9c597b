"""What the tests of the router share: the loop that the product runs on."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from tests.router.rig import Rig, StubEngine


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def engine():
    async with StubEngine() as one:
        yield one


@pytest.fixture
async def other():
    async with StubEngine() as one:
        yield one


@pytest.fixture
async def rig(tmp_path):
    async with Rig(tmp_path) as running:
        yield running
