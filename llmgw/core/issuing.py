"""How does a program get another certificate? In the words of every message that asks for one."""

from collections.abc import Iterable

from llmgw.core.identity import Role

_MOST = 8


def issue(name: str, role: Role, directory: str, *, addresses: Iterable[str] = (), restart: str = "") -> str:
    """Where the command is run, the command, and what becomes of its files.

    `directory` has the files so far, `addresses` are what others dial, `restart` the program that reads them.
    """
    dialled = "".join(f" --address {one}" for one in [*addresses][:_MOST])
    return (
        f"on the machine with the authority (pki/): llmgw pki issue {name} --role {role.value}{dialled} --out {name}; "
        f"copy its files over those in {directory}" + (f"; restart {restart}" if restart else "")
    )


def of_other_name(name: str, host: str, again: str) -> str:
    """What to do where a node's certificate is for `name`, and the node is not; `host` is its host's name.

    A node is its host, so its name is the last thing to change; `again` says how to issue a certificate.
    """
    if name == host:
        return f"take node: out of agent.yaml, since this host is {name}; or {again}"
    return f"{again}; or, only if the node is meant to have another name than its host, set node: {name}"
