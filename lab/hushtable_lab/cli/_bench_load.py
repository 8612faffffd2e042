"""``hushtable bench serve --rate``: latency of a real server at random arrivals."""

from __future__ import annotations

import math
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushtable import _native
from hushtable.cli.output import note
from hushtable.errors import ConfigError
from hushtable.server import ServerProcess, ServerTls, _affinity, make_certificates
from hushtable.table import Table

from .. import native
from ..measure.records import bench_record
from ..sim.accelerator.figures_draw import lines
from ..sim.figure import Figure

SCHEMES = ("pair", "onion")
#: How the server batches, and the settings that make it so, by scheme.
MODES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "window": {"pair": {}, "onion": {}},
    "no-window": {"pair": {"window_us": 0}, "onion": {"window_us": 0}},
    "one": {
        "pair": {"window_us": 0, "batch_keys_max": 1},
        "onion": {"window_us": 0, "batch_queries_max": 1},
    },
}
#: Of what a query alone sustains, and of what full batches do: the rates of ``--rates auto``.
_OF_ALONE, _OF_FULL = (0.2, 0.5, 0.8), (0.5, 0.7, 0.85, 0.95)
#: Most queries a second of ``--rates auto``.
_RATE_MAX = 8_000.0
#: Seconds after the last arrival until what has no answer is given up.
_GIVE_UP_S = 5.0


@dataclass(frozen=True, slots=True)
class Load:
    """What is loaded, and how.

    Attributes:
        scheme: of `SCHEMES`.
        rates: queries a second; none for those that the engine's own rate suggests.
        modes: of `MODES`.
        rows, row_bytes: of the table, whose rows are random.
        parameters: the parameter set of a server that is asked alone.
        connections: each takes one query at a time.
        seconds, warmup: measured, and before, at each rate.
        seed: of the arrivals.
    """

    scheme: str
    rates: tuple[float, ...]
    modes: tuple[str, ...]
    rows: int
    row_bytes: int
    parameters: str
    connections: int
    seconds: float
    warmup: float
    seed: int


def read_rates(rate: float | None, rates: str | None) -> tuple[float, ...]:
    """Those of ``--rate`` and ``--rates``.

    Raises:
        ConfigError: for what is not above 0, or both at once.
    """
    if rates == "auto":
        return ()
    try:
        found = [] if rates is None else [float(one) for one in rates.split(",")]
    except ValueError:
        raise ConfigError(
            f"--rates is {rates!r}, but must be numbers with commas between, or auto"
        ) from None
    if (rate is None) == (rates is None):
        raise ConfigError("give --rate for one rate, or --rates for several: not both, not none")
    found += [] if rate is None else [rate]
    if not all(math.isfinite(one) and one > 0 for one in found):
        raise ConfigError(f"rates are {found}, but each must be above 0")
    return tuple(sorted(found))


