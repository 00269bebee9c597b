"""A script of its own, run with `-I -S`: starts one engine in a session of its own and keeps its exit status.

Reads one JSON object from stdin: argv, environment, log, directory, mark, boot. Answers one line on stdout: `ok PID`
or `failed WORDS`. It imports nothing but the smallest modules: one of it stays in memory for each engine.

The engine is not executed before `process.json` says which process it is, so that an agent which dies at any moment
finds it again. When the engine ended, `exit.json` says how.
"""

import json
import os
import signal
import sys


class Spec:
    """What to start."""

    def __init__(
        self, argv: list[str], environment: dict[str, str], log: str, directory: str, mark: str, boot: str
    ) -> None:
        self.argv, self.environment = argv, environment
        self.log, self.directory = log, directory
        self.mark, self.boot = mark, boot


def main() -> None:
    """Read what to start, start it, pass on the answer."""
    # Whoever started this script may have left descriptors open; an engine must not hold an agent's sockets.
    os.closerange(3, 1 << 20)
    spec = Spec(**json.load(sys.stdin))
    answer, told = os.pipe()
    if os.fork() == 0:
        os.close(answer)
        os.setsid()
        keep_watch(spec, told)
        os._exit(0)
    os.close(told)
    with open(answer) as lines:
        sys.stdout.write(lines.readline() or "failed the waiter ended\n")


def keep_watch(spec: Spec, told: int) -> None:
    """Start the engine, say so, and stay until it ended."""
    for sign in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, signal.SIG_IGN)
    os.chdir("/")
    go, gone = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        become_engine(spec, go, gone)
    os.close(go[0])
    os.close(gone[1])
    write(spec, "process.json", about(spec, pid))
    os.write(go[1], b"g")
    os.close(go[1])
    trouble = os.read(gone[0], 500).decode()
    os.close(gone[0])
    if trouble:
        os.unlink(os.path.join(spec.directory, "process.json"))
        os.write(told, f"failed {trouble}\n".encode())
        return
    os.write(told, f"ok {pid}\n".encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2, told):
        os.dup2(nothing, stream)
    _, status = os.waitpid(pid, 0)
    ended = {"status": os.WEXITSTATUS(status), "signal": None}
    if os.WIFSIGNALED(status):
        ended = {"status": None, "signal": os.WTERMSIG(status)}
    write(spec, "exit.json", {"mark": spec.mark, **ended})


def become_engine(spec: Spec, go: tuple[int, int], gone: tuple[int, int]) -> None:
    """Execute the engine once the waiter has written down who it is; never returns."""
    try:
        os.setsid()
        os.close(go[1])
        if os.read(go[0], 1) != b"g":
            os._exit(127)
        for sign in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(sign, signal.SIG_DFL)
        log = os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, stream in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, stream)
        # The agent may be spared when memory runs out; an engine is not.
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("0")
        os.execve(spec.argv[0], spec.argv, spec.environment)
    except OSError as error:
        os.write(gone[1], f"{spec.argv[0]}: {error.strerror}".encode())
    finally:
        os._exit(127)


def about(spec: Spec, pid: int) -> dict[str, object]:
    """What identifies the engine and this waiter."""
    return {
        "form": "session",
        "mark": spec.mark,
        "boot": spec.boot,
        "pid": pid,
        "started": started(pid),
        "waiter": os.getpid(),
        "waiter_started": started(os.getpid()),
    }


def started(pid: int) -> int:
    """When a process started, in the kernel's ticks."""
    with open(f"/proc/{pid}/stat", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def write(spec: Spec, name: str, content: dict[str, object]) -> None:
    """Replace a file in the shard's directory; when the directory is gone nobody wants to know."""
    path = os.path.join(spec.directory, name)
    try:
        handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(handle, json.dumps(content).encode())
        os.fsync(handle)
        os.close(handle)
        os.rename(path + ".new", path)
    except FileNotFoundError:
        pass


if __name__ == "__main__":
    main()
