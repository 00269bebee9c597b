"""Can these GPUs, with this driver, run a program that was built for a version of CUDA?"""

from collections.abc import Mapping, Sequence

from llmgw.core.inventory import Gpu

DRIVERS: Mapping[int, tuple[int, ...]] = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580,)}
"""By the major version of CUDA, the oldest Linux driver that runs its programs.

From NVIDIA's "CUDA Toolkit Release Notes", table "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor
Version Compatibility". A driver also runs whatever was built for an older major.
"""

COMPUTE: Mapping[int, tuple[int, ...]] = {11: (3, 5), 12: (5, 0), 13: (7, 5)}
"""By the major version, the smallest compute capability that it can build for: by the same notes 12.0 dropped Kepler,
13.0 Maxwell, Pascal and Volta."""


def hindrance(version: str, gpus: Sequence[Gpu]) -> str:
    """Return why a build for CUDA `version` does not run on all of the GPUs, with the way out; empty when it does.

    A driver or a GPU of which nothing is known is no reason to think that it runs.
    """
    major = next(iter(numbers(version)), 0)
    if major not in DRIVERS:
        return f"CUDA {version} is newer than what is known here of drivers; name variant: cuda {version} to try it"
    least = ".".join(map(str, DRIVERS[major]))
    for gpu in gpus:
        driver = numbers(gpu.driver)
        if not driver:
            return f"the version of the NVIDIA driver is not known, CUDA {version} needs {least}"
        if driver < DRIVERS[major]:
            return f"driver {gpu.driver} is too old for CUDA {version}; update it to {least} or newer"
        compute = numbers(gpu.compute)
        if compute and compute < COMPUTE[major]:
            return f"{gpu.name or 'a GPU'} has compute capability {gpu.compute}, too old for CUDA {version}"
    return ""


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers, up to the first part that is none: `12.8` → (12, 8)."""
    found = []
    for part in version.split("."):
        if not (part.isascii() and part.isdecimal() and len(part) < 10):
            break
        found.append(int(part))
    return tuple(found)