def read_modes(modes: str) -> tuple[str, ...]:
    """Those of ``--modes``.

    Raises:
        ConfigError: for one that is none of `MODES`.
    """
    names = tuple(modes.split(","))
    if not names or any(name not in MODES for name in names):
        raise ConfigError(f"--modes is {modes!r}, but must name one or more of {', '.join(MODES)}")
    return names


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Times of a Poisson process of ``rate`` a second, from 0 to ``seconds``: rising."""
    random = np.random.default_rng(seed)
    count = int(rate * seconds + 10 * math.sqrt(rate * seconds) + 10)
    times = np.cumsum(random.exponential(1 / rate, count))
    return [float(one) for one in times[times < seconds]]


def measure(load: Load) -> Iterator[dict[str, Any]]:
    """A record for each mode and rate, then one that sums the curves up."""
    native.require()
    usable = sorted(os.sched_getaffinity(0))
    server_cpu, client_cpu = {usable[0]}, {usable[-1]}
    with tempfile.TemporaryDirectory(prefix="hushtable-bench-") as folder:
        bundle = Path(folder, "bundle")
        note(f"building {load.rows:,} x {load.row_bytes} B")
        weight = np.random.default_rng(1).standard_normal(
            (load.rows, load.row_bytes // 4), np.float32
        )
        Table.from_weight(weight, name="bench").save(bundle)
        del weight
        note("measuring the engine alone")
        with _affinity(server_cpu):
            alone, full = _engine_rates(load)
        # Small tables are answered faster than one core of clients can ask.
        most = min(full, _RATE_MAX)
        rates = load.rates or tuple(
            sorted({*(alone * part for part in _OF_ALONE), *(most * part for part in _OF_FULL)})
        )
        certificates = make_certificates(Path(folder, "certificates"))
        partner = _server(load, bundle, "right", certificates.server, client_cpu, {})
        found = []
        for mode in load.modes:
            settings = MODES[mode][load.scheme]
            with _server(load, bundle, "left", certificates.server, server_cpu, settings) as server:
                if load.scheme == "pair" and mode == load.modes[0]:
                    # Once: rows that both servers give together.
                    with partner as right:
                        _run(load, server.url, right.url, certificates.ca, 10.0, 0.0, 0.2)
                for rate in rates:
                    note(f"{mode}, {rate:.3g} queries/s for {load.warmup + load.seconds:g} s")
                    with _affinity(client_cpu):
                        report = _run(
                            load,
                            server.url,
                            None,
                            certificates.ca,
                            rate,
                            load.warmup,
                            load.seconds,
                        )
                    found.append(_record(load, mode, rate, report, alone, full))
                    yield found[-1]
    yield _summary(load, found, alone, full)


def _server(
    load: Load,
    bundle: Path,
    side: Any,
    tls: ServerTls,
    cpus: set[int],
    settings: Mapping[str, Any],
) -> ServerProcess:
    own: dict[str, Any] = (
        {"side": side, "device": "cpu"}
        if load.scheme == "pair"
        else {"scheme": "onion", "parameters": load.parameters, "start_seconds": 600.0}
    )
    return ServerProcess(
        bundle,
        tls=tls,
        cpus=cpus,
        threads=1,
        # All clients are this machine's, so one peer's.
        connections_per_peer_max=4096,
        requests_per_s_per_peer_max=10_000_000,
        **own,
        **settings,
    )


def _run(
    load: Load,
    url: str,
    partner: str | None,
    ca: Path,
    rate: float,
    warmup: float,
    seconds: float,
) -> dict[str, Any]:
    return native.load_open(
        url,
        partner=partner,
        ca=ca,
        parameters=load.parameters if load.scheme == "onion" else None,
        connections=load.connections,
        arrivals=arrivals(rate, warmup + seconds, load.seed),
        measured_from=warmup,
        give_up=_GIVE_UP_S,
    )


def _engine_rates(load: Load) -> tuple[float, float]:
    """Queries a second of the engine on one thread: one at a time, and in full passes."""
    if load.scheme == "pair":
        engine = native.Bench(load.rows, load.row_bytes, threads=1, isa=None)

        def rate(batch: int) -> float:
            times = engine.answer_seconds(batch, prg="aes128", seconds=1.0)
            return batch / statistics.median(times)

        return rate(1), rate(engine.batch_keys_best)
    onion = native.OnionBench(
        load.rows,
        load.row_bytes,
        parameters=load.parameters,
        threads=1,
        levels=None,
        schedule=None,
    )
    times = {
        batch: statistics.median(one[0] for one in onion.answer_seconds(batch, seconds=1.0)[0])
        for batch in (1, 16)
    }
    return 1 / times[1], 16 / times[16]


def _record(
    load: Load, mode: str, rate: float, report: Mapping[str, Any], alone: float, full: float
) -> dict[str, Any]:
    # JSON has no infinity: None is a latency of what was never answered.
    detail = {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in report.items()
    }
    return bench_record(
        "load",
        {**_params(load), "mode": mode, "rate": rate},
        report["answered"] / max(report["elapsed_s"], 1e-9),
        "queries/s",
        None,
        None,
        1,
        _native.platforms().chosen,
        engine_alone_per_s=alone,
        engine_full_per_s=full,
        **detail,
    )


def _params(load: Load) -> dict[str, Any]:
    params = {
        "scheme": load.scheme,
        "rows": load.rows,
        "row_bytes": load.row_bytes,
        "connections": load.connections,
        "seed": load.seed,
    }
    return params | ({"parameters": load.parameters} if load.scheme == "onion" else {})


def _summary(
    load: Load, found: Sequence[Mapping[str, Any]], alone: float, full: float
) -> dict[str, Any]:
    """From which rate on batches wait less than queries one at a time, and up to which latency is
    within twice that of the lowest rate: of the rates that were measured."""
    means = {
        mode: {
            one["params"]["rate"]: one["detail"]["mean_ms"]
            for one in found
            if one["params"]["mode"] == mode and _kept_up(one)
        }
        for mode in load.modes
    }
    batched = means.get("window") or next(iter(means.values()))
    one_by_one = means.get("one", {})
    rates = sorted({one["params"]["rate"] for one in found})
    unloaded = (one_by_one or batched).get(rates[0])
    pays = [
        rate for rate in rates if rate in batched and batched[rate] < one_by_one.get(rate, math.inf)
    ]
    within = [rate for rate, mean in batched.items() if unloaded and mean <= 2 * unloaded]
    return bench_record(
        "load-summary",
        _params(load),
        max(within, default=0.0),
        "queries/s within twice the latency",
        None,
        None,
        1,
        _native.platforms().chosen,
        pays_from_per_s=min(pays) if one_by_one and pays else None,
        one_at_a_time_sustained_per_s=max(one_by_one, default=None),
        unloaded_ms=unloaded,
        engine_alone_per_s=alone,
        engine_full_per_s=full,
        lag_p99_ms_max=max(one["detail"]["lag_p99_ms"] for one in found),
        waited_where_kept_up=sum(one["detail"]["waited"] for one in found if _kept_up(one)),
    )


def _kept_up(record: Mapping[str, Any]) -> bool:
    """Whether nearly all that arrived was answered in time: the rate is one that was sustained."""
    detail = record["detail"]
    return bool(detail["answered"] >= 0.99 * detail["arrived"] and detail["p99_ms"] is not None)


def figure(records: Sequence[Mapping[str, Any]]) -> Figure:
    """Latency against the rate of arrivals, as in IVE's figure 14b."""
    own = [one for one in records if one["bench"] == "load" and _kept_up(one)]
    scheme = records[0]["params"]["scheme"]
    rows = [
        [one["params"]["mode"], one["params"]["rate"]]
        + [one["detail"][name] for name in ("mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms")]
        for one in own
    ]

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        names = {"window": "waiting window", "no-window": "no window", "one": "one at a time"}
        series = {}
        for mode, name in names.items():
            for column, what in ((2, "mean"), (5, "99 %")):
                points = [(row[1], row[column]) for row in rows if row[0] == mode]
                if points:
                    rates, values = zip(*points, strict=True)
                    series[f"{name}, {what}"] = (rates, values)
        lines(axes, series, "queries a second that arrive", "latency, ms", log="xy")
        canvas.legend(loc="outside lower center", ncols=3, fontsize=7, frameon=False)

    return Figure(
        f"14b-{scheme}",
        f"Latency at random arrivals, {scheme}",
        ("mode", "rate_qps", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms"),
        rows,
        draw=draw,
        notes=(
            "The paper, 16 GB on its chip: batching pays from 9.5 QPS, latency stays within 2x up "
            "to 420 QPS, one at a time ends at 17.8 QPS.",
        ),
    )
