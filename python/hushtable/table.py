"""Tables in the clear: build, open, read, verify."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from . import _native
from ._asked import AskedBags
from ._bags import FloatArray
from ._embeddings import COLLECTION, altered, kind_of
from ._floats import float_array
from ._ids import Ids, flatten_ids
from ._torchao import served_codes
from ._types import Bag, Damage, LayoutInfo, LookupStats, PreparedInfo, TableInfo, VerifyReport
from .errors import ConfigError, NoLayout, TableError

__all__ = [
    "PARAMETERS",
    "Progress",
    "Table",
    "build_table",
    "prepared_path",
    "verify_prepared",
    "verify_table",
]

#: Called with the rows done and the rows there are.
Progress = Callable[[int, int], None]

#: The parameter set that single servers use by default: 128 bits of security.
PARAMETERS = "n4096_128"


def prepared_path(bundle: str | os.PathLike[str], parameters: str = PARAMETERS) -> Path:
    """Where the prepared file of a bundle is kept by default.

    Beside the bundle, as ``BUNDLE.onion-PARAMETERS.prepared``; beside what a link points to, so
    that each version behind a moving link keeps its own. Of a table in a model bundle, the model's
    own place for it.
    """
    folder = Path(bundle).resolve()
    in_model = _place_in_model(folder)
    if in_model is not None:
        other = f"{folder.name}.{parameters}{in_model.suffix}"
        return in_model if parameters == PARAMETERS else in_model.with_name(other)
    return folder.with_name(f"{folder.name}.onion-{parameters}.prepared")


def place_to_prepare(bundle: Path, out: str | os.PathLike[str] | None, parameters: str) -> Path:
    """Where the prepared file of a bundle is to be made; a model's folder for them is made."""
    place = Path(out) if out is not None else prepared_path(bundle, parameters)
    in_model = _place_in_model(bundle.resolve())
    if in_model is not None and place.parent == in_model.parent:
        place.parent.mkdir(exist_ok=True)
    return place


def _place_in_model(folder: Path) -> Path | None:
    """Where the prepared file of a table in a model bundle is kept; None for any other table."""
    try:
        bundle, prepared = _native.Model.open(folder.parent.parent).places(folder.name)
    except (TableError, OSError):
        return None
    return prepared if bundle.resolve() == folder else None


