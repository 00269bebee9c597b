import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.safe import FIELD, join, safe

HOSTILE = {
    "X01": ("\x1b[31mred", "␛[31mred"),
    "X02": ("\x1b[2J\x1b[1;1Hfake prompt", "␛[2J␛[1;1Hfake prompt"),
    "X04": ("\x1b]52;c;cm0gLXJm\x07", "␛]52;c;cm0gLXJm␇"),
    "X05": ("\x1b]8;;http://e\x1b\\l\x1b]8;;\x1b\\", "␛]8;;http://e␛\\l␛]8;;␛\\"),
    "X06": ("\u009b31m\u009d0;t\u009c", r"\x9b31m\x9d0;t\x9c"),
    "X06 raw": (b"\x9b31m", r"\x9b31m"),
    "X07": ("\x1b[6n\x1bP$q\x1b[c\x1b[?1049l\x1bc", "␛[6n␛P$q␛[c␛[?1049l␛c"),
    "X08 nul": ("a\x00b\x7f", "a␀b␡"),
    "X08 cr": ("good\rbad", "bad"),
    "X08 cr at the end": ("10 %\r20 %\r\n", "20 %⏎"),
    "X08 bs": ("abc\b\b\bxyz", "abc␈␈␈xyz"),
    "X09": ("\u202egpj.exe\u200b", "⟨RLO⟩gpj.exe"),
    "X09 marks": ("e" + "\u0301" * 50 + "x", "e" + "\u0301" * 8 + "x"),
    "X10": ("[red]x[/red] :smile: $error", "[red]x[/red] :smile: $error"),
    "X12": ("[/]x[link=http://e]x", "[/]x[link=http://e]x"),
    "X13": ("a\udcffb\ud800", r"a\xffb\ud800"),
    "X13 raw": (b"a\xffb", r"a\xffb"),
    "X14": ("one\ntwo\tthree", "one⏎two⇥three"),
    "X14 wide": ("日本", "日本"),
    "tags": ("a\U000e0041\U000e0042b", "ab"),
    "lines": ("a\u2028b\u2029c", "a⟨LS⟩b⟨PS⟩c"),
    "a mark without a base": ("\u0301x", "◌\u0301x"),
}


@pytest.mark.parametrize(("given", "shown"), HOSTILE.values(), ids=HOSTILE)
def test_what_would_steer_a_terminal_is_made_visible(given: str | bytes, shown: str) -> None:
    assert safe(given) == shown


def test_a_long_text_is_cut_and_says_so() -> None:
    assert safe("x" * FIELD) == "x" * FIELD
    assert safe("x" * (FIELD + 1)) == "x" * (FIELD - 1) + "…"
    assert safe(b"\xe6\x97\xa5" * 9, limit=4) == "日日日…"
    assert safe("abc", limit=1) == "…"


def test_a_very_long_text_costs_no_more_than_a_long_one() -> None:
    """Twenty megabytes of a progress bar in one cell: only the start is looked at."""
    assert len(safe("\r".join(["x" * 100] * 200_000))) <= FIELD


def test_lines_stay_lines_where_they_are_wanted() -> None:
    assert safe("a\x1b\nb\rc\n", lines=True) == "a␛\nc\n"
    assert join(" > ", [safe("a"), safe("b\n")]) == "a > b⏎"


NOT_SHOWN = ("Cc", "Cf", "Cs", "Zl", "Zp")


@given(st.one_of(st.text(st.characters(exclude_categories=())), st.binary()), st.integers(1, 40))
def test_whatever_comes_in_what_goes_out_is_visible_and_short(text: str | bytes, limit: int) -> None:
    out = safe(text, limit)
    assert len(out) <= limit
    assert not [c for c in out if unicodedata.category(c) in NOT_SHOWN]
    out.encode()


@given(st.text(st.characters(exclude_categories=())))
def test_safe_text_stays_as_it_is(text: str) -> None:
    once = safe(text)
    assert safe(once) == once
