"""Tables in the clear: what is built is what is read, and damage is found."""

from __future__ import annotations

import array
import dataclasses
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushtable


@pytest.fixture
def weight() -> np.ndarray:
    return np.random.default_rng(7).normal(size=(1000, 24)).astype(np.float32)


def test_a_built_bundle_reads_back_as_its_source(tmp_path: Path, weight: np.ndarray) -> None:
    np.save(tmp_path / "films.npy", weight)
    calls: list[tuple[int, int]] = []
    info = hushtable.build_table(
        tmp_path / "films.npy",
        tmp_path / "films",
        progress=lambda done, rows: calls.append((done, rows)),
    )
    assert dataclasses.asdict(info) | {"version": ""} == {
        "name": "films",
        "rows": 1000,
        "dim": 24,
        "dtype": "f32",
        "row_bytes": 96,
        "version": "",
    }
    assert len(info.version) == 64
    assert info.table_bytes == 96_000
    assert calls[0] == (0, 1000)
    assert calls[-1] == (1000, 1000)
    table = hushtable.Table.open(tmp_path / "films")
    assert table.info == info
    assert len(table) == 1000
    assert np.array_equal(table.rows(np.arange(1000)), weight)


@pytest.mark.parametrize(
    ("dtype", "row_bytes", "error"),
    [("f32", 96, 0.0), ("f16", 48, 2e-3), ("bf16", 48, 2e-2), ("int8", 28, 2e-2), ("int4", 14, 1)],
)
def test_each_dtype_survives_a_save(
    tmp_path: Path, weight: np.ndarray, dtype: str, row_bytes: int, error: float
) -> None:
    table = hushtable.Table.from_weight(weight, name="films", dtype=dtype)
    assert table.info.row_bytes == row_bytes
    ids = np.array([[999, 0], [17, 17]], dtype=np.int32)
    assert np.abs(table.rows(ids) - weight[ids]).max() <= error
    table.save(tmp_path / "bundle")
    opened = hushtable.Table.open(tmp_path / "bundle")
    assert opened.info == table.info
    assert np.array_equal(opened.rows(ids), table.rows(ids))


def test_shapes_of_ids_are_kept(weight: np.ndarray) -> None:
    table = hushtable.Table.from_weight(weight)
    assert table.rows(5).shape == (24,)
    assert table.rows([]).shape == (0, 24)
    assert table.rows([[[1, 2, 3]]]).shape == (1, 1, 3, 24)
    assert table.rows(np.arange(20)[::2]).shape == (10, 24)
    assert np.array_equal(table.rows(np.arange(20)[::2]), weight[:20:2])


