"""`python -m tests.tui.in_terminal SOCKET`: the console as it is, in the terminal that there is."""

import sys
from pathlib import Path

from llmgw.config.client import ClientConfig
from llmgw.tui.app import run

if __name__ == "__main__":
    sys.exit(run(ClientConfig(socket=Path(sys.argv[1])), read_only=False))
