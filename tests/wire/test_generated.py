"""What is committed below llmgw/wire is what the compiler makes of proto/."""

import shutil
from pathlib import Path

from tools.proto import PACKAGES, WIRE, differences, generate


def test_a_fresh_run_of_the_compiler_equals_what_is_committed(tmp_path: Path) -> None:
    generate(tmp_path)
    assert differences(tmp_path, WIRE) == []

    stale = tmp_path / "stale"
    for package in PACKAGES:
        shutil.copytree(WIRE / package, stale / package)
    (stale / "agent" / "v1" / "__init__.py").write_text("")
    (stale / "facts" / "v2.py").write_text("")
    assert differences(tmp_path, stale) == ["agent/v1/__init__.py", "message_pool.py", "facts/v2.py"]
