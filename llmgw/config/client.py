"""client.yaml: how ctl and the console find the control plane."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmgw.config.address import Address
from llmgw.config.tls import TlsFiles

__all__ = ["Address", "ClientConfig", "TlsFiles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Either servers with the files to prove who we are, or the local Unix socket."""

    server: Sequence[Address] = ()
    tls: TlsFiles | None = None
    socket: Path | None = None
