"""docs/processor.md, and the suite that it is written from."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return script("processor_pir")


def record(bench: str, value: float, threads: int = 1, **params: Any) -> dict[str, Any]:
    detail = {"ms_per_batch": 2.5, "prf_calls": 7}
    facts = {"bench": bench, "params": params, "value": value, "threads": threads}
    return facts | {"detail": detail}


def test_the_page_has_the_newest_result(page: ModuleType) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.render(text, page.newest()) == text, "run bench/processor_pir.py"


def test_a_record_is_found_by_what_it_is_of(page: ModuleType) -> None:
    shape = {"row_bytes": 256, "prg": "aes128"}
    results = page.Results(
        [
            record("dpf", 1111, 1, rows=1 << 14, batch=256, **shape),
            record("dpf", 2222, 2, rows=1 << 14, batch=256, **shape),
            record("key", 169, rows=1 << 14, group="bits"),
            record("prg", 1930, rows=1 << 20, prg="aes128"),
        ]
    )
    lines = list(page.table_3(results))
    assert "| 16K | ours, 2 threads | 169 | 1,111 | 2,222 | - | - |" in lines
    # The paper's, as its Table III has them.
    assert "| 64K | the paper's processor, 32 threads | 1,024 | 5 | 688 | 36 | 2.9 |" in lines
    assert "| aes128 | 965 | 591 | 1,930 | 2.5 | 2.00 |" in list(page.table_5(results))


def test_the_suite_measures_what_the_page_shows(page: ModuleType) -> None:
    commands = [" ".join(command) for command in script("run").gpu_pir(False)]
    assert len(commands) == len(set(commands))
    for rows in page.TABLE_3:
        assert f"paper key --rows {rows}" in commands
        for batch, threads in ((1, 1), (1, 2), (256, 1), (256, 2)):
            wanted = f"dpf --rows {rows} --row-bytes 256 --batch {batch} --threads {threads} "
            assert any(command.startswith(wanted + "--prg aes128") for command in commands)
    lengths = {command.split()[4] for command in commands if command.startswith("dpf")}
    assert {"64", "256", "4096"} <= lengths
    assert any(command.startswith("paper prg --rows 1048576") for command in commands)
