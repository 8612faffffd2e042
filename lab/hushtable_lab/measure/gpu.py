"""What a GPU does, beside what it could do at best: shared by the command and ``bench/gpu.py``.

Imports nothing but the package, so that ``bench/gpu.py`` runs where only numpy is installed.
"""

from __future__ import annotations

import functools
import statistics
from dataclasses import dataclass
from typing import Any

from hushtable import _native
from hushtable._machine import wheel_folders

from .. import native
from .floors import ROWS_PER_LEAF
from .records import bench_record

#: 32-bit integer operations of a generator on a GPU, as (inner node, leaf): a node's two children
#: take 256 bits, a leaf 512. Counted as instructions of up to three inputs, additions of carries
#: included, loads and stores not.
#:
#: - ChaCha, Salsa20: 4 quarter rounds a round of 12 operations each, then the input is added.
#: - SHA-256: 14 a round, 10 a word of the schedule; one compression an inner node, two a leaf.
#: - SipHash-2-4: six rounds of 24 a tag of 64 bits, and the key; 4 tags, 8 tags.
#: - HighwayHash: 11 updates of 96 a tag of 256 bits, and the reduction; one tag, two tags.
#: - AES-128: per column and round 4 bytes taken out and 2 three-way XORs, 10 rounds of 4 columns a
#:   block; two blocks, four blocks. Its 160 look-ups a block are not counted, and bind earlier.
OPERATIONS = {
    "aes128": (480, 960),
    "chacha20": (968, 976),
    "chacha12": (584, 592),
    "salsa20": (968, 976),
    "salsa12": (584, 592),
    "sha256": (1384, 2768),
    "siphash24": (624, 1248),
    "highwayhash": (1100, 2200),
}

#: How the engine may answer; K nodes at a time (``hybrid:64``) where a name ends in ``:K``.
STRATEGIES = (
    "auto",
    "block-per-key",
    "level-by-level",
    "hybrid:K",
    "fused:K",
    "cooperative",
    "tensor",
)


#: The paper's steps (Lam et al., section III-C), each one change from the step before: with them,
#: trees have a leaf for each row, as the paper's do, or our wider leaves.
STEPS = ("block-per-key", "level-by-level", "hybrid:K", "fused:K", "cooperative")
LEAVES = ("row", "wide")


@dataclass(frozen=True, slots=True)
class Probe:
    """What the device itself measured: its floors.

    Attributes:
        read_gb_per_s: bytes read from its memory.
        int8_tmac_per_s: multiply-adds of bytes on the tensor cores, in 10^12.
        int32_gop_per_s: additions, XORs and rotations of 32 bits, in 10^9.
    """

    read_gb_per_s: float
    int8_tmac_per_s: float
    int32_gop_per_s: float


@dataclass(frozen=True, slots=True)
class GpuFloor:
    """The least time of a batch on a device, and each of the three bounds.

    Attributes:
        seconds: the largest of the three.
        bound: which: ``memory``, ``product`` or ``expansion``.
        parts: seconds of each.
    """

    seconds: float
    bound: str
    parts: dict[str, float]


