"""What kind of thing is in a PEM file? For files that stand in each other's place."""

from pathlib import Path

from llmgw.config.tls import TlsFiles
from llmgw.host.files import Unfit, read


def swapped(files: TlsFiles) -> bool:
    """Whether the key is where the certificate should be, and the certificate where the key should be."""
    return _holds(files.certificate, "PRIVATE KEY") and _holds(files.key, "CERTIFICATE")


def _holds(path: Path, kind: str) -> bool:
    """Whether the file holds things of this kind, and none of the other."""
    try:
        text, _ = read(path)
    except (OSError, Unfit):
        return False
    kinds = {one for one in ("PRIVATE KEY", "CERTIFICATE") if f"{one}-----".encode() in text}
    return kinds == {kind}
