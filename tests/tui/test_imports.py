import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["llmgw.ctl.main", "llmgw.client", "llmgw.core.safe"])
def test_scripts_do_not_pay_for_the_console(module: str) -> None:
    """A process of its own: this one has Textual already."""
    code = f"import sys, {module}; print(sorted({{'textual', 'rich'}} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
