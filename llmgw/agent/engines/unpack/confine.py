"""What may the process that reads an archive do? As little as the system lets us take from it."""

import ctypes
import os
import resource
import signal

from llmgw.agent.engines.unpack.limits import Limits

_LIBC = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWNET = 0x20000, 0x8000000, 0x40000000

_CPU = 900
"""Seconds: a thousand times what a real archive takes."""
_MEMORY = 512 << 20
"""Of addresses; what is really used is a tenth."""
_FILES = 64


def confine(user: int | None, into: int, limits: Limits, parent: int) -> None:
    """Bound this process and, if it is root's, make it the user of the number `user` whose only place is the open
    directory `into`. It dies with the process `parent`. Raises OSError where the user cannot be changed.

    What a kernel or a container does not allow beyond that is left out: the archive is read as carefully all the same.
    """
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, _CPU),
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_FSIZE, limits.out),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_NPROC, 0),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    os.umask(0o077)
    if user is not None:
        _become(user, into)
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after the change of user, which clears it
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _become(user: int, into: int) -> None:
    for kind in (_CLONE_NEWNET, _CLONE_NEWIPC, _CLONE_NEWNS):
        _LIBC.unshare(kind)
    os.fchdir(into)
    try:
        os.chroot(".")
    except OSError:  # a container may keep it from root
        os.chdir("/")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
