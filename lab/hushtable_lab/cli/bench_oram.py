"""``hushtable bench oram`` and ``bench union``: a whole round on a real file, and its union."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from hushtable import _native
from hushtable._machine import cores
from hushtable.cli.output import Json, command, note, print_bench, print_json, progress_bar
from hushtable.errors import ConfigError
from hushtable.fl.controller import Controller

from .. import native
from ..measure.records import bench_record


@command(
    "hushtable bench oram --rows 10000000 --row-bytes 64 --requests 10000 --epsilon 1 "
    "--folder /var/tmp/oram",
    "hushtable bench oram --rows 1000000 --requests 10000 --oram path --json",
)
def oram(
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 10_000_000,
    row_bytes: Annotated[int, typer.Option(help="Bytes of a row, a multiple of 4.")] = 64,
    requests: Annotated[int, typer.Option(help="K: requests of a round.")] = 100_000,
    oram: Annotated[
        str, typer.Option(help="raw, or path: the same rounds over Path ORAM, the baseline.")
    ] = "raw",
    epsilon: Annotated[str, typer.Option(help="Of a round: a number, 0 or more, or inf.")] = "1",
    rounds: Annotated[int, typer.Option(help="Rounds to measure; the median counts.")] = 3,
    zipf: Annotated[
        float, typer.Option(help="Exponent of the rows' popularity; 0 for uniform.")
    ] = 1.05,
    slots: Annotated[int, typer.Option(help="Requests of a user.")] = 100,
    aggregate: Annotated[str, typer.Option(help="As of `hushtable train create`.")] = "fed_avg",
    cached_levels: Annotated[
        int, typer.Option(help="Levels of the raw tree that are kept in memory; 14 are 64 MiB.")
    ] = 14,
    bucket_kib: Annotated[int, typer.Option(help="KiB of a raw bucket: 4, 8 or 16.")] = 4,
    threads: Annotated[int, typer.Option(help="Threads; 0 for one a core.")] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where the file is built, and kept for the next run. Default: a temporary folder, "
            "removed at the end."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run whole rounds on a real file: microseconds a request, every step timed.

    A round is begin, every user's rows and gradients, and commit, synced. The floor is the disk's:
    the same pages read at random, many in flight, and written, in the same run. With --oram path,
    the union, the number of rows read, position map, buffer, update and sealing are the same code;
    each row is two accesses of Path ORAM, and there is no journal. Both draw the number of rows by
    the geometric mechanism.
    """
    if row_bytes < 4 or row_bytes % 4:
        raise ConfigError(f"row_bytes is {row_bytes}, but must be a multiple of 4, 4 or more")
    for name, value, most in (
        ("rows", rows, 2**31),
        ("requests", requests, 2**21),
        ("rounds", rounds, 10_000),
        ("slots", slots, requests),
        ("threads", threads + 1, 1024),
    ):
        if not 1 <= value <= most:
            raise ConfigError(f"{name} is {value}, but must be 1 to {most}")
    if requests % slots:
        raise ConfigError(f"requests must be a multiple of slots, {slots}")
    if oram not in ("raw", "path"):
        raise ConfigError(f"oram is {oram!r}, but must be raw or path")
    if bucket_kib not in (4, 8, 16):
        raise ConfigError(f"bucket_kib is {bucket_kib}, but must be 4, 8 or 16")
    # Read when the threads are first used: they have not been.
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    threads = threads or cores()
    params: dict[str, Any] = {
        "rows": rows,
        "row_bytes": row_bytes,
        "requests": requests,
        "oram": oram,
        "epsilon": epsilon,
        "rounds": rounds,
        "zipf": zipf,
        "slots": slots,
        "aggregate": aggregate,
        "cached_levels": cached_levels,
        "bucket_kib": bucket_kib,
    }
    popular = Popularity(rows, zipf)
    with _kept(folder) as at:
        if oram == "raw":
            record = _raw(at, params, popular, threads, not json)
        else:
            record = _path(at, params, popular, threads)
    _print(record, json)


class Popularity:
    """Row ids by a Zipf distribution over rows in an order of their own, seeded."""

    def __init__(self, rows: int, exponent: float, seed: int = 7) -> None:
        self._random = np.random.default_rng(seed)
        weights = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
        self._sums = np.cumsum(weights)
        self._rows = rows

    def draw(self, count: int) -> npt.NDArray[np.uint32]:
        """That many ids."""
        at = self._random.random(count) * self._sums[-1]
        ranks = np.minimum(np.searchsorted(self._sums, at), self._rows - 1).astype(np.uint64)
        # Times a prime that is no divisor of rows: each rank another id, none near its neighbour's.
        ids: npt.NDArray[np.uint64] = ranks * np.uint64(2_654_435_761) % np.uint64(self._rows)
        return ids.astype(np.uint32)


