"""Who looks at the host, and what to do where that user may not?"""

import os
import pwd

AS_ROOT = "run as root: sudo llmgw doctor"


def user() -> str:
    """Who runs this."""
    return owner(os.geteuid())


def owner(uid: int) -> str:
    """A user by name, else by number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
