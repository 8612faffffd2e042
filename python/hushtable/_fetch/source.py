"""Where a model is fetched from: a folder, an HTTP server, or what fsspec opens."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from .. import _within
from .._printable import one_line
from ..errors import ConfigError, FetchError

__all__ = [
    "MAPS",
    "WAITS_S",
    "FileFacts",
    "Source",
    "cut_short",
    "first_files",
    "no_file",
    "no_ranges",
    "open_source",
    "without_secrets",
    "words",
]

#: Where a model's map of shards is, by the scheme that it is for.
MAPS = {"pair": "shards.json", "onion": "shards.onion.json"}

_T = TypeVar("_T")

#: What file systems say of a file that changes when the file does.
_TAGS = (
    "ETag",
    "etag",
    "e_tag",
    "Content-MD5",
    "Digest",
    "md5Hash",
    "checksum",
    "generation",
    "version_id",
    "VersionId",
    "ino",
    "mtime",
    "LastModified",
    "Last-Modified",
    "last_modified",
    "modified",
    "updated",
    "created",
)
#: Seconds to wait before a read is tried again; a network that is gone for longer ends the fetch.
WAITS_S = (0.5, 2.0, 8.0)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file as it was seen.

    Attributes:
        bytes: how long it is.
        tag: what tells it from a later file of that name; empty where the source says nothing.
    """

    bytes: int
    tag: str


class Source(Protocol):
    """Files of a model, by their path in its folder. Its methods are called from several threads.

    Attributes:
        shown: its place as it may be printed.
        threads: how many reads to have under way.
    """

    shown: str
    threads: int

    def facts(self, path: str) -> FileFacts | None:
        """What a file is now; None where there is none. Raises FetchError if it cannot be told."""

    def read(self, path: str, first: int, count: int) -> bytes:
        """Some of a file's bytes. Raises FetchError where it has not that many."""

    def stop(self) -> None:
        """Ends reads that are under way, where it can; there are no more."""


def open_source(place: str | os.PathLike[str], *, follow_redirects: bool = False) -> Source:
    """A folder, the URL of one at an HTTP server, or a URL of what fsspec opens.

    Args:
        place: where the model is.
        follow_redirects: go to other hosts, too, where an HTTP server sends there.

    Raises:
        ConfigError: a URL that nothing installed opens.
    """
    text = os.fspath(place)
    if text.lower().startswith(("http://", "https://")):
        from .web import Web

        return Web(text, follow_redirects=follow_redirects)
    return _Remote(text) if "://" in text else _Folder(Path(text))


def first_files(scheme: str) -> dict[str, int]:
    """Most bytes of the two files that are read first, by their places: all else follows from them.

    Raises:
        ConfigError: no scheme of that name.
    """
    if scheme not in MAPS:
        raise ConfigError(f"scheme must be {' or '.join(MAPS)}, not {scheme!r}")
    return {"model.json": 1 << 20, MAPS[scheme]: 64 << 20}


def no_file(shown: str, path: str) -> FetchError:
    """What to say of a file that a source does not have."""
    if path == "model.json":
        return FetchError(
            f"{shown} is no model (it has no model.json): name the folder of one, or its URL"
        )
    for scheme, place in MAPS.items():
        if path == place:
            plan = "hushtable shard plan" + ("" if scheme == "pair" else f" --scheme {scheme}")
            return FetchError(
                f"the model {shown} has no map of shards: make one with `{plan}`, and keep its "
                f"{place} with the model's other files"
            )
    return FetchError(
        f"{shown} has no {path}, which its map of shards names: restore that file, or make the map "
        "again with `hushtable shard plan`"
    )


def cut_short(shown: str, path: str, first: int, count: int, found: int) -> FetchError:
    """What to say of a file that ends too soon."""
    return FetchError(
        f"{shown}: {path} gave {found} bytes where {count} were asked for, from byte {first} on"
    )


def no_ranges(shown: str, path: str) -> FetchError:
    """What to say of a source that cannot give some of a file."""
    return FetchError(
        f"{shown} does not say how long {path} is, or gives it in one piece alone: a "
        "source must say sizes and give ranges of bytes"
    )