class Arrayed:
    """What pandas and pyarrow have: values that numpy may ask for."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.values is None:
            raise RuntimeError("no values here")
        return np.asarray(self.values, dtype=dtype)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.array([1, 2], dtype=object), [1, 2]),
        (np.array([np.int64(7), np.int8(8)], dtype=object), [7, 8]),
        (np.array([], dtype=object), []),
        (Arrayed(np.array([5, 6], dtype=object)), [5, 6]),
        # numpy makes floats of these two: no integers of 64 bits are both.
        ([np.uint64(5), np.int64(3)], [5, 3]),
        (np.array([1, 2], dtype=">i4"), [1, 2]),
        (np.ma.array([4, 5], mask=[False, False]), [4, 5]),
        (deque([9, 1]), [9, 1]),
        (array.array("H", [3, 2]), [3, 2]),
    ],
)
def test_integers_of_every_kind_are_ids(weight: np.ndarray, ids: Any, expected: list[int]) -> None:
    assert np.array_equal(hushtable.Table.from_weight(weight).rows(ids), weight[expected])


@pytest.mark.parametrize(
    ("ids", "error", "text"),
    [
        ([1000], hushtable.IdOutOfRange, "ids run from 0 to 999"),
        ([3, -1], hushtable.IdOutOfRange, "id -1 is out of range"),
        ([1.0], hushtable.BadIds, "ids must be integers, not float64"),
        ([True], hushtable.BadIds, "ids must be integers, not bool"),
        ([[1], [2, 3]], hushtable.BadIds, "ragged"),
        ([True, 2], hushtable.BadIds, "True and False are among them"),
        ([[1, 2], [np.False_, 2]], hushtable.BadIds, "True and False are among them"),
        ([np.array([True]), np.array([2])], hushtable.BadIds, "True and False are among them"),
        (np.array([True, 2], dtype=object), hushtable.BadIds, "not object"),
        (np.array([1.0, 2], dtype=object), hushtable.BadIds, "not object"),
        (np.array([None]), hushtable.BadIds, "not object"),
        (-0.0, hushtable.BadIds, "not float"),
        ([2**63, -1], hushtable.IdOutOfRange, "id -1 is out of range"),
        (np.array([1, -(2**70)], dtype=object), hushtable.IdOutOfRange, "id -1180591620"),
        ({1, 2}, hushtable.BadIds, "not set"),
        ({1: 2}, hushtable.BadIds, "not dict"),
        ((one for one in [1]), hushtable.BadIds, "not generator"),
        (np.ma.array([1, 2], mask=[False, True]), hushtable.BadIds, "some of the ids are masked"),
        ([np.ma.array([1, 2], mask=[False, True])], hushtable.BadIds, "ids are masked"),
        ([np.ma.masked, 1], hushtable.BadIds, "masked"),
        (Arrayed(None), hushtable.BadIds, "this Arrayed gives none .no values here"),
    ],
)
def test_bad_ids_are_refused(
    weight: np.ndarray, ids: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        hushtable.Table.from_weight(weight).rows(ids)


def test_out_of_range_carries_the_facts(weight: np.ndarray) -> None:
    with pytest.raises(IndexError) as caught:
        hushtable.Table.from_weight(weight).rows([5, 2**40])
    assert isinstance(caught.value, hushtable.IdOutOfRange)
    assert (caught.value.id, caught.value.rows) == (2**40, 1000)


def test_verify_names_the_row_of_a_flipped_bit(tmp_path: Path, weight: np.ndarray) -> None:
    bundle = tmp_path / "bundle"
    hushtable.Table.from_weight(weight).save(bundle)
    assert hushtable.verify_table(bundle) == hushtable.VerifyReport(1000, True, 0, ())
    rows = bundle / "rows.safetensors"
    content = bytearray(rows.read_bytes())
    content[len(content) - 96 * 1000 + 96 * 321 + 5] ^= 0x10
    rows.write_bytes(content)
    report = hushtable.verify_table(bundle)
    assert not report.ok
    assert [damage.row for damage in report.damaged] == [321]
    assert report.damaged[0].file == "rows.safetensors"


def test_broken_bundles_are_typed_errors(tmp_path: Path, weight: np.ndarray) -> None:
    with pytest.raises(hushtable.TableError, match="not a table bundle"):
        hushtable.Table.open(tmp_path)
    with pytest.raises(hushtable.TableError, match="No such file"):
        hushtable.Table.open(tmp_path / "nothing")
    bundle = tmp_path / "bundle"
    hushtable.Table.from_weight(weight).save(bundle)
    manifest = bundle / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:40])
    with pytest.raises(hushtable.TableError, match="manifest"):
        hushtable.Table.open(bundle)


def test_bad_weights_are_typed_errors() -> None:
    with pytest.raises(hushtable.ConfigError, match="2 dimensions"):
        hushtable.Table.from_weight(np.zeros(5))
    with pytest.raises(hushtable.ConfigError, match="f32, f16, bf16, int8, int4"):
        hushtable.Table.from_weight(np.zeros((5, 2)), dtype="f8")
    with pytest.raises(hushtable.TableError, match="rows"):
        hushtable.Table.from_weight(np.zeros((0, 2)))
    with pytest.raises(hushtable.TableError, match="NaN"):
        hushtable.Table.from_weight(np.full((5, 2), np.nan), dtype="int8")


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ([[1.0, 1e300]], hushtable.TableError, r"weight.0, 1. is 1e.300, past the range"),
        (np.full((1, 1), -3.5e38), hushtable.TableError, "past the range of float32"),
        ([[1.0, 2j]], hushtable.ConfigError, "must be numbers, not complex128"),
        ([["1.5"]], hushtable.ConfigError, "must be numbers, not <U3"),
        ([[1.0, None]], hushtable.ConfigError, "must be numbers, not object"),
        (np.array([["2020"]], "M8[D]"), hushtable.ConfigError, "must be numbers, not datetime64"),
        ([[1.0, 2.0], [3.0]], hushtable.ConfigError, "nested. lists of one length"),
        (np.ma.array([[1.0, 2.0]], mask=[[0, 1]]), hushtable.ConfigError, "weight are masked"),
        ([np.ma.array([1.0, 2.0], mask=[0, 1])], hushtable.ConfigError, "weight are masked"),
        (Arrayed(None), hushtable.ConfigError, "this Arrayed is none .no values here"),
    ],
)
def test_what_is_no_float32_is_refused(
    tmp_path: Path, values: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        hushtable.Table.from_weight(values)
    hushtable.Table.from_weight(np.zeros((40, 2), np.float32)).save(tmp_path / "films")
    table = hushtable.Table.open(tmp_path / "films")
    with pytest.raises(error, match=text.replace("weight", "rows")):
        table.patch([3], values, tmp_path / "films")


def test_numbers_of_every_kind_are_weights() -> None:
    for values, expected in (
        (np.ma.array([[1.5, 2.5]], mask=False), [1.5, 2.5]),
        (np.array([[1, 2]], dtype=np.uint8), [1, 2]),
        (np.array([[1.5, np.inf]], dtype=">f8"), [1.5, np.inf]),
        # The largest float64 that rounds to a float32.
        ([[3.4028235677973362e38]], [3.4028234663852886e38]),
    ):
        assert hushtable.Table.from_weight(values).rows([0]).tolist() == [expected]


def test_an_error_in_progress_comes_back(tmp_path: Path, weight: np.ndarray) -> None:
    np.save(tmp_path / "films.npy", weight)

    def fail(done: int, rows: int) -> None:
        raise RuntimeError(f"{done} of {rows}")

    with pytest.raises(RuntimeError, match="0 of 1000"):
        hushtable.build_table(tmp_path / "films.npy", tmp_path / "films", progress=fail)
