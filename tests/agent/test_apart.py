"""What a program leaves behind when it was run apart: nothing, also where it or its agent does not end as it should."""

import subprocess
from pathlib import Path

from llmgw.agent.engines import apart
from llmgw.agent.launch import pids


def marked(directory: Path) -> tuple[int, ...]:
    """What runs that was begun in the directory."""
    return pids.carrying(lambda word: word.startswith(f"{apart.MARK}={directory}/"))


def begun(directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], env={apart.MARK: apart.marked(directory)})


async def test_what_leaves_the_group_of_a_program_ends_with_it(tmp_path: Path):
    script = "setsid sleep 600 >/dev/null 2>&1 </dev/null & read -r _ </proc/$!/stat && echo begun"
    ran = await apart.run_apart(["/bin/sh", "-c", script], limit=20, environment={}, directory=tmp_path)
    assert (ran.ok, ran.out) == (True, "begun\n")
    assert marked(tmp_path) == ()


async def test_what_a_killed_agent_left_is_ended_and_nobody_else_s(tmp_path: Path):
    ours, others = tmp_path / "engines", tmp_path / "engines-2"
    left = [begun(place / "tree") for place in (ours, others)]
    try:
        await apart.end_left(ours)
        assert left[0].wait(5) != 0 and left[1].poll() is None
    finally:
        for one in left:
            one.kill()
            one.wait()
