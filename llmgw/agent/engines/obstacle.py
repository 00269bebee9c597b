"""Why can a program not even be started, and what is there to do? Told from its file, without running it."""

import os
from dataclasses import dataclass

_HEAD = 256
"""Bytes of a first line that the kernel looks at (BINPRM_BUF_SIZE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """What is in the way of a program."""

    fact: str
    fix: str


def obstacle(path: str) -> Obstacle | None:
    """What keeps the program from being started, None when nothing that its file shows."""
    if not os.path.exists(path):
        return Obstacle(fact=f"{path} is not there", fix="install it there, or correct engines: in agent.yaml")
    if not os.path.isfile(path):
        return Obstacle(fact=f"{path} is no file", fix="correct engines: in agent.yaml: it names the program itself")
    if not os.access(path, os.X_OK):
        return Obstacle(fact=f"{path} may not be executed", fix=f"chmod 755 {path}")
    program = _interpreter(path)
    if program and not os.path.exists(program):
        fact = f"{path} is run by {program} (its first line says so), which is not there"
        return Obstacle(fact=fact, fix=f"install {program}, or correct the first line of {path}")
    return None


def _interpreter(path: str) -> str:
    """The program that a script's first line names; empty for what is no script, or not for us to read."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return ""
    if not head.startswith(b"#!"):
        return ""
    words = head[2:].partition(b"\n")[0].split()
    return os.fsdecode(words[0]) if words else ""
