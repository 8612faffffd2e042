"""Measurements: what engines and servers do, and what the machine could do at best."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hushtable._native import Layout

__all__ = [
    "Bench",
    "BootstrapBench",
    "CkksBench",
    "GpuBench",
    "GpuBinsBench",
    "HybridBench",
    "ModelBench",
    "OnionBench",
    "PathBench",
    "SharesBench",
    "coded_lookup",
    "expand_seconds",
    "garble_rates",
    "gpu_probe",
    "hybrid_network",
    "infer_models",
    "infer_seconds",
    "load_open",
    "load_server",
    "multiply_ns",
    "ntt_seconds",
    "onion_operations",
    "onion_traffic",
    "page_seconds",
    "require",
    "stub_shards",
    "union_seconds",
    "unit_seconds",
]

_RowIds = npt.NDArray[np.uint32]

class Bench:
    def __new__(cls, rows: int, row_bytes: int, *, threads: int, isa: str | None) -> Bench: ...
    @property
    def threads(self) -> int: ...
    @property
    def batch_keys_best(self) -> int: ...
    @property
    def description(self) -> str: ...
    def answer_seconds(self, batch: int, *, prg: str, seconds: float) -> list[float]: ...

class BootstrapBench:
    def __new__(cls, degree: int, slots: int) -> BootstrapBench: ...
    @property
    def facts(self) -> dict[str, Any]: ...
    def seconds(self, seconds: float) -> list[float]: ...

class CkksBench:
    def __new__(
        cls, degree: int, limbs: int, *, operation: str, diagonals: int, baby_steps: int
    ) -> CkksBench: ...
    @property
    def facts(self) -> dict[str, Any]: ...
    def seconds(self, seconds: float) -> list[float]: ...

class GpuBench:
    def __new__(cls, rows: int, row_bytes: int, *, device: int, folders: list[str]) -> GpuBench: ...
    @property
    def facts(self) -> dict[str, Any]: ...
    @property
    def description(self) -> str: ...
    def check(
        self,
        batch: int,
        *,
        strategy: str,
        prg: str,
        group: str,
        leaf: str | None = None,
        streams: bool = False,
    ) -> None: ...
    def step_bytes(
        self, batch: int, *, strategy: str, prg: str, group: str, leaf: str
    ) -> tuple[int, int]: ...
    def answer_ms(
        self,
        batch: int,
        *,
        strategy: str,
        prg: str,
        group: str,
        seconds: float,
        leaf: str | None = None,
        streams: bool = False,
    ) -> dict[str, list[float]]: ...

class GpuBinsBench:
    def __new__(cls, layout: Layout, *, device: int, folders: list[str]) -> GpuBinsBench: ...
    @property
    def facts(self) -> dict[str, Any]: ...
    @property
    def description(self) -> str: ...
    @property
    def work(self) -> dict[str, int]: ...
    def check(self, batch: int, *, prg: str) -> None: ...
    def answer_ms(self, batch: int, *, prg: str, seconds: float) -> dict[str, list[float]]: ...

class ModelBench:
    def __new__(cls, rows: list[int], row_bytes: int, *, threads: int) -> ModelBench: ...
    @property
    def threads(self) -> int: ...
    @property
    def read_bytes(self) -> int: ...
    @property
    def product_bytes(self) -> int: ...
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
        overlap: bool = False,
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
    def unprepared_seconds(self, batch: int) -> tuple[float, float, float, float]: ...

class PathBench:
    def __new__(cls, path: Path, rows: int, row_bytes: int) -> PathBench: ...
    @property
    def path(self) -> Path: ...
    def facts(self) -> tuple[int, int, int]: ...
    def round(self, ids: _RowIds, epsilon: float) -> tuple[float, dict[str, int], int, int]: ...

def expand_seconds(
    rows: int, *, group: str, prg: str, isa: str | None, seconds: float
) -> list[float]: ...
def gpu_probe(device: int, folders: list[str]) -> tuple[float, float, float]: ...
def load_open(
    url: str,
    *,
    partner: str | None,
    ca: Path | None,
    parameters: str | None,
    connections: int,
    arrivals: list[float],
    measured_from: float,
    give_up: float,
) -> dict[str, Any]: ...
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
def multiply_ns() -> float | None: ...
def coded_lookup(
    dim: int,
    *,
    base: int,
    digits: int,
    left: int,
    bootstraps: bool,
    runs: int,
) -> str: ...
def ntt_seconds(
    degree: int, bits: int, *, is_inverse: bool, seconds: float
) -> tuple[list[float], str]: ...
def onion_operations(
    rows: int, row_bytes: int, *, parameters: str, levels: int | None
) -> dict[str, Any]: ...
def onion_traffic(
    rows: int,
    row_bytes: int,
    *,
    parameters: str,
    levels: int | None,
    schedule: str,
    overlap: bool,
    residue_bits: int,
    scratchpad_bytes: int,
) -> dict[str, Any]: ...
def page_seconds(path: Path, count: int) -> tuple[float, float]: ...
def require() -> None: ...
def union_seconds(ids: _RowIds, *, is_scan: bool) -> tuple[float, int]: ...
def unit_seconds(operation: str, *, parameters: str, bytes: int, seconds: float) -> list[float]: ...
def infer_models() -> list[str]: ...
def infer_seconds(
    *, model: str, users: int, runs: int, threads: int, masks: str = "held"
) -> str: ...

class SharesBench:
    def __new__(cls, model: str, divisor: int) -> SharesBench: ...
    def tables(self) -> tuple[int, int]: ...
    def write(self, out: Path, name: str) -> None: ...
    def users(
        self, users: int, seed: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint64], npt.NDArray[np.float64]]: ...
    def work_us(self, runs: int) -> tuple[float, float, int]: ...

class HybridBench:
    def __new__(cls, network: str, size: int, *, verify_uploads: bool) -> HybridBench: ...
    def counts(self, *, client_garbles: bool) -> str: ...
    def measure(self, *, client_garbles: bool) -> str: ...

def hybrid_network(out: Path, *, network: str, size: int) -> None: ...
def garble_rates(
    *, bits: int, fraction: int, threads: int, seconds: float, isa: str | None
) -> str: ...
def stub_shards(
    model: Path,
    side: str,
    *,
    tls: tuple[Path, Path] | None,
    seconds: float,
    on_bound: Callable[[list[str]], None],
) -> None: ...
