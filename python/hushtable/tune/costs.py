"""What a layout costs one server: a model of time, fitted to this machine.

Seconds of a pass are taken as a sum of what the layout makes the engine do, each part times a
non-negative constant of the machine (:data:`FEATURES`). One set of constants is for an inference
alone, one for passes over :data:`BATCH` inferences: alone, a bin is scanned once by one key; in a
batch it is read once for all keys, and the product with it is a matrix product.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ConfigError
from .spec import LEAF_ROWS_MAX, LayoutSpec

__all__ = [
    "BATCH",
    "FEATURES",
    "CostModel",
    "Sample",
    "fit_costs",
    "load_costs",
    "save_costs",
    "stored_costs",
]

#: Inferences of a pass by which throughput is reckoned: the engine's own default.
BATCH = 64

#: What time is made of: a pass, each bin, each key, each key that is a tree, each block of the
#: generator, each byte that a key multiplies with, each byte stored, each stored byte that a core's
#: own cache does not keep, each that no cache keeps, each byte answered.
FEATURES = (
    "passes",
    "bins",
    "keys",
    "tree_keys",
    "prf_blocks",
    "product_bytes",
    "stored_bytes",
    "far_bytes",
    "memory_bytes",
    "down_bytes",
)

_FORMAT = 3
_WIRE = ("requests", "bytes")
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """A layout that was measured, on one thread.

    Attributes:
        rows: rows of its table.
        row_bytes: bytes of each.
        spec: the layout.
        costs: the figures of ``Layout.costs()``.
        alone_seconds: measured time of one inference alone.
        batch_seconds: measured time of a pass over :data:`BATCH` inferences.
    """

    rows: int
    row_bytes: int
    spec: LayoutSpec
    costs: Mapping[str, int]
    alone_seconds: float
    batch_seconds: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of one thread of one server.

    Attributes:
        alone: seconds of each of :data:`FEATURES`, for one inference alone.
        batch: the same for each inference of a pass over :data:`BATCH`; of ``passes``, ``bins`` and
            stored, far and memory bytes once for the pass.
        error_median: median of the relative errors on the layouts that it was fitted to.
        error_max: the largest of them.
        cpu: the processor that it was measured on.
        isa: the instruction set that was used.
        version: of this package.
        wire: seconds that a server takes for one inference's messages (TLS, gRPC, copies), and for
            each of their bytes.
    """

    alone: tuple[float, ...]
    batch: tuple[float, ...]
    error_median: float
    error_max: float
    cpu: str
    isa: str
    version: str
    wire: tuple[float, float] = (0.0, 0.0)

    def wire_seconds(self, costs: Mapping[str, int]) -> float:
        """Seconds of the right server, which has the longer requests, for an inference's
        messages."""
        return self.wire[0] + self.wire[1] * (costs["up_right_bytes"] + costs["down_bytes"])

    def alone_seconds(self, costs: Mapping[str, int], spec: LayoutSpec) -> float:
        """Seconds of the engine for one inference alone."""
        return float(_features(costs, spec, 1) @ np.array(self.alone))

    def batch_seconds(self, costs: Mapping[str, int], spec: LayoutSpec) -> float:
        """Seconds of the engine for a pass over :data:`BATCH` inferences."""
        return float(_features(costs, spec, BATCH) @ np.array(self.batch))

    def errors(self, sample: Sample) -> tuple[float, float]:
        """(alone, batch): by what share of the measured time the model's is over it."""
        return (
            self.alone_seconds(sample.costs, sample.spec) / sample.alone_seconds - 1,
            self.batch_seconds(sample.costs, sample.spec) / sample.batch_seconds - 1,
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        document = asdict(self)
        for name in ("alone", "batch"):
            document[name] = dict(zip(FEATURES, document[name], strict=True))
        document["wire"] = dict(zip(_WIRE, self.wire, strict=True))
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> CostModel:
        """Reads what :meth:`to_dict` made.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        fields = dict(document)
        for name, features in (("alone", FEATURES), ("batch", FEATURES), ("wire", _WIRE)):
            # Those that were measured before far bytes were told apart.
            known = {"far_bytes": 0.0, **fields[name]}
            values = tuple(float(known[feature]) for feature in features)
            if not all(0 <= value < float("inf") for value in values):
                raise ValueError(f"{name} has a negative or infinite figure")
            fields[name] = values
        return cls(**fields)


def _features(costs: Mapping[str, int], spec: LayoutSpec, batch: int) -> FloatArray:
    return np.array(
        [
            1.0,
            sum(part.bins for part in spec.parts),
            batch * costs["keys"],
            batch * sum(part.keys for part in spec.parts if part.bin_rows > LEAF_ROWS_MAX),
            batch * costs["prf_blocks"],
            batch * costs["product_bytes"],
            costs["stored_bytes"],
            *_missed_bytes(costs["stored_bytes"]),
            batch * costs["down_bytes"],
        ],
        dtype=np.float64,
    )


def _missed_bytes(stored_bytes: int) -> tuple[float, float]:
    """Of the stored bytes those that a core's own cache, and those that any cache, misses in every
    pass.

    A cache keeps nothing of rows that are read in turn and do not fit it. Beside the rows, a core's
    own also holds what is multiplied with them; the last is shared with other programs, so a table
    of half its size begins to miss.
    """
    own, last = cache_bytes()
    return (
        stored_bytes * min(max((4 * stored_bytes / own - 3) / 3, 0.0), 1.0),
        stored_bytes * min(max(2 * stored_bytes / last - 1, 0.0), 1.0),
    )


@functools.cache
def cache_bytes() -> tuple[int, int]:
    """Bytes of a core's second-level cache and of the last-level cache, as Linux tells; 1 MiB and
    32 MiB where it does not."""
    found: dict[int, int] = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        with contextlib.suppress(OSError, ValueError):
            level, size = ((index / name).read_text().strip() for name in ("level", "size"))
            found[int(level)] = int(size.removesuffix("K")) << 10
    found = found or {2: 1 << 20, 3: 32 << 20}
    return found.get(2, 1 << 20), max(found.values())


def _fit(features: FloatArray, seconds: FloatArray) -> FloatArray:
    """The non-negative constants with the least sum of relative errors, all but the smallest.

    With few features the best set of those that are not zero is found by trying all. Errors count
    once, not squared: a measurement that another program spoiled then has little say.
    """
    scaled = features / seconds[:, None]
    size = np.linalg.norm(scaled, axis=0)
    scaled = scaled / np.where(size > 0, size, 1.0)
    weights = np.ones(len(seconds))
    constants = np.zeros(features.shape[1])
    for _ in range(6):
        root = np.sqrt(weights)
        constants = _least_squares(scaled * root[:, None], root)
        weights = 1 / np.maximum(np.abs(scaled @ constants - 1), 0.03)
    found: FloatArray = constants / np.where(size > 0, size, 1.0)
    return found


def _least_squares(features: FloatArray, target: FloatArray) -> FloatArray:
    """The non-negative constants with the least squares of errors."""
    best, best_error = np.zeros(features.shape[1]), np.inf
    numbers = range(features.shape[1])
    for count in numbers:
        for chosen in itertools.combinations(numbers, count + 1):
            columns = features[:, chosen]
            found, *_ = np.linalg.lstsq(columns, target, rcond=None)
            if (found < 0).any():
                continue
            error = float(np.sum((columns @ found - target) ** 2))
            if error < best_error * (1 - 1e-9):
                best_error = error
                best = np.zeros(features.shape[1])
                best[list(chosen)] = found
    return best


def fit_costs(samples: Sequence[Sample]) -> CostModel:
    """The model that fits ``samples`` best.

    Raises:
        ConfigError: fewer samples than constants.
    """
    if len(samples) < len(FEATURES):
        raise ConfigError(f"{len(samples)} layouts cannot fit {len(FEATURES)} constants")
    errors = []
    constants = []
    for batch, name in ((1, "alone_seconds"), (BATCH, "batch_seconds")):
        features = np.array([_features(sample.costs, sample.spec, batch) for sample in samples])
        seconds = np.array([getattr(sample, name) for sample in samples])
        constants.append(_fit(features, seconds))
        errors.extend(np.abs(features @ constants[-1] / seconds - 1))
    cpu, isa, version = _machine()
    return CostModel(
        alone=tuple(map(float, constants[0])),
        batch=tuple(map(float, constants[1])),
        error_median=float(np.median(errors)),
        error_max=float(np.max(errors)),
        cpu=cpu,
        isa=isa,
        version=version,
    )


def stored_costs() -> Path:
    """The file in the user's cache folder that keeps measured models."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(base) if base else Path.home() / ".cache"
    return folder / "hushtable" / "layout-costs.json"


def save_costs(model: CostModel, path: Path | None = None) -> Path:
    """Keeps ``model`` for this processor, instruction set and version; others' stay."""
    path = path or stored_costs()
    path.parent.mkdir(parents=True, exist_ok=True)
    models = _read_models(path) | {_key(model.cpu, model.isa, model.version): model.to_dict()}
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=".layout-costs-", delete=False
    ) as file:
        json.dump({"format": _FORMAT, "models": models}, file, indent=1)
    Path(file.name).replace(path)
    return path


def load_costs(path: Path | None = None) -> CostModel | None:
    """The model kept for this processor, instruction set and version, if there is one."""
    found = _read_models(path or stored_costs()).get(_key(*_machine()))
    try:
        return None if found is None else CostModel.from_dict(found)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _read_models(path: Path) -> dict[str, Any]:
    """What the file keeps; nothing where it is missing, damaged or of another format."""
    try:
        document = json.loads(path.read_text())
        models = document["models"] if document["format"] == _FORMAT else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return models if isinstance(models, dict) else {}


def _key(cpu: str, isa: str, version: str) -> str:
    return f"{cpu} | {isa} | {version}"


def _machine() -> tuple[str, str, str]:
    """(processor, instruction set, package version)."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = (line.partition(":") for line in cpuinfo.read_text().splitlines())
        model = next((text.strip() for key, _, text in names if key.strip() == "model name"), model)
    return model, _native.platforms().chosen, _native.__version__
