"""What does this node have? Measured, unless agent.yaml says it."""

import os

from llmgw.agent.discovery import machine, memory
from llmgw.agent.discovery.cpu import CPUINFO, cpu
from llmgw.agent.discovery.gpu import gpus
from llmgw.config.agent import AgentConfig
from llmgw.core.facts import Inventory, Usage
from llmgw.core.units import Bytes


async def inventory(config: AgentConfig) -> Inventory:
    """Look at the node; takes as long as its GPU tool takes, at most some ten seconds."""
    found, problem = await gpus()
    return Inventory(
        os=machine.operating_system(),
        kernel=machine.kernel(),
        arch=machine.architecture(),
        cpu=cpu(CPUINFO.read_text()),
        memory=memory.total() if config.memory is None else Bytes(config.memory),
        gpus=found,
        gpu_problem=problem,
        by_hand=tuple(field for field in ("address", "memory") if getattr(config, field) is not None),
    )


def usage() -> Usage:
    """What a heartbeat says about the node."""
    return Usage(memory_available=memory.available(), load_average=round(os.getloadavg()[0], 2))
