"""Facts about tables and lookups, as plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from . import _native


@dataclass(frozen=True, slots=True)
class TableInfo:
    """What a table is, as its manifest or its two servers say.

    Attributes:
        name: the table's name.
        rows: rows; ids run from 0 to ``rows - 1``.
        dim: values in a row.
        dtype: how a value is stored and served, see :meth:`hushtable.Table.from_weight`.
        row_bytes: bytes of a row as served.
        version: BLAKE3 of the content, in hex: the two servers must agree on it.
    """

    name: str
    rows: int
    dim: int
    dtype: str
    row_bytes: int
    version: str

    @property
    def table_bytes(self) -> int:
        """Bytes of all rows as served."""
        return self.rows * self.row_bytes

    @classmethod
    def of_facts(cls, facts: _native.TableFacts) -> Self:
        """From what the native module says."""
        return cls(facts.name, facts.rows, facts.dim, facts.dtype, facts.row_bytes, facts.version)


@dataclass(frozen=True, slots=True)
class LookupStats:
    """What one lookup cost.

    Attributes:
        ids: ids asked for.
        keys: keys sent to each server, or queries to the one: what the servers saw.
        bytes_up: payload bytes sent, to both servers together; to one server its keys included,
            where this lookup uploaded them.
        bytes_down: payload bytes received, from both servers together.
        seconds: from the call to the rows.
        queue_seconds: the longer of the two servers' waits for a batch.
        answer_seconds: the longer of the two servers' passes over the table.
        retries: times that a request was sent again: to a busy server, or to another server
            because the first drained or was out of reach.
        version: which version of the table, or of the model, answered; empty in the clear.
    """

    ids: int
    keys: int
    bytes_up: int
    bytes_down: int
    seconds: float
    queue_seconds: float
    answer_seconds: float
    retries: int
    version: str = ""

    @classmethod
    def of_costs(cls, ids: int, keys: int, costs: _native.Costs) -> Self:
        """From what the native module says."""
        return cls(
            ids,
            keys,
            costs.bytes_up,
            costs.bytes_down,
            costs.seconds,
            costs.queue_seconds,
            costs.answer_seconds,
            costs.retries,
            costs.version,
        )

    @classmethod
    def of_many(cls, stats: Sequence[Self]) -> Self:
        """Of one or more lookups that were made side by side."""
        return cls(
            sum(one.ids for one in stats),
            sum(one.keys for one in stats),
            sum(one.bytes_up for one in stats),
            sum(one.bytes_down for one in stats),
            max(one.seconds for one in stats),
            max(one.queue_seconds for one in stats),
            max(one.answer_seconds for one in stats),
            sum(one.retries for one in stats),
            stats[-1].version,
        )


@dataclass(frozen=True, slots=True)
class FeatureInfo:
    """One input of a model that reads rows of a table.

    Attributes:
        name: its name.
        table: the name of the table that it reads; several features may read one.
        pooling: what the model makes of the rows: ``sum``, ``mean`` or ``none``.
        max_ids: most ids of one inference, to which every request is padded.
    """

    name: str
    table: str
    pooling: str
    max_ids: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model is, as its two servers say.

    Attributes:
        name: the model's name.
        version: BLAKE3 of its manifest, in hex: the two servers must agree on it.
        features: its features, in the manifest's order.
        tables: its tables, in the manifest's order.
    """

    name: str
    version: str
    features: tuple[FeatureInfo, ...]
    tables: tuple[TableInfo, ...]

    def table_of(self, feature: str) -> TableInfo:
        """The table that a feature reads.

        Raises:
            KeyError: the model has no such feature.
        """
        for found in self.features:
            if found.name == feature:
                return next(table for table in self.tables if table.name == found.table)
        raise KeyError(feature)

    @classmethod
    def of_facts(cls, facts: _native.ModelFacts) -> Self:
        """From what the native module says."""
        features = (FeatureInfo(f.name, f.table, f.pooling, f.max_ids) for f in facts.features)
        tables = map(TableInfo.of_facts, facts.tables)
        return cls(facts.name, facts.version, tuple(features), tuple(tables))

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """From :func:`dataclasses.asdict`, maybe by way of JSON."""
        features = tuple(FeatureInfo(**feature) for feature in record["features"])
        tables = tuple(TableInfo(**table) for table in record["tables"])
        return cls(**{**record, "features": features, "tables": tables})