def leaf_count(rows: int, group: str, leaf: str | None = None) -> int:
    """Leaves of a key: as many as the rows fill, or one a row with ``leaf`` ``row``."""
    return rows if leaf == "row" else -(-rows // ROWS_PER_LEAF[group])


def key_bytes(rows: int, group: str, leaf: str | None = None) -> int:
    """Bytes of a key to one server: its head and root, 16 and a bit a level, a leaf's correction.

    The sizes are those of ``Key::to_bytes``; a shape's keys are all as long.
    """
    depth = (leaf_count(rows, group, leaf) - 1).bit_length()
    return 24 + 16 * depth + -(-depth // 8) + 64


def expansion_operations(rows: int, group: str, prg: str, leaf: str | None = None) -> int:
    """Integer operations of expanding one key to all leaves: leaves - 1 inner nodes, and leaves.

    For a generator of 512-bit blocks that is 2 x rows / rows a leaf blocks.
    """
    leaves = leaf_count(rows, group, leaf)
    an_inner, a_leaf = OPERATIONS[prg]
    return (leaves - 1) * an_inner + leaves * a_leaf


def gpu_floor(
    probe: Probe,
    rows: int,
    row_bytes: int,
    batch: int,
    *,
    group: str,
    prg: str,
    leaf: str | None = None,
) -> GpuFloor:
    """The least time of an answer to ``batch`` keys.

    The table is read once: rows x row_bytes bytes. The product takes rows x row_bytes multiply-adds
    a key: of bytes on the tensor cores (z8), or four bytes at a time on the integer units (bits,
    z32). Expansion takes :func:`expansion_operations` a key. The three may overlap, so the largest
    is the floor.
    """
    table_bytes = rows * row_bytes
    product = (
        table_bytes / (probe.int8_tmac_per_s * 1e12)
        if group == "z8"
        else table_bytes / 4 / (probe.int32_gop_per_s * 1e9)
    )
    expansion = expansion_operations(rows, group, prg, leaf) / (probe.int32_gop_per_s * 1e9)
    parts = {
        "memory": table_bytes / (probe.read_gb_per_s * 1e9),
        "product": product * batch,
        "expansion": expansion * batch,
    }
    bound = max(parts, key=parts.__getitem__)
    return GpuFloor(parts[bound], bound, parts)


def bins_floor(probe: Probe, work: dict[str, int], batch: int, prg: str) -> GpuFloor:
    """The least time of the answers to ``batch`` inferences by a layout.

    ``work`` is one inference's, as ``GpuBinsBench.work`` has it. The bins are read once; their
    product takes an operation for four bytes and key; every key is expanded.
    """
    inner, leaf = OPERATIONS[prg]
    rate = probe.int32_gop_per_s * 1e9
    parts = {
        "memory": work["stored_bytes"] / (probe.read_gb_per_s * 1e9),
        "product": work["product_bytes"] / 4 / rate * batch,
        "expansion": (work["inner_nodes"] * inner + work["leaves"] * leaf) / rate * batch,
    }
    bound = max(parts, key=parts.__getitem__)
    return GpuFloor(parts[bound], bound, parts)


def bins_record(
    bench: str,
    facts: dict[str, Any],
    probe: Probe,
    times: dict[str, list[float]],
    *,
    work: dict[str, int],
    rows: int,
    row_bytes: int,
    layout: Any,
    batch: int,
    prg: str,
    **detail: Any,
) -> dict[str, Any]:
    """One measurement of whole inferences: ``layout`` says by which parts.

    Times are as in :func:`gpu_record`, of the side of the two that takes longer.
    """
    params = {"rows": rows, "row_bytes": row_bytes, "layout": layout, "batch": batch, "prg": prg}
    floor = bins_floor(probe, work, batch, prg)
    return _timed(
        bench, params, "inferences/s", facts, probe, times, floor, batch, {**work, **detail}
    )


def gpu_record(
    bench: str,
    facts: dict[str, Any],
    probe: Probe,
    times: dict[str, list[float]],
    *,
    rows: int,
    row_bytes: int,
    batch: int,
    strategy: str,
    group: str,
    prg: str,
    leaf: str | None = None,
    **detail: Any,
) -> dict[str, Any]:
    """One measurement; by a step of the paper's where ``leaf`` says which leaves.

    ``times`` are milliseconds a batch: ``device``, between events, from the first copy of keys
    until the last answers are in its memory; ``wall``, of the whole call. ``threads`` of the record
    are the device's multiprocessors.
    """
    params = {
        "rows": rows,
        "row_bytes": row_bytes,
        "batch": batch,
        "prg": prg,
        "group": group,
        "strategy": strategy,
    }
    if leaf is not None:
        params["leaf"] = leaf
    floor = gpu_floor(probe, rows, row_bytes, batch, group=group, prg=prg, leaf=leaf)
    detail["upload_bytes"] = key_bytes(rows, group, leaf)
    return _timed(bench, params, "queries/s", facts, probe, times, floor, batch, detail)


def _timed(
    bench: str,
    params: dict[str, Any],
    unit: str,
    facts: dict[str, Any],
    probe: Probe,
    times: dict[str, list[float]],
    floor: GpuFloor,
    batch: int,
    detail: dict[str, Any],
) -> dict[str, Any]:
    device_ms = statistics.median(times["device"])
    rate, best = batch / device_ms * 1e3, batch / floor.seconds
    major, minor = facts["capability"]
    return bench_record(
        bench,
        params,
        rate,
        unit,
        best,
        rate / best,
        facts["multiprocessors"],
        f"sm_{major}{minor}",
        bound=floor.bound,
        ms_per_batch=device_ms,
        ms_per_batch_min=min(times["device"]),
        ms_per_batch_max=max(times["device"]),
        wall_ms_per_batch=statistics.median(times["wall"]),
        floor_ms={name: seconds * 1e3 for name, seconds in floor.parts.items()},
        read_gb_per_s=probe.read_gb_per_s,
        int8_tmac_per_s=probe.int8_tmac_per_s,
        int32_gop_per_s=probe.int32_gop_per_s,
        repeats=len(times["device"]),
        device=facts["name"],
        **detail,
    )


@functools.cache
def probe(device: int) -> Probe:
    """Measures the device ``device``: the best of several runs of each."""
    return Probe(*native.gpu_probe(device, _folder_names()))


def open_bench(rows: int, row_bytes: int, device: int) -> native.GpuBench:
    """An engine over random rows on the device ``device``."""
    return native.GpuBench(rows, row_bytes, device=device, folders=_folder_names())


def open_bins(layout: _native.Layout, device: int) -> native.GpuBinsBench:
    """An engine over the bins of ``layout`` on the device ``device``."""
    return native.GpuBinsBench(layout, device=device, folders=_folder_names())


def _folder_names() -> list[str]:
    return [str(folder) for folder in wheel_folders()]
