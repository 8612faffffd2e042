"""The native module: thin bindings, documented where the package wraps them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Bench",
    "Call",
    "Client",
    "Server",
    "Table",
    "__version__",
    "build_table",
    "expand_seconds",
    "instruction_ns",
    "load_server",
    "log_to_stderr",
    "make_certificates",
    "platforms",
    "prg_names",
    "read_gb_per_s",
    "verify_table",
]

__version__: str

_Facts = tuple[str, int, int, str, int, str]
_Costs = tuple[int, int, float, float, float, int]
_Rows = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.uint64]

class Table:
    @staticmethod
    def open(path: Path) -> Table: ...
    @staticmethod
    def from_weight(name: str, values: _Rows, dtype: str) -> Table: ...
    def save(self, path: Path) -> None: ...
    def rows(self, ids: _Ids) -> _Rows: ...
    def facts(self) -> _Facts: ...
    def origin(self) -> tuple[str, int]: ...

class Client:
    @staticmethod
    def connect(
        left: str,
        right: str,
        *,
        ca: Path | None,
        certificate: tuple[Path, Path] | None,
        names: tuple[str | None, str | None],
        prg: str,
        insecure: bool,
        connect_seconds: float,
        seconds: float,
    ) -> Client: ...
    def lookup(self, ids: _Ids, max_ids: int) -> tuple[_Rows, _Costs]: ...
    def start_lookup(
        self,
        ids: _Ids,
        max_ids: int,
        done: Callable[[_Rows | None, _Costs | None, BaseException | None], None],
    ) -> Call: ...
    def facts(self) -> tuple[_Facts, int]: ...
    def close(self) -> None: ...

class Call:
    def cancel(self) -> None: ...

class Server:
    @staticmethod
    def start(spec: str) -> Server: ...
    @property
    def addr(self) -> str: ...
    @property
    def metrics_addr(self) -> str | None: ...
    @property
    def table(self) -> tuple[str, str]: ...
    def wait(self, seconds: float) -> str | None: ...
    def stop(self) -> None: ...

class Bench:
    def __new__(cls, rows: int, row_bytes: int, *, threads: int, isa: str | None) -> Bench: ...
    @property
    def threads(self) -> int: ...
    @property
    def batch_keys_best(self) -> int: ...
    @property
    def description(self) -> str: ...
    def answer_seconds(self, batch: int, *, prg: str, seconds: float) -> list[float]: ...

def build_table(
    source: Path,
    out: Path,
    *,
    name: str,
    key: str | None,
    dtype: str | None,
    progress: Callable[[int, int], None] | None,
) -> None: ...
def verify_table(
    path: Path, *, progress: Callable[[int, int], None] | None
) -> tuple[int, bool, int, list[tuple[str, int | None, str]]]: ...
def make_certificates(names: list[str]) -> tuple[str, tuple[str, str], tuple[str, str]]: ...
def log_to_stderr(filter: str, json: bool) -> None: ...
def expand_seconds(
    rows: int, *, group: str, prg: str, isa: str | None, seconds: float
) -> list[float]: ...
def read_gb_per_s(bytes: int, threads: int) -> float: ...
def instruction_ns() -> tuple[float | None, float | None]: ...
def platforms() -> tuple[str, list[str], str | None, bool]: ...
def prg_names() -> list[str]: ...
def load_server(
    url: str,
    *,
    partner: str | None,
    ca: Path | None,
    clients: int,
    keys_per_request: int,
    warmup: float,
    seconds: float,
) -> dict[str, Any]: ...
