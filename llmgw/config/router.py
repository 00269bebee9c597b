"""router.yaml: where a router listens and where it learns its routes."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from llmgw.config.models import Duration, File, Listen, Section, Size, Targets, Tls


class RouterConfig(Section):
    """A router."""

    control: Targets
    tls: Tls
    listen: Listen
    state: File = Path("/var/lib/llmgw-router")
    drain: Annotated[Duration, Field(le=86400.0)] = 60.0
    max_body: Annotated[Size, Field(ge=1 << 10, le=1 << 30)] = 32 << 20
