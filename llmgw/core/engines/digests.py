"""What is the digest of a file? `sha256:` and 64 hexadecimal digits in small letters; these are names on disks, too."""

import re

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")


def digits(digest: str) -> str | None:
    """The 64 digits of a digest; None for what is none."""
    match = _DIGEST.match(digest)
    return match[1] if match else None


def is_digest(text: str) -> bool:
    """Whether files can be checked by it."""
    return digits(text) is not None
