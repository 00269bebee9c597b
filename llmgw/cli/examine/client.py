"""What is right and wrong with an operator's way to a cluster, by a client.yaml?"""

from pathlib import Path

from llmgw.cli.examine import places
from llmgw.cli.examine.certificate import Wanted, certificate, own_found
from llmgw.cli.examine.control import by_socket, control_planes
from llmgw.cli.examine.files import configuration
from llmgw.cli.examine.findings import Findings, bounded
from llmgw.cli.examine.runner import ourselves
from llmgw.cli.examine.user import command
from llmgw.config.client import ClientConfig
from llmgw.config.models import ClientFile
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Check, warning
from llmgw.core.identity import Role
from llmgw.host.threads import aside

_LIMIT = 10.0


async def client(path: Path, seconds: float) -> Findings:
    """Look at the certificate and try every server, each for so many seconds."""
    read, checks = await aside(configuration, path, ClientFile)
    found = Findings(checks)
    given = ClientConfig(server=read.get("server") or (), tls=read.get("tls"), socket=read.get("socket"))
    found.add(await cluster(given, seconds))
    return found


async def cluster(given: ClientConfig, seconds: float) -> Findings:
    """The same for what no file says."""
    found = Findings()
    if given.socket is not None:
        found.add(await by_socket(ClientConfig(socket=given.socket), seconds))
    reached = await control_planes(given.server, given.tls, seconds)
    if given.tls is not None:
        own = await bounded("files", "the certificate", aside(_own, given.tls), _LIMIT)
        found.add(await aside(own_found, own, given.tls, reached))
    if not given.server and given.socket is None and given.tls is not None:
        fact = "no control plane is named: whether the certificate serves is not tried"
        found.checks.append(warning("control plane", fact, command("doctor", "--server", "HOST")))
    found.add(reached)
    return found


def _own(tls: TlsFiles) -> list[Check]:
    checks = places.tls_files(tls, ourselves())
    return [*checks, *certificate(tls, Wanted(roles=(Role.OPERATOR, Role.VIEWER)))]