@contextlib.contextmanager
def _kept(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="hushtable-", dir=os.environ.get("TMPDIR")) as made:
        yield Path(made)


def _print(record: dict[str, Any], as_json: bool) -> None:
    detail = record["detail"]
    if as_json:
        # What a round is judged by stands beside the figure.
        print_json(record | {name: detail.pop(name) for name in _BESIDE if name in detail})
        return
    steps = detail["steps"].items()
    detail["steps"] = ", ".join(f"{step} {us:,.4g}" for step, us in steps)
    detail.pop("round_s_all", None)
    print_bench(record, as_json)


def _raw(
    at: Path, params: dict[str, Any], popular: Popularity, threads: int, shown: bool
) -> dict[str, Any]:
    native.require()
    requests, slots, dim = params["requests"], params["slots"], params["row_bytes"] // 4
    users = requests // slots
    created = {
        "rows": params["rows"],
        "dim": dim,
        "users": users,
        "slots": slots,
        "epsilon": params["epsilon"],
        "aggregate": params["aggregate"],
        "cached_levels": params["cached_levels"],
        "bucket_kib": params["bucket_kib"],
        "mechanism": _MECHANISM,
    }
    name = "raw-" + "-".join(str(value) for value in created.values()).replace(":", "_")
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(progress_bar("building the tree", shown=shown))
        if (at / name).exists():
            note("opening the tree that was built before")
            controller = Controller.open(at / name, key_beside=True, progress=bar)
        else:
            note(f"building {params['rows']:,} x {params['row_bytes']} B")
            epsilon = _epsilon(params["epsilon"])
            controller = Controller.create(
                at / name,
                **{**created, "epsilon": epsilon},
                name="bench",
                key_beside=True,
                progress=bar,
            )
    build_s = time.perf_counter() - started
    walls, reports, accesses, unions = [], [], [], []
    gradients = np.full((slots, dim), 1e-3, np.float32)
    with controller:
        for number in range(params["rounds"]):
            note(f"round {number + 1} of {params['rounds']}")
            ids = popular.draw(requests).reshape(users, slots)
            unions.append(len(np.unique(ids)))
            start = time.perf_counter()
            controller.begin(ids)
            for user in range(users):
                controller.rows(user)
            for user in range(users):
                controller.add(user, gradients)
            report = controller.commit()
            walls.append(time.perf_counter() - start)
            reports.append(report)
            accesses.append(report.accesses)
        facts = controller.facts
    note("measuring the disk")
    middle = walls.index(statistics.median_low(walls))
    report = reports[middle]
    pages = (report.read_bytes // 4096, report.written_bytes // 4096)
    read_s, write_s = native.page_seconds(at / name / "tree", _PAGES)
    floor = (pages[0] * read_s + pages[1] * write_s) / _PAGES / requests * 1e6
    value = walls[middle] / requests * 1e6
    steps = {step: us / requests for step, us in report.steps_us.items()}
    steps["other"] = value - sum(steps.values())
    return bench_record(
        "oram",
        params,
        value,
        "us/request",
        floor,
        floor / value,
        threads,
        _native.platforms().chosen,
        bound="disk",
        steps=steps,
        read_bytes_per_request=report.read_bytes / requests,
        written_bytes_per_request=report.written_bytes / requests,
        written_bytes_per_access=report.written_bytes / report.accesses,
        journal_bytes_per_request=report.journal_bytes / requests,
        k=report.accesses,
        k_union=unions[middle],
        round_s=walls[middle],
        round_s_all=walls,
        build_s=build_s,
        levels=facts["levels"],
        file_bytes=facts["file_bytes"],
        random_reads_per_s=_PAGES / read_s,
        page_writes_per_s=_PAGES / write_s,
    )


def _epsilon(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"epsilon is {text!r}, but must be a number or inf") from None


def _path(at: Path, params: dict[str, Any], popular: Popularity, threads: int) -> dict[str, Any]:
    requests = params["requests"]
    file = at / f"path-{params['rows']}-{params['row_bytes']}"
    # Its position map is in memory alone: a file of an earlier run has none.
    file.unlink(missing_ok=True)
    note(f"building {params['rows']:,} x {params['row_bytes']} B")
    started = time.perf_counter()
    memory = native.PathBench(file, params["rows"], params["row_bytes"])
    build_s = time.perf_counter() - started
    results = []
    for number in range(params["rounds"]):
        note(f"round {number + 1} of {params['rounds']}")
        results.append(memory.round(popular.draw(requests), _epsilon(params["epsilon"])))
    levels, pages, file_bytes = memory.facts()
    del memory
    note("measuring the disk")
    read_s, write_s = native.page_seconds(file, min(_PAGES, file_bytes // 4096))
    seconds, facts, read, written = sorted(results, key=lambda r: r[0])[len(results) // 2]
    k, k_union = facts.pop("k"), facts.pop("k_union")
    steps = {step: us / requests for step, us in facts.items()}
    count = min(_PAGES, file_bytes // 4096)
    floor = (read // 4096 * read_s + written // 4096 * write_s) / count / requests * 1e6
    value = seconds / requests * 1e6
    steps["other"] = value - sum(steps.values())
    file.unlink(missing_ok=True)
    return bench_record(
        "oram",
        params,
        value,
        "us/request",
        floor,
        floor / value,
        threads,
        _native.platforms().chosen,
        bound="disk",
        steps=steps,
        laws=_PATH_LAWS,
        read_bytes_per_request=read / requests,
        written_bytes_per_request=written / requests,
        written_bytes_per_access=written / k,
        k=k,
        k_union=k_union,
        round_s=seconds,
        build_s=build_s,
        levels=levels,
        path_pages=pages,
        file_bytes=file_bytes,
        random_reads_per_s=count / read_s,
        page_writes_per_s=count / write_s,
    )


@command("hushtable bench union --requests 1000000")
def union(
    requests: Annotated[int, typer.Option(help="K: requests of a round.")] = 1_000_000,
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 10_000_000,
    zipf: Annotated[
        float, typer.Option(help="Exponent of the rows' popularity; 0 for uniform.")
    ] = 1.05,
    repeats: Annotated[int, typer.Option(help="Times to measure; the best counts.")] = 3,
    threads: Annotated[int, typer.Option(help="Threads; 0 for one a core.")] = 0,
    scan: Annotated[
        bool,
        typer.Option(
            "--scan/--no-scan", help="Measure the paper's scan, in chunks of 16,384, as well."
        ),
    ] = True,
    json: Json = False,
) -> None:
    """Find the distinct rows of a round's requests obliviously: seconds, the best of some.

    The floor is numpy's own sort of the same ids, on one thread, which hides nothing. The scan
    compares all pairs of each chunk; where there are many chunks, one is measured and multiplied.
    """
    for name, given, most in (("requests", requests, 2**21), ("rows", rows, 2**32 - 2)):
        if not 1 <= given <= most:
            raise ConfigError(f"{name} is {given}, but must be 1 to {most}")
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    threads = threads or cores()
    ids = Popularity(rows, zipf).draw(requests)
    times: list[float] = []
    count = 0
    for _ in range(max(repeats, 1)):
        seconds, count = native.union_seconds(ids, is_scan=False)
        times.append(seconds)
    expected = len(np.unique(ids))
    if count != expected:
        raise ConfigError(f"the union has {count} rows, not {expected}: run `hushtable doctor`")
    plain: list[float] = []
    for _ in range(max(repeats, 1)):
        started = time.perf_counter()
        np.sort(ids)
        plain.append(time.perf_counter() - started)
    value, floor = min(times), min(plain)
    more: dict[str, Any] = {}
    if scan:
        chunk = ids[:_CHUNK]
        seconds, _ = native.union_seconds(chunk, is_scan=True)
        more["scan_s"] = seconds * requests / len(chunk)
        more["scan_ratio"] = more["scan_s"] / value
    record = bench_record(
        "union",
        {"requests": requests, "rows": rows, "zipf": zipf},
        value,
        "s",
        floor,
        floor / value,
        threads,
        _native.platforms().chosen,
        bound="plain sort",
        k_union=count,
        us_per_request=value / requests * 1e6,
        median_s=statistics.median(times),
        repeats=len(times),
        **more,
    )
    print_bench(record, json)


_BESIDE = ("steps", "laws", "read_bytes_per_request", "written_bytes_per_request", "k", "k_union")
#: What both trees draw k by, so that their ratio is of the trees alone.
_MECHANISM = "geometric"
#: What `sim fl` carries the steps of Path ORAM over by: both are paths read or written, and the
#: work on their pages.
_PATH_LAWS = {"take": "read", "put": "write"}
#: Pages that the disk's own speed is measured with.
_PAGES = 8192
#: Requests in a chunk of the paper's scan.
_CHUNK = 16_384
