"""Devices: what is asked for, what is found, what is said where there is no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import forks, plain
from waiting import HUNG_S

import hushtable
from hushtable import _native
from hushtable._machine import gpu_report, wheel_folders
from hushtable_lab.measure import gpu as _gpu

COMMAND = [sys.executable, "-m", "hushtable"]
REPORT = gpu_report()
without_gpu = pytest.mark.skipif(REPORT["available"], reason="this machine has a GPU")
with_gpu = pytest.mark.skipif(not REPORT["available"], reason=f"no GPU: {REPORT['reason']}")


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    if options:
        return plain([*COMMAND, *map(str, arguments)], **options)
    return forks.run(*arguments)


def serve(bundle: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    free = ("--addr", "127.0.0.1:0", "--metrics-addr", "none")
    return run("serve", bundle, "--side", "left", *free, *arguments, **options)


def test_a_report_says_what_was_looked_for() -> None:
    assert REPORT.keys() == {
        *("available", "cache", "devices", "driver", "engine", "nvrtc", "reason"),
        "visible_devices",
    }
    assert REPORT["available"] is (REPORT["reason"] is None)
    if REPORT["available"]:
        assert REPORT["engine"]
        assert REPORT["devices"]
    else:
        assert len(REPORT["reason"]) > 10


@without_gpu
def test_doctor_says_why_there_is_none() -> None:
    done = run("doctor")
    assert done.returncode == 0
    line = next(line for line in done.stdout.splitlines() if line.startswith("GPU "))
    assert "not used: " in line
    assert REPORT["reason"].split("(")[0].strip() in line
    if REPORT["engine"]:
        assert "compiled kernels" in done.stdout


def test_nvrtc_is_found_in_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda_nvrtc", "cu13", "cublas"):
        (tmp_path / "nvidia" / name / "lib").mkdir(parents=True)
    (tmp_path / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc.so.12").touch()
    (tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13").touch()
    monkeypatch.syspath_prepend(tmp_path)
    found = [folder for folder in wheel_folders() if folder.is_relative_to(tmp_path)]
    folders = [tmp_path / "nvidia" / name / "lib" for name in ("cu13", "cuda_nvrtc")]
    assert found == folders
    # A module of that name that is no package has no folders.
    (tmp_path / "nvidia").rename(tmp_path / "other")
    (tmp_path / "nvidia.py").touch()
    assert not any(folder.is_relative_to(tmp_path) for folder in wheel_folders())


@without_gpu
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_device_that_is_not_there_is_an_error(bundle: Path, device: str) -> None:
    done = serve(bundle, "--device", device)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"error: device {device} cannot be used: " in done.stderr
    assert "Traceback" not in done.stderr
    done = serve(bundle, "--json", env={**os.environ, "HUSHTABLE_DEVICE": device})
    error = json.loads(done.stdout)["error"]
    assert (error["type"], error["exit_code"]) == ("ConfigError", 2)
    with pytest.raises(hushtable.ConfigError, match=f"device {device} cannot be used"):
        hushtable.ServerProcess(bundle, "left", device=device).start()


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:-1", ""])
def test_an_unknown_device_is_named(bundle: Path, device: str) -> None:
    done = serve(bundle, "--device", device)
    assert done.returncode == 2
    assert "auto, cpu, cuda or cuda:NUMBER" in done.stderr


def test_a_single_server_has_no_device(bundle: Path) -> None:
    with pytest.raises(hushtable.ConfigError, match="answers by processors"):
        hushtable.ServerProcess(bundle, scheme="onion", device="cuda")


def test_processors_answer_where_they_are_asked_for(
    bundle: Path, weight: np.ndarray, tmp_path: Path
) -> None:
    config = tmp_path / "right.toml"
    config.write_text('device = "cpu"\n')
    with (
        hushtable.ServerProcess(bundle, "left", device="cpu", threads=1) as left,
        hushtable.ServerProcess(bundle, "right", device="auto", threads=1) as right,
        hushtable.connect(left.url, right.url) as client,
    ):
        assert left.serving.engine is not None
        assert left.serving.engine.startswith("cpu, ")
        if not REPORT["available"]:
            assert right.serving.engine == left.serving.engine
        assert np.array_equal(client.lookup([7, 2999]), weight[[7, 2999]])


@without_gpu
def test_auto_is_silent_where_there_is_no_driver(bundle: Path) -> None:
    command = [*COMMAND, "serve", str(bundle), "--side", "left", "--addr", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--metrics-addr", "none"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("ready: ")
        server.terminate()
        out, err = server.communicate(timeout=HUNG_S)
    assert (out, err) == ("", "")


@without_gpu
def test_bench_gpu_needs_one() -> None:
    done = run("bench", "gpu", "--rows", 1000, "--row-bytes", 16)
    assert done.returncode == 2
    assert "error: no GPU can be used: " in done.stderr
    with pytest.raises(hushtable.ConfigError, match="no GPU can be used"):
        _gpu.probe(0)


@without_gpu
def test_bench_gpu_of_a_layout_needs_one(bundle: Path) -> None:
    for how in (["--layout", '{"full": {"bins": 4}}'], ["--bundle", bundle]):
        done = run("bench", "gpu", "--rows", 1000, "--row-bytes", 16, *how)
        assert done.returncode == 2
        assert "error: no GPU can be used: " in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--layout", "{}", "--strategy", "tensor"], "are of single keys"),
        (["--layout", "{}", "--bundle", "x"], "give one of them"),
        (["--stream"], "give --leaf row or --leaf wide"),
    ],
)
def test_bench_gpu_says_which_options_go_together(options: list[str], said: str) -> None:
    done = run("bench", "gpu", *options)
    assert done.returncode == 2
    assert said in done.stderr


@with_gpu
def test_bench_gpu_of_a_layout() -> None:
    parts = '{"hot": {"rows": 100, "bins": 4}, "full": {"bins": 16}}'
    done = run("bench", "gpu", "--rows", 5000, "--row-bytes", 40, "--layout", parts, "--json")
    record = json.loads(done.stdout)
    assert (record["bench"], record["unit"]) == ("gpu-bins", "inferences/s")
    assert 0 < record["of_floor"] < 1


@with_gpu
def test_bench_gpu() -> None:
    done = run("bench", "gpu", "--rows", 5000, "--row-bytes", 40, "--seconds", 0.1, "--json")
    record = json.loads(done.stdout)
    assert record["bench"] == "gpu"
    assert 0 < record["of_floor"] < 1


def test_bench_gpu_has_help() -> None:
    done = run("bench", "gpu", "--help")
    assert "$ hushtable bench gpu" in done.stdout
    assert "--strategy" in done.stdout


# Round figures, so that the formulas can be checked by hand: no device's.
PROBE = _gpu.Probe(read_gb_per_s=1000.0, int8_tmac_per_s=1.0, int32_gop_per_s=1000.0)


def test_floors() -> None:
    def floor(rows: int, row_bytes: int, batch: int, group: str, prg: str) -> _gpu.GpuFloor:
        return _gpu.gpu_floor(PROBE, rows, row_bytes, batch, group=group, prg=prg)

    one = floor(1 << 20, 256, 1, "bits", "chacha20")
    assert one.bound == "memory"
    assert one.seconds == pytest.approx(2**28 / 1e12)
    # 2^14 leaves of 64 rows.
    batch = floor(1 << 20, 16, 512, "z8", "chacha20")
    assert batch.bound == "expansion"
    operations = (2**14 - 1) * 968 + 2**14 * 976
    assert batch.seconds == pytest.approx(512 * operations / 1e12)
    # Long rows are bound by the product: bytes at a time (z8), or words (z32).
    assert floor(1 << 20, 4096, 512, "z8", "chacha12").parts["product"] == pytest.approx(
        512 * 2**32 / 1e12
    )
    assert floor(1 << 20, 4096, 512, "z32", "chacha12").parts["product"] == pytest.approx(
        512 * 2**30 / 1e12
    )
    # A leaf for each row takes as many more operations as a leaf has rows.
    assert _gpu.expansion_operations(1 << 20, "z32", "salsa12", "row") == (
        (2**20 - 1) * 584 + 2**20 * 592
    )
    # One row is one leaf, and no inner node.
    assert _gpu.expansion_operations(1, "z32", "aes128") == 960
    assert set(_gpu.OPERATIONS) == set(_native.prg_names())


def test_keys_have_the_bytes_that_clients_send() -> None:
    # 2^20 rows: 11 levels of 512 rows, 20 of one row.
    assert _gpu.key_bytes(1 << 20, "bits") == 24 + 16 * 11 + 2 + 64
    assert _gpu.key_bytes(1 << 20, "z32", "row") == 24 + 16 * 20 + 3 + 64
    assert _gpu.key_bytes(1, "z8") == 88


def test_whole_inferences_have_the_fields_of_all_benchmarks() -> None:
    work = {
        "keys": 10,
        "inner_nodes": 100,
        "leaves": 1000,
        "product_bytes": 4_000_000,
        "stored_bytes": 1_000_000,
    }
    floor = _gpu.bins_floor(PROBE, work, 10, "salsa12")
    assert floor.parts["memory"] == pytest.approx(1e-6)
    assert floor.parts["product"] == pytest.approx(1e-5)
    assert floor.parts["expansion"] == pytest.approx((100 * 584 + 1000 * 592) / 1e12 * 10)
    assert floor.bound == "product"
    facts = {"capability": (9, 0), "multiprocessors": 7, "name": "made up"}
    record = _gpu.bins_record(
        "gpu-bins",
        facts,
        PROBE,
        {"device": [2.0, 4.0, 3.0], "wall": [5.0]},
        work=work,
        rows=100,
        row_bytes=8,
        layout={"full": {"bins": 4}},
        batch=30,
        prg="salsa12",
    )
    assert (record["value"], record["unit"]) == (10_000.0, "inferences/s")
    assert record["of_floor"] == pytest.approx(record["value"] / record["floor"])
    assert record["detail"]["keys"] == 10


def test_a_record_has_the_fields_of_all_benchmarks() -> None:
    facts = {"capability": (9, 0), "multiprocessors": 7, "name": "made up"}
    times = {"device": [2.0, 4.0, 3.0], "wall": [5.0]}
    record = _gpu.gpu_record(
        "gpu",
        facts,
        PROBE,
        times,
        rows=1000,
        row_bytes=256,
        batch=30,
        strategy="auto",
        group="z8",
        prg="chacha20",
    )
    assert (record["value"], record["unit"], record["threads"]) == (10_000.0, "queries/s", 7)
    assert record["isa"] == "sm_90"
    assert record["of_floor"] == pytest.approx(record["value"] / record["floor"])
    assert record["params"]["strategy"] == "auto"
    assert record["detail"]["ms_per_batch"] == 3.0