class Table:
    """An embedding table in the clear: what a server holds, and the reference for private lookups.

    Make one with :meth:`from_weight` or :meth:`open`. Copied or pickled, an opened one is opened
    again by its path; one in memory goes along whole.
    """

    def __init__(self, native: _native.Table, path: Path | None = None) -> None:
        self._native = native
        self._path = path
        self._info = TableInfo.of_facts(native.facts())

    def __reduce__(self) -> tuple[Any, ...]:
        if self._path is not None:
            return _opened_again, (self._path.absolute(), self._info.version)
        info = self._info
        return _made_again, (info.name, info.rows, info.dim, info.dtype, self._native.served())

    @classmethod
    def from_weight(cls, weight: Any, *, name: str = "table", dtype: str = "f32") -> Table:
        """A table in memory.

        Args:
            weight: ``[rows, dim]`` of numbers, each rounded to ``dtype``: an array, a tensor, or a
                torch ``nn.Embedding`` or ``nn.EmbeddingBag`` that gives rows of its weight as they
                are. Of what torchao has quantised, ``int8`` and ``fp8`` keep the codes and scales;
                everything else is made of the values that it stands for.
            name: what to call it, 1 to 128 bytes.
            dtype: how to store values: ``f32``, ``f16`` or ``bf16``; or codes with a scale a row,
                ``int8``, ``int4``, ``int2``, ``fp8_e4m3`` or ``fp8_e5m2``, the last four also with
                a scale for 32, 64 or 128 values (``int4/32``).

        Raises:
            ConfigError: not two dimensions, no real numbers, values that are masked or not there
                (a sparse tensor, one on the meta device), a layer that gives something else than
                its rows (``max_norm``, hooks, a ``forward`` of its own); an unknown dtype.
            TableError: a shape outside the limits, or a value that ``dtype`` cannot hold.
        """
        weight = _weight_of(weight)
        if (kept := served_codes(weight, dtype)) is not None:
            rows, dim, served = kept
            return cls(_native.Table.from_served(name, rows, dim, dtype, served))
        values = float_array(weight, "weight", TableError)
        if values.ndim != 2:
            raise ConfigError(f"weight must have 2 dimensions [rows, dim], not {values.ndim}")
        return cls(_native.Table.from_weight(name, np.ascontiguousarray(values), dtype))

    @classmethod
    def open(cls, path: str | Path) -> Table:
        """Opens the bundle at ``path``, memory-mapped: nothing is read until it is asked for.

        Raises:
            TableError: no bundle, or one with a damaged manifest or truncated rows.
        """
        path = Path(path)
        return cls(_native.Table.open(path), path)

    def save(self, path: str | Path) -> None:
        """Writes the table as a bundle at ``path``, replacing an older bundle in one step.

        Raises:
            TableError: the path cannot be written, or holds something that is no bundle.
        """
        self._native.save(Path(path))

    def patch(self, ids: Ids, rows: Any, out: str | os.PathLike[str]) -> Table:
        """Gives rows new values in a bundle of the next version, in time proportional to them.

        The bundle at ``out`` shares the files of this one by links (copies, where the file system
        has none), has the changed rows beside them, and is opened, verified, served and patched
        again as any other. This one stays as it is; ``out`` may be its own path. A server that
        holds this version takes the next one without loading the table again.

        Args:
            ids: the rows to change, ``[n]``, each once.
            rows: their values, ``[n, dim]`` of numbers; stored in the table's dtype.
            out: the bundle's folder.

        Raises:
            ConfigError: a table in memory, or ``rows`` that are no numbers ``[n, dim]``.
            TableError: an id that is no row, or that is there twice; a value that the dtype cannot
                hold; more changed rows, earlier patches' included, than a sixteenth of the table's;
                a bundle of before format 2 (save it once again).
        """
        if self._path is None:
            raise ConfigError("a table in memory has no bundle to patch: save it and open that")
        flat, _ = flatten_ids(ids)
        values = np.ascontiguousarray(float_array(rows, "rows", TableError))
        if values.shape != (flat.size, self._info.dim):
            raise ConfigError(
                f"rows must be [{flat.size}, {self._info.dim}], one of the table's dim for each "
                f"id, not {list(values.shape)}"
            )
        _native.patch_table(self._path, flat, values, Path(out))
        return Table.open(Path(out))

    def patch_from(self, file: str | os.PathLike[str], out: str | os.PathLike[str]) -> Table:
        """:meth:`patch`, by the ``rows.patch`` of a patched bundle, which another operator made.

        Raises:
            ConfigError: a table in memory.
            TableError: a damaged file, or one that was made for another version.
        """
        if self._path is None:
            raise ConfigError("a table in memory has no bundle to patch: save it and open that")
        _native.apply_patch(self._path, Path(file), Path(out))
        return Table.open(Path(out))

    def follow(self, earlier: str | os.PathLike[str], out: str | os.PathLike[str]) -> Table:
        """Writes this table as a patch of the bundle ``earlier``: of the rows that differ.

        All rows of both are read. The version is this table's own.

        Raises:
            TableError: no row differs, or more than a sixteenth of them; tables of two shapes.
        """
        _native.follow_table(Path(earlier), self._native, Path(out))
        return Table.open(Path(out))

    @property
    def base_version(self) -> str:
        """The version of the bundle that was built whole, below the changed rows; without any,
        the table's own."""
        return self._native.base_version

    @property
    def changed_rows(self) -> int:
        """Rows that differ from the bundle that was built whole."""
        return self._native.changed_rows

    @property
    def info(self) -> TableInfo:
        """Name, shape and version."""
        return self._info

    @property
    def created_from(self) -> str:
        """What the manifest says the table was built from."""
        return self._native.created_from

    @property
    def nonfinite_count(self) -> int:
        """NaN and infinite values in the table."""
        return self._native.nonfinite_count

    def rows(self, ids: Ids) -> FloatArray:
        """The rows ``ids`` (integers of any shape ``[*]``) as float32 ``[*, dim]``.

        Raises:
            IdOutOfRange: an id that is no row.
        """
        flat, shape = flatten_ids(ids)
        return self._native.rows(flat).reshape(*shape, self._info.dim)

    def lookup(self, ids: Ids, max_ids: int | None = None) -> FloatArray:
        """:meth:`rows`, under the name that :class:`~hushtable.Client` has: nothing is hidden.

        ``max_ids`` is taken so that one may stand for the other, and not needed here.
        """
        del max_ids
        return self.rows(ids)

    def prepare(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        parameters: str = PARAMETERS,
        threads: int = 0,
        progress: Progress | None = None,
    ) -> PreparedInfo:
        """Makes the file that a single server answers from, three to four times the table's bytes.

        The file takes its place once it is whole. Interrupted (Ctrl-C, an error that ``progress``
        raises, a killed process), what is done stays in ``OUT.partial`` and ``OUT.journal``, and
        the next call goes on from there. A file that fits the table already is left as it is.

        Args:
            out: the file to make; by default beside the bundle, see :func:`prepared_path`.
            parameters: ``n4096_128``, or the paper's ``ive_paper``.
            threads: threads that prepare; 0 for one a core.
            progress: called with (bytes of the table done, bytes of the table).

        Raises:
            ConfigError: an unknown parameter set; no ``out`` for a table that is in memory alone.
            PreparedError: the file is being made by another process, or something else is there.
            TableError: rows above 32 KiB, or a table that cannot be read.
        """
        if self._path is not None:
            place = place_to_prepare(self._path, out, parameters)
        elif out is not None:
            place = Path(out)
        else:
            raise ConfigError("a table in memory has no folder to prepare beside: give out=")
        started = time.perf_counter()
        made = _native.prepare_table(
            self._native, place, parameters=parameters, threads=threads, progress=progress
        )
        seconds = time.perf_counter() - started
        return PreparedInfo(
            place,
            parameters,
            made.payload_bytes,
            made.units,
            made.resumed_units,
            made.is_reused,
            seconds,
        )

    @property
    def layout(self) -> LayoutInfo | None:
        """How the table answers whole inferences; None without a layout."""
        native = self._native.layout()
        return None if native is None else LayoutInfo.of_facts(native.facts())

    def lookup_bag(self, ids: Ids) -> Bag:
        """What :meth:`hushtable.Client.lookup_bag` gives, in the clear: nothing is hidden.

        The same ids are dropped as there (where the layout drops at random: as many).

        Raises:
            NoLayout: the table has no layout.
            IdOutOfRange, TooManyIds: as there.
        """
        return self.lookup_bags([ids])[0]

    def lookup_bags(self, bags: Sequence[Ids]) -> list[Bag]:
        """What :meth:`hushtable.Client.lookup_bags` gives, in the clear: nothing is hidden.

        Raises:
            NoLayout, IdOutOfRange, TooManyIds: as :meth:`lookup_bag`.
        """
        native = self._native.layout()
        if native is None:
            raise NoLayout(f"table {self._info.name!r} has no layout: look rows up by rows()")
        asked = AskedBags.of(bags)
        rows = self._native.rows(asked.ids)  # refuses ids that are no rows
        offsets = np.array(asked.bounds, dtype=np.uint64)
        kept = native.simulate(asked.ids.astype(np.uint32), offsets, secrets.randbits(64))
        rows[~kept] = 0.0
        keys = len(asked.shapes) * native.facts().keys
        stats = LookupStats(asked.ids.size, keys, 0, 0, 0.0, 0.0, 0.0, 0)
        dropped = [
            np.unique(asked.ids[first:end][~kept[first:end]]).size
            for first, end in pairwise(asked.bounds)
        ]
        return asked.split(rows.reshape(-1, self._info.dim), kept, dropped, stats)

    def __len__(self) -> int:
        return self._info.rows

    def __repr__(self) -> str:
        info = self._info
        return f"Table({info.name!r}, {info.rows} rows x {info.dim} {info.dtype})"


