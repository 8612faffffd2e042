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
    "Layout",
    "OnionBench",
    "Profile",
    "Server",
    "Table",
    "__version__",
    "build_table",
    "expand_seconds",
    "instruction_ns",
    "load_bags",
    "load_server",
    "log_to_stderr",
    "make_certificates",
    "multiply_ns",
    "ntt_seconds",
    "onion_sizes",
    "parameter_sets",
    "platforms",
    "prepare_table",
    "prg_names",
    "read_gb_per_s",
    "ring_kernel",
    "verify_table",
]

__version__: str

_Facts = tuple[str, int, int, str, int, str]
_Costs = tuple[int, int, float, float, float, int]
_Rows = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.uint64]
_LayoutFacts = tuple[str, int, int, int, int, int]
_OnionFacts = tuple[str, int, int, int]
_BagResult = tuple[_Rows, npt.NDArray[np.bool_], int, int, _Costs]

class Table:
    @staticmethod
    def open(path: Path) -> Table: ...
    @staticmethod
    def from_weight(name: str, values: _Rows, dtype: str) -> Table: ...
    def save(self, path: Path) -> None: ...
    def rows(self, ids: _Ids) -> _Rows: ...
    def facts(self) -> _Facts: ...
    def with_layout(self, layout: Layout) -> Table: ...
    def layout(self) -> Layout | None: ...
    def origin(self) -> tuple[str, int]: ...

class Profile:
    def __new__(
        cls, ids: npt.NDArray[np.uint32], offsets: npt.NDArray[np.uint64], rows: int
    ) -> Profile: ...
    def counts(self) -> npt.NDArray[np.uint32]: ...
    def ranked(self, count: int) -> npt.NDArray[np.uint32]: ...
    def design(
        self, table: Table, spec: str, progress: Callable[[int, int], None] | None = None
    ) -> Layout: ...

class Layout:
    @staticmethod
    def of_bundle(path: Path) -> Layout | None: ...
    @staticmethod
    def from_bytes(bytes: bytes) -> Layout: ...
    def to_bytes(self) -> bytes: ...
    def save(self, path: Path) -> None: ...
    def to_json(self) -> str: ...
    def version(self) -> str: ...
    def costs(self) -> dict[str, int]: ...
    def simulate(
        self, ids: npt.NDArray[np.uint32], offsets: npt.NDArray[np.uint64], seed: int = 0
    ) -> npt.NDArray[np.bool_]: ...
    def measure(self, batch: int, seconds: float, threads: int = 1) -> float: ...

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
        layout_bytes_max: int,
    ) -> Client: ...
    @staticmethod
    def connect_one(
        server: str,
        *,
        ca: Path | None,
        certificate: tuple[Path, Path] | None,
        name: str | None,
        insecure: bool,
        connect_seconds: float,
        seconds: float,
    ) -> Client: ...
    def lookup(self, ids: _Ids, max_ids: int) -> tuple[_Rows, _Costs]: ...
    def start_lookup(
        self,
        ids: _Ids,
        max_ids: int,
        done: Callable[[tuple[_Rows, _Costs] | None, BaseException | None], None],
    ) -> Call: ...
    def lookup_bag(self, ids: _Ids) -> _BagResult: ...
    def start_bag(
        self, ids: _Ids, done: Callable[[_BagResult | None, BaseException | None], None]
    ) -> Call: ...
    def layout(self) -> _LayoutFacts | None: ...
    def facts(self) -> tuple[_Facts, int]: ...
    def onion(self) -> _OnionFacts | None: ...
    def close(self) -> None: ...

class Call:
    def cancel(self) -> None: ...

class Server:
    @staticmethod
    def start(spec: str) -> Server: ...
    @staticmethod
    def start_onion(spec: str) -> Server: ...
    @property
    def addr(self) -> str: ...
    @property
    def metrics_addr(self) -> str | None: ...
    @property
    def table(self) -> tuple[str, str]: ...
    @property
    def layout(self) -> _LayoutFacts | None: ...
    @property
    def onion(self) -> _OnionFacts | None: ...
    @property
    def prepared(self) -> tuple[int, int]: ...
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

class OnionBench:
    def __new__(
        cls,
        rows: int,
        row_bytes: int,
        *,
        parameters: str,
        threads: int,
        levels: int | None,
        schedule: str | None,
    ) -> OnionBench: ...
    @property
    def threads(self) -> int: ...
    @property
    def description(self) -> str: ...
    @property
    def facts(self) -> dict[str, Any]: ...
    def answer_seconds(
        self, batch: int, seconds: float
    ) -> tuple[list[tuple[float, float, float, float]], list[tuple[float, float, float]]]: ...

def prepare_table(
    table: Table,
    out: Path,
    *,
    parameters: str,
    threads: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[int, int, int, bool]: ...
def onion_sizes(rows: int, row_bytes: int, parameters: str) -> tuple[str, int, int, int, int]: ...
def parameter_sets() -> list[str]: ...
def ntt_seconds(
    degree: int, bits: int, *, is_inverse: bool, seconds: float
) -> tuple[list[float], str]: ...
def multiply_ns() -> float | None: ...
def ring_kernel() -> str: ...
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
def load_bags(
    left: str,
    right: str,
    *,
    ca: Path | None,
    clients: int,
    warmup: float,
    seconds: float,
) -> dict[str, Any]: ...
