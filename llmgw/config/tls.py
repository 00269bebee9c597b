"""Which files hold a program's certificate, its key and the authority it trusts."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of three PEM files: the leaf with its issuing chain, its private key, the root."""

    certificate: Path
    key: Path
    authority: Path
