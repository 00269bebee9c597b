"""May a user read or write a file? Told by owners and modes, so that root can tell it of another user."""

import grp
import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

READ, WRITE, ENTER = os.R_OK, os.W_OK, os.X_OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user of this host with its groups."""

    name: str
    uid: int
    groups: frozenset[int]

    def barred(self, path: Path, want: int) -> Path | None:
        """What keeps the user from doing `want` (READ | WRITE | ENTER) with `path`: it, or a directory above it.

        None when nothing does. Raises OSError where we may not look ourselves.
        """
        path.stat()  # what is not there, or not for us to see, is the caller's to say
        if self.uid == os.geteuid():
            return None if os.access(path, want, effective_ids=True) else path
        real = Path(os.path.realpath(path))
        above = dict.fromkeys((*reversed(path.absolute().parents), *reversed(real.parents)))
        shut = next((one for one in above if not self._may(one, ENTER)), None)
        return shut or (None if self._may(path, want) else path)

    def _may(self, path: Path, want: int) -> bool:
        seen = path.stat()
        if self.uid == 0:
            return True
        if seen.st_uid == self.uid:
            granted = seen.st_mode >> 6
        elif seen.st_gid in self.groups:
            granted = seen.st_mode >> 3
        else:
            granted = stat.S_IMODE(seen.st_mode)
        return granted & want == want


def account(user: str, group: str = "", more: Iterable[str] = ()) -> Account | None:
    """The user of this name or number, with `group` in the place of its own and `more`; None when there is none."""
    try:
        entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
        main = _gid(group) if group else entry.pw_gid
        own = os.getgrouplist(entry.pw_name, main)
        return Account(name=entry.pw_name, uid=entry.pw_uid, groups=frozenset({*own, *map(_gid, more)}))
    except (KeyError, OverflowError):
        return None


def ourselves() -> Account:
    """Whoever runs this."""
    groups = frozenset({os.getegid(), *os.getgroups()})
    return Account(name=name_of(os.geteuid()), uid=os.geteuid(), groups=groups)


def name_of(uid: int) -> str:
    """A user by name, else by number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _gid(group: str) -> int:
    return int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
