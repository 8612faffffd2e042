"""Taobao's own log, for those who have it: "Ad Display/Click Data on Taobao.com".

From https://tianchi.aliyun.com/dataset/56 or its copy on Kaggle: ``raw_sample.csv`` (26 million
shown advertisements), ``behavior_log.csv`` (723 million steps of behaviour, 22 GB) and
``user_profile.csv``. The log is read once, line by line; only what concerns the chosen users is
kept. A step names no item, but its category and brand: those with the kind of the step (looked
at, put in the cart, kept, bought) are the items here, each a row of the table.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from examples.clicks.pages import ABSENT, Bools, Events, Ints, Numbers, Pages, deal_users
from examples.published import expect_files

from hushtable.data import DataError, MalformedData

from .items import Items, scatter
from .journeys import BAG_LENGTH, Journeys

#: Advertisements scored by one inference at most; more of one moment are another inference.
PAGE_LENGTH = 20
#: Inferences to learn from, and of each held-out group, at most.
TRAINING_INFERENCES_MAX = 100_000
HELD_OUT_INFERENCES_MAX = 4_000

#: Read here; ``ad_feature.csv`` is not: advertisements are known by their numbers.
FILES = ("raw_sample.csv", "behavior_log.csv", "user_profile.csv")
_SOURCE = "https://tianchi.aliyun.com/dataset/56"
#: Columns by all the names that copies of the files give them.
_SAMPLE = (
    ("user", "user_id"),
    ("time_stamp",),
    ("adgroup_id",),
    ("pid",),
    ("nonclk", "noclk"),
    ("clk",),
)
_LOG = (("user", "nick"), ("time_stamp",), ("btag",), ("cate",), ("brand",))
_PROFILE = (
    ("userid", "user"),
    ("cms_segid",),
    ("cms_group_id",),
    ("final_gender_code",),
    ("age_level",),
    ("pvalue_level",),
    ("shopping_level",),
    ("occupation",),
    ("new_user_class_level",),
)
_KINDS = {b"pv": 0, b"ipv": 0, b"cart": 1, b"fav": 2, b"buy": 3}
_SAID_EVERY = 50_000_000
#: Bounds, so that a user and a time fit in one 64-bit number.
_TIME_MAX = 2**40
_ID_MAX = 2**31
#: Of what is no such file a line could be as long as the file.
_LINE_BYTES_MAX = 4096


@dataclass(frozen=True)
class Taobao:
    """What some users were shown, and what they did before.

    Attributes:
        users: their names in the files; a user's number is its place here.
        adgroups: the names of the advertisements shown.
        user, adgroup: int64 [impressions], places in the above.
        time: int64 [impressions], seconds since 1970.
        place: int64 [impressions], 0 and up: where on the site ("pid").
        clicked: bool [impressions].
        events: the behaviour.
        event_time: int64 [events].
        parts: int32 [items, 3], category, brand and kind, dense and with no number in common.
        part_count: numbers of parts.
        profile: int32 [users, 8], dense and with no number in common; "not known" is a
            value like others.
        profile_count: numbers of the profile.
        place_count: places on the site.
    """

    users: tuple[str, ...]
    adgroups: tuple[str, ...]
    user: Ints
    adgroup: Ints
    time: Ints
    place: Ints
    clicked: Bools
    events: Events
    event_time: Ints
    parts: Numbers
    part_count: int
    profile: Numbers
    profile_count: int
    place_count: int


def load_taobao(
    folder: Path, *, users_max: int = 20_000, say: Callable[[str], None] = lambda _line: None
) -> Taobao:
    """The first ``users_max`` users of the sample, with all that they were shown and did.

    Raises:
        MalformedData: a wrong header, field count or value, or no impressions.
        DataError: a file that cannot be read.
    """
    users: dict[bytes, int] = {}
    adgroups: dict[bytes, int] = {}
    places: dict[bytes, int] = {}
    shown = tuple(array("q") for _column in range(5))
    expect_files(folder, FILES, f"Ad Display/Click Data on Taobao.com ({_SOURCE})")
    path = folder / "raw_sample.csv"
    for line, (who, when, adgroup, place, passed, clicked) in _lines(path, _SAMPLE, say):
        if who not in users:
            if len(users) == users_max:
                continue
            users[who] = len(users)
        if (passed, clicked) not in ((b"0", b"1"), (b"1", b"0")):
            raise MalformedData(
                f"nonclk and clk are {_text(passed)} and {_text(clicked)}, expected 0 and 1 or"
                " 1 and 0",
                path=path,
                line=line,
            )
        shown[0].append(users[who])
        shown[1].append(adgroups.setdefault(adgroup, len(adgroups)))
        shown[2].append(_number(when, "time_stamp", _TIME_MAX, path, line))
        shown[3].append(places.setdefault(place, len(places)))
        shown[4].append(clicked == b"1")
    if not users:
        raise MalformedData("no impressions", path=path)
    user, adgroup_of, time, place_of, clicks = (np.array(one, np.int64) for one in shown)
    events, event_time, keys = _load_log(folder / "behavior_log.csv", users, say)
    parts, part_count = _apart(keys)
    profile, profile_count = _apart(_load_profile(folder / "user_profile.csv", users, say))
    return Taobao(
        users=tuple(map(_text, users)),
        adgroups=tuple(map(_text, adgroups)),
        user=user,
        adgroup=adgroup_of,
        time=time,
        place=place_of,
        clicked=clicks.astype(np.bool_),
        events=events,
        event_time=event_time,
        parts=parts,
        part_count=part_count,
        profile=profile,
        profile_count=profile_count,
        place_count=len(places),
    )


def _load_log(
    path: Path, users: dict[bytes, int], say: Callable[[str], None]
) -> tuple[Events, Ints, Ints]:
    """The behaviour, its times, and of each item [items, 3] category, brand and kind."""
    items: dict[tuple[bytes, bytes, int], int] = {}
    keys = array("q")
    steps = tuple(array("q") for _column in range(3))
    for line, (who, when, kind, category, brand) in _lines(path, _LOG, say):
        user = users.get(who)
        if user is None:
            continue
        if kind not in _KINDS:
            raise MalformedData(
                f"btag {_text(kind)!r}, expected pv, cart, fav or buy", path=path, line=line
            )
        key = (category, brand, _KINDS[kind])
        item = items.get(key)
        if item is None:
            item = items[key] = len(items)
            keys.append(_number(category, "cate", _ID_MAX, path, line))
            keys.append(_number(brand, "brand", _ID_MAX, path, line))
            keys.append(_KINDS[kind])
        steps[0].append(user)
        steps[1].append(item)
        steps[2].append(_number(when, "time_stamp", _TIME_MAX, path, line))
    if not items:
        raise MalformedData("no behaviour of the users of raw_sample.csv", path=path)
    user_of, item_of, time = (np.array(one, np.int64) for one in steps)
    order = np.lexsort((time, user_of))
    starts = np.searchsorted(user_of[order], np.arange(len(users) + 1)).astype(np.int64)
    events = Events(item=item_of[order].astype(np.int32), starts=starts)
    return events, time[order], np.array(keys, np.int64).reshape(-1, 3)


def _load_profile(path: Path, users: dict[bytes, int], say: Callable[[str], None]) -> Ints:
    """Each user's profile, int64 [users, 8]; -1 where it is not known."""
    profile = np.full((len(users), len(_PROFILE) - 1), -1, np.int64)
    for line, (who, *values) in _lines(path, _PROFILE, say):
        user = users.get(who)
        if user is None:
            continue
        for column, value in enumerate(values):
            if value:
                name = _PROFILE[column + 1][0]
                profile[user, column] = _number(value, name, _ID_MAX, path, line)
    return profile


