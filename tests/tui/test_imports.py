"""What is imported by whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("module", ["llmgw.ctl.main", "llmgw.client", "llmgw.core.safe"])
def test_scripts_do_not_pay_for_the_console(module: str) -> None:
    """A process of its own: this one has Textual already."""
    code = f"import sys, {module}; print(sorted({{'textual', 'rich'}} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_the_first_frame_does_not_wait_for_the_codec() -> None:
    """With it, it took twice as long as the toolkit alone."""
    code = "import sys, llmgw.tui.app; print(sorted({'llmgw.client', 'grpclib', 'betterproto2'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


TUI = Path(__file__).parents[2] / "llmgw" / "tui"


@pytest.mark.parametrize("path", sorted({*TUI.rglob("*.py")} - {TUI / "app.py"}), ids=lambda path: path.stem)
def test_nothing_in_the_console_knows_the_app(path: Path) -> None:
    """Not for types either: the app knows the screens, and they know `owner`."""
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    assert "llmgw.tui.app" not in {node.module for node in imports}


def test_the_console_is_all_that_its_screens_ask_for() -> None:
    from llmgw.tui.app import Console
    from llmgw.tui.owner import Owner
    from tests import worlds
    from tests.tui.feeds import FixedFeed

    asked = {*Owner.__annotations__, *(name for name in vars(Owner) if not name.startswith("_"))}
    console = Console(FixedFeed(worlds.empty()))
    assert len(asked) > 8 and {name for name in asked if not hasattr(console, name)} == set()
