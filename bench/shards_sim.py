"""Holds `hushtable sim serve` against real shards and a front on this machine.

    .venv/bin/python bench/shards_sim.py [--shards 0,1,2,4] [--json] [--out FILE]

For each number of shards: a model is cut and served by that many shard servers and one front, all
on one core; clients on another load it, first as fast as it answers (a closed loop), then at a part
of that rate (arrivals by themselves). Beforehand the parts are measured alone: passes of the engine
over a shard's rows (of as many engines as there are shards, which have the core's caches in turns),
and the processor time that a request costs a server and its client. From these alone the simulator
says rate and p50. `--shards 0` is an ordinary server that holds all rows.

Exits with 1 where a prediction is further off than --bar, with 2 where a server does not start. On
a machine that others use the measured times are theirs too: a record says which share of processor
time others had, and of a few tries the one with the least of that counts.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from passes_together import together

from hushtable import _native
from hushtable.errors import Error
from hushtable.model import Model
from hushtable.server import _affinity
from hushtable.table import Table
from hushtable_lab import native
from hushtable_lab.cli._bench_load import arrivals
from hushtable_lab.cli._server_cpu import spending, usable_cpus
from hushtable_lab.measure.records import bench_record
from hushtable_lab.sim.serve import (
    Deployment,
    Front,
    Load,
    Profile,
    Run,
    Stalls,
    TableSize,
    simulate,
)
from hushtable_lab.sim.serve.measured import measure

START_S_MAX, STOP_S_MAX = 90.0, 10.0
#: Requests of as many keys tell what a key costs from what a request does. The rows are more than
#: a core's caches hold: a request after a pass finds nothing of its own there.
COST_ROWS, COST_KEYS = 1 << 16, (1, 256)
SIMULATED = 30_000
#: Of processor time, what others may have in a measurement that is not tried again.
OTHERS_MAX = 0.03


class Server:
    """`hushtable serve` as a child on some cores: ready once it is made, ended by `stop`."""

    def __init__(self, arguments: Sequence[str], cpus: set[int]) -> None:
        command = [sys.executable, "-m", "hushtable", "serve", *arguments, "--json"]
        command += ["--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0", "--threads", "1"]
        # All clients are this machine's, so one peer's.
        command += ["--connections-per-peer-max", "4096"]
        command += ["--requests-per-s-per-peer-max", "10000000"]
        # What this process's own settings are is not for servers.
        env = {k: v for k, v in os.environ.items() if not k.startswith("HUSHTABLE_")}
        self.said: list[str] = []
        self.ready: dict[str, Any] | None = None
        with _affinity(cpus):  # a child inherits it
            self.process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        deadline = time.monotonic() + START_S_MAX
        while self.ready is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise Error(f"{' '.join(arguments)} was not ready: {' / '.join(self.said[-5:])}")
            time.sleep(0.05)

    def _read(self) -> None:
        assert self.process.stdout is not None
        # To the end: a server whose pipe is full would stand still.
        for line in self.process.stdout:
            self.said = [*self.said[-49:], line.strip()]
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and record.get("event") == "ready":
                    self.ready = record

    @property
    def url(self) -> str:
        """Where it answers."""
        assert self.ready is not None
        return str(self.ready.get("url") or f"http://{self.ready['addr']}")

    def sums(self) -> dict[str, float]:
        """All sums and counts of its metrics, over their labels."""
        assert self.ready is not None
        with urllib.request.urlopen(self.ready["metrics_url"], timeout=5) as answer:
            text = answer.read().decode()
        found: dict[str, float] = {}
        for name, value in re.findall(
            r"^(\w+_(?:sum|count|total))(?:\{[^}]*\})? (\S+)", text, re.M
        ):
            found[name] = found.get(name, 0.0) + float(value)
        return found

    def stop(self) -> None:
        """Ends it: politely, then not."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(timeout=5)


@dataclass(frozen=True)
class Loaded:
    """What a load measured.

    Attributes:
        per_s: lookups answered a second.
        p50_ms, p99_ms: of their latency.
        window_ms: that the server says it waits.
        lost: lookups that failed or were refused.
        answer_ms: that the server says its passes took, mean over lookups.
    """

    per_s: float
    p50_ms: float
    p99_ms: float
    window_ms: float
    lost: int
    answer_ms: float