def build_table(
    source: str | Path,
    out: str | Path,
    *,
    name: str | None = None,
    key: str | None = None,
    dtype: str | None = None,
    progress: Progress | None = None,
) -> TableInfo:
    """Builds a bundle from a file, without holding the table in memory.

    The bundle takes its place in one step: interrupted at any point, an older bundle at ``out``
    stands.

    Args:
        source: a ``.safetensors``, ``.npy``, ``.npz``, ``.pt``, ``.pth``, ``.bin`` or ``.ckpt``
            (torch state dict) file. A state dict is read as data; nothing in it is executed.
        out: the folder to make.
        name: the table's name; the file's name without its ending by default.
        key: which tensor; may be left out where there is only one that can be a table.
        dtype: how to store values, see :meth:`Table.from_weight`; the source's own by default.
        progress: called with (rows done, rows) about once a MiB.

    Raises:
        ConfigError: an unknown dtype.
        TableError: a source that cannot be read as a table, or a path that cannot be written.
    """
    source, out = Path(source), Path(out)
    _native.build_table(
        source, out, name=name or source.stem, key=key, dtype=dtype, progress=progress
    )
    return Table.open(out).info


def verify_table(path: str | Path, *, progress: Progress | None = None) -> VerifyReport:
    """Reads every byte of a bundle and checks it against its manifest.

    A flipped bit is reported with its row; see :class:`VerifyReport`.

    Raises:
        TableError: a bundle that cannot even be opened.
    """
    found = _native.verify_table(Path(path), progress=progress)
    damaged = tuple(Damage(one.file, one.row, one.what) for one in found.damaged)
    return VerifyReport(found.rows, found.is_ok, found.damage_count, damaged)


