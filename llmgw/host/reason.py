"""Why would the system not? In its own words, for one line."""

import os


def reason(error: OSError) -> str:
    """The kernel's word for it, in lower case.

    What asyncio and uvloop put around it (addresses, most often) is left out: by its number the word is looked up.
    """
    code = error.errno or 0
    words = os.strerror(code) if code > 0 else error.strerror or str(error) or type(error).__name__
    return " ".join(words.lower().split())
