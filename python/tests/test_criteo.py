"""Criteo's logs, from a made-up file in the Kaggle log's form, and from CSV with the same rows."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from hushtable.data import CRITEO_KAGGLE_ROWS, CRITEO_ROWS, MalformedData
from hushtable.data.criteo import DENSE, SPARSE, Criteo, Vocabulary, impressions

FIXTURE = Path(__file__).parent / "fixtures" / "criteo-like.txt"
LINES = FIXTURE.read_text().splitlines()


def as_csv(folder: Path, *, header: str | None = None) -> Path:
    path = folder / "train.csv"
    names = header or ",".join(["Id", "Label", *DENSE, *SPARSE])
    rows = [f"{1000 + at}," + text.replace("\t", ",") for at, text in enumerate(LINES)]
    path.write_text("\n".join([names, *rows]) + "\n")
    return path


def whole(log: Criteo, vocabulary: Vocabulary, size: int = 16) -> tuple[np.ndarray, ...]:
    batches = list(log.batches(vocabulary, size))
    assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    return tuple(
        np.concatenate([getattr(batch, name) for batch in batches])
        for name in ("dense", "indices", "labels")
    )


def test_the_logs_own_cardinalities() -> None:
    assert len(CRITEO_KAGGLE_ROWS) == len(CRITEO_ROWS) == 26
    assert sum(CRITEO_KAGGLE_ROWS) == 33_762_577


def test_a_line_is_read_field_by_field() -> None:
    fields = LINES[0].split("\t")
    first = next(impressions(FIXTURE))
    assert (first.line, first.clicked) == (1, fields[0] == "1")
    counts = [max(float(field or 0), 0.0) for field in fields[1:14]]
    np.testing.assert_allclose(np.expm1(first.counts), counts, atol=1e-9)
    assert first.categories == fields[14:]


def test_both_forms_are_the_same_log(tmp_path: Path) -> None:
    text, table = Criteo(FIXTURE), Criteo(as_csv(tmp_path))
    assert text.count() == table.count() == len(LINES)
    vocabulary = Vocabulary.of(text)
    for one, other in zip(whole(text, vocabulary), whole(table, vocabulary), strict=True):
        assert np.array_equal(one, other)
    assert Vocabulary.of(table).rows == vocabulary.rows


def test_ids_have_no_gaps_and_stand_for_one_category_each() -> None:
    log = Criteo(FIXTURE)
    vocabulary = Vocabulary.of(log)
    _, indices, _ = whole(log, vocabulary)
    for column in range(26):
        texts = [line.split("\t")[14 + column] for line in LINES]
        present = sorted({text for text in texts if text})
        assert vocabulary.rows[column] == len(present) + 1
        # Eight digits each: the order of texts is that of numbers.
        expected = [present.index(text) + 1 if text else 0 for text in texts]
        assert indices[:, column].tolist() == expected


def test_parts_are_days_in_order_and_share_nothing() -> None:
    log = Criteo(FIXTURE, days=7)
    vocabulary = Vocabulary.of(log)
    sizes = {
        part: sum(map(len, log.batches(vocabulary, 7, part=part)))
        for part in ("train", "validation", "test")
    }
    assert sizes == {"train": 60, "validation": 5, "test": 5}
    lines = [one.line for part in sizes for one in log.impressions(part)]  # type: ignore[arg-type]
    assert lines == list(range(1, 71))


def test_a_category_that_training_has_not_seen_is_row_0() -> None:
    log = Criteo(FIXTURE)
    seen = Vocabulary.of(log, part="train")
    every = Vocabulary.of(log)
    assert sum(seen.rows) < sum(every.rows)
    test = next(log.batches(seen, 100, part="test"))
    full = next(log.batches(every, 100, part="test"))
    unseen = (test.indices == 0) & (full.indices != 0)
    assert unseen.any()
    assert (test.indices < np.array(seen.rows)).all()


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    long = tmp_path / "train.txt"
    long.write_text((FIXTURE.read_text()) * 60)
    vocabulary = Vocabulary.of(Criteo(FIXTURE))

    def peak(path: Path) -> int:
        tracemalloc.start()
        for _ in Criteo(path).batches(vocabulary, 32):
            pass
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(FIXTURE)
    assert peak(long) < 2 * peak(FIXTURE) < long.stat().st_size


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("1\t2", "2 fields, expected 40"),
        (LINES[0].replace("\t", "\tx", 1), "could not convert"),
        ("7" + LINES[0][1:], "a label other than 0 and 1"),
        ("1\tinf" + LINES[0][LINES[0].index("\t", 2) :], "a count without end"),
        (LINES[0] + "f", "no hexadecimal number of 32 bits"),
        (LINES[0][:-8] + "-1", "no hexadecimal number of 32 bits"),
        (LINES[0] + "a" * 5000, "at most 4,096 are expected"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, text: str) -> None:
    path = tmp_path / "train.txt"
    path.write_text("\n".join([LINES[1], line, LINES[2]]) + "\n")
    log = Criteo(path)
    with pytest.raises(MalformedData, match=text) as caught:
        list(log.batches(Vocabulary.of(Criteo(FIXTURE)), 10))
    assert caught.value.line == 2


def test_a_header_that_is_not_criteos_is_refused(tmp_path: Path) -> None:
    header = ",".join(["Id", "Label", *DENSE, *SPARSE]).replace("C26", "C27")
    with pytest.raises(MalformedData, match="no column C26"):
        next(impressions(as_csv(tmp_path, header=header)))


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="days"):
        Criteo(FIXTURE, days=0)
    with pytest.raises(ValueError, match="batches of 0"):
        next(Criteo(FIXTURE).batches(Vocabulary.of(Criteo(FIXTURE)), 0))
