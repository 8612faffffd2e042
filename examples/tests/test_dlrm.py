"""The recommendation model of 26 tables: its data, its learning, and private predictions."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.dlrm import __main__, checkpoint, criteo, judging, model, shares, training
from examples.movielens.model import auc
from examples.movielens.servers import Mismatch

import hushtable
from hushtable.data import CRITEO_ROWS, MalformedData
from hushtable.nn import ClearModel

ROWS = criteo.table_rows(0.001)
HEADER = ",".join(["Id", "Label", *criteo.DENSE, *criteo.FEATURES])


def line(label: str, counts: list[str], categories: list[str]) -> str:
    return ",".join(["10000000", label, *counts, *categories])


def write(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "criteo.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_tables_are_criteos_at_a_scale() -> None:
    assert criteo.table_rows(1) == tuple(max(3, rows) for rows in CRITEO_ROWS)
    tenth = criteo.table_rows(0.1)
    assert (tenth[0], tenth[5], tenth[1]) == (1_000_000, 3, 2_943)
    assert len(tenth) == 26


def test_real_rows_are_read(tmp_path: Path) -> None:
    counts, categories = ["3", "-1", *[""] * 10, "4.0"], ["68fd1e64", "", *["0" * 8] * 24]
    path = write(tmp_path, line("1", counts, categories), line("0", ["0"] * 13, categories))
    log = criteo.read(path, ROWS)
    assert len(log) == 2
    assert log.clicked.tolist() == [True, False]
    assert log.is_real.all()
    np.testing.assert_allclose(log.dense[0], [np.log(4), *[0] * 11, np.log(5)], rtol=1e-6)
    assert (log.ids[0] == log.ids[1]).all()
    assert (log.ids < np.array(ROWS)).all()
    # Where a category's row is must not change between machines or releases.
    assert criteo.hashed("C1", "68fd1e64", 1_000_000) == 733_778
    # One value in two columns are two categories.
    assert criteo.hashed("C2", "68fd1e64", 1_000_000) != 733_778


@pytest.mark.parametrize(
    ("lines", "header", "text"),
    [
        ([], HEADER, "no impressions"),
        ([line("1", ["x"] * 13, [""] * 26)], HEADER, "criteo.csv:2: could not convert"),
        ([line("yes", ["1"] * 13, [""] * 26)], HEADER, "criteo.csv:2: invalid literal"),
        (["1,2"], HEADER, "criteo.csv:2: not the header's 41 columns"),
        ([], HEADER.replace("C26", "C27"), "no column C26"),
    ],
)
def test_files_that_are_not_criteos_are_refused(
    tmp_path: Path, lines: list[str], header: str, text: str
) -> None:
    with pytest.raises(MalformedData, match=text):
        criteo.read(write(tmp_path, *lines, header=header), ROWS)


def test_made_up_rows_have_criteos_shape() -> None:
    log = criteo.make(3000, ROWS)
    assert (log.ids >= 0).all() and (log.ids < np.array(ROWS)).all()
    assert 0.1 < log.clicked.mean() < 0.5
    # Popular values and rare ones.
    counts = np.sort(np.bincount(log.ids[:, 0], minlength=ROWS[0]))[::-1]
    assert counts[0] > 100
    assert (counts == 1).sum() > 200
    again = criteo.make(3000, ROWS)
    assert np.array_equal(log.ids, again.ids) and np.array_equal(log.dense, again.dense)


def test_dealing_keeps_both_kinds_on_both_sides() -> None:
    made = criteo.make(500, ROWS)
    real = criteo.Log(made.dense, made.ids, made.clicked, np.ones(500, np.bool_))
    learning, test = criteo.deal(criteo.join(real.take(np.arange(100)), made))
    assert (len(learning), len(test)) == (480, 120)
    assert (int(learning.is_real.sum()), int(test.is_real.sum())) == (80, 20)


@pytest.fixture(scope="module")
def logs() -> tuple[criteo.Log, criteo.Log]:
    return criteo.deal(criteo.make(6000, ROWS))


@pytest.fixture(scope="module")
def trained(logs: tuple[criteo.Log, criteo.Log]) -> training.Trained:
    return training.train(logs[0], ROWS, training.Recipe(), say=print)


def predict(trained: training.Trained, log: criteo.Log) -> np.ndarray:
    return model.predict(trained.dense, log, model.gather(trained.tables, log.ids))


def test_the_model_learns(trained: training.Trained, logs: tuple[criteo.Log, criteo.Log]) -> None:
    scores = predict(trained, logs[1])
    assert ((scores > 0) & (scores < 1)).all()
    assert auc(scores, logs[1].clicked) > 0.6
    assert [table.shape for table in trained.tables] == [(rows, model.DIM) for rows in ROWS]


def test_predictions_do_not_depend_on_who_else_is_in_the_batch(
    trained: training.Trained, logs: tuple[criteo.Log, criteo.Log]
) -> None:
    some = np.arange(300)
    assert np.array_equal(predict(trained, logs[1])[:300], predict(trained, logs[1].take(some)))


def test_the_checkpoint_holds_the_model(trained: training.Trained, tmp_path: Path) -> None:
    tensors = checkpoint.state_dict(trained)
    assert list(tensors)[:2] == ["emb_l.0.weight", "emb_l.1.weight"]
    assert list(tensors)[26:] == [
        f"{part}_l.{at}.{kind}"
        for part in ("bot", "top")
        for at in (0, 2)
        for kind in ("weight", "bias")
    ]
    path = tmp_path / "dlrm.safetensors"
    checkpoint.write_safetensors(path, tensors)
    # As hushtable reads any checkpoint.
    built = hushtable.build_table(path, tmp_path / "table", key="emb_l.3.weight")
    rows = hushtable.Table.open(tmp_path / "table").rows(np.arange(built.rows))
    assert np.array_equal(rows, trained.tables[3])
    dense = checkpoint.read_dense(tensors)
    assert np.array_equal(dense.top[1].weight, trained.dense.top[1].weight)


class Feature:
    """What the layer is told of a column."""

    pooling, max_ids = "sum", 1

    def __init__(self, name: str) -> None:
        self.name = self.table = name


def test_the_layer_gathers_what_the_model_reads(
    trained: training.Trained, logs: tuple[criteo.Log, criteo.Log]
) -> None:
    names = [f"emb_l.{column}" for column in range(26)]
    tables = {
        name: hushtable.Table.from_weight(table)
        for name, table in zip(names, trained.tables, strict=True)
    }
    source = ClearModel([Feature(name) for name in names], tables)
    test = logs[1].take(np.arange(70))
    rows = judging.look_up(judging.collection(source), test)
    assert np.array_equal(rows, model.gather(trained.tables, test.ids))


class OneBitOff(ClearModel):
    """A server's answers of which one value is off by one bit."""

    def lookup_many(self, inferences: Any) -> Any:
        found = super().lookup_many(inferences)
        row = found[-1]["emb_l.25"]
        row.view(np.uint32)[0, 0] ^= 1 << 20
        return found


