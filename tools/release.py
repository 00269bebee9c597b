"""Build the wheel and the source archive into dist/, the same bytes from the same files.

Refuses when the changelog does not say what is in this version.
"""

import hashlib
import os
import sys
from pathlib import Path

from flit_core import buildapi

from llmgw import __version__

ROOT = Path(__file__).resolve().parent.parent
FIRST_OF_1980 = "315532800"  # the oldest time that a wheel, being a zip, can hold


def main() -> None:
    """Build both, and print their digests."""
    os.chdir(ROOT)
    if f"\n## [{__version__}]" not in Path("CHANGELOG.md").read_text():
        sys.exit(f"CHANGELOG.md has no section [{__version__}]; write it, or set the version in llmgw/__init__.py")
    os.environ.setdefault("SOURCE_DATE_EPOCH", FIRST_OF_1980)
    Path("dist").mkdir(exist_ok=True)
    for build in (buildapi.build_wheel, buildapi.build_sdist):
        name = build("dist")
        digest = hashlib.sha256(Path("dist", name).read_bytes()).hexdigest()
        print(f"{digest}  dist/{name}")


if __name__ == "__main__":
    main()
