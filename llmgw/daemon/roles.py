"""Who may call what? One row an rpc; the server refuses to start with an rpc that has none."""

from collections.abc import Mapping

from llmgw.core.identity import Role

_LOOKS = frozenset({Role.OPERATOR, Role.VIEWER, Role.ROUTER})

ROLES: Mapping[str, frozenset[Role]] = {
    "/agent.v1.AgentLink/Link": frozenset({Role.AGENT}),
    "/operator.v1.Operator/About": _LOOKS | {Role.AGENT},
    "/operator.v1.Operator/Watch": _LOOKS,
    "/operator.v1.Operator/WhyModel": _LOOKS,
    "/operator.v1.Operator/ScaleModel": frozenset({Role.OPERATOR}),
    "/operator.v1.Operator/WatchAttempts": frozenset({Role.ROUTER}),
    "/operator.v1.Operator/ReportAttempt": frozenset({Role.ROUTER}),
    # the only stream with engines' keys
    "/operator.v1.Operator/WatchRoutes": frozenset({Role.ROUTER}),
}
