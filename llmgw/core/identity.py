"""Who a certificate speaks for: cluster, role and name, in one URI SAN `llmgw://CLUSTER/ROLE/NAME` of exact grammar."""

import re
from dataclasses import dataclass
from enum import Enum

from llmgw.core.errors import BadName

_NAME = r"[a-z0-9][a-z0-9._-]{0,62}"
_URI = re.compile(rf"llmgw://({_NAME})/([a-z]+)/({_NAME})\Z")


class Role(Enum):
    """What the holder of a certificate is."""

    CONTROL = "control"
    AGENT = "agent"
    ROUTER = "router"
    OPERATOR = "operator"
    VIEWER = "viewer"
    """An operator who may look and not act."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The holder of a certificate."""

    cluster: str
    role: Role
    name: str

    @property
    def uri(self) -> str:
        """The URI SAN that says this."""
        return f"llmgw://{self.cluster}/{self.role.value}/{self.name}"

    def __str__(self) -> str:
        return f"{self.role.value} {self.name}"


def identity(uri: str) -> Identity:
    """Return who `uri` names, or raise BadName; nothing is normalised."""
    match = _URI.match(uri)
    roles = {role.value: role for role in Role}
    if match is None or match[2] not in roles:
        raise BadName("certificate", uri, f"llmgw://CLUSTER/{'|'.join(roles)}/NAME")
    return Identity(match[1], roles[match[2]], match[3])
