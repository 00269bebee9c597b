from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.groups import bar
from llmgw.core.presence import NodeState
from llmgw.core.safe import Safe, safe
from llmgw.core.units import GIB
from llmgw.tui.rows import models, nodes, replicas, why
from llmgw.tui.rows.row import Cell, Column, Row, made, matching, ordered, rough_age
from llmgw.tui.text import fitted, to_ascii, width
from llmgw.tui.widgets.detail import within
from llmgw.tui.widgets.header import header
from llmgw.tui.widgets.layout import Widths
from tests import worlds
from tests.tui.feeds import view_of

ALL = {"embed", "gemma", "llama4", "qwen3-0.6b-instruct", "whisper", "removed"}


def keys(rows: Sequence[Row]) -> list[str]:
    return [row.key for row in rows]


def text(row: Row, columns: Sequence[Column], title: str) -> str:
    return next(cell.drawn(worlds.T0) for cell, column in zip(row.cells, columns, strict=True) if column.title == title)


def test_replicas_stand_under_their_open_model_by_ordinal() -> None:
    view = view_of(worlds.many_states())
    assert set(keys(made(models.entries(view, set())))) == ALL
    assert keys(made(models.entries(view, {"gemma"})))[1:5] == ["gemma", "gemma/9", "gemma/10", "gemma/11"]


def test_sorting_moves_models_with_their_replicas() -> None:
    rows = made(models.entries(view_of(worlds.many_states()), {"gemma"}))
    by_name = keys(ordered(rows, 0, down=True))
    at = by_name.index("gemma")
    assert by_name[at : at + 4] == ["gemma", "gemma/9", "gemma/10", "gemma/11"]
    assert by_name[0] == "whisper"


def test_numbers_sort_as_numbers_and_ages_as_ages() -> None:
    world = worlds.three_nodes()
    some = (worlds.node("a", promised=9 * GIB, ago=5), worlds.node("b", promised=10 * GIB, ago=4000), world.nodes[2])
    rows = made(nodes.entries(view_of(replace(world, nodes=some))))
    assert keys(ordered(rows, 4, down=False)) == ["node03", "a", "b"]
    assert keys(ordered(rows, 2, down=False)) == ["node03", "b", "a"], "since when: the oldest first"


def test_a_filter_is_a_regular_expression_or_else_plain_text() -> None:
    rows = made(models.entries(view_of(worlds.many_states()), {"gemma"}))
    assert keys(matching(rows, "^whis|refused")) == ["llama4", "whisper"]
    assert keys(matching(rows, "gemma/10")) == ["gemma", "gemma/10"]
    assert set(keys(matching(rows, "!GEMMA"))) == ALL - {"gemma"}
    assert keys(matching(rows, "!failed"))[1:4] == ["gemma", "gemma/9", "gemma/11"]
    assert keys(matching(rows, "(w")) == ["llama4"]


def test_a_lost_node_keeps_its_last_figures_and_says_lost() -> None:
    [row] = made(nodes.entries(view_of(replace(worlds.empty(), nodes=(worlds.node("a", NodeState.LOST, ago=252),)))))
    assert text(row, nodes.COLUMNS, "STATE") == "lost"
    assert text(row, nodes.COLUMNS, "FOR") == "4m"
    assert text(row, nodes.COLUMNS, "PROMISED") == "▓░░░░░░░ 600 MiB of 7.5 GiB"


@pytest.mark.parametrize(("part", "whole", "drawn"), [(0, 8, "░"), (1, 1000, "▓░"), (9, 8, "▓▓▓▓▓▓▓▓"), (1, 0, "░")])
def test_a_bar_never_shows_something_as_nothing(part: int, whole: int, drawn: str) -> None:
    assert bar(part, whole) == drawn.ljust(8, "░")


def test_what_runs_an_older_profile_says_so_and_how_to_change_it() -> None:
    """In its own row, in its model's, and whole in the lines below the table, where nothing is cut."""
    view = view_of(worlds.many_states())
    says = "runs an older profile; scale it down and up to change it"
    [model] = [row for row in made(models.entries(view, ())) if row.key == "qwen3-0.6b-instruct"]
    assert model.cells[-1].text == says and f"qwen3-0.6b-instruct/0 {says}" in model.detail
    [replica] = [row for row in made(replicas.entries(view, "node03")) if row.key == "qwen3-0.6b-instruct/0"]
    assert replica.cells[-1].text == says and replica.detail == (f"qwen3-0.6b-instruct/0 {says}",)


def test_an_ipv6_address_stands_in_brackets() -> None:
    one = worlds.replica("gemma", 0, "node01")
    row = replicas.row(replace(one, shards=(replace(one.shards[0], host="::1"),)), False)
    assert text(row, replicas.COLUMNS, "SERVES AT") == "[::1]:21000"


def test_a_replica_of_a_node_that_is_away_may_still_serve() -> None:
    """In its own row, on its node's screen and as a count in its model's row and in the header: the same number."""
    world = worlds.three_nodes()
    gone = tuple(replace(one, state=NodeState.UNREACHABLE) for one in world.nodes)
    told = tuple(replace(one, ready=0, away=one.ready) for one in world.models)
    view = view_of(replace(world, nodes=gone, models=told))
    rows = made(models.entries(view, {"gemma"}))
    assert text(rows[0], models.COLUMNS, "READY") == "0/2, 2 away"
    assert {text(row, models.COLUMNS, "WHAT") for row in rows if row.depth} == {"node away, may still serve"}
    on = made(replicas.entries(view, next(iter(view.replicas.all.values())).shards[0].node))
    assert text(on[0], replicas.COLUMNS, "WHAT") == "node away, may still serve"
    assert "replicas 0/2, 2 away" in header(view, safe("x"), worlds.T0, 160, read_only=False, note=safe("")).plain


