"""The script that times dense layers on shares beside other libraries: its counts and ratios."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PEERS = Path(__file__).resolve().parents[2] / "bench" / "peers"


@pytest.fixture(scope="module")
def shares() -> Any:
    """The script, which finds its neighbours as it does when it is run."""
    spec = importlib.util.spec_from_file_location("bench_peers_shares", PEERS / "shares.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(PEERS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(PEERS))
    return module


def said(*seconds: float, logit: float = 0.5) -> str:
    calls = [json.dumps({"seconds": one, "cpu": one / 2, "logit": logit}) for one in seconds]
    return "\n".join(["a library's own words", *calls, json.dumps({"bytes": 1})])


def test_a_call_takes_as_long_as_its_slower_party(shares: Any) -> None:
    cold = [9.0] * shares.WARM
    calls = shares.calls_of([said(*cold, 0.2, 0.1), said(*cold, 0.1, 0.3)], 0.25)
    assert [one["ms"] for one in calls] == pytest.approx([200, 300])
    assert [one["processor_ms"] for one in calls] == pytest.approx([150, 200])
    assert [one["error"] for one in calls] == [0.25, 0.25]
    with pytest.raises(ValueError, match="shorter"):
        shares.calls_of([said(*cold, 0.2), said(*cold)], 0.25)


def test_ratios_are_of_like_with_like_and_blank_without_ours(shares: Any) -> None:
    calls = [{"ms": ms, "processor_ms": 3.0, "error": 0.0} for ms in (8.0, 20.0, 30.0)]
    peer = shares.summary("peer", calls, {"bytes": 1234, "messages": 5})
    own = [{"value": value} for value in (0.004, 0.005, 0.009)]
    compared = shares.compare(own, [peer])
    assert compared[0]["median_ms"] == pytest.approx(5)
    assert (compared[1]["median_ratio"], compared[1]["best_ratio"]) == pytest.approx((4, 2))
    assert shares.table(compared).splitlines()[-1].endswith("| 1,234 | 5 | 0.0e+00 | 4.0 | 2.0 |")
    assert shares.table(shares.compare([], [peer])).endswith("| 0.0e+00 |  |  |")


def test_a_peer_that_computes_something_else_has_no_time(shares: Any) -> None:
    wrong = {"ms": 8.0, "processor_ms": 3.0, "error": 1.6e8}
    with pytest.raises(shares.Missing, match="off"):
        shares.summary("peer", [wrong] * 3, {})
    # Truncation of shares fails in a call now and then: it shows, and the times stand.
    right = {**wrong, "error": 0.0}
    assert shares.summary("peer", [right, right, wrong], {})["error_max"] == 1.6e8


@pytest.mark.skipif(
    not shutil.which("taskset") or len(os.sched_getaffinity(0)) < 2,
    reason="one core, or no taskset",
)
def test_a_party_that_fails_ends_the_other(shares: Any, tmp_path: Path) -> None:
    waits = [sys.executable, "-c", "import time; print('waits', flush=True); time.sleep(300)"]
    fails = [sys.executable, "-c", "raise SystemExit('no such ring')"]
    with pytest.raises(shares.Missing, match="no such ring"):
        shares.printed([waits, fails], tmp_path)
    core = "import os; print(os.sched_getaffinity(0))"
    left, right = shares.printed([[sys.executable, "-c", core]] * 2, tmp_path)
    assert left != right


def test_ours_is_the_last_record_printed_and_needs_a_value(shares: Any) -> None:
    def command(*records: str) -> list[str]:
        return [sys.executable, "-c", f"print({chr(10).join(records)!r})"]

    found = shares.ours(command("{}", "words", '{"value": 0.004, "detail": {"rounds": 6}}'))
    assert found == {"value": 0.004, "detail": {"rounds": 6}}
    for printed in ("words", '{"detail": {}}', '{"value": null}', "{not json"):
        with pytest.raises(shares.Missing, match="no record with a value"):
            shares.ours(command(printed))
    with pytest.raises(shares.Missing, match="exit status 3"):
        shares.ours([sys.executable, "-c", "raise SystemExit(3)"])


def test_the_network_and_its_logit_agree(shares: Any, tmp_path: Path) -> None:
    logit = shares.network(tmp_path / "top.npz")
    kept = np.load(tmp_path / "top.npz")
    x, *weights = (kept[name] for name in kept.files)
    assert [one.shape for one in weights[::2]] == [(432, 512), (512, 256), (256, 1)]
    hidden = np.maximum(x @ weights[0] + weights[1], 0)
    hidden = np.maximum(hidden @ weights[2] + weights[3], 0)
    assert float((hidden @ weights[4] + weights[5])[0, 0]) == pytest.approx(logit, abs=1e-4)
