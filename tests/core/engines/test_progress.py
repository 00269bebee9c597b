"""How far an install is, as people read it."""

from dataclasses import replace

import pytest

from llmgw.core.engines.progress import failed, left, percent, words
from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.units import MIB, Bytes

NOW = 1_000.0
FILE = "llama-b10991-bin-ubuntu-x64.tar.gz"
INSTALL = Install(engine="llama.cpp", version="b10991", step=InstallStep.RESOLVE, since=NOW)
DOWNLOAD = replace(
    INSTALL, step=InstallStep.DOWNLOAD, subject=FILE, done=Bytes(10 * MIB), total=Bytes(16 * MIB), rate=3.1 * MIB
)
BROKEN = replace(INSTALL, step=InstallStep.READY, problem="libgomp.so.1 is gone")
FAILED = replace(DOWNLOAD, problem="HTTP 404", attempts=1, retry_at=NOW + 120.5)


@pytest.mark.parametrize(
    ("install", "text"),
    [
        (INSTALL, "finding out which files it needs"),
        (replace(INSTALL, problem="waits for its turn to download"), "waits for its turn to download"),
        (DOWNLOAD, f"downloading {FILE} (16 MiB), 62 %, 3.1 MiB/s, 1s left"),
        (replace(DOWNLOAD, rate=0.0), f"downloading {FILE} (16 MiB), 62 %"),
        (replace(DOWNLOAD, rate=0.001), f"downloading {FILE} (16 MiB), 62 %, ? left"),
        (replace(DOWNLOAD, rate=float("nan")), f"downloading {FILE} (16 MiB), 62 %"),
        (replace(DOWNLOAD, rate=float("inf")), f"downloading {FILE} (16 MiB), 62 %, 0s left"),
        (replace(DOWNLOAD, total=Bytes(0)), f"downloading {FILE}"),
        (replace(DOWNLOAD, subject="", total=Bytes(0)), "downloading"),
        (replace(DOWNLOAD, step=InstallStep.VERIFY), f"verifying {FILE}, 62 %"),
        (replace(DOWNLOAD, step=InstallStep.UNPACK), f"unpacking {FILE}, 62 %"),
        (replace(INSTALL, step=InstallStep.LIBRARIES), "checking libraries"),
        (replace(INSTALL, step=InstallStep.LIBRARIES, subject="libgomp1"), "checking libraries: libgomp1"),
        (replace(INSTALL, step=InstallStep.PROVE, subject="loading a tiny model"), "proving: loading a tiny model"),
        (replace(INSTALL, step=InstallStep.READY, subject="x"), "ready"),
        (BROKEN, "broken: libgomp.so.1 is gone"),
        (FAILED, "failed: HTTP 404; tried again in 2m00s"),
        (replace(FAILED, retry_at=None), "failed: HTTP 404"),
        (replace(FAILED, retry_at=NOW - 5), "failed: HTTP 404; tried again in 0s"),
        (replace(BROKEN, problem="x" * 999), "broken: " + "x" * 199 + "…"),
        (
            replace(DOWNLOAD, step=InstallStep.READY, subject=f"download {FILE}", problem="libgomp.so.1 is gone"),
            f"repairing: downloading {FILE} (16 MiB), 62 %, 3.1 MiB/s, 1s left; libgomp.so.1 is gone",
        ),
        (replace(BROKEN, subject="libraries"), "repairing: checking libraries; libgomp.so.1 is gone"),
        (replace(BROKEN, subject="elsewhere", total=Bytes(4)), "repairing: elsewhere, 0 %; libgomp.so.1 is gone"),
    ],
)
def test_words(install: Install, text: str) -> None:
    assert words(install, NOW) == text


@pytest.mark.parametrize(
    ("done", "total", "share"),
    [(0, 0, None), (0, 3, 0), (1, 3, 33), (2, 3, 66), (3, 3, 100), (9, 3, 100), (10**9 - 1, 10**9, 99)],
)
def test_percent_is_a_hundred_only_at_the_end(done: int, total: int, share: int | None) -> None:
    assert percent(replace(DOWNLOAD, done=Bytes(done), total=Bytes(total))) == share


@pytest.mark.parametrize(
    ("done", "total", "rate", "seconds"),
    [(0, 100, 10.0, 10.0), (50, 100, 10.0, 5.0), (100, 100, 10.0, None), (0, 100, 0.0, None), (0, 0, 5.0, None)],
)
def test_time_left_is_said_where_it_can_be(done: int, total: int, rate: float, seconds: float | None) -> None:
    assert left(replace(DOWNLOAD, done=Bytes(done), total=Bytes(total), rate=rate)) == seconds


def test_what_waits_has_not_failed() -> None:
    assert failed(FAILED) and failed(BROKEN) and failed(replace(FAILED, attempts=0))
    assert not failed(DOWNLOAD) and not failed(replace(INSTALL, problem="waits for its turn to download"))
