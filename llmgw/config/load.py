"""Reading a configuration file, a function a kind; each raises BadConfig: file, line, key, rule, what stood there.

Relative paths in a file are relative to the file's directory. Each function imports its own models only, and only when
called, so that a command without a file starts fast.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgw.config.agent import AgentConfig
    from llmgw.config.client import ClientConfig
    from llmgw.config.router import RouterConfig
    from llmgw.config.server import ServerConfig


def load_server(path: Path) -> "ServerConfig":
    """Read a server.yaml."""
    from llmgw.config.checked import checked
    from llmgw.config.server import ServerConfig

    return checked(path, ServerConfig)


def load_agent(path: Path) -> "AgentConfig":
    """Read an agent.yaml."""
    from llmgw.config.agent import AgentConfig
    from llmgw.config.checked import checked

    return checked(path, AgentConfig)


def load_router(path: Path) -> "RouterConfig":
    """Read a router.yaml."""
    from llmgw.config.checked import checked
    from llmgw.config.router import RouterConfig

    return checked(path, RouterConfig)


def load_client(path: Path) -> "ClientConfig":
    """Read a client.yaml."""
    from llmgw.config.checked import checked
    from llmgw.config.client import ClientConfig
    from llmgw.config.models import ClientFile

    file = checked(path, ClientFile)
    return ClientConfig(server=file.server, tls=file.tls, socket=file.socket)
