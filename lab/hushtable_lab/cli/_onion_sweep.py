"""What ``hushtable bench onion --sweep`` measures and counts: IVE's figures on this processor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log2
from typing import Any

from hushtable import _native
from hushtable.cli.doctor import memory_bytes
from hushtable.cli.output import note
from hushtable.errors import Error

from .. import native
from ..measure.records import bench_record

SETS = ("n4096_128", "ive_paper")
#: Orders of both trees; the first is what figures compare the others with.
SCHEDULES = ("breadth", "depth", "hierarchical:4", "hierarchical-breadth:4")
#: Integer multiplications of 32 bits: of a product of two residues, and of a reduction, as
#: ``sim accelerator`` counts them.
PRODUCT, REDUCTION = 2, 2
#: What the paper's core keeps, and the bits of its residues.
CHIP_SCRATCHPAD_BYTES, CHIP_RESIDUE_BITS = 4 << 20, 28
#: What this engine's residues take in memory.
RESIDUE_BITS = 64
#: The paper's Figure 8: a table of 8 GB, 32 queries. Its D0 is 256.
FIGURE_8_MIB, FIGURE_8_BATCH = 8192, 32
_ROW_BYTES = 256


@dataclass(frozen=True, slots=True)
class Selection:
    """What is measured.

    Attributes:
        minutes: that it takes, about, on two quiet cores; of them one is used.
        batch_mib: MiB of the table that batches of 1 to ``batch_max`` are measured with.
        batch_max: queries of the largest batch.
        sizes_mib: tables that are measured, in batches of ``shared``.
        shared: queries of a batch where something else is varied.
        orders_mib: MiB of the table for schedules, overlapping and D0.
        unprepared_mib: of the table that is transformed in each pass.
        levels: of ExpandQuery's tree beside the default, for D0.
    """

    minutes: float
    batch_mib: int
    batch_max: int
    sizes_mib: tuple[int, ...]
    shared: int
    orders_mib: int
    unprepared_mib: int
    levels: tuple[int, ...]


SELECTIONS: Mapping[str, Selection | None] = {
    "counts": None,
    "quick": Selection(0.5, 16, 4, (8, 16), 2, 16, 16, (7,)),
    "evidence": Selection(9, 256, 64, (64, 256, 1024), 16, 256, 256, (7, 8, 9)),
    "whole": Selection(
        45, 1024, 64, (64, 128, 256, 512, 1024, 2048, 4096, 8192), 16, 1024, 1024, (7, 8, 9, 10)
    ),
}


def sweep(name: str, threads: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Records, one after the other; those that count come first and take no time."""
    for parameters in SETS:
        yield from counted(parameters)
    selection = SELECTIONS[name]
    if selection is None:
        return
    for parameters in SETS:
        yield from _measured(parameters, selection, threads, seconds)


def counted(parameters: str) -> Iterator[dict[str, Any]]:
    """Figures 4a, 4b, 6 and 8: what follows from the engine's own code, without a clock."""
    for mib in (64, 256, 1024, 2048, 4096, 8192, 16384):
        # The paper holds D0 at 256; the engine would take more of it for large tables.
        fixed = (
            _levels_of_d0(parameters, mib) if parameters == "ive_paper" and mib >= 1024 else None
        )
        yield _operations("4a", parameters, mib, fixed)
    for levels in range(5, 12):
        # Noise bounds D0: what cannot promise a right row is refused.
        try:
            yield _operations("4b", parameters, 1024, levels)
        except Error as error:
            yield _skipped("4b", parameters, 1024, [1], f"{levels} levels: {error}")
    for batch in (1, 2, 4, 8, 16, 32, 64):
        yield _intensity(parameters, 2048, batch)
    own = _own_scratchpad_bytes()
    for where, bits, scratchpad in (
        ("chip", CHIP_RESIDUE_BITS, CHIP_SCRATCHPAD_BYTES),
        ("this processor", RESIDUE_BITS, own),
    ):
        for schedule in ("breadth", "depth", "hierarchical-breadth", "hierarchical"):
            for overlap in (False, True):
                yield _traffic(parameters, schedule, overlap, where, bits, scratchpad)