def _apart(values: Ints) -> tuple[Numbers, int]:
    """``values`` [n, columns] as dense numbers, of which no two columns have one in common."""
    columns = []
    count = 0
    for column in values.T:
        known, dense = np.unique(column, return_inverse=True)
        columns.append(count + dense)
        count += len(known)
    return np.stack(columns, axis=1).astype(np.int32), count


def _lines(
    path: Path, columns: tuple[tuple[str, ...], ...], say: Callable[[str], None]
) -> Iterator[tuple[int, list[bytes]]]:
    """Line number and the fields of ``columns`` of each line under the header."""
    try:
        with path.open("rb") as file:
            header = [
                name.strip()
                for name in _text(file.readline(_LINE_BYTES_MAX)).lstrip("\ufeff").split(",")
            ]
            try:
                order = [
                    next(header.index(name) for name in names if name in header)
                    for names in columns
                ]
            except StopIteration:
                expected = ",".join(names[0] for names in columns)
                raise MalformedData(
                    f"the header is {','.join(header)[:200]!r}, expected {expected!r}",
                    path=path,
                    line=1,
                ) from None
            for line, text in enumerate(
                iter(partial(file.readline, _LINE_BYTES_MAX), b""), start=2
            ):
                fields = text.rstrip(b"\r\n").split(b",")
                if len(text) == _LINE_BYTES_MAX:
                    raise MalformedData(
                        f"a line of over {_LINE_BYTES_MAX} bytes", path=path, line=line
                    )
                if len(fields) != len(header):
                    raise MalformedData(
                        f"{len(fields)} fields, expected {len(header)}", path=path, line=line
                    )
                yield line, [fields[place] for place in order]
                if line % _SAID_EVERY == 0:
                    say(f"  {path.name}: {line:,} lines")
    except OSError as error:
        raise DataError(
            f"cannot read {path} ({error.strerror}): expected the files of {_SOURCE}"
        ) from error


