"""What is right and wrong with an operator's way to a cluster, by a client.yaml?"""

from pathlib import Path

from llmgw.agent.threads import aside
from llmgw.cli.examine import places
from llmgw.cli.examine.certificate import Wanted, certificate
from llmgw.cli.examine.control import by_socket, control_planes
from llmgw.cli.examine.files import configuration
from llmgw.cli.examine.findings import Findings, bounded
from llmgw.config.client import ClientConfig
from llmgw.config.models import ClientFile
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Check
from llmgw.core.identity import Role

_LIMIT = 10.0


async def client(path: Path, seconds: float) -> Findings:
    """Look at the certificate and try every server, each for so many seconds."""
    read, checks = await aside(configuration, path, ClientFile)
    found = Findings(checks)
    tls: TlsFiles | None = read.get("tls")
    if tls is not None:
        found.checks += await bounded("files", "what the file names", aside(_own, tls), _LIMIT)
    if read.get("socket") is not None:
        found.add(await by_socket(ClientConfig(socket=read.get("socket")), seconds))
    found.add(await control_planes(read.get("server") or (), tls, seconds))
    return found


def _own(tls: TlsFiles) -> list[Check]:
    return [*places.tls_files(tls), *certificate(tls, Wanted(roles=(Role.OPERATOR, Role.VIEWER)))]
