"""The steps of fetching what a shard or a front needs of a model.

In the folder of fetched models a fetch keeps, under hidden names that no server looks at::

    .NAME-VERSION.PART.partial   the copy: files as long as the model's, with holes
    .NAME-VERSION.PART.journal   the chunks of it that are on the disk, and what the source was
    .parts/NAME-VERSION.json     which part the whole copy NAME-VERSION has
    .parts/NAME-VERSION.lock     held while one is fetched

PART is ``shard-0`` and so on, or ``front``; of a server that is asked alone, ``onion-shard-0``.

The journal is what counts: without it, or with another source's, the copy begins anew. What it
names is trusted until the end, where every byte is checked against the model's version.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _native, _within
from ..errors import (
    DamagedTable,
    Error,
    FetchError,
    NoRoom,
    PartExists,
    ShardMapError,
    SourceChanged,
    TableError,
    VersionMismatch,
)
from ..table import Progress
from .copying import Chunk, Journal, Piece, chunks_of, copy, damaged, sync, write_failed
from .source import FileFacts, Source, first_files, no_file

__all__ = ["Copied", "Fetch"]

#: Rows of a table that have a hash together.
_BLOCK_ROWS = 256


@dataclass(frozen=True, slots=True)
class Copied:
    """A whole copy.

    Attributes:
        path: its folder.
        bytes: bytes of the model that it has.
        copied_bytes: bytes of them that were copied now.
    """

    path: Path
    bytes: int
    copied_bytes: int


class Fetch:
    """A copy of what one shard of a model needs, or a front, in the making.

    Args:
        source: where the model is.
        folder: the folder of fetched models.
        scheme: ``pair`` or ``onion``: whose shards they are.
        shard: which shard; None for a front.
        version: the model's, in hex; None to take whichever is there.
        progress: called with bytes done and bytes there are, copying and checking together.
    """

    def __init__(
        self,
        source: Source,
        folder: Path,
        scheme: str,
        shard: int | None,
        version: str | None,
        progress: Progress | None,
    ) -> None:
        self._source = source
        self._folder = folder
        self._scheme, self._shard = scheme, shard
        self._progress = progress
        self._done = self._copied = self._total = 0
        self._first = {
            path: self._read_first(path, bytes_max)
            for path, bytes_max in first_files(scheme).items()
        }
        (_, manifest), (_, map_) = self._first.values()
        try:
            found = json.loads(_native.shard_heads(manifest, map_, scheme))
        except TableError as error:
            raise type(error)(f"{source.shown}: {error}") from error
        self.map: dict[str, Any] = found["map"]
        if version is not None and self.map["model"] != version:
            raise VersionMismatch(
                f"{source.shown} holds version {self.map['model']} of the model, not {version}: "
                "nothing was fetched",
                expected=version,
                found=self.map["model"],
            )
        self._heads: dict[str, int | None] = dict(found["heads"])
        shards = len(self.map["shards"])
        if shard is not None and not 0 <= shard < shards:
            raise ShardMapError(f"there is no shard {shard}: the map has {shards}, numbered from 0")
        part = "front" if shard is None else f"shard-{shard}"
        self.part = part if scheme == "pair" else f"{scheme}-{part}"
        self._whole = _within.join(folder, f"{self.map['name']}-{self.map['model'][:16]}")
        self._partial = folder / f".{self._whole.name}.{self.part}.partial"
        self._journal = self._partial.with_suffix(".journal")
        self._marks = folder / ".parts"
        self._mark = self._marks / f"{self._whole.name}.json"

    def _read_first(self, path: str, bytes_max: int) -> tuple[FileFacts, bytes]:
        facts = self._source.facts(path)
        if facts is None:
            raise no_file(self._source.shown, path)
        if facts.bytes > bytes_max:
            raise FetchError(
                f"{self._source.shown}: {path} has {facts.bytes} bytes, over the {bytes_max} of "
                "any: it is damaged or no model's"
            )
        return facts, self._source.read(path, 0, facts.bytes)

    def run(self) -> Copied:
        """Makes the copy, or goes on with it, and gives it its name."""
        try:
            self._marks.mkdir(parents=True, exist_ok=True)
            with self._locked():
                if self._is_there():
                    # A fetch that was killed once it was done leaves its journal.
                    self._journal.unlink(missing_ok=True)
                    return Copied(self._whole, sum(p.bytes for p in self._pieces(self._whole)), 0)
                return self._make()
        except OSError as error:
            raise write_failed(self._folder, error) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._marks / f"{self._whole.name}.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise FetchError(
                    f"another process fetches {self._whole.name} into {self._folder}: wait for it"
                ) from error
            yield

    def _what(self) -> dict[str, str]:
        return {"model": self.map["model"], "map": self.map["version"], "part": self.part}

    def _is_there(self) -> bool:
        """Whether the whole copy is there already.

        Raises:
            PartExists: what is there is something else.
        """
        if not self._whole.exists():
            return False
        held = self._held()
        if held is None:
            # A folder that was brought here by other means.
            try:
                _native.verify_shard(self._whole, self._shard, self._scheme, progress=None)
                found = json.loads(_native.read_shards(self._whole, self._scheme))
            except Error:
                found = {}
            if (found.get("model"), found.get("version")) == (self.map["model"], self._map()):
                self._write_mark()
                return True
        elif held == self._what():
            return True
        what = "something else" if held is None else held.get("part", "something else")
        if held is not None and held.get("map") != self._map():
            what += " of another map of this version"
        raise PartExists(
            f"{self._whole} has {what}, not {self.part} of this map: fetch into another folder, "
            "one for each shard and front, or remove that first",
            path=str(self._whole),
            part="" if held is None else str(held.get("part", "")),
        )

    def _map(self) -> str:
        version: str = self.map["version"]
        return version

    def _held(self) -> dict[str, Any] | None:
        try:
            held = json.loads(self._mark.read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return held if isinstance(held, dict) else None

    def _write_mark(self) -> None:
        new = self._mark.with_name(f".{self._mark.name}")
        with new.open("w") as file:
            json.dump(self._what(), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._mark)
        sync(self._marks)

    def _make(self) -> Copied:
        facts = {}
        for path, one in self._facts().items():
            if one is None:
                raise no_file(self._source.shown, path)
            facts[path] = one
        head = {
            "format": "hushtable-fetch",
            **self._what(),
            "files": {path: [one.bytes, one.tag] for path, one in facts.items()},
        }
        journal = Journal(self._journal, head)
        if not journal.is_resumed or not self._partial.exists():
            self._discard(journal)
        heads = self._head_pieces(facts)
        # A source may say any length: none is gone by that the disk has no room for.
        done = sum(chunk.bytes for chunk in journal.done)
        self._check_room(sum(piece.bytes for piece in heads) - done)
        self._stand_in(facts)
        journal.start()
        chunks = chunks_of(heads)
        self._copy(journal, facts, chunks)
        pieces = self._opened(journal, facts)
        chunks = list(dict.fromkeys([*chunks, *chunks_of(pieces)]))
        self._copy(journal, facts, chunks)
        if self._is_changed(facts):
            raise self._changed()
        self._verify(journal, facts, chunks)
        for folder, _, files in os.walk(self._partial, topdown=False):
            for place in (*(Path(folder, file) for file in files), Path(folder)):
                sync(place)
        self._write_mark()
        self._partial.rename(self._whole)
        sync(self._folder)
        journal.remove()
        return Copied(self._whole, sum(piece.bytes for piece in pieces), self._copied)

    def _facts(self) -> dict[str, FileFacts | None]:
        """What the source says of every file that a copy has."""
        with concurrent.futures.ThreadPoolExecutor(self._source.threads) as pool:
            found = dict(zip(self._heads, pool.map(self._source.facts, self._heads), strict=True))
        # The two that were read are those that all else is of.
        if any(found[path] != facts for path, (facts, _) in self._first.items()):
            raise self._changed()
        return found

    def _is_changed(self, facts: Mapping[str, FileFacts | None]) -> bool:
        try:
            return self._facts() != facts
        except SourceChanged:
            return True

    def _changed(self) -> SourceChanged:
        return SourceChanged(
            f"{self._source.shown} changed while it was copied: run it again, it begins anew"
        )

    def _stand_in(self, facts: dict[str, FileFacts]) -> None:
        """Files of the right length, which are all hole at first."""
        self._partial.mkdir(parents=True, exist_ok=True)
        for path, one in facts.items():
            # What an earlier run has left there may have been touched since.
            place = _within.join_real(self._partial, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("ab") as file:
                if os.fstat(file.fileno()).st_size != one.bytes:
                    file.truncate(one.bytes)

    def _head_pieces(self, facts: dict[str, FileFacts]) -> list[Piece]:
        return [
            Piece(path, size, 0, size if head is None else min(size, head))
            for path, head in self._heads.items()
            for size in (facts[path].bytes,)
        ]

    def _pieces(self, model: Path) -> list[Piece]:
        pieces = _native.shard_pieces(model, self._shard, self._scheme)
        return [Piece(path.as_posix(), *numbers) for path, *numbers in pieces]

    def _check_piece(self, piece: Piece, facts: dict[str, FileFacts]) -> None:
        """Nothing is written but to the files that stand in the copy."""
        known = facts.get(piece.path)
        if known is None:
            raise FetchError(f"{self._source.shown} has no {piece.path}, which a shard needs")
        if known.bytes != piece.file_bytes or piece.first + piece.bytes > known.bytes:
            raise FetchError(
                f"{self._source.shown}: {piece.path} has {known.bytes} bytes where the model says "
                f"{piece.file_bytes}: restore that file"
            )

    def _opened(self, journal: Journal, facts: dict[str, FileFacts]) -> list[Piece]:
        """What else the copy needs, now that it opens."""
        try:
            found = json.loads(_native.read_shards(self._partial, self._scheme))
            pieces = self._pieces(self._partial)
        except TableError as error:
            if self._is_changed(facts):
                raise self._changed() from error
            self._discard(journal)
            raise self._damaged(error) from error
        if (found["model"], found["version"]) != (self.map["model"], self._map()):
            self._discard(journal)
            raise self._changed()
        for piece in pieces:
            self._check_piece(piece, facts)
        return pieces

    def _discard(self, journal: Journal) -> None:
        # The journal first: without it, what is left of the copy counts for nothing.
        journal.remove()
        if self._partial.exists():
            shutil.rmtree(self._partial)

    def _copy(self, journal: Journal, facts: dict[str, FileFacts], chunks: list[Chunk]) -> None:
        todo = sum(chunk.bytes for chunk in chunks if chunk not in journal.done)
        self._check_room(todo)
        self._done = sum(chunk.bytes for chunk in chunks) - todo
        self._total = self._done + todo + self._verified_bytes()
        self._tell(0)

        def copied(count: int) -> None:
            self._copied += count
            self._tell(count)

        try:
            copy(self._source, self._partial, journal, chunks, copied)
        except FetchError as error:
            is_changed = False
            # Whoever cannot be reached has not changed.
            with contextlib.suppress(FetchError):
                is_changed = self._is_changed(facts)
            if is_changed:
                raise self._changed() from error
            raise

    def _check_room(self, needed: int) -> None:
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if needed > free:
            raise NoRoom(
                f"{self._folder} has {free:,} bytes free, and {self.part} takes {needed:,} more: "
                "make room, or fetch to another disk",
                needed_bytes=needed,
                free_bytes=free,
            )

    def _verified_bytes(self) -> int:
        """Bytes of rows that are read at the end."""
        if self._shard is None:
            return 0
        tables = {table["name"]: table for table in self.map["tables"]}
        rows = {
            name: table["rows"]
            for name, table in tables.items()
            if table["has_layout"] and self._scheme == "pair"
        }
        for part in self.map["shards"][self._shard]["parts"]:
            # What is checked is whole blocks.
            first = part["first"] // _BLOCK_ROWS * _BLOCK_ROWS
            end = -(-part["end"] // _BLOCK_ROWS) * _BLOCK_ROWS
            count = min(end, tables[part["table"]]["rows"]) - first
            rows.setdefault(part["table"], count)
        return sum(count * tables[name]["row_bytes"] for name, count in rows.items())

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _verify(self, journal: Journal, facts: dict[str, FileFacts], chunks: list[Chunk]) -> None:
        """Checks every byte of the copy; what the disk has lost of it is copied again, once."""
        try:
            self._verify_once()
            return
        except TableError as error:
            lost = damaged(self._partial, journal)
            if not lost:
                self._discard(journal)
                raise self._damaged(error) from error
        for chunk in lost:
            del journal.done[chunk]
        journal.start()
        self._copy(journal, facts, chunks)
        try:
            self._verify_once()
        except TableError as error:
            self._discard(journal)
            raise self._damaged(error) from error

    def _verify_once(self) -> None:
        before = self._done

        def verified(done: int, _: int) -> None:
            self._done = before + done
            self._tell(0)

        _native.verify_shard(self._partial, self._shard, self._scheme, progress=verified)

    def _damaged(self, error: TableError) -> DamagedTable:
        return DamagedTable(
            f"what {self._source.shown} holds is damaged, or no model of hushtable's; nothing of "
            f"it was kept: {error}"
        )