@dataclass(frozen=True, slots=True)
class PreparedInfo:
    """A prepared file: a table in the form in which a single server multiplies it.

    Attributes:
        path: the file.
        parameters: the parameter set that it is for.
        prepared_bytes: bytes of its content.
        units: units of work that it took; 0 where the file was there already.
        resumed_units: those of them that an earlier, interrupted run had done.
        reused: True where a file that fits was there already.
        seconds: how long it took.
    """

    path: Path
    parameters: str
    prepared_bytes: int
    units: int
    resumed_units: int
    reused: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class OnionInfo:
    """What a lookup from a single server costs, whatever it asks for.

    Attributes:
        parameters: the parameter set's name.
        key_bytes: bytes of a client's keys, uploaded once.
        query_bytes: bytes of the query for one row.
        response_bytes: bytes of the response to it.
    """

    parameters: str
    key_bytes: int
    query_bytes: int
    response_bytes: int

    @classmethod
    def of_facts(cls, facts: _native.OnionFacts) -> Self:
        """From what the native module says."""
        return cls(facts.parameters, facts.key_bytes, facts.query_bytes, facts.response_bytes)


@dataclass(frozen=True, slots=True)
class PartInfo:
    """One part of a layout.

    Attributes:
        name: ``hot`` (the rows read most) or ``full`` (all rows).
        rows: rows that it covers.
        bins: bins that they are cut into.
        queries: rows that every inference asks each bin for.
        hashes: bins that each row is stored in.
        companions: other rows stored beside each row.
    """

    name: str
    rows: int
    bins: int
    queries: int
    hashes: int
    companions: int


@dataclass(frozen=True, slots=True)
class LayoutInfo:
    """How a table answers whole inferences, and what each costs, whatever its ids are.

    Attributes:
        version: BLAKE3 of the layout, in hex: the two servers must agree on it.
        ids_max: most ids of one bag.
        drop: which ids go first where not all fit: ``most-frequent``, ``earliest`` or ``random``.
        parts: the hot part, the full part, or both.
        keys: keys to each server.
        bytes_up: bytes of the two requests together.
        bytes_down: bytes of the two replies together.
        stored_bytes: bytes of rows that a server holds for the layout.
        map_bytes: bytes that a client keeps to find rows by.
    """

    version: str
    ids_max: int
    drop: str
    parts: tuple[PartInfo, ...]
    keys: int
    bytes_up: int
    bytes_down: int
    stored_bytes: int
    map_bytes: int

    @property
    def comm_bytes(self) -> int:
        """Bytes of all four messages of an inference."""
        return self.bytes_up + self.bytes_down

    @classmethod
    def of_facts(cls, facts: _native.LayoutFacts) -> Self:
        """From what the native module says."""
        document = json.loads(facts.json)
        layout = document["layout"]
        parts = tuple(
            PartInfo(name, **layout[name]) for name in ("hot", "full") if layout.get(name)
        )
        return cls(
            version=document["layout_version"],
            ids_max=layout["ids_max"],
            drop=layout["drop"],
            parts=parts,
            keys=facts.keys,
            bytes_up=facts.bytes_up,
            bytes_down=facts.bytes_down,
            stored_bytes=facts.stored_bytes,
            map_bytes=facts.map_bytes,
        )

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """From :func:`dataclasses.asdict`, maybe by way of JSON."""
        parts = tuple(PartInfo(**part) for part in record["parts"])
        return cls(**{**record, "parts": parts})


@dataclass(frozen=True, slots=True, eq=False)
class Bag:
    """The rows of a bag of ids, as a layout answered it.

    Attributes:
        rows: float32 ``[*, dim]`` in the shape ``[*]`` of the ids; zero where an id was dropped.
        kept: bool ``[*]``: which ids' rows are there.
        dropped: distinct ids that were dropped.
        stats: what it cost; the same bytes for every bag.
    """

    rows: npt.NDArray[np.float32]
    kept: npt.NDArray[np.bool_]
    dropped: int
    stats: LookupStats


@dataclass(frozen=True, slots=True)
class Damage:
    """One place where a bundle is not what was built.

    Attributes:
        file: file inside the bundle.
        row: the damaged row, or None where the damage is not in a row.
        what: what is wrong, in words.
    """

    file: str
    row: int | None
    what: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What :func:`hushtable.verify_table` found.

    Attributes:
        rows: rows checked.
        ok: True where every byte is as built.
        damage_count: damaged places in all.
        damaged: the first of them.
    """

    rows: int
    ok: bool
    damage_count: int
    damaged: tuple[Damage, ...]