def test_a_failed_replica_counts_down_to_its_next_attempt() -> None:
    rows = made(replicas.entries(view_of(worlds.one_node_lost()), "node03"))
    what = rows[0].cells[-1]
    assert what.drawn(worlds.T0) == "was ended by signal 9, attempt 3 in 38s"
    assert what.drawn(worlds.T0 + 30).endswith("in 8s")
    assert what.drawn(worlds.T0 + 90).endswith("in 0s")


def test_why_names_each_node_once_with_what_would_clear_it() -> None:
    answer = worlds.nothing_fits().whys["llama4"]
    rows = made(why.entries(answer))
    assert [text(row, why.COLUMNS, "VERDICT") for row in rows] == ["not now", "not now", "never", "never"]
    assert text(rows[0], why.COLUMNS, "CLEARS WHEN") == "2 GiB is freed"
    assert why.head(answer)[1] == "4 nodes: 0 fit, 2 not now, 2 never"


def test_an_age_over_a_minute_changes_once_a_minute() -> None:
    assert [rough_age(seconds) for seconds in (-1, 0, 59, 60, 119, 3599, 3600, float("nan"), float("inf"))][:7] == [
        "0s", "0s", "59s", "1m", "1m", "59m", "1h00m",
    ]  # fmt: skip


def test_a_sparse_column_is_there_once_a_row_has_something_in_it() -> None:
    for world, there in ((worlds.three_nodes(), False), (worlds.gpu_server(), True)):
        laid = Widths(nodes.COLUMNS)
        laid.fit(150)
        rows = made(nodes.entries(view_of(world)))
        laid.learn(rows)
        assert ("GPUS" in [column.title for column in laid.columns]) is there
    assert text(rows[0], nodes.COLUMNS, "GPUS") == "8×NVIDIA H100 80GB HBM3"
    sick = made(nodes.entries(view_of(worlds.sick_node())))
    assert text(sick[1], nodes.COLUMNS, "GPUS") == "probe failed"


def test_text_is_cut_by_the_cells_it_takes_not_by_its_letters() -> None:
    for words, cells in (("日本語", 5), ("abc", 5), ("日本語", 4), ("a", 0), ("", 3), ("e\u0301e\u0301", 1)):
        assert width(fitted(safe(words), cells)) == cells
    assert fitted(safe("abcdef"), 4) == "abc…"
    assert fitted(safe("7"), 3, right=True) == "  7"


def test_ascii_keeps_the_width() -> None:
    for words in ("▓░ é 日本 ⏎␛ ▸▼ ─┌ ｆ", "plain"):
        assert to_ascii(words).isascii()
        assert len(to_ascii(words)) == width(safe(words))
    assert to_ascii("2 → 3 replicas") == "2 ->3 replicas"
    assert to_ascii("    → look for it") == "   -> look for it"


def test_texts_take_the_lines_they_need_and_say_where_they_were_cut() -> None:
    texts = [safe("! memory is 1 GiB, it had 4 GiB; look for a failed module"), safe("Debian 12"), safe("  last words")]
    assert within(texts, 30, 9) == [
        "! memory is 1 GiB, it had 4",
        "  GiB; look for a failed",
        "  module",
        "Debian 12",
        "  last words",
    ]
    assert within(texts, 30, 4)[:2] == ["! memory is 1 GiB, it had 4", "  GiB; look for a failed modu…"]
    assert within(texts, 30, 3) == ["! memory is 1 GiB, it had 4 G…", "Debian 12", "  last words"]
    assert within(texts, 30, 2) == ["! memory is 1 GiB, it had 4 G…", "  last words"]
    assert within((), 30, 2) == []
    many = [safe(f"line {number}") for number in range(9)]
    assert within(many, 30, 4) == ["line 0", "… 6 more", "line 7", "line 8"]


@given(st.lists(st.text().map(safe), max_size=6), st.integers(8, 60), st.integers(1, 8))
def test_texts_are_never_more_lines_or_wider_than_there_is_room(texts: list[Safe], cells: int, room: int) -> None:
    drawn = within(texts, cells, room)
    assert len(drawn) <= room
    assert all(width(line) <= cells for line in drawn)


def widths(room: int, *columns: Column) -> dict[str, int]:
    laid = Widths(columns)
    laid.fit(room)
    laid.learn([Row("k", tuple(Cell(safe("x" * 30)) for _ in columns))])
    assert all(column.x + column.cells <= room for column in laid.columns)
    return {column.title: column.cells for column in laid.columns}


def test_a_narrow_terminal_leaves_out_what_is_spare_then_narrows_what_may_be() -> None:
    fixed, spare = Column(safe("A"), most=10), Column(safe("B"), most=10, spare=1)
    first, second = Column(safe("C"), most=30, least=8), Column(safe("D"), most=30, least=5)
    assert widths(100, fixed, spare, first, second) == {"A": 10, "B": 10, "C": 30, "D": 46}
    assert widths(60, fixed, spare, first, second) == {"A": 10, "B": 10, "C": 30, "D": 6}
    assert widths(50, fixed, spare, first, second) == {"A": 10, "B": 10, "C": 21, "D": 5}
    assert widths(30, fixed, spare, first, second) == {"A": 10, "C": 12, "D": 5}
