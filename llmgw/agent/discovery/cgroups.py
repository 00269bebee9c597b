"""Which control groups are around the agent? In the first hierarchy, the second, and both at once (hybrid)."""

from llmgw.agent.discovery.root import Root

_MOUNT = "sys/fs/cgroup"
_DEEPEST = 64


def around(root: Root, controller: str) -> tuple[str, ...]:
    """The directories of the groups that bound `controller` for us, the innermost of each hierarchy first.

    A container sees its own group at the mount's top while `/proc/self/cgroup` may name the path outside of it: such
    a directory is not there and says nothing, and the top says what counts.
    """
    found = list[str]()
    for line in root.text("proc/self/cgroup").splitlines()[:_DEEPEST]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for mount in _mounts(controllers, controller):
            found += (f"{mount}/{group}".rstrip("/") for group in _upwards(path))
    return tuple(dict.fromkeys(found))


def _mounts(controllers: str, wanted: str) -> tuple[str, ...]:
    """Where the hierarchy of this line is mounted, as far as it is about the controller that is wanted."""
    if controllers == "":
        return (_MOUNT, f"{_MOUNT}/unified")
    if wanted not in controllers.split(","):
        return ()
    # Controllers that share a hierarchy are mounted as `cpu,cpuacct`, with a link from each name in most systems.
    return (f"{_MOUNT}/{wanted}", f"{_MOUNT}/{controllers}") if controllers != wanted else (f"{_MOUNT}/{wanted}",)


def _upwards(path: str) -> list[str]:
    """The group and each of those around it, the hierarchy's top as the empty text."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:  # outside of our namespace: only what its top says can be seen
        parts = []
    parts = parts[:_DEEPEST]
    return ["/".join(parts[:depth]) for depth in range(len(parts), -1, -1)]
