"""Data sets as published, in a folder of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hushtable.data import DataError


def expect_files(folder: Path, names: Sequence[str], of: str) -> None:
    """Refuses a folder without all files of a data set, before any of them is read.

    Args:
        folder: where they should be.
        names: of the files.
        of: the data set, and where it is published.

    Raises:
        DataError: the first that is missing, and all that are expected.
    """
    wanted = f"expected {', '.join(names[:-1])} and {names[-1]} of {of}"
    if not folder.is_dir():
        raise DataError(f"cannot read {folder} (no such folder): {wanted}")
    for name in names:
        if not (folder / name).is_file():
            raise DataError(f"cannot read {folder / name} (no such file): {wanted}")