def _number(field: bytes, name: str, end: int, path: Path, line: int) -> int:
    # isdigit, as int() also reads " 7", "+7" and "7_0". Its length bounds what int() has to do.
    if field.isdigit() and len(field) < 20 and int(field) < end:
        return int(field)
    raise MalformedData(
        f"{name} is {_text(field[:40])!r}, expected a whole number below {end:,}",
        path=path,
        line=line,
    )


def _text(field: bytes) -> str:
    return field.decode(errors="replace")


def make_items(found: Taobao, *, seed: int = 1) -> Items:
    """The table's items: as many rows as there are, in a random order."""
    count = len(found.parts)
    return Items(found.parts, found.part_count, scatter(count, count, seed=seed), rows=count)


def make_journeys(found: Taobao, *, seed: int = 1) -> Journeys:
    """Deals the users out; what one was shown at one moment and place is an inference."""
    pages, owners = _make_pages(found)
    random = np.random.default_rng(seed)

    def pick(users: Ints, count_max: int) -> Pages:
        own = np.flatnonzero(np.isin(owners, users))
        chosen = np.sort(random.permutation(own)[:count_max])
        return Pages(*(one[chosen] for one in vars(pages).values()))

    training, validation, test = deal_users(len(found.users), seed=seed)
    lessons = pick(training, TRAINING_INFERENCES_MAX)
    return Journeys(
        lessons=lessons,
        train=lessons,
        validation=pick(validation, HELD_OUT_INFERENCES_MAX),
        test=pick(test, HELD_OUT_INFERENCES_MAX),
    )


def _make_pages(found: Taobao) -> tuple[Pages, Ints]:
    """All inferences, user after user and in order of time, and whose each is."""
    order = np.lexsort((found.place, found.time, found.user))
    user, time, place = found.user[order], found.time[order], found.place[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (np.diff(user) != 0) | (np.diff(time) != 0) | (np.diff(place) != 0)
    firsts = np.flatnonzero(is_first)
    within = np.arange(len(order)) - np.repeat(firsts, np.diff([*firsts, len(order)]))
    is_first = within % PAGE_LENGTH == 0
    page = np.cumsum(is_first) - 1
    slot = within % PAGE_LENGTH
    count = int(page[-1]) + 1
    candidates = np.full((count, PAGE_LENGTH), ABSENT, np.int32)
    clicked = np.zeros((count, PAGE_LENGTH), np.bool_)
    candidates[page, slot] = found.adgroup[order]
    clicked[page, slot] = found.clicked[order]
    owners, when, where = user[is_first], time[is_first], place[is_first]
    # Behaviour of the same second may be the click itself: only what is older counts.
    doers = np.repeat(np.arange(len(found.users)), np.diff(found.events.starts))
    cuts = np.searchsorted(doers * _TIME_MAX + found.event_time, owners * _TIME_MAX + when)
    pages = Pages(
        bags=found.events.bags(owners, cuts, BAG_LENGTH),
        candidates=candidates,
        clicked=clicked,
        features=np.concatenate(
            [found.profile[owners], found.profile_count + where[:, None]], axis=1
        ).astype(np.int32),
    )
    return pages, owners
