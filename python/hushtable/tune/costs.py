"""What a layout costs one server: a model of time, fitted to this machine.

Seconds of a pass are taken as a sum of what the layout makes the engine do, each part times a
non-negative constant of the machine (:data:`FEATURES`). One set of constants is for an inference
alone, one for passes over :data:`BATCH` inferences: alone, a bin is scanned once by one key; in a
batch it is read once for all keys, and the product with it is a matrix product.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ConfigError
from .spec import LayoutSpec, PartSpec, seed_text

__all__ = [
    "BATCH",
    "FEATURES",
    "CostModel",
    "Sample",
    "calibrate",
    "load_costs",
    "measure_specs",
    "save_costs",
    "stored_costs",
]

#: Inferences of a pass by which throughput is reckoned: the engine's own default.
BATCH = 64

#: What time is made of: a pass, each bin, each key, each block of the generator, each byte that a
#: key multiplies with, each byte stored, each byte answered.
FEATURES = (
    "passes",
    "bins",
    "keys",
    "prf_blocks",
    "product_bytes",
    "stored_bytes",
    "down_bytes",
)

_FORMAT = 1
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
            ``stored_bytes`` once for the pass.
        error_median: median of the relative errors on the layouts that it was fitted to.
        error_max: the largest of them.
        cpu: the processor that it was measured on.
        isa: the instruction set that was used.
        version: of this package.
    """

    alone: tuple[float, ...]
    batch: tuple[float, ...]
    error_median: float
    error_max: float
    cpu: str
    isa: str
    version: str

    def alone_seconds(self, costs: Mapping[str, int], spec: LayoutSpec) -> float:
        """Seconds of one inference alone."""
        return float(_features(costs, spec, 1) @ np.array(self.alone))

    def batch_seconds(self, costs: Mapping[str, int], spec: LayoutSpec) -> float:
        """Seconds of a pass over :data:`BATCH` inferences."""
        return float(_features(costs, spec, BATCH) @ np.array(self.batch))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        document = asdict(self)
        for name in ("alone", "batch"):
            document[name] = dict(zip(FEATURES, document[name], strict=True))
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> CostModel:
        """Reads what :meth:`to_dict` made.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        fields = dict(document)
        for name in ("alone", "batch"):
            values = tuple(float(fields[name][feature]) for feature in FEATURES)
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
            batch * costs["prf_blocks"],
            batch * costs["product_bytes"],
            costs["stored_bytes"],
            batch * costs["down_bytes"],
        ],
        dtype=np.float64,
    )


def _fit(features: FloatArray, seconds: FloatArray) -> FloatArray:
    """The non-negative constants with the least squares of relative errors.

    With few features the best set of those that are not zero is found by trying all.
    """
    scaled = features / seconds[:, None]
    size = np.linalg.norm(scaled, axis=0)
    scaled = scaled / size
    best, best_error = np.zeros(features.shape[1]), np.inf
    numbers = range(features.shape[1])
    for count in numbers:
        for chosen in itertools.combinations(numbers, count + 1):
            found, *_ = np.linalg.lstsq(scaled[:, chosen], np.ones(len(seconds)), rcond=None)
            if (found < 0).any():
                continue
            error = float(np.sum((scaled[:, chosen] @ found - 1) ** 2))
            if error < best_error * (1 - 1e-9):
                best_error = error
                best = np.zeros(features.shape[1])
                best[list(chosen)] = found
    constants: FloatArray = best / size
    return constants


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


def _spec(hot: PartSpec | None, full: PartSpec | None) -> LayoutSpec:
    return LayoutSpec(hot, full, ids_max=1024, drop="most-frequent", seed=seed_text(0))


#: (rows, row bytes, layout) of the layouts measured: bins of one leaf and of many, few and many
#: keys, narrow and wide rows, tables that fit a second-level cache and tables that fit none.
SHAPES: tuple[tuple[int, int, LayoutSpec], ...] = (
    (1 << 12, 64, _spec(None, PartSpec(1 << 12, 16))),
    (1 << 12, 256, _spec(None, PartSpec(1 << 12, 128))),
    (1 << 14, 128, _spec(None, PartSpec(1 << 14, 8, 4))),
    (1 << 14, 128, _spec(None, PartSpec(1 << 14, 64, 2))),
    (1 << 15, 64, _spec(None, PartSpec(1 << 15, 1024))),
    (1 << 15, 256, _spec(None, PartSpec(1 << 15, 16, 3))),
    (1 << 16, 128, _spec(PartSpec(1 << 10, 32), PartSpec(1 << 16, 32))),
    (1 << 16, 64, _spec(PartSpec(1 << 12, 4, 8), PartSpec(1 << 16, 128))),
    (1 << 16, 64, _spec(None, PartSpec(1 << 16, 256, companions=3))),
    (1 << 17, 64, _spec(PartSpec(1 << 13, 64, companions=1), PartSpec(1 << 17, 48))),
    (1 << 17, 128, _spec(None, PartSpec(1 << 17, 512))),
    (1 << 17, 256, _spec(None, PartSpec(1 << 17, 4))),
    (1 << 18, 64, _spec(None, PartSpec(1 << 18, 2, 4))),
    (1 << 16, 64, _spec(None, PartSpec(1 << 16, 96, hashes=3))),
    (1 << 13, 512, _spec(None, PartSpec(1 << 13, 64))),
    (1 << 18, 128, _spec(None, PartSpec(1 << 18, 96))),
)


def calibrate(
    *, seconds: float = 0.06, rounds: int = 3, progress: Callable[[int, int], None] | None = None
) -> tuple[CostModel, list[Sample]]:
    """Measures this machine and fits the model to it; keeps nothing.

    Args:
        seconds: time of each measurement.
        rounds: times that every layout is measured; of each the best is taken.
        progress: called with (measurements done, measurements).
    """
    samples = measure_specs(SHAPES, seconds=seconds, rounds=rounds, progress=progress)
    return fit_costs(samples), samples


def measure_specs(
    shapes: Sequence[tuple[int, int, LayoutSpec]],
    *,
    seconds: float,
    rounds: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[Sample]:
    """Times layouts on one thread of this machine: (rows, row bytes, spec) each.

    Rounds go over all layouts in turn, so that another program's busy moment does not fall on one
    layout alone; of each layout's medians the least is taken.
    """
    layouts = [design_shape(*shape) for shape in shapes]
    times: dict[tuple[int, int], list[float]] = {}
    total, done = rounds * len(shapes), 0
    for _ in range(rounds):
        for index, layout in enumerate(layouts):
            for batch in (1, BATCH):
                found = layout.measure(batch, seconds, 1)
                times.setdefault((index, batch), []).append(found)
            done += 1
            if progress is not None:
                progress(done, total)
    return [
        Sample(*shape, layout.costs(), min(times[index, 1]), min(times[index, BATCH]))
        for index, (shape, layout) in enumerate(zip(shapes, layouts, strict=True))
    ]


def design_shape(rows: int, row_bytes: int, spec: LayoutSpec) -> _native.Layout:
    """A layout of a table of zeros that has this shape: for its costs and to be measured."""
    table = _native.Table.from_weight(
        "costs", np.zeros((rows, row_bytes // 4), dtype=np.float32), "f32"
    )
    profile = _native.Profile(np.zeros(1, dtype=np.uint32), np.array([0, 1], dtype=np.uint64), rows)
    return profile.design(table, spec.to_json())


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
    return model, _native.platforms()[0], _native.__version__


def spread_error(model: CostModel, samples: Sequence[Sample]) -> tuple[float, float]:
    """(median, largest) relative error of the model on ``samples``, alone and in batches."""
    errors = []
    for sample in samples:
        alone = model.alone_seconds(sample.costs, sample.spec)
        batch = model.batch_seconds(sample.costs, sample.spec)
        errors += [alone / sample.alone_seconds - 1, batch / sample.batch_seconds - 1]
    return statistics.median(map(abs, errors)), max(map(abs, errors))