def test_a_private_row_that_is_one_bit_off_is_noticed(
    trained: training.Trained, logs: tuple[criteo.Log, criteo.Log]
) -> None:
    names = [f"emb_l.{column}" for column in range(26)]
    tables = trained.tables
    source: Any = OneBitOff(
        [Feature(name) for name in names],
        {n: hushtable.Table.from_weight(table) for n, table in zip(names, tables, strict=True)},
    )
    with pytest.raises(Mismatch, match="private predictions are not the clear model's"):
        judging.judge(trained, trained.dense, logs[1].take(np.arange(40)), source, timed=1)


def test_private_predictions_are_the_clear_ones_through_real_servers(tmp_path: Path) -> None:
    said: list[str] = []
    figures = __main__.run(0.0005, 1500, 90, None, tmp_path, said.append)
    assert figures["impressions"] == 90
    assert figures["differing"] == 0
    assert figures["clear_auc"] == figures["private_auc"]
    assert figures["real_auc"] is None
    assert figures["bytes_up"] > figures["bytes_down"] == 2 * 26 * 64
    assert figures["ms"] > 0
    assert figures["rows"] == sum(criteo.table_rows(0.0005))
    assert figures["shares"] is None
    assert any("starting left and right" in line for line in said)


def test_two_servers_compute_the_model_on_shares(tmp_path: Path) -> None:
    figures = __main__.run(0.0005, 1500, 60, None, tmp_path, lambda _line: None, on_shares=True)
    found = figures["shares"]
    assert found["clear_auc"] == figures["clear_auc"]
    assert abs(found["shares_auc"] - found["clear_auc"]) < 0.02
    # Rounded, and not by much: it is another number, of the same model.
    assert 0 < found["largest_difference"] < 0.05
    # One key for each table, and 64 + 16 + 64 ReLUs between a message each way.
    assert found["key_bytes"] == figures["bytes_up"]
    assert found["dealt_bytes"] > 50 * found["down_bytes"]
    assert found["rounds"] > 6 and found["peer_bytes"] > 26 * model.DIM
    assert found["ms"] > 0 and found["lookup_ms"] > 0


def test_what_is_described_is_the_model() -> None:
    text = shares.describe(ROWS)
    described = tomllib.loads(text)
    assert [one["rows"] for one in described["features"]] == list(ROWS)
    assert [described["dense"], *described["bottom"]] == list(model.BOTTOM)
    assert described["top"] == list(model.TOP[1:])
    # No table is cut: each is looked up whole.
