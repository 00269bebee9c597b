"""What is wrong in a configuration file? All of it, and the rest of the file for the other checks."""

import os
from pathlib import Path

from pydantic import BaseModel

from llmgw.cli.examine.user import as_root, user
from llmgw.config.lenient import Lenient, lenient
from llmgw.core.checks import Check, fault, ok, warning
from llmgw.core.errors import BadConfig

_NAME = "configuration"
_MOST = 50
"""Faults of one file that are told."""


def configuration(path: Path, model: type[BaseModel]) -> tuple[Lenient, list[Check]]:
    """Read the file; each fault is a check."""
    read = lenient(path, model)
    if _barred(path):
        return read, [warning(_NAME, f"{path} cannot be read by {user()}", as_root())]
    found = [_wrong(one) for one in read.faults[:_MOST]]
    if len(read.faults) > _MOST:
        found.append(fault(_NAME, f"{path}: {len(read.faults) - _MOST} more faults", "mend those above first"))
    return read, found or [ok(_NAME, f"{path} is in order")]


def _barred(path: Path) -> bool:
    """Whether it is there, or may be, and is not for us to read."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(path, os.R_OK, effective_ids=True)


def _wrong(error: BadConfig) -> Check:
    if error.line is None and error.rule.startswith("cannot be read"):
        return fault(_NAME, str(error), "name a file that is there; deploy/ has an example of each")
    fix = f"correct {error.key} there" if error.key else "correct it there"
    return fault(_NAME, str(error), f"{fix}; docs/configuration.md has every key")