class _Folder:
    threads = 4

    def __init__(self, folder: Path) -> None:
        # The manifest may be named instead of the folder that it is in.
        self._folder = folder.parent if folder.name == "model.json" else folder
        self.shown = str(self._folder)

    def facts(self, path: str) -> FileFacts | None:
        try:
            found = _within.join(self._folder, path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failed(path, error) from error
        return FileFacts(found.st_size, f"{found.st_ino} {found.st_mtime_ns}")

    def read(self, path: str, first: int, count: int) -> bytes:
        try:
            with _within.join(self._folder, path).open("rb", buffering=0) as file:
                file.seek(first)
                data = bytearray(count)
                view, done = memoryview(data), 0
                while done < count and (got := file.readinto(view[done:])):
                    done += got
        except OSError as error:
            raise self._failed(path, error) from error
        if done < count:
            raise cut_short(self.shown, path, first, count, done)
        return bytes(data)

    def stop(self) -> None:
        pass

    def _failed(self, path: str, error: OSError) -> FetchError:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return no_file(self.shown, path)
        return FetchError(f"cannot read {_within.join(self._folder, path)}: {error.strerror}")


class _Remote:
    threads = 4

    def __init__(self, url: str) -> None:
        self.shown = without_secrets(url)
        try:
            import fsspec
        except ImportError as error:
            text = "takes fsspec: pip install 'hushtable[remote]'"
            raise ConfigError(f"to fetch from {self.shown} {text}") from error
        try:
            self._files, root = fsspec.core.url_to_fs(url)
        # Any of dozens of packages may be what opens it.
        except Exception as error:
            text = f"{self.shown} cannot be opened by fsspec: {words(error)}"
            raise ConfigError(text) from error
        self._root = root.rstrip("/")

    def facts(self, path: str) -> FileFacts | None:
        def ask() -> dict[str, Any]:
            # Some keep what they were told once.
            self._files.invalidate_cache()
            found: dict[str, Any] = self._files.info(f"{self._root}/{path}")
            return found

        found = self._tried(path, ask)
        if found is None or found.get("type", "file") != "file":
            return None
        size = found.get("size")
        if not isinstance(size, int) or found.get("partial") is False:
            raise no_ranges(self.shown, path)
        tag = "; ".join(f"{key} {found[key]}" for key in _TAGS if found.get(key) is not None)
        return FileFacts(size, tag)

    def read(self, path: str, first: int, count: int) -> bytes:
        if count == 0:
            return b""

        def ask() -> bytes:
            file = f"{self._root}/{path}"
            found: bytes = self._files.cat_file(file, start=first, end=first + count)
            return found

        data = self._tried(path, ask)
        if data is None:
            raise no_file(self.shown, path)
        if len(data) > count:
            raise no_ranges(self.shown, path)
        if len(data) < count:
            raise cut_short(self.shown, path, first, count, len(data))
        return data

    def stop(self) -> None:
        pass

    def _tried(self, path: str, ask: Callable[[], _T]) -> _T | None:
        """What is answered; None where there is no such file."""
        for wait in (*WAITS_S, None):
            try:
                return ask()
            # Each file system raises what the library below it does.
            except Exception as error:
                if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
                    return None
                if wait is None or isinstance(error, PermissionError):
                    text = f"cannot read {path} from {self.shown}: {words(error)}"
                    raise FetchError(text) from error
                time.sleep(wait)
        raise AssertionError("the last wait is none")


def words(error: Exception) -> str:
    """What a library says, without the user and password that a URL may have."""
    return (
        f"{type(error).__name__}: {without_secrets(str(error))}"
        if str(error)
        else type(error).__name__
    )


def without_secrets(text: str) -> str:
    """A text in one line that any terminal prints, whose URLs have neither user and password nor a
    query, which may be a signature.
    """
    # Up to the last @ of a word: a password may hold an @, a slash and a question mark.
    text = re.sub(r"://\S*@", "://", text)
    return one_line(re.sub(r"(://[^\s?#]*)[?#]\S*", r"\1", text))