@contextlib.contextmanager
def serving(
    folder: Path, shards: int, shape: tuple[int, int], cpus: set[int]
) -> Iterator[list[Server]]:
    """A model of random rows behind a front, the first, and so many shards; 0 for neither."""
    rows, row_bytes = shape
    source, bundle = folder / "source.npz", folder / f"model-{shards}"
    if not source.exists():
        weight = np.random.default_rng(1).standard_normal((rows, row_bytes // 4), np.float32)
        np.savez(source, bench=weight)
    Model.build(source, bundle, name="bench", tables=["bench"])
    side = ["--side", "left", "--device", "cpu"]
    with contextlib.ExitStack() as stack:

        def start(arguments: Sequence[str]) -> Server:
            server = Server(arguments, cpus)
            stack.callback(server.stop)
            return server

        if shards == 0:
            yield [start([str(bundle), *side])]
            return
        plan = ["shard", "plan", str(bundle), "--shards", str(shards), "--replicas", "1", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "hushtable", *plan], capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            said = (done.stdout or done.stderr).strip()
            raise Error(f"hushtable {' '.join(plan)} ended with {done.returncode}: {said}")
        each = [start([str(bundle), *side, "--shard", str(number)]) for number in range(shards)]
        fleet = folder / f"shards-{shards}.toml"
        fleet.write_text("".join(f'[[shard]]\nreplicas = ["{one.url}"]\n' for one in each))
        yield [start([str(bundle), "--side", "left", "--shards-file", str(fleet)]), *each]


def costs(folder: Path, clients: int, seconds: float) -> tuple[Front, float]:
    """What a front and its shards' servers take besides passes; seconds of a client for a request.

    All are told from an ordinary server of fewer rows: a request's from as many clients as ask
    later, a message's over one connection, as a front has it, by requests of one key and of many.
    """
    server_cpu, client_cpu = usable_cpus()
    bundle = folder / "costs"
    Table.from_weight(np.ones((COST_ROWS, 64), np.float32), name="costs").save(bundle)
    engine = native.Bench(COST_ROWS, 256, threads=1, isa=None)
    #: By clients and keys of a request: seconds of the server and of its client.
    server_s: dict[tuple[int, int], float] = {}
    client_s: dict[tuple[int, int], float] = {}
    hop = 0.0
    arguments = [str(bundle), "--side", "left", "--device", "cpu", "--window-us", "0"]
    server = Server(arguments, server_cpu)
    try:
        for count, keys in ((clients, COST_KEYS[0]), *((1, keys) for keys in COST_KEYS)):
            with _affinity(server_cpu):
                # Of as many keys as a pass has: of many clients they share one.
                together = min(count * keys, engine.batch_keys_best)
                times = engine.answer_seconds(together, prg="aes128", seconds=0.2)
                scan = float(np.median(times)) * keys / together
            with _affinity(client_cpu), spending(server.process.pid, 0.5, seconds) as spent:
                load = native.load_server(
                    server.url,
                    partner=None,
                    ca=None,
                    clients=count,
                    keys_per_request=keys,
                    warmup=0.5,
                    seconds=seconds,
                )
            per_s = max(load["queries_per_s"] / keys, 1e-9)
            at = count, keys
            server_s[at] = max(0.0, spent["run_s"] / per_s - scan)
            client_s[at] = spent["clients_s"] / per_s
            if at == (1, COST_KEYS[0]):
                hop = max(0.0, load["p50_ms"] / 1e3 - server_s[at] - client_s[at] - scan)
    finally:
        server.stop()
    one, many = COST_KEYS
    message_key = max(0.0, (server_s[1, many] - server_s[1, one]) / (many - one))
    shard_key = max(0.0, (client_s[1, many] - client_s[1, one]) / (many - one))
    front = Front(
        request=server_s[clients, one] / 2,
        once=0.0,
        shard=client_s[1, one],
        key=0.0,
        shard_key=shard_key,
        message=server_s[1, one],
        message_key=message_key,
        hop=hop,
    )
    return front, client_s[clients, one]


def closed(server: Server, clients: int, warmup: float, seconds: float) -> Loaded:
    """As fast as it answers so many clients of one key."""
    _server_cpu, client_cpu = usable_cpus()
    with _affinity(client_cpu):
        load = native.load_server(
            server.url,
            partner=None,
            ca=None,
            clients=clients,
            keys_per_request=1,
            warmup=warmup,
            seconds=seconds,
        )
    return Loaded(
        load["queries_per_s"], load["p50_ms"], load["p99_ms"], load["window_ms"],
        load["errors"] + load["rejected"], load["answer_ms_mean"],
    )  # fmt: skip


def opened(server: Server, rate: float, warmup: float, seconds: float) -> Loaded:
    """At a rate, by arrivals of their own."""
    _server_cpu, client_cpu = usable_cpus()
    with _affinity(client_cpu):
        load = native.load_open(
            server.url,
            partner=None,
            ca=None,
            parameters=None,
            connections=128,
            arrivals=arrivals(rate, warmup + seconds, 1),
            measured_from=warmup,
            give_up=5.0,
        )
    per_s = load["answered"] / max(load["elapsed_s"], 1e-9)
    lost = load["arrived"] - load["answered"]
    return Loaded(
        per_s, load["p50_ms"], load["p99_ms"], load["window_ms"], lost, load["answer_ms_mean"]
    )


def quietest(
    servers: Sequence[Server], options: argparse.Namespace, measure_once: Callable[[], Loaded]
) -> tuple[Loaded, float]:
    """Of a few tries the one in which others had the least processor time, and how much it was."""
    best: tuple[Loaded, float] | None = None
    for _ in range(options.tries):
        before = _sample(servers)
        real = measure_once()
        others = _others(before, _sample(servers))
        if best is None or others < best[1]:
            best = real, others
        if others <= OTHERS_MAX:
            break
    assert best is not None
    return best


def deployment(shards: int, shape: tuple[int, int], profile: Profile, cores: int) -> Deployment:
    """What is measured, as the simulator has it: all servers on as many cores."""
    table = TableSize("bench", *shape)
    if shards == 0:
        # No front: a server takes requests in, and its passes are its own.
        bare = dataclasses.replace(
            profile.front, shard=0, shard_key=0, message=0, message_key=0, hop=0
        )
        profile = dataclasses.replace(profile, front=bare)
    return Deployment((table,), max(shards, 1), 1, 1, profile, cores=cores)


def record(
    kind: str, params: dict[str, Any], real: Loaded, run: Run, detail: dict[str, Any]
) -> dict[str, Any]:
    """A line: measured beside predicted."""
    rate_off = run.per_s / max(real.per_s, 1e-9) - 1
    p50_ms = 1e3 * run.quantile(0.5)
    p50_off = p50_ms / max(real.p50_ms, 1e-9) - 1
    return bench_record(
        f"shards sim {kind}",
        params,
        real.per_s,
        "lookups/s",
        run.per_s,
        None,
        1,
        _native.platforms().chosen,
        predicted_per_s=run.per_s,
        rate_off=rate_off,
        p50_ms=real.p50_ms,
        predicted_p50_ms=p50_ms,
        p50_off=p50_off,
        p99_ms=real.p99_ms,
        predicted_p99_ms=1e3 * run.quantile(0.99),
        window_ms=real.window_ms,
        lost=real.lost,
        answer_ms=real.answer_ms,
        lookups_a_pass=run.sides[0].lookups_mean,
        **detail,
    )


def points(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A record for each number of shards and each load."""
    shape = options.rows, options.row_bytes
    server_cpu, _client_cpu = usable_cpus()
    with tempfile.TemporaryDirectory(prefix="hushtable-shards-") as name:
        folder = Path(name)
        front, client_s = costs(folder, options.clients, options.seconds)
        if options.costs:
            yield {"front": front.as_us(), "client_us": 1e6 * client_s}
            return
        for shards in options.shards:
            parts = max(shards, 1)
            with serving(folder, shards, shape, server_cpu) as servers:
                server = servers[0]
                # Engines alone, on the same core, while nobody asks the servers.
                with _affinity(server_cpu):
                    profile = measure(
                        [(-(-shape[0] // parts), shape[1])], front, threads=(1,), seconds=0.3
                    )
                profile = together(profile, parts, server_cpu, 0.5)
                # A shared machine's stalls are in the engine's own times; their share is not told
                # from a second of passes.
                profile = dataclasses.replace(
                    profile, stalls=Stalls(spread=min(profile.stalls.spread, 0.1))
                )
                one = deployment(shards, shape, profile, len(server_cpu))
                before = server.sums()
                real, others = quietest(
                    servers,
                    options,
                    partial(closed, server, options.clients, options.warmup, options.seconds),
                )
                after = server.sums()
                load = Load(
                    clients=options.clients, client_seconds=client_s, lookups=SIMULATED, warmup=0.2
                )
                run = simulate(one, load, sides=1)
                params = {
                    "rows": shape[0],
                    "row_bytes": shape[1],
                    "shards": shards,
                    "clients": options.clients,
                }
                seen = _own(before, after)
                detail = {
                    "predicted_window_ms": 1e3 * one.window_seconds,
                    # As the front counts it: the way to a shard and back is in it.
                    "predicted_own_ms": 1e3
                    * (
                        one.own_seconds(run.sides[0].lookups_mean) + one.hop_seconds + front.message
                    ),
                    "pass_ms_one": 1e3 * one.pass_seconds(1),
                    "pass_ms": 1e3 * one.pass_seconds(run.sides[0].lookups_mean),
                    "front_us": front.as_us(),
                    "client_us": 1e6 * client_s,
                    **seen,
                }
                yield record("closed", params, real, run, detail | {"others": others})
                rate = options.load * real.per_s
                real, others = quietest(
                    servers,
                    options,
                    partial(opened, server, rate, options.warmup, options.seconds),
                )
                run = simulate(one, Load(rate, SIMULATED), sides=1)
                yield record(
                    "open", params | {"rate": rate}, real, run, detail | {"others": others}
                )


def _sample(servers: Sequence[Server]) -> tuple[float, float, float]:
    """Ticks of all processors, those that anybody worked, and those that we and the servers did."""
    fields = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    mine = 0.0
    for pid in (os.getpid(), *(server.process.pid for server in servers)):
        # After the command's name, which may hold spaces: utime and stime are the 12th and 13th.
        own = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        mine += int(own[11]) + int(own[12])
    return sum(fields), sum(fields) - fields[3] - fields[4], mine


def _others(before: Sequence[float], after: Sequence[float]) -> float:
    """The share of all processors' time that others worked."""
    every, busy, mine = (now - then for now, then in zip(after, before, strict=True))
    return max(0.0, (busy - mine) / max(every, 1))


def _own(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What the front itself says it took of a pass, and how many lookups one had."""
    found = {}
    stem = "hushtable_front_own_seconds"
    count = after.get(f"{stem}_count", 0) - before.get(f"{stem}_count", 0)
    if count > 0:
        spent = after.get(f"{stem}_sum", 0) - before.get(f"{stem}_sum", 0)
        found["front_own_ms"] = 1e3 * spent / count
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; 1 where a prediction is off."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shards", default="0,1,2,4", help="numbers of shards; 0: no front")
    parser.add_argument("--rows", type=int, default=1 << 21)
    parser.add_argument("--row-bytes", type=int, default=256)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--load", type=float, default=0.4, help="of the closed loop's rate")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--tries", type=int, default=3, help="of a load, while others work too")
    parser.add_argument("--bar", type=float, default=0.15)
    parser.add_argument("--costs", action="store_true", help="measure a front's costs alone")
    parser.add_argument("--json", action="store_true", help="a record a line")
    parser.add_argument("--out", type=Path, help="write all records, with the date, as JSON")
    options = parser.parse_args(arguments)
    options.shards = [int(one) for one in options.shards.split(",")]
    found, worst = [], 0.0
    each = points(options)
    while True:
        try:
            one = next(each, None)
        except Error as error:
            print(json.dumps({"error": str(error)}) if options.json else f"error: {error}")
            return 2
        if one is None:
            break
        found.append(one)
        if options.json or options.costs:
            print(json.dumps(one), flush=True)
        if options.costs:
            return 0
        # Rates of arrivals are given; of a closed loop they are found.
        names = ("rate_off", "p50_off") if one["bench"].endswith("closed") else ("p50_off",)
        worst = max(worst, *(abs(one["detail"][name]) for name in names))
        if not options.json:
            detail = one["detail"]
            print(
                f"{one['params']['shards']} shards, {one['bench'].split()[-1]:6} "
                f"{one['value']:9,.0f}/s predicted {detail['predicted_per_s']:9,.0f} "
                f"({detail['rate_off']:+.1%}), p50 {detail['p50_ms']:7.3f} ms predicted "
                f"{detail['predicted_p50_ms']:7.3f} ({detail['p50_off']:+.1%}); others worked "
                f"{detail['others']:.0%}",
                flush=True,
            )
    summary = {"worst_off": worst, "bar": options.bar, "is_within": worst <= options.bar}
    print(json.dumps(summary) if options.json else f"worst {worst:.1%}, bar {options.bar:.0%}")
    if options.out is not None:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        options.out.write_text(
            json.dumps({"date": date, **summary, "results": found}, indent=1) + "\n"
        )
    return 0 if worst <= options.bar else 1


if __name__ == "__main__":
    sys.exit(main())