def multiplications(parameters: str, mib: int, levels: int | None) -> dict[str, dict[str, float]]:
    """Integer multiplications of one query, by step and kind."""
    shape = (_rows(mib), _ROW_BYTES)
    facts = _native.onion_geometry(*shape, parameters=parameters, levels=levels)
    found = native.onion_operations(*shape, parameters=parameters, levels=levels)
    degree = facts["degree"]
    butterfly = degree / 2 * log2(degree) * (PRODUCT + REDUCTION)

    def of_tree(step: Mapping[str, int], limbs: int) -> dict[str, float]:
        # Mixed radix: each residue by those below it, and the sum's words.
        digits = limbs * (limbs + 1) / 2 * (PRODUCT + REDUCTION) + (limbs - 1) * limbs * PRODUCT
        return {
            "(i)NTT": (step["forward"] + step["inverse"]) * butterfly,
            "products with keys": degree
            * (
                step["products"] * PRODUCT
                + step["sums"] * REDUCTION
                + step["single_products"] * (PRODUCT + REDUCTION)
            ),
            "inverse CRT": step["decompositions"] * degree * digits,
        }

    products, sums = found["row_select"]
    return {
        "ExpandQuery": of_tree(found["expand"], facts["limbs"]),
        "RowSel": {"GEMM": products * PRODUCT + sums * REDUCTION},
        "ColTor": of_tree(found["tournament"], facts["answer_limbs"]),
    }


def _operations(figure: str, parameters: str, mib: int, levels: int | None) -> dict[str, Any]:
    by_step = multiplications(parameters, mib, levels)
    totals = {step: sum(kinds.values()) for step, kinds in by_step.items()}
    facts = _facts(parameters, mib, levels)
    return bench_record(
        "onion-operations",
        {
            "figure": figure,
            "parameters": parameters,
            "table_mib": mib,
            "levels": facts["levels"],
        },
        totals["RowSel"] / sum(totals.values()),
        "of the multiplications",
        None,
        None,
        1,
        "counted",
        matrix_rows=facts["matrix_rows"],
        matrix_columns=facts["matrix_columns"],
        multiplications=sum(totals.values()),
        expand_share=totals["ExpandQuery"] / sum(totals.values()),
        tournament_share=totals["ColTor"] / sum(totals.values()),
        by_step=by_step,
    )


def _intensity(parameters: str, mib: int, batch: int) -> dict[str, Any]:
    """Multiplications for each byte between memory and the core's cache, breadth first."""
    totals = {
        step: sum(kinds.values()) for step, kinds in multiplications(parameters, mib, None).items()
    }
    moved = _moved(parameters, mib, None, "breadth", False, RESIDUE_BITS, _own_scratchpad_bytes())
    rows = _row_select_bytes(parameters, mib, None, batch)
    return bench_record(
        "onion-intensity",
        {"parameters": parameters, "table_mib": mib, "batch": batch},
        batch * totals["RowSel"] / sum(rows.values()),
        "multiplications/B",
        None,
        None,
        1,
        "counted",
        expand=totals["ExpandQuery"] / sum(moved["expand"].values()),
        tournament=totals["ColTor"] / sum(moved["tournament"].values()),
        row_select_bytes=rows,
    )


def _traffic(
    parameters: str, schedule: str, overlap: bool, where: str, bits: int, scratchpad: int
) -> dict[str, Any]:
    """Figure 8: bytes of 32 queries, the subtree's depth being the one that moves fewest."""
    levels = _levels_of_d0(parameters, FIGURE_8_MIB)
    depths = [f"{schedule}:{depth}" for depth in range(1, 7)]
    named = depths if schedule.startswith("hierarchical") else [schedule]
    shape = (parameters, FIGURE_8_MIB, levels)
    found = {one: _moved(*shape, one, overlap, bits, scratchpad) for one in named}
    best = {
        step: min(found, key=lambda one: sum(found[one][step].values()))
        for step in ("expand", "tournament")
    }
    moved = {
        step: {kind: FIGURE_8_BATCH * value for kind, value in found[one][step].items()}
        for step, one in best.items()
    }
    baseline = _moved(*shape, "breadth", False, bits, scratchpad)
    rows = _row_select_bytes(*shape, FIGURE_8_BATCH)
    return bench_record(
        "onion-traffic",
        {
            "parameters": parameters,
            "table_mib": FIGURE_8_MIB,
            "batch": FIGURE_8_BATCH,
            "schedule": schedule,
            "overlap": overlap,
            "scratchpad": where,
        },
        sum(sum(step.values()) for step in moved.values()),
        "B",
        None,
        None,
        1,
        "counted",
        residue_bits=bits,
        scratchpad_bytes=scratchpad,
        levels=levels,
        best=best,
        row_select=rows,
        **moved,
        **{
            f"{step}_reduction": FIGURE_8_BATCH
            * sum(baseline[step].values())
            / sum(moved[step].values())
            for step in moved
        },
    )


