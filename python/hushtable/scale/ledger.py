"""Which rounds of a model's tables belong together, on disk.

A line is written, and on the disk, before any table commits, and another when all have ended. So
after a crash in between, it is known which rounds to ask the tables' journals about. Nothing in it
is secret: rounds' numbers are random.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import ControllerError

__all__ = ["Ledger", "ModelRound"]


@dataclass(frozen=True)
class ModelRound:
    """A round of all tables.

    Attributes:
        number: 1 for the first that came as far as to be committed.
        tables: of each table the number of its own round.
        outcomes: of each table how that ended; None where that was not written down.
    """

    number: int
    tables: Mapping[str, int]
    outcomes: Mapping[str, str] | None = None


class Ledger:
    """The rounds of a model, in a file of lines; one process writes it.

    Args:
        path: the file; None keeps only this process's.

    Raises:
        ControllerError: a file that cannot be read, or holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.last: ModelRound | None = None
        if path is not None and path.exists():
            self.last = self._read(path)

    def begin(self, tables: Mapping[str, int]) -> ModelRound:
        """Writes down that the next round is about to be committed."""
        number = 1 if self.last is None else self.last.number + 1
        self._write({"round": number, "tables": dict(tables)})
        self.last = ModelRound(number, dict(tables))
        return self.last

    def end(self, outcomes: Mapping[str, str]) -> ModelRound:
        """Writes down how the last round ended."""
        assert self.last is not None
        self._write({"round": self.last.number, "outcomes": dict(outcomes)})
        self.last = ModelRound(self.last.number, self.last.tables, dict(outcomes))
        return self.last

    def _read(self, path: Path) -> ModelRound | None:
        last = None
        try:
            text = path.read_bytes()
            # What follows the last line's end was cut short while it was written: nothing had
            # been committed by then.
            whole, _, torn = text.rpartition(b"\n")
            for line in whole.splitlines():
                record = json.loads(line)
                number = int(record["round"])
                if "tables" in record:
                    last = ModelRound(number, {n: int(r) for n, r in record["tables"].items()})
                elif last is not None and last.number == number:
                    last = ModelRound(number, last.tables, dict(record["outcomes"]))
            if torn:
                os.truncate(path, len(text) - len(torn))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ControllerError(
                f"{path} is no ledger of rounds ({error!r}): bring it back from a copy, or move it"
                " away to begin another; how rounds ended is in the tables' own journals too"
            ) from error
        return last

    def _write(self, record: Mapping[str, object]) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("ab") as file:
                file.write(json.dumps(record).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ControllerError(f"{self._path} cannot be written: {error}") from error
