"""Bundles that older versions wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import hushtable

BUNDLE = Path(__file__).parent / "fixtures" / "format-1"
#: What the version that wrote the bundle called it.
VERSION = "c584e4a8d532b2e031529d65c298c27b9af7fc120f992d20b847815db1bb9857"


def weight() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(700, 3)).astype(np.float32)


def test_a_bundle_of_format_1_keeps_its_rows_and_its_version() -> None:
    table = hushtable.Table.open(BUNDLE)
    assert table.info.version == VERSION
    expected = weight().astype(np.float16).astype(np.float32)
    assert np.array_equal(table.rows(np.arange(700)), expected)
    assert hushtable.verify_table(BUNDLE).ok


def test_a_flipped_bit_of_format_1_is_found(tmp_path: Path) -> None:
    copied = tmp_path / "old"
    shutil.copytree(BUNDLE, copied)
    rows = copied / "rows.safetensors"
    content = bytearray(rows.read_bytes())
    content[4096 + 6 * 650] ^= 1
    rows.write_bytes(content)
    report = hushtable.verify_table(copied)
    assert not report.ok
    assert [damage.row for damage in report.damaged] == [650]


def test_servers_answer_from_format_1(certificates: hushtable.Certificates) -> None:
    tls = certificates.server
    with (
        hushtable.ServerProcess(BUNDLE, "left", tls=tls, threads=1) as left,
        hushtable.ServerProcess(BUNDLE, "right", tls=tls, threads=1) as right,
        hushtable.connect(left.url, right.url, tls=certificates.ca, version=VERSION) as client,
    ):
        found = client.lookup([0, 699])
    assert np.array_equal(found, weight()[[0, 699]].astype(np.float16).astype(np.float32))


def test_a_table_that_is_built_again_gets_another_version(tmp_path: Path) -> None:
    again = tmp_path / "new"
    hushtable.Table.open(BUNDLE).save(again)
    assert hushtable.Table.open(again).info.version != VERSION
    assert (again / "rows.tree").exists()
    with pytest.raises(FileNotFoundError):
        (BUNDLE / "rows.tree").stat()
