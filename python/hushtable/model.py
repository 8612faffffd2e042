"""Model bundles: a model's tables, which feature reads which, and the rest of its checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _native
from .errors import ConfigError, ModelError
from .table import Progress, Table

__all__ = [
    "BuildPlan",
    "Feature",
    "Model",
    "ModelPlan",
    "ModelReport",
    "ModelSpec",
    "ModelTable",
    "PlanReport",
    "TableReport",
    "verify_model",
]

_Path = str | os.PathLike[str]

#: How dense tensors' types are called in safetensors, and in NumPy.
_DENSE_TYPES = {
    "BOOL": "?",
    "C64": "<c8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "I8": "<i1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "U8": "<u1",
}


@dataclass(frozen=True, slots=True)
class Feature:
    """One input of a model that reads rows of a table.

    Attributes:
        name: its name.
        table: the name of its table; several features may read one.
        pooling: what the model does with the rows: ``sum``, ``mean`` or ``none``.
        max_ids: the most ids of one inference, to which every request is padded.
    """

    name: str
    table: str
    pooling: str
    max_ids: int


@dataclass(frozen=True, slots=True)
class ModelTable:
    """A table of a model.

    Attributes:
        name: its name.
        version: what its content hashes to.
        rows: how many rows.
        dim: values a row.
        dtype: how a value is stored, see :meth:`hushtable.Table.from_weight`.
        layout: the version of its layout; None without one.
    """

    name: str
    version: str
    rows: int
    dim: int
    dtype: str
    layout: str | None


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What :meth:`Model.build` would make of a checkpoint.

    Attributes:
        format: what the checkpoint is made of.
        tables: each a dict of ``name``, ``key`` (the tensor's name), ``rows``, ``dim``, ``stored``
            (the tensor's type) and ``dtype`` (the table's).
        features: the features.
        dense: the names of the tensors that would be kept beside the tables.
        left_out: the names of those that would not.
    """

    format: str
    tables: tuple[dict[str, Any], ...]
    features: tuple[Feature, ...]
    dense: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableReport:
    """What :func:`verify_model` found of one table.

    Attributes:
        name: its name.
        rows: how many rows it has by the manifest.
        ok: True if every byte is as it was built.
        error: why it cannot be read, or is not the manifest's.
        damaged: the first damages in words, at most 16.
        damaged_count: how many there are.
    """

    name: str
    rows: int
    ok: bool
    error: str | None
    damaged: tuple[str, ...]
    damaged_count: int


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A compiled plan in a model's bundle: how it is computed on encrypted features.

    Attributes:
        name: its name.
        scheme: what it is compiled for: ``ckks``; empty where it cannot be read.
        version: what it hashes to; empty where it cannot be read.
        error: why it cannot be used with this model; None where it can.
    """

    name: str
    scheme: str
    version: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What :func:`verify_model` found of one compiled plan.

    Attributes:
        name: its name.
        error: why it cannot be used with this model; None where it can.
    """

    name: str
    error: str | None


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What :func:`verify_model` found.

    Attributes:
        ok: True if every byte is as it was built, and every plan is of this model.
        tables: each table.
        dense: what is wrong with the dense file; None if nothing is.
        plans: each compiled plan.
    """

    ok: bool
    tables: tuple[TableReport, ...]
    dense: str | None
    plans: tuple[PlanReport, ...] = ()


class ModelSpec:
    """Which tables and features a model has, as a TOML file says it.

    ::

        [[feature]]
        name = "cart"           # required
        table = "items"         # a table below, or one that is found; the feature's name by default
        pooling = "mean"        # sum, mean or none
        max_ids = 50

        [tables.items]
        key = "model.item_embedding.weight"  # the tensor's name in the checkpoint
        dtype = "f16"

    Raises:
        ConfigError: no such file, no TOML, or an entry that is not one of these.
    """

    def __init__(self, path: _Path) -> None:
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
            entries = tomllib.loads(text)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the spec {os.fspath(path)} cannot be read: {error}") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"the spec {os.fspath(path)} is no TOML: {error}") from error
        self._path = os.fspath(path)
        self._check_keys("the spec", entries, {"feature", "tables"})
        tables, features = entries.get("tables", {}), entries.get("feature", [])
        if not isinstance(tables, dict) or not isinstance(features, list):
            raise self._wrong("[tables.NAME] are tables and [[feature]] is a list of them")
        self.tables = [self._table(name, entry) for name, entry in tables.items()]
        self.features = [self._feature(entry) for entry in features]
        if not self.tables and not self.features:
            raise self._wrong("it has neither a [[feature]] nor a [tables.NAME]")

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(f"the spec {self._path}: {what}")

    def _check_keys(self, what: str, entry: Any, known: set[str]) -> None:
        if not isinstance(entry, dict):
            raise self._wrong(f"{what} must have the entries {', '.join(sorted(known))}")
        for key in entry:
            if key not in known:
                raise self._wrong(f"{what} has {key!r}; it may have {', '.join(sorted(known))}")

    def _text(self, what: str, entry: dict[str, Any], key: str) -> str | None:
        value = entry.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(f"{key} of {what} must be a string, not {value!r}")
        return value

    def _table(self, name: str, entry: Any) -> tuple[str, str, str | None]:
        what = f"[tables.{name}]"
        self._check_keys(what, entry, {"key", "dtype"})
        key = self._text(what, entry, "key")
        if key is None:
            raise self._wrong(f"{what} needs key, the tensor's name in the checkpoint")
        return name, key, self._text(what, entry, "dtype")

    def _feature(self, entry: Any) -> tuple[str, str, str | None, int | None]:
        self._check_keys("[[feature]]", entry, {"name", "table", "pooling", "max_ids"})
        name = self._text("[[feature]]", entry, "name")
        if name is None:
            raise self._wrong("every [[feature]] needs a name")
        what = f"feature {name!r}"
        max_ids = entry.get("max_ids")
        if max_ids is not None:
            if isinstance(max_ids, bool) or not isinstance(max_ids, int):
                raise self._wrong(f"max_ids of {what} must be a whole number, not {max_ids!r}")
            max_ids = _check_max_ids(max_ids, what)
        table = self._text(what, entry, "table")
        return name, name if table is None else table, self._text(what, entry, "pooling"), max_ids


def _check_max_ids(max_ids: int, what: str) -> int:
    if not 1 <= max_ids <= 65_536:
        raise ConfigError(f"max_ids of {what} is {max_ids}; it must be 1 to 65536")
    return max_ids


class Model:
    """A model bundle on disk: make one with :meth:`build`, open it with :meth:`open`."""

    def __init__(self, native: _native.Model) -> None:
        self._native = native
        manifest = json.loads(native.manifest())
        self._name: str = manifest["name"]
        self._features = tuple(Feature(**entry) for entry in manifest["features"])
        self._tables = tuple(ModelTable(**entry) for entry in manifest["tables"])

    @classmethod
    def open(cls, path: _Path) -> Model:
        """Opens the model at ``path``: its folder, or the ``model.json`` in it. No row is read.

        Raises:
            ModelError: no model, a damaged manifest, or one that names what is not there.
        """
        return cls(_native.Model.open(Path(path)))

    @classmethod
    def build(
        cls,
        checkpoint: _Path,
        out: _Path,
        *,
        name: str | None = None,
        tables: list[str] | None = None,
        spec: _Path | ModelSpec | None = None,
        max_ids: int = 1,
        pooling: str = "sum",
        dtype: str | None = None,
        dense: bool = True,
        progress: Progress | None = None,
    ) -> Model:
        """Builds a model bundle from a checkpoint, without holding a table in memory.

        The bundle takes its place in one step: interrupted at any point, an older one at ``out``
        stands. The same checkpoint makes the same version.

        Args:
            checkpoint: a ``.pt``, ``.pth``, ``.bin`` (torch), ``.safetensors``, ``.npz`` or
                ``.npy`` file, a ``.safetensors.index.json``, a folder of
                ``torch.distributed.checkpoint``, of safetensors shards, or of tables. It is read
                as data; nothing in it is executed.
            out: the folder to make.
            name: the model's name; ``out``'s by default.
            tables: which tensors are tables, by patterns of ``*`` and ``?``; by default those that
                are named as embeddings.
            spec: a TOML file that says it one by one, see :class:`ModelSpec`.
            max_ids: the most ids of one inference, for features that say nothing else.
            pooling: ``sum``, ``mean`` or ``none``, for features that say nothing else.
            dtype: how to store values, see :meth:`hushtable.Table.from_weight`; each tensor's own
                by default.
            dense: keep the tensors that are no tables.
            progress: called with (bytes done, bytes).

        Raises:
            ConfigError: an unknown dtype or pooling, a malformed spec, both ``tables`` and tables
                in ``spec``.
            ModelError: no embeddings, or a name or number that no model has.
            TableError: a checkpoint that cannot be read, or a path that cannot be written.
        """
        options = _options(out, name, tables, spec, max_ids, pooling, dtype, dense)
        _native.build_model(Path(checkpoint), Path(out), progress=progress, **options)
        return cls.open(out)

    @staticmethod
    def plan(
        checkpoint: _Path,
        *,
        name: str = "model",
        tables: list[str] | None = None,
        spec: _Path | ModelSpec | None = None,
        max_ids: int = 1,
        pooling: str = "sum",
        dtype: str | None = None,
        dense: bool = True,
    ) -> BuildPlan:
        """Says what :meth:`build` would make, and writes nothing.

        Raises:
            ConfigError, ModelError, TableError: as there.
        """
        options = _options(name, name, tables, spec, max_ids, pooling, dtype, dense)
        found = json.loads(_native.plan_model(Path(checkpoint), **options))
        return BuildPlan(
            found["format"],
            tuple(found["tables"]),
            tuple(Feature(**entry) for entry in found["features"]),
            tuple(found["dense"]),
            tuple(found["left_out"]),
        )

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    @property
    def version(self) -> str:
        """BLAKE3 of the manifest: equal versions mean the same features over the same rows."""
        return self._native.version()

    @property
    def path(self) -> Path:
        """The folder."""
        return self._native.path()

    @property
    def manifest(self) -> str:
        """The text of ``model.json``."""
        return self._native.manifest()

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features, in the order in which requests hold them."""
        return self._features

    @property
    def tables(self) -> tuple[ModelTable, ...]:
        """The tables."""
        return self._tables

    @property
    def plans(self) -> tuple[ModelPlan, ...]:
        """The compiled plans in the bundle, as they are now (:func:`hushtable.infer.compile`)."""
        return tuple(ModelPlan(**plan) for plan in json.loads(self._native.plans()))

    def feature(self, name: str) -> Feature:
        """The feature of this name.

        Raises:
            ModelError: there is none.
        """
        for feature in self._features:
            if feature.name == name:
                return feature
        names = ", ".join(feature.name for feature in self._features[:8])
        raise ModelError(f"the model {self._name!r} has no feature {name!r}; it has {names}")

    def table(self, name: str) -> Table:
        """Opens the table of this name, and checks that it is the manifest's.

        Raises:
            ModelError: there is none, or what is there is another.
            TableError: it cannot be opened.
        """
        return Table(self._native.table(name), self.table_path(name))

    def table_path(self, name: str) -> Path:
        """The folder of the table of this name."""
        return self._native.places(name)[0]

    def prepared_path(self, name: str) -> Path:
        """Where a single server's prepared file of the table of this name is kept."""
        return self._native.places(name)[1]

    def dense(self) -> dict[str, npt.NDArray[Any]]:
        """The tensors of the checkpoint that are no tables, by name; bfloat16 as float32.

        Raises:
            ModelError: the dense file is damaged, or holds a type that NumPy lacks.
        """
        path = self._native.dense_path()
        return {} if path is None else _read_dense(path)

    def dense_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors of :meth:`dense`, by name; none of them is read.

        Raises:
            ModelError: the dense file is damaged.
        """
        path = self._native.dense_path()
        if path is None:
            return {}
        with _dense_errors(path):
            header, _ = _read_header(path)
            return {name: tuple(entry["shape"]) for name, entry in header.items()}

    def replace_table(self, name: str, table: Table, out: _Path | None = None) -> Model:
        """Writes the model with ``table`` in place of the table of this name, and opens it.

        The other tables' files are shared where the file system allows, not copied.

        Args:
            name: which table.
            table: what to have there instead, layout included.
            out: where to write; in the model's own place by default, in one step.

        Raises:
            ModelError: there is no such table.
            TableError: the path cannot be written.
        """
        place = self.path if out is None else Path(out)
        self._native.replace_table(name, table._native, place)
        return Model.open(place)

    @classmethod
    def of_table(
        cls,
        table: Table,
        out: _Path,
        *,
        name: str | None = None,
        table_name: str | None = None,
        pooling: str = "sum",
        max_ids: int = 1,
    ) -> Model:
        """Writes a model of one table, read by one feature of its name, and opens it.

        Raises:
            ConfigError: an unknown pooling.
            ModelError: a name or number that no model has.
            TableError: the path cannot be written.
        """
        table_name = table.info.name if table_name is None else table_name
        _native.write_model(
            Path(out),
            _default_name(out) if name is None else name,
            table_name,
            table._native,
            pooling=pooling,
            max_ids=_check_max_ids(max_ids, f"feature {table_name!r}"),
        )
        return cls.open(out)

    def __repr__(self) -> str:
        return f"Model({self._name!r}, {len(self._features)} features, {len(self._tables)} tables)"


def verify_model(path: _Path, *, progress: Progress | None = None) -> ModelReport:
    """Reads every byte of a model bundle and checks it against its manifest.

    ``progress`` is called with (bytes of tables done, bytes of tables).

    Raises:
        ModelError: no model, or a damaged manifest; what is damaged below it is in the report.
    """
    found = json.loads(_native.verify_model(Path(path), progress=progress))
    tables = (
        TableReport(**{**table, "damaged": tuple(table["damaged"])}) for table in found["tables"]
    )
    plans = tuple(PlanReport(**plan) for plan in found["plans"])
    return ModelReport(found["ok"], tuple(tables), found["dense"], plans)


def _options(
    out: _Path,
    name: str | None,
    tables: list[str] | None,
    spec: _Path | ModelSpec | None,
    max_ids: int,
    pooling: str,
    dtype: str | None,
    dense: bool,
) -> dict[str, Any]:
    """What the native builder takes."""
    if spec is not None and not isinstance(spec, ModelSpec):
        spec = ModelSpec(spec)
    if spec is not None and spec.tables and tables:
        raise ConfigError("tables are chosen by patterns or by [tables.NAME] of a spec, not both")
    return {
        "name": _default_name(out) if name is None else name,
        "patterns": list(tables or []),
        "tables": [] if spec is None else spec.tables,
        "features": [] if spec is None else spec.features,
        "pooling": pooling,
        "max_ids": _check_max_ids(max_ids, "features"),
        "dtype": dtype,
        "dense": dense,
    }


def _default_name(out: _Path) -> str:
    """A folder's name, with _ for what a model's name may not have."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(out).resolve().name).lstrip(".-")
    return name[:128] or "model"


@contextlib.contextmanager
def _dense_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"{path} is damaged: restore that file, or build the model again"
        raise ModelError(text) from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """What a safetensors file that hushtable wrote holds, and where the values begin."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise ValueError("the header is longer than the file")
        return json.loads(file.read(length)), 8 + length


def _read_dense(path: Path) -> dict[str, npt.NDArray[Any]]:
    with _dense_errors(path):
        header, start = _read_header(path)
        body = memoryview(path.read_bytes())[start:]
        return {
            name: _array(name, entry["dtype"], body[slice(*entry["data_offsets"])]).reshape(
                entry["shape"]
            )
            for name, entry in header.items()
        }


def _array(name: str, dtype: str, content: memoryview) -> npt.NDArray[Any]:
    if dtype == "BF16":
        # The upper half of a float32.
        halves = np.frombuffer(content, dtype="<u2").astype(np.uint32)
        return (halves << 16).view(np.float32)
    if dtype not in _DENSE_TYPES:
        raise ModelError(f"dense tensor {name!r} is of type {dtype}, which NumPy lacks")
    return np.frombuffer(content, dtype=_DENSE_TYPES[dtype]).copy()
