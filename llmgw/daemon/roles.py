"""Who may call what? One row an rpc; the server refuses to start with an rpc that has none."""

from collections.abc import Mapping

from llmgw.core.identity import Role
from llmgw.wire import files

_LOOKS = frozenset({Role.OPERATOR, Role.VIEWER, Role.ROUTER})

ROLES: Mapping[str, frozenset[Role]] = {
    "/agent.v1.AgentLink/Link": frozenset({Role.AGENT}),
    "/agent.v1.AgentLink/GetRelease": frozenset({Role.AGENT}),
    **files.ROLES,
    "/operator.v1.Operator/About": _LOOKS | {Role.AGENT},
    "/operator.v1.Operator/Watch": _LOOKS,
    "/operator.v1.Operator/WhyModel": _LOOKS,
    "/operator.v1.Operator/ScaleModel": frozenset({Role.OPERATOR}),
    "/operator.engines.v1.Engines/EnginesWanted": _LOOKS,
    "/operator.engines.v1.Engines/RetryEngine": frozenset({Role.OPERATOR}),
    "/operator.engines.v1.Engines/LockEngine": frozenset({Role.OPERATOR}),
    "/operator.v1.Operator/WatchAttempts": frozenset({Role.ROUTER}),
    "/operator.v1.Operator/ReportAttempt": frozenset({Role.ROUTER}),
    # the only stream with engines' keys
    "/operator.v1.Operator/WatchRoutes": frozenset({Role.ROUTER}),
}

LARGE = frozenset({"/operator.engines.v1.Engines/LockEngine"})
"""Calls whose one message may be as long as one of a stream: a lock names hundreds of files."""
