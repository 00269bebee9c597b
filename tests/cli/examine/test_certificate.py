"""What is said of a certificate: whose, by whom, for what and until when."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from llmgw.cli.examine.certificate import Wanted, certificate, own_found, unsigned
from llmgw.cli.examine.findings import Findings
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Result
from llmgw.core.identity import Role
from llmgw.pki import authority
from tests.wire.certificates import CLIENT, DAY, LOCAL, NOW, SERVER, files, issuing, leaf, make, root, uri, usage

ROOT = root(ends=NOW + 400 * DAY)
BELOW = issuing(ROOT)
NODE = uri("llmgw://demo/agent/node01")
WANTED = Wanted(roles=(Role.AGENT,), name="node01")
CONTROL = Wanted(roles=(Role.CONTROL,), cluster="demo")


def said(given: TlsFiles, wanted: Wanted = WANTED) -> list[tuple[Result, str]]:
    return [(one.result, f"{one.name}: {one.fact} → {one.fix}") for one in certificate(given, wanted)]


def wrong(given: TlsFiles, wanted: Wanted = WANTED) -> list[str]:
    return [text for result, text in said(given, wanted) if result is not Result.OK and "certificate 2" not in text]


def test_a_new_certificate_of_our_authority_is_ok(tmp_path: Path):
    authority.init(tmp_path / "pki", "lab")
    issued = authority.issue(tmp_path / "pki", "node05", Role.AGENT, [], tmp_path / "tls", days=90)
    given = TlsFiles(issued.certificate, issued.key, issued.authority)
    found = said(given, Wanted(roles=(Role.AGENT,), name="node05"))
    assert [result for result, _ in found] == [Result.OK, Result.OK]
    assert (
        f"{issued.certificate} is for agent node05 of cluster lab, until {issued.not_after:%Y-%m-%d} (" in found[0][1]
    )
    assert "llmgw lab root" in found[1][1]


def test_a_control_planes_certificate_is_judged_as_a_servers(tmp_path: Path):
    given = files(tmp_path, long(uri("llmgw://demo/control/cp1"), *LOCAL, purposes=(SERVER,)), ROOT, BELOW)
    assert wrong(given, CONTROL) == []
    other = wrong(given, Wanted(roles=(Role.CONTROL,), cluster="prod"))
    assert any("is for cluster demo, the file says cluster prod" in text for text in other)


def long(*names: object, by: object = BELOW, purposes: object = (CLIENT,), **more: object):
    """A leaf that does not end soon."""
    return leaf(by, names or [NODE], purposes, **{"ends": NOW + 60 * DAY} | more)


SOON = {"begins": NOW - 300 * DAY, "ends": NOW + 10 * DAY}
AGAIN = (
    r"→ on the machine with the authority \(pki/\): llmgw pki issue node01 --role agent --out node01; copy its files"
)
CLOCK = "(chronyc makestep|timedatectl set-ntp true)"

CASES = {
    "another node": (
        lambda: long(uri("llmgw://demo/agent/node06")),
        f"is for node06, the node is node01: the control plane will refuse it {AGAIN} over those in /.*; "
        "or, only if the node is meant to have another name than its host, set node: node06$",
    ),
    "another role": (lambda: long(uri("llmgw://demo/operator/node01")), f"is for the role operator, not agent {AGAIN}"),
    "expired": (
        lambda: long(ends=NOW - DAY / 2),
        f"expired on .* UTC; it is .* UTC here {AGAIN} .*; or set the clock right, .*: {CLOCK}",
    ),
    "not valid yet": (lambda: long(begins=NOW + DAY), f"is not valid before .* → set this host's clock right: {CLOCK}"),
    "ends soon": (lambda: long(**SOON), f"ends in (9|10) days, on .* {AGAIN}"),
    "a third of a short life": (lambda: long(begins=NOW - DAY * 2 / 3, ends=NOW + DAY / 4), "ends in 6 hours"),
    "for servers only": (lambda: long(purposes=(SERVER,)), "peers will refuse it: un(suitable|supported).* purpose"),
    "no usage": (lambda: long(without_usage=True), "no key usage for signatures"),
    "another authority": (lambda: long(by=root("strange")), "does not come from the authority in "),
    "nobody": (lambda: long(x509.DNSName("node01")), "names nobody of a cluster"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_named(case: str, tmp_path: Path):
    build, words = CASES[case]
    (text,) = wrong(files(tmp_path, build(), ROOT, BELOW))
    assert re.search(words, text)


def test_a_short_life_is_no_warning_while_two_thirds_of_it_are_left(tmp_path: Path):
    """Certificates of a day are renewed at half their life."""
    given = files(tmp_path, long(begins=NOW - DAY / 8, ends=NOW + DAY * 7 / 8), ROOT, BELOW)
    assert wrong(given) == []


def test_an_authority_between_that_lacks_is_named(tmp_path: Path):
    (text,) = wrong(files(tmp_path, long(), ROOT))
    assert "does not come from the authority in" in text


def test_a_chain_for_another_cluster_is_refused_as_on_the_wire(tmp_path: Path):
    within = x509.NameConstraints([uri("prod")], None)
    own = (x509.BasicConstraints(True, 0), True), (usage(key_cert_sign=True), True), (within, True)
    other = make("issuing", ROOT, *own)
    (text,) = wrong(files(tmp_path, long(by=other), ROOT, other))
    assert "peers will refuse it: permitted subtree violation" in text


def test_the_key_of_another_certificate_is_named(tmp_path: Path):
    given = files(tmp_path / "a", long(), ROOT, BELOW)
    other = files(tmp_path / "b", long(), ROOT, BELOW)
    (text,) = wrong(TlsFiles(given.certificate, other.key, given.authority))
    assert f"must be the certificate that belongs to the key {other.key}; it is of another key" in text.replace(
        " → ", "; "
    )


def test_an_open_key_is_told_with_the_files_and_not_again(tmp_path: Path):
    assert wrong(files(tmp_path, long(), ROOT, BELOW, mode=0o644)) == []


def test_without_the_key_signatures_are_followed(tmp_path: Path):
    """As for a user who may not read it."""
    assert unsigned(files(tmp_path / "right", long(), ROOT, BELOW)) == ""
    assert unsigned(files(tmp_path / "direct", long(by=ROOT), ROOT)) == ""
    for number, (shown, chain) in enumerate([(long(), ()), (long(by=root("x")), (BELOW,)), (root("root"), ())]):
        why = unsigned(files(tmp_path / str(number), shown, ROOT, *chain))
        assert why.startswith(f"it does not come from the authority in {tmp_path}")


def test_an_authority_that_ends_is_told(tmp_path: Path):
    old = root(begins=NOW - 4000 * DAY, ends=NOW + 30 * DAY)
    below = issuing(old)
    found = said(files(tmp_path, long(by=below), old, below))
    assert any(result is Result.WARNING and "authority.crt ends in" in text for result, text in found)


def test_files_that_are_no_certificates_are_told(tmp_path: Path):
    given = files(tmp_path, long(), ROOT, BELOW)
    for path in (given.certificate, given.authority):
        path.write_text("not a certificate")
    assert [result for result, _ in said(given)] == [Result.FAULT, Result.FAULT]
    leaf_said, root_said = [text for _, text in said(given)]
    assert "must hold whole certificates in PEM form → make a new one" in leaf_said
    assert "must hold whole certificates in PEM form → copy it from the machine with the authority" in root_said


def test_a_new_certificate_of_a_control_plane_is_for_all_that_is_dialled(tmp_path: Path):
    who = uri("llmgw://demo/control/cp1")
    shown = long(who, x509.DNSName("cp.lab"), purposes=(SERVER,), **SOON)
    given = files(tmp_path, shown, ROOT, BELOW)
    (text,) = wrong(given, replace(CONTROL, address="10.0.0.1", program="llmgwd"))
    assert "llmgw pki issue cp1 --role control --address 10.0.0.1 --address cp.lab --out cp1; copy its files" in text
    assert text.endswith(f" over those in {tmp_path}; restart llmgwd")


def test_a_certificate_and_an_authority_that_both_begin_later_are_a_clock_that_is_wrong(tmp_path: Path):
    later = root(begins=NOW + 400 * DAY, ends=NOW + 4000 * DAY)
    below = issuing(later)
    given = files(tmp_path, long(by=below, begins=NOW + 401 * DAY, ends=NOW + 500 * DAY), later, below)
    (only,) = [one for one in certificate(given, WANTED) if one.result is not Result.OK]
    assert (only.name, only.result) == ("clock", Result.FAULT)
    assert re.match(r"by this clock it is .* UTC, which must be wrong: .* and its authority begin on ", only.fact)
    assert re.match(r"set it right now: (chronyc makestep|timedatectl set-ntp true) ", only.fix)
    assert own_found([only], given, Findings()).early


def test_where_a_control_plane_is_of_another_authority_no_new_certificate_is_asked_for(tmp_path: Path):
    given = files(tmp_path, long(by=root("strange")), ROOT)
    checks = certificate(given, WANTED)
    alone, told = (own_found(checks, given, Findings(strange=strange)).checks for strange in (False, True))
    assert "copy the authority.crt that was issued with it over" in alone[0].fix and "pki issue" in alone[0].fix
    assert told[0].fact == alone[0].fact
    assert told[0].fix == (
        f"{given.authority} is not this cluster's: copy the root over it from the machine with the authority "
        "(pki/root.crt)"
    )


def test_of_a_swapped_certificate_and_key_nothing_more_is_said(tmp_path: Path):
    given = files(tmp_path, long(), ROOT, BELOW)
    assert certificate(TlsFiles(given.key, given.certificate, given.authority), WANTED) == []
