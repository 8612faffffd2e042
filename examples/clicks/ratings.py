"""Ratings as behaviour: MovieLens as it comes here, and MovieLens-20M's own files."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import numpy as np
from examples.published import expect_files

from hushtable.data import DataError, MalformedData, MovieLens

from .pages import Events, Ints

#: Stars are rounded up to whole ones: 0.5 and 1 are the lowest of five.
STARS_COUNT = 5
#: A rating of at least this many stars counts as a click.
CLICK_STARS_MIN = 4.0

FILES = ("movies.csv", "ratings.csv")
_RATINGS_HEADER = "userId,movieId,rating,timestamp"
_FILMS_HEADER = "movieId,title,genres"
_FIELDS = np.dtype(
    [("user", np.int32), ("film", np.int32), ("rating", np.float32), ("time", np.int64)]
)


def load_movielens_20m(folder: Path) -> MovieLens:
    """MovieLens-20M (or -25M, -32M, -latest) from ``ratings.csv`` and ``movies.csv``.

    Films are numbered in the order of ``movies.csv``, those that nobody rated left out; users in
    the order of their numbers.

    Raises:
        MalformedData: a wrong header, field count or number, stars outside 0.5 to 5, a film that
            is not listed, no ratings.
        DataError: a file that cannot be read.
    """
    expect_files(folder, FILES, "MovieLens-20M (https://grouplens.org/datasets/movielens/20m/)")
    films_path, ratings_path = (folder / name for name in FILES)
    titles, genres, numbers = _load_films(films_path)
    rated = _load_ratings(ratings_path)

    def refuse(at: int, what: str) -> MalformedData:
        return MalformedData(what, path=ratings_path, line=at + 2)

    if len(rated) == 0:
        raise MalformedData("no ratings", path=ratings_path)
    bad = ~((rated["rating"] >= 0.5) & (rated["rating"] <= STARS_COUNT))
    if bad.any():
        at = int(bad.argmax())
        stars = rated["rating"][at]
        raise refuse(at, f"{stars:g} stars, expected 0.5 to {STARS_COUNT}")
    # Listed films need not be in order of their numbers.
    order = np.argsort(numbers)
    place = np.searchsorted(numbers[order], rated["film"]).clip(max=max(len(numbers) - 1, 0))
    unknown = (
        numbers[order][place] != rated["film"] if len(numbers) else np.ones(len(rated), np.bool_)
    )
    if unknown.any():
        at = int(unknown.argmax())
        raise refuse(at, f"film {rated['film'][at]} is not in {films_path.name}")
    kept, item = np.unique(order[place], return_inverse=True)
    users, user = np.unique(rated["user"], return_inverse=True)
    return MovieLens(
        users=tuple(map(str, users.tolist())),
        titles=tuple(titles[number] for number in kept),
        genres=tuple(genres[number] for number in kept),
        user=user.astype(np.int32),
        item=item.astype(np.int32),
        rating=np.ascontiguousarray(rated["rating"]),
        time=np.ascontiguousarray(rated["time"]),
    )


def _load_films(path: Path) -> tuple[list[str], list[tuple[str, ...]], Ints]:
    titles: list[str] = []
    genres: list[tuple[str, ...]] = []
    numbers: list[int] = []
    try:
        # utf-8-sig: some editors put a mark in front when they save.
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            _check_header(",".join(next(reader, [])), _FILMS_HEADER, path)
            for fields in reader:
                if len(fields) != 3 or not fields[0].isascii() or not fields[0].isdigit():
                    raise MalformedData(
                        f"expected a film's number, title and genres, found {fields!r:.200}",
                        path=path,
                        line=reader.line_num,
                    )
                numbers.append(int(fields[0]))
                titles.append(fields[1])
                genres.append(tuple(fields[2].split("|")))
    except csv.Error as error:
        raise MalformedData(f"not CSV ({error})", path=path, line=reader.line_num) from error
    except UnicodeDecodeError as error:
        raise MalformedData(f"not UTF-8 text ({error.reason})", path=path) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    return titles, genres, np.array(numbers, dtype=np.int64)


def _load_ratings(path: Path) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            _check_header(file.readline().rstrip("\r\n"), _RATINGS_HEADER, path)
            with warnings.catch_warnings():
                # That there are none is refused by the caller, in its own words.
                warnings.filterwarnings("ignore", message=".*input contained no data")
                rated: np.ndarray[tuple[int], np.dtype[np.void]] = np.loadtxt(
                    file, dtype=_FIELDS, delimiter=",", comments=None, ndmin=1
                )
    except UnicodeDecodeError as error:
        raise MalformedData(f"not UTF-8 text ({error.reason})", path=path) from error
    except MalformedData:  # a ValueError too
        raise
    except (ValueError, OverflowError) as error:
        raise _find_bad_line(path, error) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    return rated


def _find_bad_line(path: Path, error: Exception) -> MalformedData:
    """What is wrong where: numpy counts lines from 0 in some errors and from 1 in others."""
    with path.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(file, start=1):
            if line == 1 or not text.strip():
                continue
            try:
                user, film, stars, when = text.split(",")
                np.array([int(user), int(film)], dtype=np.int32)
                float(stars)
                np.array(int(when), dtype=np.int64)
            except (ValueError, OverflowError):
                found = text.strip()[:100]
                return MalformedData(
                    f"found {found!r}, expected numbers {_RATINGS_HEADER}", path=path, line=line
                )
    return MalformedData(f"expected lines of {_RATINGS_HEADER}, but {error}", path=path)


def _check_header(found: str, expected: str, path: Path) -> None:
    if found != expected:
        raise MalformedData(
            f"the header is {found[:200]!r}, expected {expected!r}", path=path, line=1
        )


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"cannot read {path} ({error.strerror}): expected the files of"
        " https://grouplens.org/datasets/movielens/20m/"
    )


def order_by_time(ratings: MovieLens, *, seed: int = 1) -> Ints:
    """The ratings user by user and in order of time, int64 [ratings].

    Ratings of one second, of which there are many, are shuffled: the file's own order of them
    would tell which films stand beside each other in it.
    """
    tie = np.random.default_rng(seed).random(len(ratings.user))
    return np.lexsort((tie, ratings.time, ratings.user))


def stars(ratings: MovieLens) -> Ints:
    """Whole stars of each rating, less one: int64 [ratings], 0 to 4."""
    return np.ceil(ratings.rating).astype(np.int64) - 1


def events(ratings: MovieLens, order: Ints, items: Ints) -> Events:
    """The ratings as behaviour.

    Args:
        ratings: of which the users are taken.
        order: of :func:`order_by_time`.
        items: int64 [ratings], what each is as an item, in the order of the file.
    """
    edges = np.arange(len(ratings.users) + 1)
    return Events(
        item=items[order].astype(np.int32),
        starts=np.searchsorted(ratings.user[order], edges).astype(np.int64),
    )
