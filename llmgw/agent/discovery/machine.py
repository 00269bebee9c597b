"""What is said of the machine beside its hardware?"""

import os
import platform


def operating_system() -> str:
    """The distribution's own name for itself."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")[:200] or platform.system()
    except OSError:
        return platform.system()


def kernel() -> str:
    """The kernel's release."""
    return os.uname().release


def architecture() -> str:
    """The machine's architecture by the kernel's name."""
    return os.uname().machine
