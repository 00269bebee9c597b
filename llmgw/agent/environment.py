"""Which environment do engines get? What they need to find libraries and devices, nothing that is the agent's own."""

import os

_NAMES = frozenset({"PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR"})
_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_", "GGML_", "OMP_")


def engine_environment() -> dict[str, str]:
    """The environment of every engine: `LLAMA_ARG_…` would say things that its profile does not say."""
    return {
        name: value
        for name, value in os.environ.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and "\n" not in value
    }
