"""Counts what HE-LRM's thresholds leave of Criteo's tables (its Table 1), into bench/results.

.venv/bin/python bench/compression.py
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path

from hushtable.data import CRITEO_KAGGLE_ROWS
from hushtable.nn.encrypted import compression

RESULTS = Path(__file__).resolve().parent / "results"
#: Slots of the paper's ring.
SLOTS = 32_768


def main() -> None:
    """Writes the file: the counts are the same on every machine."""
    tables = []
    for threshold in (500, 5_000, 50_000, 500_000, 5_000_000):
        found = compression(CRITEO_KAGGLE_ROWS, threshold=threshold)
        tables.append(
            {
                "threshold": threshold,
                "slots": found.slots,
                "ratio": found.ratio,
                "ciphertexts": found.ciphertexts(SLOTS),
            }
        )
    document = {"rows": sum(CRITEO_KAGGLE_ROWS), "tables": tables}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    out = RESULTS / f"compression-{today}.json"
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
