"""What someone will watch next, by a model that two servers compute on shares. See README.md."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import hushtable

from . import shares
from .app import App


def main() -> int:
    """Trains or loads, serves, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m examples.sequences", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of where learning begins (1)")
    parser.add_argument(
        "--pages", type=int, default=100, help="test pages to predict on shares (100)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures, as JSON")
    chosen = parser.parse_args()
    if chosen.pages < 1 or chosen.seed < 0:
        parser.error("--pages must be at least 1, and --seed at least 0")

    def say(line: str) -> None:
        print(line, file=sys.stderr if chosen.json else sys.stdout, flush=True)

    try:
        app = App.load(say=say, seed=chosen.seed)
        say("building and compiling; two servers compute the model on shares")
        with tempfile.TemporaryDirectory(prefix="hushtable-sequences-") as folder:
            found = shares.judge(app, Path(folder), pages=chosen.pages, timed=50)
    except (hushtable.Error, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if chosen.json:
        print(json.dumps({"seed": chosen.seed, "valid_auc": app.valid_auc, **asdict(found)}))
        return 0
    say(f"AUC on all test pages, in floating point: {found.test_auc:.4f}")
    say(f"  of a model that knows no history: {found.without_auc:.4f}")
    say(f"{found.predictions:,} predictions of {found.pages} test pages on shares:")
    say(f"  AUC {found.shares_auc:.4f}, in floating point {found.clear_auc:.4f}")
    say(f"  a logit differs by {found.largest_difference:.5f} at most")
    up = found.key_bytes + found.dealt_bytes
    say(f"  {found.ms:.1f} ms (median), {up:,} bytes up, {found.down_bytes} down,")
    say(f"  {found.peer_bytes:,} between the servers each way in {found.rounds} messages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
