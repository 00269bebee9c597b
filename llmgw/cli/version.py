"""`llmgw version`: which llmgw this is, and on which Python."""

import json
import platform
from collections.abc import Sequence

from llmgw import __version__
from llmgw.cli.parser import Parser


def main(argv: Sequence[str]) -> int:
    """Print the version."""
    parser = Parser("llmgw version", "The version of this program.")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    if parser.parse_args(argv).json:
        print(json.dumps({"version": __version__, "python": platform.python_version()}))
    else:
        print(f"llmgw {__version__} (Python {platform.python_version()})")
    return 0