def verify_prepared(
    table: Table,
    path: str | os.PathLike[str],
    *,
    parameters: str = PARAMETERS,
    threads: int = 0,
) -> None:
    """Reads every byte of a prepared file and checks it against the hashes of its blocks.

    A server does the same when it starts.

    Args:
        table: the table that the file was made from.
        path: the file; :func:`prepared_path` says where it is by default.
        parameters: the parameter set that it was made for.
        threads: threads that read; 0 for one a core.

    Raises:
        ConfigError: an unknown parameter set.
        PreparedError: the file is missing, damaged (the first damaged block is named), or for
            another table or parameter set.
    """
    _native.verify_prepared(table._native, Path(path), parameters=parameters, threads=threads)


def _weight_of(weight: Any) -> Any:
    """The numbers of what may be a layer, whose rows they are.

    Raises:
        ConfigError: a module that gives something else.
    """
    if not hasattr(weight, "named_modules"):
        return weight
    kind, why = kind_of(weight), altered(weight)
    if kind is None or kind == COLLECTION:
        why = f"a {type(weight).__name__} is no layer of one table"
    elif why is None and weight.max_norm is not None:
        why = "it has max_norm, which changes the rows that it looks up"
    if why is not None:
        raise ConfigError(f"{why}: give the rows themselves (an array, or the layer's .weight)")
    return weight.weight


def _opened_again(path: Path, version: str) -> Table:
    table = Table.open(path)
    if table.info.version != version:
        raise TableError(
            f"the bundle at {path} is of version {table.info.version} by now, but the table that "
            f"was copied or pickled is of version {version}: open the bundle anew, or bring that "
            "version back"
        )
    return table


def _made_again(name: str, rows: int, dim: int, dtype: str, served: bytes) -> Table:
    return Table(_native.Table.from_served(name, rows, dim, dtype, served))
