"""Generate llmgw/wire/{facts,agent,operator} from proto/; with --check, only say whether that is up to date.

The compiler leaves out `__init__.py` where one exists relative to its working directory, so it runs in an empty
directory and its output is copied from there.
"""

import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO, WIRE = ROOT / "proto", ROOT / "llmgw" / "wire"
PACKAGES = ("facts", "engines", "agent", "operator")


def generate(out: Path) -> None:
    """Write the generated packages below `out`, formatted like everything else."""
    sources = sorted(str(path) for path in PROTO.rglob("*.proto"))
    options = ("client_generation=async", "server_generation=async")
    command = [
        sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--python_betterproto2_out={out}",
        *(f"--python_betterproto2_opt={option}" for option in options), *sources,
    ]  # fmt: skip
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(command, cwd=out, env={"PATH": path}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"protoc failed:\n{done.stderr}")


def files(root: Path) -> list[Path]:
    """The generated files below `root`: the packages, the message pool that they share, and nothing else."""
    found = [path for package in PACKAGES for path in (root / package).rglob("*.py")]
    return sorted(path.relative_to(root) for path in [*found, root / "message_pool.py"] if path.exists())


def differences(fresh: Path, wire: Path) -> list[str]:
    """The files below `wire` that are missing, left over or not as generated below `fresh`."""
    made, there = files(fresh), files(wire)
    differ = [file for file in made if file not in there or not filecmp.cmp(fresh / file, wire / file, shallow=False)]
    return [str(file) for file in [*differ, *(file for file in there if file not in made)]]


def main() -> None:
    """Generate, or compare."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(fresh)
        if "--check" in sys.argv[1:]:
            if stale := differences(fresh, WIRE):
                sys.exit(f"not as generated: {', '.join(stale)}; run: make proto")
            return
        for package in PACKAGES:
            shutil.rmtree(WIRE / package, ignore_errors=True)
        for file in files(fresh):
            (WIRE / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / file, WIRE / file)


if __name__ == "__main__":
    main()
