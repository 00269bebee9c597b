"""Pictures of screens go to snapshots/, one folder per test module; nothing blinks and no clock runs."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_textual_snapshot as plugin
from textual.widgets import Input

SNAPSHOTS = Path(__file__).parents[2] / "snapshots"


class ConsoleSvg(plugin.SVGImageExtension):
    """The plugin knows no option for the folder."""

    @classmethod
    def dirname(cls, *, test_location: Any) -> str:
        return str(SNAPSHOTS / test_location.basename)


@pytest.fixture(autouse=True)
def pictures_in_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "SVGImageExtension", ConsoleSvg)


@pytest.fixture(autouse=True)
def nothing_moves(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No blinking cursor, no animation, one time zone; and not what the caller's terminal asks for."""
    monkeypatch.setattr(Input, "cursor_blink", False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
