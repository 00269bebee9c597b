"""Errors as a person meets them: subject, fact with numbers, way out; one line, lower case, no full stop.

LlmgwError                      base, never raised itself
├─ Rejected                     the caller's fault, nothing changed                  exit 2
│   ├─ BadConfig                file, line, key, the rule and what stood there
│   ├─ BadName                  a name outside the grammar
│   ├─ BadMessage               a message from the wire that no sender of ours makes
│   ├─ UnknownModel             no model of this name or alias
│   ├─ UnknownNode              no node of this name
│   ├─ EngineNotWanted          nothing installs this engine on the node
│   ├─ UnknownRelease           no release of an engine with this id
│   ├─ TooMany                  more than a limit allows
│   ├─ BadProfile               an engine cannot be started like this
│   ├─ InvalidTransition        a state that cannot go there
│   └─ NotAllowed               the role may not do this
├─ Unreachable                  the network, the peer or its certificate              exit 3
│   ├─ ControlUnreachable
│   └─ PeerNotTrusted
├─ ClusterCannot                understood and allowed, but the cluster cannot        exit 4
│   └─ NoBuild                  an engine has no build that this node can run
└─ ControlFault                 a fault of ours at the other end; its log has it      exit 70
"""

from collections.abc import Iterable

from llmgw.core.brief import some

_KNOWN = 8
"""Names that are told beside one that is unknown."""


class LlmgwError(Exception):
    """The base: `code` is stable, `exit_status` is what a command ends with."""

    code = "internal"
    exit_status = 70


class Rejected(LlmgwError):
    """The caller's fault; nothing was changed."""

    code = "rejected"
    exit_status = 2


class Unreachable(LlmgwError):
    """The network, or the peer at its other end."""

    code = "unreachable"
    exit_status = 3


class ClusterCannot(LlmgwError):
    """Understood and allowed, but the cluster cannot do it (or not in time)."""

    code = "cannot"
    exit_status = 4

    def __init__(self, text: str) -> None:
        super().__init__(text)


class NoBuild(ClusterCannot):
    """No build of an engine that this node can run; the node's own words."""

    code = "no_build"


class ControlFault(LlmgwError):
    """The other end met a fault of its own; its log says which."""

    code = "control_fault"

    def __init__(self, text: str) -> None:
        super().__init__(text)


class BadConfig(Rejected):
    """A configuration file, or a part of one, that cannot be used."""

    code = "bad_config"

    def __init__(self, file: str, line: int | None, key: str, rule: str, found: str = "") -> None:
        super().__init__(file, line, key, rule, found)
        self.file, self.line, self.key, self.rule, self.found = file, line, key, rule, found

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        subject = f"{place}: {self.key}: " if self.key else f"{place}: "
        return subject + self.rule + (f", not {self.found}" if self.found else "")


class BadName(Rejected):
    """A name outside its grammar."""

    code = "bad_name"

    def __init__(self, kind: str, text: str, grammar: str) -> None:
        super().__init__(kind, text, grammar)
        self.kind, self.text, self.grammar = kind, text, grammar

    def __str__(self) -> str:
        return f"{self.text[:80]!r} is not a name for a {self.kind}; it must be {self.grammar}"


class BadMessage(Rejected):
    """A message that none of our senders makes: an enum it does not know, a number out of range, a field missing."""

    code = "bad_message"

    def __init__(self, message: str, field: str, rule: str) -> None:
        super().__init__(message, field, rule)
        self.message, self.field, self.rule = message, field, rule

    def __str__(self) -> str:
        return f"message {self.message}: {self.field} {self.rule}"


class _Unknown(Rejected):
    kind, none = "", "none is known yet"

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(self.name, self.known)

    def __str__(self) -> str:
        from difflib import get_close_matches  # only for this mistake

        said = f"{self.kind} {self.name[:80]!r} is unknown"
        if not self.known:
            return f"{said}; {self.none}"
        if near := get_close_matches(self.name[:80], sorted(self.known), n=_KNOWN):
            return f"{said}; nearest: {', '.join(near)}"
        return f"{said}; known: {some(sorted(self.known), _KNOWN)}"


class UnknownModel(_Unknown):
    """No model of this name or alias."""

    code = "unknown_model"
    kind = "model"


class UnknownRelease(Rejected):
    """No release of an engine has this id."""

    code = "unknown_release"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        return f"release {self.id[:80]!r} is unknown; the newest orders of the node name those that are known"


class UnknownNode(_Unknown):
    """No node of this name."""

    code = "unknown_node"
    kind, none = "node", "none has joined yet"


class EngineNotWanted(Rejected):
    """Nothing installs this engine on the node."""

    code = "engine_not_wanted"

    def __init__(self, node: str, engine: str, fact: str) -> None:
        super().__init__(node, engine, fact)
        self.node, self.engine, self.fact = node, engine, fact

    def __str__(self) -> str:
        what = f"{self.engine[:80]} is not" if self.engine else "nothing is"
        return f"{what} to be installed on {self.node}: {self.fact}"


class TooMany(Rejected):
    """More than a limit allows, or less than nothing."""

    code = "too_many"

    def __init__(self, subject: str, asked: int, most: int) -> None:
        super().__init__(subject, asked, most)
        self.subject, self.asked, self.most = subject, asked, most

    def __str__(self) -> str:
        return f"{self.subject}: {self.asked} is not between 0 and {self.most}"


class BadProfile(Rejected):
    """A profile that an engine on this node cannot be started with; the node's own words."""

    code = "bad_profile"

    def __init__(self, subject: str, fact: str, way_out: str = "") -> None:
        super().__init__(subject, fact, way_out)
        self.subject, self.fact, self.way_out = subject, fact, way_out

    def __str__(self) -> str:
        return f"{self.subject}: {self.fact}" + (f"; {self.way_out}" if self.way_out else "")


class InvalidTransition(Rejected):
    """A state that has no such way out."""

    code = "invalid_transition"

    def __init__(self, subject: str, state: str, event: str) -> None:
        super().__init__(subject, state, event)
        self.subject, self.state, self.event = subject, state, event

    def __str__(self) -> str:
        return f"{self.subject} is {self.state}; {self.event} cannot happen now"


class NotAllowed(Rejected):
    """The peer's role may not do this."""

    code = "not_allowed"

    def __init__(self, who: str, act: str, needs: str) -> None:
        super().__init__(who, act, needs)
        self.who, self.act, self.needs = who, act, needs

    def __str__(self) -> str:
        return f"{self.who} may not {self.act}; it takes {self.needs}"


class ControlUnreachable(Unreachable):
    """No control plane answers at this address."""

    code = "control_unreachable"

    def __init__(self, address: str, fact: str, way_out: str = "") -> None:
        super().__init__(address, fact, way_out)
        self.address, self.fact, self.way_out = address, fact, way_out

    def __str__(self) -> str:
        return f"control plane {self.address}: {self.fact}" + (f"; {self.way_out}" if self.way_out else "")


class PeerNotTrusted(Unreachable):
    """The other end showed no certificate, a wrong one, or refused ours."""

    code = "peer_not_trusted"

    def __init__(self, peer: str, fact: str, way_out: str = "") -> None:
        super().__init__(peer, fact, way_out)
        self.peer, self.fact, self.way_out = peer, fact, way_out

    def __str__(self) -> str:
        return f"{self.peer}: {self.fact}" + (f"; {self.way_out}" if self.way_out else "")
