"""What does the agent know after it was gone? The last Desired, and one record per shard in a directory of its own."""

import contextlib
import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import betterproto2

from llmgw.agent import keep
from llmgw.core.errors import BadMessage, BadName
from llmgw.core.facts import Secret, ShardReport
from llmgw.core.link import Desired
from llmgw.core.names import ShardId, file_name
from llmgw.wire.agent import v1
from llmgw.wire.convert import from_wire, to_wire

_log = logging.getLogger(__name__)

T = TypeVar("T")

_RECORD, _KEY, _LOG, _INSTALL = "shard.json", "key", "engine.log", "install"


class Records:
    """The files of one agent under its state directory. Methods raise OSError where the disk does not do its part."""

    def __init__(self, state: Path) -> None:
        self._desired, self._epoch, self._shards = state / "desired.json", state / "epoch", state / "shards"

    def make(self) -> None:
        """Make the directories."""
        keep.make_private(self._shards)

    # --- the last Desired ---------------------------------------------------------------------------------------

    def save_desired(self, desired: Desired) -> None:
        """Keep it; it is on the disk when this returns."""
        keep.write(self._desired, to_wire(desired, v1.Desired).to_json(indent=1))

    def desired(self) -> Desired | None:
        """Return the last one obeyed. A damaged file is put aside and told: nothing is stopped for want of it."""
        return self._read(self._desired, v1.Desired, Desired)

    def save_epoch(self, epoch: int) -> None:
        """Keep the highest epoch that was obeyed, apart from what it asked for: the one may be damaged, and the other
        must still say which leader is an old one."""
        keep.write(self._epoch, str(epoch))

    def epoch(self) -> int:
        """The highest epoch that was obeyed, 0 when none is known."""
        try:
            return int(keep.read(self._epoch) or "0")
        except (keep.Damaged, ValueError) as error:
            _log.error("%s cannot be used (%s); it is kept as %s", self._epoch, error, keep.put_aside(self._epoch))
        except OSError as error:
            _log.error("%s cannot be read: %s", self._epoch, error.strerror)
        return 0

    # --- shards -------------------------------------------------------------------------------------------------

    def directory(self, shard: ShardId) -> Path:
        """The shard's own directory."""
        return self._shards / file_name(shard)

    def log(self, shard: ShardId) -> Path:
        """Where its engine's output goes."""
        return self.directory(shard) / _LOG

    def key_file(self, shard: ShardId) -> Path:
        """Where its engine reads its key."""
        return self.directory(shard) / _KEY

    def save_key(self, shard: ShardId, key: Secret) -> None:
        """Write the key file anew."""
        keep.write_secret(self.key_file(shard), key)

    def key(self, shard: ShardId) -> Secret:
        """The key that its engine was given; empty when there is none."""
        try:
            return Secret(self.key_file(shard).read_text().strip())
        except OSError:
            return Secret("")

    def save_install(self, shard: ShardId, directory: str) -> None:
        """Keep which installed engine it runs with; empty for one that is named by hand."""
        keep.write(self.directory(shard) / _INSTALL, directory)

    def install(self, shard: ShardId) -> str:
        """The directory of the installed engine that it runs with; empty when it runs with none, or never ran."""
        try:
            return keep.read(self.directory(shard) / _INSTALL) or ""
        except keep.Damaged:
            return ""

    def save(self, report: ShardReport) -> None:
        """Keep what is known of a shard, without its key."""
        keep.make_private(self.directory(report.shard))
        text = to_wire(replace(report, key=Secret("")), v1.ShardReport).to_json(indent=1)
        keep.write(self.directory(report.shard) / _RECORD, text)

    def shards(self) -> Iterator[ShardReport]:
        """All shards that have a record that can be read."""
        for directory in sorted(self._shards.iterdir()):
            record = self._read(directory / _RECORD, v1.ShardReport, ShardReport)
            if record is None:
                _log.warning("%s holds no record of a shard; it is left alone", directory)
            elif record.order is None or file_name(record.shard) != directory.name:
                _log.warning("%s holds the record of another shard; it is left alone", directory)
            else:
                yield record

    def forget(self, shard: ShardId) -> None:
        """Remove all that is kept of a shard."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.directory(shard))

    def _read(self, path: Path, message: type[betterproto2.Message], core: type[T]) -> T | None:
        try:
            text = keep.read(path)
            if text is None:
                return None
            # A later version may have written fields that this one does not know.
            value: T = from_wire(message.from_json(text, ignore_unknown_fields=True), core)
        except (keep.Damaged, BadMessage, BadName, ValueError, TypeError, LookupError, AttributeError) as error:
            _log.error("%s cannot be used (%s); it is kept as %s", path, error, keep.put_aside(path))
            return None
        except OSError as error:
            _log.error("%s cannot be read: %s", path, error.strerror)
            return None
        return value