def _moved(
    parameters: str,
    mib: int,
    levels: int | None,
    schedule: str,
    overlap: bool,
    bits: int,
    scratchpad: int,
) -> dict[str, dict[str, int]]:
    found = native.onion_traffic(
        _rows(mib),
        _ROW_BYTES,
        parameters=parameters,
        levels=levels,
        schedule=schedule,
        overlap=overlap,
        residue_bits=bits,
        scratchpad_bytes=scratchpad,
    )
    return {step: found[step] for step in ("expand", "tournament")}


def _row_select_bytes(parameters: str, mib: int, levels: int | None, batch: int) -> dict[str, int]:
    """The table once; each query's D0 ciphertexts for each block of columns, and its sums, as the
    engine keeps them."""
    facts = _facts(parameters, mib, levels)
    word = 4 if facts["modulus_bits"] <= 32 else 8
    ciphertext = 2 * facts["answer_limbs"] * facts["degree"] * word
    blocks = -(-facts["matrix_columns"] // 64) * facts["chunks"]
    return {
        "table": facts["resident_bytes"],
        "queries": batch * blocks * facts["matrix_rows"] * ciphertext,
        "sums": 2 * batch * facts["matrix_columns"] * facts["chunks"] * ciphertext,
    }


def _measured(
    parameters: str, selection: Selection, threads: int, seconds: float
) -> Iterator[dict[str, Any]]:
    batches = [1 << power for power in range(selection.batch_max.bit_length())]
    shared = selection.shared

    def engines() -> Iterator[tuple[str, int, list[int], dict[str, Any]]]:
        yield "13c", selection.batch_mib, batches, {}
        for mib in selection.sizes_mib:
            yield "13a", mib, [shared], {}
        for schedule in SCHEDULES:
            for overlap in (False, True):
                options = {"schedule": schedule, "overlap": overlap}
                yield "13b", selection.orders_mib, [shared], options
        for levels in selection.levels:
            yield "4b", selection.orders_mib, [shared], {"levels": levels}

    for figure, mib, sizes, options in engines():
        levels = options.get("levels")
        try:
            facts = _facts(parameters, mib, levels)
        except Error as error:
            yield _skipped(figure, parameters, mib, sizes, str(error))
            continue
        needed = _needed_bytes(facts, max(sizes))
        free = memory_bytes()[1]
        fitting = [one for one in sizes if _needed_bytes(facts, one) <= 0.9 * free]
        if len(fitting) < len(sizes):
            why = f"{needed / 2**30:.1f} GiB needed, {free / 2**30:.1f} GiB free"
            left = [one for one in sizes if one not in fitting]
            yield _skipped(figure, parameters, mib, left, why)
        if fitting:
            yield from measure(figure, parameters, mib, fitting, threads, seconds, **options)
    yield _unprepared(parameters, selection.unprepared_mib, threads, seconds)


def measure(
    figure: str,
    parameters: str,
    mib: int,
    batches: list[int],
    threads: int,
    seconds: float,
    *,
    schedule: str | None = None,
    overlap: bool = False,
    levels: int | None = None,
) -> Iterator[dict[str, Any]]:
    """One table, prepared once, and passes of each batch."""
    note(f"{parameters}, {mib} MiB, {schedule or 'default'}, batches {batches}")
    engine = _engine(parameters, mib, threads, schedule, overlap, levels)
    facts, table_bytes = engine.facts, mib << 20
    for batch in batches:
        passes, _ = engine.answer_seconds(batch, seconds=seconds)
        total, expand, row_select, tournament = min(passes)
        yield bench_record(
            "onion-sweep",
            {
                "figure": figure,
                "parameters": parameters,
                "table_mib": mib,
                "batch": batch,
                "schedule": schedule or "default",
                "overlap": overlap,
                "levels": facts["levels"],
            },
            batch / total,
            "queries/s",
            None,
            None,
            engine.threads,
            _native.platforms().chosen,
            gb_per_s=batch * table_bytes / total / 1e9,
            ms_per_pass=1e3 * total,
            ms_per_pass_median=1e3 * sorted(one[0] for one in passes)[len(passes) // 2],
            expand_ms=1e3 * expand,
            row_select_ms=1e3 * row_select,
            tournament_ms=1e3 * tournament,
            matrix_rows=facts["matrix_rows"],
            matrix_columns=facts["matrix_columns"],
            resident_bytes=facts["resident_bytes"],
            repeats=len(passes),
        )


def _unprepared(parameters: str, mib: int, threads: int, seconds: float) -> dict[str, Any]:
    """A query against the prepared table and against one that each pass transforms."""
    note(f"{parameters}, {mib} MiB without preparation")
    engine = _engine(parameters, mib, threads, None, False, None)
    total = min(engine.answer_seconds(1, seconds=seconds)[0])
    without = min(engine.unprepared_seconds(1) for _ in range(2))
    return bench_record(
        "onion-unprepared",
        {"parameters": parameters, "table_mib": mib, "batch": 1},
        without[0] / total[0],
        "times as long",
        None,
        None,
        engine.threads,
        _native.platforms().chosen,
        prepared_ms=1e3 * total[0],
        unprepared_ms=1e3 * without[0],
        prepared_row_select_ms=1e3 * total[2],
        unprepared_row_select_ms=1e3 * without[2],
    )


def _skipped(
    figure: str, parameters: str, mib: int, batches: list[int], why: str
) -> dict[str, Any]:
    params = {"figure": figure, "parameters": parameters, "table_mib": mib, "batches": batches}
    return bench_record("onion-skipped", params, 0.0, "", None, None, 1, "", why=why)


def _engine(
    parameters: str,
    mib: int,
    threads: int,
    schedule: str | None,
    overlap: bool,
    levels: int | None,
) -> native.OnionBench:
    return native.OnionBench(
        _rows(mib),
        _ROW_BYTES,
        parameters=parameters,
        threads=threads,
        levels=levels,
        schedule=schedule,
        overlap=overlap,
    )


def _rows(mib: int) -> int:
    return (mib << 20) // _ROW_BYTES


def _facts(parameters: str, mib: int, levels: int | None) -> dict[str, Any]:
    return _native.onion_geometry(_rows(mib), _ROW_BYTES, parameters=parameters, levels=levels)


def _levels_of_d0(parameters: str, mib: int) -> int:
    """Levels whose D0 is nearest the paper's 256, of those that can promise right rows."""
    found = {}
    for levels in range(5, 10):
        try:
            rows = _facts(parameters, mib, levels)["matrix_rows"]
        except Error:
            continue
        found[levels] = abs(log2(rows / 256))
    return min(found, key=lambda levels: found[levels])


def _needed_bytes(facts: Mapping[str, Any], batch: int) -> float:
    """Of memory: the prepared table, and what each client's keys, query and sums take."""
    word = 4 if facts["modulus_bits"] <= 32 else 8
    ciphertext = 2 * facts["answer_limbs"] * facts["degree"] * word
    columns = min(facts["matrix_columns"], 64)
    client = 4 * facts["key_bytes"] + (facts["matrix_rows"] + columns) * ciphertext
    # A leaf is in its own form and in RowSel's at the same time.
    return float(facts["resident_bytes"] + batch * client + 4 * facts["matrix_rows"] * ciphertext)


def _own_scratchpad_bytes() -> int:
    """The second-level cache of a core."""
    from ..sim.accelerator.measured import cache_bytes

    return cache_bytes()[1]
