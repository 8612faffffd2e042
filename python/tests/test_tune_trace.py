"""Traces: the formats that are read, and what is said of those that cannot be."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from hushtable import ConfigError
from hushtable.tune import Trace, TraceError, read_trace

BAGS = [[3, 1, 4, 1], [5], [9, 2, 6, 5, 3], [5, 8]]


def trace_of(bags: list[list[int]]) -> Trace:
    offsets = np.cumsum([0, *map(len, bags)])
    return Trace(np.array([id for bag in bags for id in bag], dtype=np.int64), offsets)


def bags_of(trace: Trace) -> list[list[int]]:
    return [trace.bag(bag).tolist() for bag in range(trace.bag_count)]


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def write_table(folder: Path, columns: dict[str, object]) -> Path:
    path = folder / "trace.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_every_format_reads_the_same(tmp_path: Path) -> None:
    trace = trace_of(BAGS)
    np.savez(tmp_path / "t.npz", ids=trace.ids.astype(np.uint32), offsets=trace.offsets)
    lines = "\n".join(",".join(map(str, bag)) for bag in BAGS)
    flat = [(bag, id) for bag, ids in enumerate(BAGS) for id in ids]
    files = [
        tmp_path / "t.npz",
        write(tmp_path, "bags.csv", lines),
        write(tmp_path, "spaces.txt", "\ufeff" + lines.replace(",", "  ") + "\r\n\r\n"),
        write(tmp_path, "flat.csv", "bag,id\n" + "".join(f"{bag},{id}\n" for bag, id in flat)),
        write(tmp_path, "wide.csv", "id,when,Bag\n" + "".join(f"{i},x,{b}\n" for b, i in flat)),
        write(tmp_path, "flat.tsv", "bag\tid\n" + "\n".join(f"{b}\t{i}" for b, i in flat)),
    ]
    for file in files:
        assert bags_of(read_trace(file)) == BAGS, file.name
    table = {"bag": [b for b, _ in flat], "id": [i for _, i in flat], "when": ["x"] * len(flat)}
    assert bags_of(read_trace(write_table(tmp_path, table))) == BAGS
    table = {"user": ["a", "b", "c", "d"], "items": BAGS, "others": BAGS[::-1]}
    assert bags_of(read_trace(write_table(tmp_path, table), column="items")) == BAGS
    assert bags_of(read_trace(write_table(tmp_path, {"items": BAGS}))) == BAGS


def test_bags_come_in_the_order_of_their_first_access(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "bag,id\n70,1\n-5,2\n70,3\n6,4\n-5,2\n")
    assert bags_of(read_trace(path)) == [[1, 3], [2, 2], [4]]


def test_empty_bags_are_kept_where_they_can_be_told(tmp_path: Path) -> None:
    bags = [[], [1, 2], [], [3], []]
    path = write_table(tmp_path, {"items": pyarrow.array(bags, pyarrow.list_(pyarrow.int32()))})
    assert bags_of(read_trace(path)) == bags


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "", "t.csv is empty"),
        ("t.csv", "bag,id\n", "t.csv is empty"),
        ("t.csv", "1,2\n3,-4\n", "bag 1 of .*t.csv has id -4"),
        ("t.csv", "1,2\n3,4.5\n", "line 2 has id '4.5', which is no integer"),
        ("t.csv", "1,2\n3,1_0\n", "line 2 has id '1_0', which is no integer"),
        ("t.csv", "1 2\n3 " + "9" * 400, "line 2 has id '9{40}...', over the limit"),
        ("t.csv", "1,2\n4294967296\n", "bag 1 .* has id 4294967296, but ids run from 0 to"),
        ("t.csv", "bag,id\n1,2\n\n1,x\n", "line 4 has id 'x', which is no integer"),
        ("t.csv", "bag,id\n1,2\n1\n", "line 3 has 1 columns, the header 2"),
        ("t.csv", "user,item\n1,2\n", "line 1 is neither a header with columns bag and id nor"),
        ("t.csv", b"\xff\xfe1,2", "t.csv is no text file"),
        ("t.npz", b"PK nonsense", "t.npz is no readable .npz file"),
        ("t.parquet", b"PAR1 nonsense", "t.parquet is no readable Parquet file"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, text: str | bytes, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        read_trace(write(tmp_path, name, text))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"ids": [1]}, "has no array 'offsets'; it has ids"),
        ({"ids": [1.0], "offsets": [0, 1]}, "the ids of .* are float64, but must be integers"),
        ({"ids": [[1]], "offsets": [0, 1]}, "have 2 dimensions"),
        ({"ids": [1, 2], "offsets": [1, 2]}, "do not start with 0"),
        ({"ids": [1, 2], "offsets": [0, 2, 1, 2]}, r"fall \(offsets\[2\] = 1 after 2\)"),
        ({"ids": [1, 2], "offsets": [0, 1]}, "the last offset is 1, but there are 2 ids"),
        ({"ids": [], "offsets": [0, 0, 0]}, "is empty: it has 2 bags and no ids"),
        ({"ids": np.array([2**63], np.uint64), "offsets": [0, 1]}, "over the limit of 2"),
    ],
)
def test_bad_arrays_are_refused(tmp_path: Path, arrays: dict[str, object], said: str) -> None:
    np.savez(tmp_path / "t.npz", **{name: np.asarray(array) for name, array in arrays.items()})
    with pytest.raises(TraceError, match=said):
        read_trace(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"items": [["a"]]}, "column 'items' holds lists of string"),
        ({"items": [[1], None]}, "row 1 of column 'items' is null"),
        ({"items": [[1], [2, None]]}, "row 1 of column 'items' holds a null id"),
        ({"a": [[1]], "b": [[1]]}, "which column holds the bags.* of which lists: 'a', 'b'"),
        ({"bag": [0, 0], "id": [1, None]}, "row 1 of column 'id' is null"),
        ({"bag": [0], "id": [1.5]}, "column 'id' is double, but must be integers"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, columns: dict[str, object], said: str) -> None:
    with pytest.raises(TraceError, match=said):
        read_trace(write_table(tmp_path, columns))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a trace is a .parquet, .csv, .tsv, .txt or .npz file"):
        read_trace(tmp_path / "t.json")
    with pytest.raises(TraceError, match="no such file"):
        read_trace(tmp_path / "t.csv")


def test_missing_pyarrow_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_table(tmp_path, {"items": BAGS})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'hushtable\[data\]'"):
        read_trace(path)


def test_ids_and_bags_are_checked_against_a_table() -> None:
    trace = trace_of(BAGS)
    trace.check(10, ids_max=5)
    with pytest.raises(TraceError, match="bag 2 of the trace has id 9, but the table has 9") as no:
        trace.check(9)
    assert (no.value.bag, no.value.id) == (2, 9)
    with pytest.raises(TraceError, match="bag 2 of the trace has 5 ids, over ids_max, 4") as no:
        trace.check(10, ids_max=4)
    assert no.value.bag == 2


def test_a_split_keeps_every_bag_once() -> None:
    bags = [[bag, bag + 1] for bag in range(0, 40, 2)]
    first, rest = trace_of(bags).split(0.75)
    assert bags_of(first) + bags_of(rest) == bags
    assert first.bag_count == 15
    shuffled = [bags_of(half) for half in trace_of(bags).split(0.75, shuffle_seed=3)]
    assert sorted(shuffled[0] + shuffled[1]) == bags
    assert shuffled[0] != bags[:15]
    assert shuffled == [bags_of(half) for half in trace_of(bags).split(0.75, shuffle_seed=3)]
    for train in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="train is"):
            trace_of(bags).split(train)
    with pytest.raises(TraceError, match="one bag: there is none to hold out"):
        trace_of([[1, 2]]).split()
    with pytest.raises(TraceError, match="the held-out 1 bags of the trace have no ids"):
        trace_of([[1], [2], []]).split(0.6)


def test_samples_and_distinct_ids() -> None:
    random = np.random.default_rng(2)
    bags = [random.integers(0, 6, random.integers(0, 9)).tolist() for _ in range(50)]
    trace = trace_of(bags)
    assert trace.distinct_counts().tolist() == [len(set(bag)) for bag in bags]
    sample = bags_of(trace.sample(12, seed=1))
    assert len(sample) == 12
    filled = [bag for bag in bags if bag]
    places = [filled.index(bag) for bag in sample]
    assert len(set(places)) >= 10  # some bags may be alike
    assert bags_of(trace.sample(1000, seed=1)) == bags
    assert sample == bags_of(trace.sample(12, seed=1))
