"""Copying pieces of files so that a copy that was cut off goes on where it stopped."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _within
from ..errors import FetchError
from .source import Source

__all__ = ["Chunk", "Journal", "Piece", "chunks_of", "copy", "damaged", "sync", "write_failed"]

#: Files are copied in chunks that begin at multiples of so many bytes.
CHUNK_BYTES = 16 << 20
#: After so many bytes, what was copied is brought to the disk and written down.
SYNC_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of a file's bytes.

    Attributes:
        path: the file, in the model's folder.
        file_bytes: bytes of the whole file.
        first: where the bytes begin.
        bytes: how many there are.
    """

    path: str
    file_bytes: int
    first: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """What is copied at once."""

    path: str
    first: int
    bytes: int


def chunks_of(pieces: Iterable[Piece]) -> list[Chunk]:
    """The pieces cut at multiples of :data:`CHUNK_BYTES`, each once."""
    return list(dict.fromkeys(chunk for piece in pieces for chunk in _cut(piece)))


def _cut(piece: Piece) -> Iterator[Chunk]:
    first, end = piece.first, piece.first + piece.bytes
    while first < end:
        cut = min(end, (first // CHUNK_BYTES + 1) * CHUNK_BYTES)
        yield Chunk(piece.path, first, cut - first)
        first = cut


class Journal:
    """The chunks that are on the disk, with a hash of each.

    A chunk is written down once its bytes are on the disk, so that what the journal names need not
    be copied again after a crash of the process or of the machine.
    """

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self.path = path
        self.done: dict[Chunk, str] = {}
        #: Whether there was a journal of this very copy.
        self.is_resumed = False
        self._head = (json.dumps(head, sort_keys=True) + "\n").encode()
        self._read()

    def _read(self) -> None:
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        if not lines or lines[0] != self._head:
            return
        self.is_resumed = True
        for line in lines[1:]:
            # The last line may be half a line, of a write that was cut off.
            try:
                path, first, count, digest = json.loads(line)
            except ValueError:
                break
            self.done[Chunk(path, first, count)] = digest

    def start(self) -> None:
        """Writes it anew with what it holds, in one step, ready to be added to."""
        new = self.path.with_name(self.path.name + ".new")
        with new.open("wb") as file:
            file.write(self._head + b"".join(map(_line, self.done.items())))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        sync(self.path.parent)

    def add(self, chunks: Mapping[Chunk, str]) -> None:
        """Writes chunks down whose bytes are on the disk."""
        with self.path.open("ab") as file:
            file.write(b"".join(map(_line, chunks.items())))
            file.flush()
            os.fsync(file.fileno())
        self.done.update(chunks)

    def remove(self) -> None:
        """Removes it: nothing of the copy counts any more."""
        self.done.clear()
        self.path.unlink(missing_ok=True)
        sync(self.path.parent)


def _line(entry: tuple[Chunk, str]) -> bytes:
    chunk, digest = entry
    return (json.dumps([chunk.path, chunk.first, chunk.bytes, digest]) + "\n").encode()


def copy(
    source: Source,
    folder: Path,
    journal: Journal,
    chunks: Iterable[Chunk],
    copied: Callable[[int], None],
) -> None:
    """Copies those of the chunks that the journal does not name, some at a time.

    ``copied`` is called with the bytes of each. Whatever ends it, what is on the disk by then is
    written down.

    Raises:
        FetchError: a source that cannot be read, or a disk that cannot be written.
    """
    todo = iter([chunk for chunk in chunks if chunk not in journal.done])
    written: dict[Chunk, str] = {}

    def write_down() -> None:
        for path in {chunk.path for chunk in written}:
            sync(_within.join(folder, path))
        if written:
            journal.add(written)
        written.clear()

    pool = concurrent.futures.ThreadPoolExecutor(source.threads, "fetch")
    running: dict[concurrent.futures.Future[str], Chunk] = {}
    try:
        while True:
            # Few are handed out at once: whatever stops the copy stops it soon.
            while len(running) < 2 * source.threads and (chunk := next(todo, None)) is not None:
                running[pool.submit(_copy_one, source, folder, chunk)] = chunk
            if not running:
                break
            ended, _ = concurrent.futures.wait(running, return_when="FIRST_COMPLETED")
            for future in ended:
                chunk = running.pop(future)
                written[chunk] = future.result()
                copied(chunk.bytes)
            if sum(chunk.bytes for chunk in written) >= SYNC_BYTES:
                write_down()
    except OSError as error:
        raise write_failed(folder, error) from error
    except BaseException:
        # Whoever gave up does not wait for what is slow.
        source.stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        try:
            write_down()
        except OSError as error:
            raise write_failed(folder, error) from error


def write_failed(folder: Path, error: OSError) -> FetchError:
    """What to say of a disk that cannot be written."""
    path = error.filename or folder
    return FetchError(f"cannot write {path}: {error.strerror or error}; mend that and run it again")


def _copy_one(source: Source, folder: Path, chunk: Chunk) -> str:
    data = source.read(chunk.path, chunk.first, chunk.bytes)
    with _within.join(folder, chunk.path).open("r+b", buffering=0) as file:
        view, done = memoryview(data), 0
        while done < len(data):
            done += os.pwrite(file.fileno(), view[done:], chunk.first + done)
    return _digest(data)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def damaged(folder: Path, journal: Journal) -> list[Chunk]:
    """The chunks that the journal names and that are not as they were copied."""
    return [chunk for chunk, digest in journal.done.items() if _held(folder, chunk) != digest]


def _held(folder: Path, chunk: Chunk) -> str:
    try:
        with _within.join(folder, chunk.path).open("rb") as file:
            file.seek(chunk.first)
            return _digest(file.read(chunk.bytes))
    except OSError:
        # What cannot be read is copied again.
        return ""


def sync(path: Path) -> None:
    """Brings a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
