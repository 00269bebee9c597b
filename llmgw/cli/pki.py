"""`llmgw pki`: make the authority of a cluster, and issue certificates from it."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from llmgw.cli.parser import Parser
from llmgw.core.identity import Role


def main(argv: Sequence[str]) -> int:
    """Do what was asked; CannotIssue and BadName say why not."""
    asked = _parser().parse_args(argv)
    # Not above: help and mistakes need no cryptography.
    from llmgw.pki import authority

    if asked.act == "init":
        authority.init(asked.directory, asked.cluster)
        _tell(
            asked,
            {"cluster": asked.cluster, "authority": str(asked.directory), "root": str(asked.directory / "root.crt")},
            f"made the authority of cluster {asked.cluster} in {asked.directory}\n"
            f"{asked.directory / 'root.key'} is not needed to issue: keep it offline",
        )
        return 0
    issued = authority.issue(asked.authority, asked.name, Role(asked.role), asked.address, asked.out, days=asked.days)
    if issued.identity.role is Role.CONTROL and not asked.address:
        print(
            f"llmgw: warning: without --address {issued.identity.name} can be dialled by that name only, not by an IP "
            "address; issue another with --address for each name and address that others use",
            file=sys.stderr,
        )
    _tell(
        asked,
        {
            "cluster": issued.identity.cluster,
            "role": issued.identity.role.value,
            "name": issued.identity.name,
            "certificate": str(issued.certificate),
            "key": str(issued.key),
            "authority": str(issued.authority),
            "serial": f"{issued.serial:x}",
            "not_after": issued.not_after.isoformat(),
        },
        f"issued {issued.identity.uri}, valid until {issued.not_after:%Y-%m-%d}\n"
        f"certificate {issued.certificate}\nkey         {issued.key}\nauthority   {issued.authority}",
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    top = Parser(
        "llmgw pki",
        "Make a cluster's authority and issue certificates. Nothing that exists is ever overwritten.",
        example="llmgw pki init pki --cluster lab\n  llmgw pki issue cp1 --role control --address 10.0.0.1 --out tls",
    )
    acts = top.add_subparsers(dest="act", metavar="ACT", required=True, parser_class=Parser)
    init = acts.add_parser("init", help="make the authority of a new cluster", description="Make an authority.")
    init.add_argument("directory", metavar="DIR", type=Path, help="where to; it holds private keys")
    init.add_argument("--cluster", metavar="NAME", required=True, help="the cluster's name, part of every certificate")
    issue = acts.add_parser("issue", help="issue one certificate", description="Issue one certificate.")
    issue.add_argument("name", metavar="NAME", help="whose it is; for an agent, the node's hostname")
    issue.add_argument("--role", required=True, choices=[role.value for role in Role], help="what the holder may do")
    issue.add_argument(
        "--address",
        metavar="A",
        action="append",
        default=[],
        help="host name or IP address at which others dial it; may be given several times",
    )
    issue.add_argument("--authority", metavar="DIR", type=Path, default=Path("pki"), help="the authority (default pki)")
    issue.add_argument("--out", metavar="DIR", type=Path, default=Path(), help="where the files go (default here)")
    issue.add_argument("--days", metavar="N", type=int, default=365, help="how long it is valid (default 365)")
    for act in (init, issue):
        act.add_argument("--json", action="store_true", help="answer as one JSON object")
    return top


def _tell(asked: argparse.Namespace, facts: dict[str, str], words: str) -> None:
    print(json.dumps(facts) if asked.json else words)
