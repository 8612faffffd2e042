"""Private click predictions by a recommendation model of 26 tables. See README.md."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import hushtable
from hushtable.data import cache_folder

from . import criteo, judging, served, shares, training
from .checkpoint import read_dense

#: The real impressions, where they are there.
FILE = "criteo-tiny.csv"
SMALL, FULL = 0.001, 0.1


def run(
    scale: float,
    made: int,
    judged: int,
    data: Path | None,
    folder: Path,
    say: training.Say,
    *,
    on_shares: bool = False,
) -> dict[str, Any]:
    """Trains, bundles, serves, and judges; returns the figures.

    Args:
        scale: of Criteo's cardinalities.
        made: made-up impressions.
        judged: test impressions to predict at most, real ones first.
        data: the real impressions' file, or None.
        folder: for bundle and certificates.
        say: called with lines for a person to read.
        on_shares: also have two servers compute the whole model.
    """
    rows = criteo.table_rows(scale)
    log = criteo.make(made, rows)
    if data is not None:
        real = criteo.read(data, rows)
        log = criteo.join(real, log)
        say(f"{len(real):,} real impressions of {data}")
    say(f"{made:,} made-up impressions; 26 tables of {sum(rows):,} rows in all")
    learning, test = criteo.deal(log)
    say(f"learning from {len(learning):,} impressions")
    trained = training.train(learning, rows, training.Recipe(), say=say)
    say("building the model bundle")
    bundle = served.build(trained, folder)
    made_model = hushtable.Model.open(bundle)
    device = read_dense(made_model.dense())
    found: shares.OnShares | None = None
    # Real ones first, then as many made-up ones as asked for.
    chosen = np.argsort(~test.is_real, kind="stable")[:judged]
    say("starting left and right, one process each")
    with served.start(bundle, folder) as pair, pair.connect(bundle) as client:
        say(f"predicting {len(chosen):,} impressions in the clear and in private")
        judgement = judging.judge(trained, device, test.take(chosen), client, timed=20)
        if on_shares:
            say("compiling for shares; two more servers compute all of the model")
            found = shares.run(
                *(trained, device, bundle, folder, learning, test.take(chosen), client), timed=50
            )
    return {
        "scale": scale,
        "rows": sum(rows),
        "table_bytes": sum(rows) * 4 * trained.tables[0].shape[1],
        "version": made_model.version,
        **asdict(judgement),
        "shares": None if found is None else asdict(found),
    }


def _data(chosen: Path | None) -> Path | None:
    if chosen is not None:
        return chosen
    found = cache_folder() / FILE
    return found if found.is_file() else None


def main() -> int:
    """Runs the demo; the exit code is 1 where a private prediction is not the clear one."""
    parser = argparse.ArgumentParser(prog="python -m examples.dlrm", description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help=f"tables of {FULL:g} of Criteo's size, not {SMALL:g}"
    )
    parser.add_argument(
        "--criteo",
        type=Path,
        metavar="FILE",
        help=f"real impressions as CSV; by default {FILE} in the cache folder (HUSHTABLE_DATA)",
    )
    parser.add_argument("--made", type=int, default=20_000, help="made-up impressions (20,000)")
    parser.add_argument("--judged", type=int, default=600, help="predicted at most (600)")
    parser.add_argument(
        "--shares",
        action="store_true",
        help="also have two servers compute all of the model, on shares",
    )
    parser.add_argument("--json", action="store_true", help="print the figures, as JSON")
    chosen = parser.parse_args()
    if chosen.made < 100 or chosen.judged < 1:
        parser.error("--made must be at least 100 and --judged at least 1")

    def say(line: str) -> None:
        print(line, file=sys.stderr if chosen.json else sys.stdout, flush=True)

    started = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="hushtable-dlrm-") as folder:
            scale = FULL if chosen.full else SMALL
            data = _data(chosen.criteo)
            figures = run(
                *(scale, chosen.made, chosen.judged, data, Path(folder), say),
                on_shares=chosen.shares,
            )
    except (hushtable.Error, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    figures["seconds"] = time.perf_counter() - started
    if chosen.json:
        print(json.dumps(figures))
        return 0
    real = "" if figures["real_auc"] is None else f" ({figures['real_auc']:.4f} on real ones)"
    clear, private = figures["clear_auc"], figures["private_auc"]
    say(f"AUC in the clear {clear:.4f}, in private {private:.4f}{real}")
    say(f"all {figures['impressions']:,} predictions are the same to the last bit")
    up, down = figures["bytes_up"], figures["bytes_down"]
    say(f"an inference takes {figures['ms']:.1f} ms, {up:,} bytes up and {down:,} bytes down")
    if chosen.shares:
        _show(figures["shares"], up, down, say)
    return 0


def _show(found: dict[str, Any], up: int, down: int, say: training.Say) -> None:
    """The figures on shares, beside lookups with the layers on the device."""
    real = "" if found["real_auc"] is None else f" ({found['real_auc']:.4f} on real ones)"
    say(f"on shares: AUC {found['shares_auc']:.4f}{real}, in floating point")
    say(f"  {found['clear_auc']:.4f}; a logit differs by {found['largest_difference']:.5f} at most")
    between = f"{found['peer_bytes']:,} each way in {found['rounds']} messages"
    rows = [
        ("", "lookups, layers on the device", "all of it on shares"),
        ("median ms", f"{found['lookup_ms']:.1f}", f"{found['ms']:.1f}"),
        ("bytes up", f"{up:,}", f"{found['key_bytes'] + found['dealt_bytes']:,}"),
        ("bytes down", f"{down:,}", f"{found['down_bytes']:,}"),
        ("bytes between", "none", between),
    ]
    for name, lookups, on_shares in rows:
        say(f"  {name:14}{lookups:>30}  {on_shares}")


if __name__ == "__main__":
    sys.exit(main())
