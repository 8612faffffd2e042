"""The command, as a process: what it prints, and what it answers to bad input."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import forks, plain
from conftest import DIM, ROWS, Deployment
from waiting import HUNG_S, held_port

import hushtable
from hushtable.cli import main

COMMAND = [sys.executable, "-m", "hushtable"]
RECORD = {"bench", "params", "value", "unit", "floor", "of_floor", "threads", "isa", "detail"}


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    if options:
        return plain([*COMMAND, *map(str, arguments)], **options)
    return forks.run(*arguments)


def run_json(*arguments: object, **options: Any) -> Any:
    done = run(*arguments, "--json", **options)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "command",
    [
        "table build",
        "table info",
        "table verify",
        "serve",
        "infer compile",
        "infer plan",
        "infer serve",
        "infer query",
        "lookup",
        "certificates",
        "doctor",
        "demo",
        "bench dpf",
        "bench expand",
        "bench gpu",
        "bench infer",
        "bench paper key",
        "bench paper prg",
        "bench serve",
    ],
)
def test_help_has_examples_and_json(command: str) -> None:
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    assert "Examples:" in done.stdout
    assert f"$ hushtable {command}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("lookup", "Row ids, or - to read them from standard input."),
        ("table push", "The bundle's folder."),
        ("infer compile", "The model's folder."),
    ],
)
def test_help_says_what_arguments_are(command: str, text: str) -> None:
    """typer 0.20 leaves it out beside click 8.5."""
    assert text in " ".join(run(*command.split(), "--help").stdout.split())


@pytest.mark.parametrize("command", ["lookup", "infer query", "infer precompute"])
def test_every_client_takes_the_same_options_of_servers(command: str) -> None:
    said = run(*command.split(), "--help").stdout
    for option in ("--server", "--ca", "--certificate", "--key", "--timeout", "--insecure"):
        assert f"{option} " in said
    assert ("--left-ca" in said) == (command != "infer precompute")


def test_version() -> None:
    assert run("--version").stdout == f"hushtable {hushtable.__version__}\n"


def test_table_build_info_verify(tmp_path: Path) -> None:
    values = np.random.default_rng(2).normal(size=(500, 8)).astype(np.float32)
    np.save(tmp_path / "items.npy", values)
    out = tmp_path / "items"
    built = run_json("table", "build", tmp_path / "items.npy", out, "--dtype", "f16")
    assert (built["rows"], built["dim"], built["dtype"], built["row_bytes"]) == (500, 8, "f16", 16)
    info = run_json("table", "info", out)
    assert info == {
        "name": "items",
        "rows": 500,
        "dim": 8,
        "dtype": "f16",
        "row_bytes": 16,
        "version": built["version"],
        "table_bytes": 8000,
        "created_from": info["created_from"],
        "nonfinite_count": 0,
        "path": str(out),
        "layout": None,
    }
    report = run_json("table", "verify", out)
    assert report == {
        "rows": 500,
        "ok": True,
        "damage_count": 0,
        "damaged": [],
        "prepared": [],
    }
    assert "500 rows are as they were built" in run("table", "verify", out).stdout
    assert built["version"] in run("table", "info", out).stdout

    rows = out / "rows.safetensors"
    content = bytearray(rows.read_bytes())
    content[-16 * 100] ^= 1
    rows.write_bytes(content)
    done = run("table", "verify", out, "--json")
    assert done.returncode == 1
    assert [damage["row"] for damage in json.loads(done.stdout)["damaged"]] == [400]
    assert "row 400 is damaged" in run("table", "verify", out).stdout


def test_lookup(deployment: Deployment, tmp_path: Path) -> None:
    env = {
        **os.environ,
        "HUSHTABLE_LEFT": deployment.left.url,
        "HUSHTABLE_RIGHT": deployment.right.url,
        "HUSHTABLE_CA": str(deployment.certificates.ca),
    }
    found = run_json("lookup", "7", "2999,0", "--max-ids", 8, env=env)
    assert found["ids"] == [7, 2999, 0]
    assert np.array_equal(
        np.array(found["rows"], dtype=np.float32), deployment.weight[[7, 2999, 0]]
    )
    assert found["stats"]["keys"] == 8
    assert found["table"]["rows"] == ROWS
    done = run("lookup", "-", "--out", tmp_path / "rows.npy", env=env, input="1 2\n3\n")
    assert done.returncode == 0
    assert f"3 rows x {DIM}" in done.stdout
    assert np.array_equal(np.load(tmp_path / "rows.npy"), deployment.weight[[1, 2, 3]])
    assert "4 keys a server" in done.stderr
    assert run("lookup", "5", env=env).stdout.startswith("5\t[")


def test_doctor() -> None:
    report = run_json("doctor", env={**os.environ, "HUSHTABLE_ISA": "portable"})
    assert report["isa"]["used"] == "portable"
    assert report["isa"]["cap"] == "portable"
    assert report["would_use"]["kernel"] == "portable"
    assert report["would_use"]["ring_kernel"] == "portable"
    assert report["would_use"]["threads"] == report["cores"]["usable"]
    assert report["read_gb_per_s"]["one_thread"] > 0
    assert report["memory"]["total_bytes"] > report["memory"]["available_bytes"] > 0
    assert report["versions"]["hushtable"] == hushtable.__version__
    assert report["gpu"]["available"] is (report["gpu"]["reason"] is None)


def test_doctor_says_when_certificates_expire(deployment: Deployment, tmp_path: Path) -> None:
    ca, left = deployment.certificates.ca, deployment.left.url
    found = run_json("doctor", "--certificate", ca, "--certificate", left)
    authority, shown = found["certificates"]
    assert (authority["place"], shown["place"]) == (str(ca), left)
    assert "127.0.0.1" in shown["names"]
    assert all(one["days"] == 364 for one in (authority, shown))
    assert "364 days left" in run("doctor", "--certificate", ca).stdout
    none = tmp_path / "none.pem"
    none.write_text("nothing")
    done = run("doctor", "--certificate", none)
    assert done.returncode != 0
    assert "holds no certificate" in done.stderr


def test_doctor_names_an_unknown_cap() -> None:
    done = run("doctor", env={**os.environ, "HUSHTABLE_ISA": "sse9"})
    assert "HUSHTABLE_ISA=sse9 is unknown and ignored" in done.stdout


@pytest.mark.parametrize("batch", [1, 24])
def test_bench_dpf(batch: int) -> None:
    options = ["--rows", 5000, "--row-bytes", 40, "--seconds", 0.1, "--isa", "portable"]
    record = run_json("bench", "dpf", "--batch", batch, *options)
    assert record.keys() == RECORD
    assert record["params"] == {"rows": 5000, "row_bytes": 40, "batch": batch, "prg": "aes128"}
    assert (record["bench"], record["unit"], record["isa"]) == ("dpf", "queries/s", "portable")
    assert record["threads"] == 1
    assert record["value"] > 0
    assert record["of_floor"] == pytest.approx(record["value"] / record["floor"])


def test_bench_expand_and_prg() -> None:
    record = run_json("bench", "expand", "--rows", 5000, "--seconds", 0.1, "--group", "z8")
    assert record.keys() == RECORD
    assert record["unit"] == "ns/row"
    done = run("bench", "paper", "prg", "--rows", 2000, "--batch", 8, "--seconds", 0.01, "--json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    names = [record["params"]["prg"] for record in records]
    assert len(names) == 8
    assert {"aes128", "siphash24"} <= set(names)
    assert all(record.keys() == RECORD for record in records)


def test_bench_serve() -> None:
    options = ["--rows", 4096, "--seconds", 1, "--warmup", 0.1, "--clients", 4]
    record = run_json("bench", "serve", *options)
    assert record.keys() == RECORD
    assert record["detail"]["requests"] > 0
    assert 0 < record["detail"]["p50_ms"] <= record["detail"]["p99_ms"]


SHARED = ["infer", "plan", "--shape", "uci", "--shares"]
BAD = [
    (["table", "info", "/nowhere"], 2, "TableError", "/nowhere"),
    (["table", "build", "/no.npy", "/tmp/out"], 2, "TableError", "/no.npy"),
    (["table", "build", __file__, "/tmp/out"], 2, "TableError", "safetensors"),
    (["table", "info"], 2, "UsageError", "Missing argument"),
    (["table", "frobnicate"], 2, "UsageError", "No such command"),
    (["lookup", "1", "--max-ids", "many"], 2, "UsageError", "--max-ids"),
    (["lookup", "one"], 2, "ConfigError", "'one' is not an id"),
    (["lookup", "1", "--left", "GONE"], 1, "ServerUnavailable", "refused"),
    (["lookup", str(2**70)], 2, "ConfigError", "too large"),
    (["serve"], 2, "ConfigError", "which table"),
    (["serve", "/nowhere"], 2, "ConfigError", "--side left"),
    (["serve", "/nowhere", "--side", "up"], 2, "UsageError", "none of left, right"),
    (["serve", "/nowhere", "--side", "left", "--tls-cert", "c"], 2, "ConfigError", "--tls-key"),
    (["serve", "--config", "/no.toml"], 2, "FileNotFoundError", "/no.toml"),
    (["serve", "/nowhere", "--side", "left", "--log", "=="], 2, "ConfigError", "log filter"),
    (["bench", "dpf", "--isa", "sse9"], 2, "ConfigError", "this machine has"),
    (["bench", "dpf", "--rows", "0"], 2, "TableError", "1 to 4,294,967,296 rows"),
    (["bench", "dpf", "--rows", str(2**40)], 2, "TableError", "1 to 4,294,967,296 rows"),
    (["bench", "dpf", "--rows", "10", "--batch", "0"], 2, "ConfigError", "batch is 0"),
    (["bench", "dpf", "--rows", "10", "--prg", "rot13"], 2, "ConfigError", "rot13"),
    (["bench", "expand", "--group", "z16"], 2, "ConfigError", "bits, z8 or z32"),
    (["bench", "serve", "--row-bytes", "7"], 2, "ConfigError", "multiple of 4"),
    (["certificates", "/tmp/certs", "--name", "ÿ"], 2, "ConfigError", "no certificate"),
    (
        [*SHARED, "--fraction-bits", "-1"],
        2,
        "ConfigError",
        "fraction_bits is -1, but must be 4 to 20",
    ),
    ([*SHARED, "--value-bits", "-8"], 2, "ConfigError", "value_bits is -8, but must be 8 or 16"),
    (["infer", "plan", "--shape", "uci", "--users", "-1"], 2, "ConfigError", "users is -1"),
    (
        ["infer", "plan", "--shape", "uci", "--key-bytes-max", "1"],
        2,
        "KeysTooLarge",
        "at most 1 are",
    ),
    (
        ["infer", "plan", "--shape", "uci", "--query-bytes-max", "1"],
        2,
        "QueryTooLarge",
        "at most 1 are",
    ),
    ([*SHARED, "--key-bytes-max", "1"], 2, "ConfigError", "for encrypted features"),
    ([*SHARED, "--query-bytes-max", "1"], 2, "ConfigError", "for encrypted features"),
    (["bench", "shares", "--divisor", "-1"], 2, "ConfigError", "--divisor is -1"),
    # Of numbers that no option is held against, the net.
    (["bench", "shares", "--divisor", str(2**70)], 2, "OverflowError", "'divisor'"),
]


@pytest.mark.parametrize(("arguments", "code", "kind", "text"), BAD)
def test_bad_input_is_one_line_and_a_code(
    capfd: pytest.CaptureFixture[str], arguments: list[str], code: int, kind: str, text: str
) -> None:
    with held_port() as port:
        gone = f"http://127.0.0.1:{port}"
        words = [gone if word == "GONE" else word for word in arguments]
        _is_one_line_and_a_code(capfd, words, code, kind, text)


def _is_one_line_and_a_code(
    capfd: pytest.CaptureFixture[str], arguments: list[str], code: int, kind: str, text: str
) -> None:
    # In this process, for speed; whatever is no SystemExit would be a traceback.
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == code
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("error: ")
    assert text in lines[0]
    assert [line[:6] for line in lines[1:]] in ([], ["hint: "])
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--json"])
    assert exit_.value.code == code
    out, err = capfd.readouterr()
    assert err == ""
    error = json.loads(out)["error"]
    assert error.keys() == {"type", "message", "hint", "exit_code"}
    assert (error["type"], error["exit_code"]) == (kind, code)
    assert text in error["message"]


def test_an_error_of_the_process() -> None:
    done = run("table", "info", "/nowhere")
    assert done.returncode == 2
    assert done.stdout == ""
    assert [line[:7] for line in done.stderr.splitlines()] == ["error: ", "hint: `"]


def test_a_reader_that_leaves_early(tmp_path: Path) -> None:
    hushtable.Table.from_weight(np.zeros((4, 2))).save(tmp_path / "t")
    command = " ".join([*COMMAND, "table", "info", str(tmp_path / "t")])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"], capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_streams_that_are_closed_end_no_command(tmp_path: Path, closed: str) -> None:
    np.save(tmp_path / "items.npy", np.zeros((300, 2), dtype=np.float32))
    command = " ".join(
        [*COMMAND, "table", "build", str(tmp_path / "items.npy"), str(tmp_path / "t")]
    )
    done = subprocess.run(["bash", "-c", f"{command} {closed}"], capture_output=True, text=True)
    assert (done.returncode, "300" in done.stdout) == (0, True)
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} table info /nowhere {closed}"], capture_output=True
    )
    assert done.returncode == 2


def test_progress_is_drawn_on_a_terminal_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "items.npy", np.zeros((300_000, 32), dtype=np.float32))
    arguments = [*COMMAND, "table", "build", str(tmp_path / "items.npy"), str(tmp_path / "items")]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rows" in done.stdout
    terminal, stderr = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=stderr, env=env) as process:
        os.close(stderr)
        drawn = b""
        try:
            while chunk := os.read(terminal, 4096):
                drawn += chunk
        except OSError:  # the other end is closed
            pass
        assert process.wait(HUNG_S) == 0
    os.close(terminal)
    assert b"building" in drawn


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--server", "https://localhost:1", "--prg", "chacha20"], "--prg is for two servers"),
        (["--parameter-set", "n4096_128"], "--parameter-set is for a single server"),
    ],
)
def test_lookup_refuses_options_of_the_other_scheme(options: list[str], said: str) -> None:
    done = run("lookup", "3", *options)
    assert done.returncode == 2
    assert said in done.stderr


def test_lookup_takes_variables_of_the_other_scheme() -> None:
    with held_port() as closed:
        environment = {
            **os.environ,
            "HUSHTABLE_PRG": "chacha20",
            "HUSHTABLE_PARAMETER_SET": "ive_paper",
        }
        url = f"http://127.0.0.1:{closed}"
        for servers in (("--server", url), ("--left", url, "--right", url)):
            done = run("lookup", "3", *servers, env=environment)
            assert done.returncode == 1
            assert "unavailable" in done.stderr
