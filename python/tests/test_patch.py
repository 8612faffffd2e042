"""Patches: next versions that cost what changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hushtable
from hushtable import Table
from hushtable.cli import app
from hushtable.errors import ConfigError, IdOutOfRange, TableError

ROWS, DIM = 5_000, 8


def weight(seed: int = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(ROWS, DIM)).astype(np.float32)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base"
    Table.from_weight(weight(), name="items").save(path)
    return path


def run(*arguments: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def fails(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert isinstance(result.exception, hushtable.Error), result.output
    return str(result.exception)


def test_a_patched_table_is_the_one_that_a_rebuild_makes(base: Path, tmp_path: Path) -> None:
    ids = np.array([4_999, 0, 300, 17])
    changed = weight()
    changed[ids] = -1.5
    table = Table.open(base)
    found = table.patch(ids, changed[ids], tmp_path / "next")
    expected = Table.from_weight(changed, name="items")
    assert found.info == expected.info
    assert found.base_version == table.info.version
    assert (found.changed_rows, table.changed_rows) == (4, 0)
    np.testing.assert_array_equal(found.rows(np.arange(ROWS)), changed)
    np.testing.assert_array_equal(table.rows(np.arange(ROWS)), weight())
    assert hushtable.verify_table(tmp_path / "next").ok

    # Again, over the first, in its own place; and written whole.
    changed[[17, 18]] = 2.5
    found = found.patch([17, 18], changed[[17, 18]], tmp_path / "next")
    assert (found.changed_rows, found.base_version) == (5, table.info.version)
    whole = run("table", "compact", tmp_path / "next", "--out", tmp_path / "whole")
    assert whole["version"] == found.info.version
    assert whole["changed_rows_before"] == 5
    again = Table.open(tmp_path / "whole")
    assert again.changed_rows == 0
    np.testing.assert_array_equal(again.rows(np.arange(ROWS)), changed)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "int8", "int4", "int2/32", "fp8_e5m2"])
def test_rows_are_stored_in_the_tables_dtype(tmp_path: Path, dtype: str) -> None:
    values = weight()
    Table.from_weight(values, dtype=dtype).save(tmp_path / "base")
    values[[3, 4]] *= 1.5
    found = Table.open(tmp_path / "base").patch([3, 4], values[[3, 4]], tmp_path / "next")
    assert found.info.version == Table.from_weight(values, dtype=dtype).info.version


def test_what_is_no_change_of_the_table_is_refused(base: Path, tmp_path: Path) -> None:
    table, out = Table.open(base), tmp_path / "next"
    row = np.zeros((1, DIM))
    with pytest.raises(TableError, match="row 5000 is not in the table, which has 5000 rows"):
        table.patch([ROWS], row, out)
    with pytest.raises((TableError, IdOutOfRange)):
        table.patch([-1], row, out)
    with pytest.raises(TableError, match="row 7 is named twice"):
        table.patch([7, 7], np.zeros((2, DIM)), out)
    with pytest.raises(TableError, match="at least one"):
        table.patch([], np.zeros((0, DIM)), out)
    with pytest.raises(ConfigError, match=r"rows must be \[1, 8\].* not \[1, 9\]"):
        table.patch([7], np.zeros((1, 9)), out)
    with pytest.raises(TableError, match="a patch holds at most 1024"):
        table.patch(np.arange(1_025), np.ones((1_025, DIM)), out)
    with pytest.raises(ConfigError, match="save it and open that"):
        Table.from_weight(weight()).patch([7], row, out)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TableError):
        table.patch([7], row, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    assert not out.exists()


def test_the_command_patches_and_hands_on(base: Path, tmp_path: Path) -> None:
    changes = tmp_path / "changed.npz"
    np.savez(changes, ids=np.array([5, 4_000]), rows=np.full((2, DIM), 9.0))
    found = run("table", "patch", base, "--rows", changes, "--out", tmp_path / "next")
    assert found["changed_rows"] == 2
    assert found["before"] == found["base_version"] == Table.open(base).info.version
    assert run("table", "info", tmp_path / "next")["changed_rows"] == 2

    # Another operator has the base alone, and gets the patch as a file.
    shutil.copytree(base, tmp_path / "other")
    file = tmp_path / "next" / "rows.patch"
    taken = run("table", "patch", tmp_path / "other", "--from", file, "--out", tmp_path / "theirs")
    assert taken["version"] == found["version"]
    other = tmp_path / "unlike"
    Table.from_weight(weight(2), name="items").save(other)
    error = fails("table", "patch", other, "--from", file, "--out", tmp_path / "wrong")
    assert "patch the bundle that it was made for" in error

    shown = CliRunner().invoke(
        app, ["table", "patch", str(base), "--rows", str(changes), "--out", str(tmp_path / "two")]
    )
    assert shown.exit_code == 0
    assert "2 of 5,000" in shown.stdout


def test_the_command_says_what_a_file_lacks(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "next"
    assert "say what changes" in fails("table", "patch", base, "--out", out)
    file = tmp_path / "changed.npz"
    np.savez(file, ids=np.array([5]))
    assert "has no rows" in fails("table", "patch", base, "--rows", file, "--out", out)
    np.savez(file, ids=np.array([0.5]), rows=np.zeros((1, DIM)))
    assert "must be [n] integers" in fails("table", "patch", base, "--rows", file, "--out", out)
    np.save(tmp_path / "plain.npy", np.zeros(3))
    for name in ["plain.npy", "missing.npz"]:
        error = fails("table", "patch", base, "--rows", tmp_path / name, "--out", out)
        assert "numpy.savez" in error, error
    for damaged in [b"no archive", b"PK\x03\x04 and no archive", b""]:
        file.write_bytes(damaged)
        assert "numpy.savez" in fails("table", "patch", base, "--rows", file, "--out", out)
    assert not out.exists()


def test_an_export_follows_an_earlier_one(tmp_path: Path) -> None:
    folder, base = tmp_path / "films", ["--key-beside"]
    created = CliRunner().invoke(
        app, ["train", "create", str(folder), "--rows", "2000", "--dim", "4", *base]
    )
    assert created.exit_code == 0, created.output
    first, second = tmp_path / "first", tmp_path / "second"
    run("train", "export", folder, *base, "-o", first)
    assert "at least one" in fails("train", "export", folder, *base, "-o", second, "--since", first)
    assert [path.name for path in tmp_path.glob(".second*")] == []

    # The bundle that the controller would have written had other rows before.
    table = Table.open(first)
    table.patch([3, 1_999], np.ones((2, 4)), tmp_path / "earlier")
    Table.open(tmp_path / "earlier").save(tmp_path / "whole")
    found = run("train", "export", folder, *base, "-o", second, "--since", tmp_path / "whole")
    assert found["changed_rows"] == 2
    assert found["version"] == table.info.version
    assert found["base_version"] == Table.open(tmp_path / "whole").info.version
    assert "--model" in fails(
        "train", "export", folder, *base, "--model", tmp_path / "m", "--since", first
    )


def test_the_benchmark_says_what_a_patch_saves() -> None:
    found = run("bench", "patch", "--rows", 20_000, "--rounds", 2, "--threads", 1)
    assert found["bench"] == "patch"
    assert found["params"] == {"rows": 20_000, "row_bytes": 64, "changed": 20}
    detail = found["detail"]
    steps = [f"{step}_{what}_ms" for step in ("make", "take") for what in ("whole", "patched")]
    assert all(detail[step] > 0 for step in steps)
    assert found["value"] == pytest.approx(detail["take_whole_ms"] / detail["take_patched_ms"])
    assert "a sixteenth" in fails("bench", "patch", "--share", 0.1)
    assert "multiple of 4" in fails("bench", "patch", "--row-bytes", 6)
