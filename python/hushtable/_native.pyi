"""The native module: thin bindings, documented where the package wraps them."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from .table import Progress

__all__ = ["Table", "build_table", "verify_table"]

class Table:
    @staticmethod
    def open(path: Path) -> Table: ...
    @staticmethod
    def from_weight(name: str, values: npt.NDArray[np.float32], dtype: str) -> Table: ...
    def save(self, path: Path) -> None: ...
    def rows(self, ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.float32]: ...
    def facts(self) -> tuple[str, int, int, str, int, str]: ...
    def origin(self) -> tuple[str, int]: ...

def build_table(
    source: Path,
    out: Path,
    *,
    name: str,
    key: str | None,
    dtype: str | None,
    progress: Progress | None,
) -> None: ...
def verify_table(
    path: Path, *, progress: Progress | None
) -> tuple[int, bool, int, list[tuple[str, int | None, str]]]: ...
