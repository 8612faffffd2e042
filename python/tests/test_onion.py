"""Private lookups from a single server: a real process, over TLS."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
from conftest import ROWS, Deployment
from test_cli import COMMAND, RECORD, run, run_json
from waiting import COMMAND_HUNG_S, HUNG_S, held_port

import hushtable
from hushtable.nn import PrivateEmbedding

#: A table whose preparing takes long enough to be interrupted: 32 MiB, some tenths of a second.
LARGE_ROWS, LARGE_DIM = 131_072, 64


def serve(bundle: Path, tls: hushtable.Certificates, **options: Any) -> hushtable.ServerProcess:
    options = {"threads": 1, **options}
    return hushtable.ServerProcess(bundle, scheme="onion", tls=tls.server, **options)


@pytest.fixture(scope="module")
def single(bundle: Path, certificates: hushtable.Certificates) -> Iterator[hushtable.ServerProcess]:
    with serve(bundle, certificates) as server:
        yield server


@pytest.fixture(scope="module")
def onion(
    single: hushtable.ServerProcess, certificates: hushtable.Certificates
) -> Iterator[hushtable.Client]:
    with hushtable.connect(server=single.url, tls=certificates.ca) as client:
        yield client


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "large"
    weight = np.random.default_rng(4).normal(size=(LARGE_ROWS, LARGE_DIM)).astype(np.float32)
    hushtable.Table.from_weight(weight, name="large").save(path)
    return path


@pytest.mark.parametrize("ids", [0, ROWS - 1, [7, 7, 7], [[1, 2, 3], [2999, 0, 511]], []])
def test_rows_come_back_in_the_shape_of_the_ids(
    onion: hushtable.Client, weight: np.ndarray, ids: Any
) -> None:
    rows = onion.lookup(ids)
    expected = weight[np.asarray(ids, dtype=np.int64)]
    assert rows.dtype == np.float32
    assert rows.shape == expected.shape
    assert np.array_equal(rows, expected)


def test_random_ids(onion: hushtable.Client, weight: np.ndarray) -> None:
    ids = np.random.default_rng(0).integers(ROWS, size=40)
    assert np.array_equal(onion.lookup(ids, max_ids=64), weight[ids])


def test_info_is_the_tables(
    onion: hushtable.Client, single: hushtable.ServerProcess, bundle: Path
) -> None:
    assert onion.info == hushtable.Table.open(bundle).info
    assert onion.layout is None
    assert onion.onion == single.serving.onion
    assert (single.serving.side, single.serving.scheme) == (None, "onion")
    assert single.url in repr(onion)


def test_what_the_server_sees_depends_on_max_ids_alone(onion: hushtable.Client) -> None:
    onion.lookup([0])  # uploads the keys, if no other test has
    facts = onion.onion
    assert facts is not None
    for ids in ([1], [1, 2, 3, 4, 5], [9, 9], []):
        _, stats = onion.lookup_with_stats(ids, max_ids=8)
        assert (stats.ids, stats.keys) == (len(ids), 8)
        assert stats.bytes_up == 8 * facts.query_bytes
        assert stats.bytes_down == 8 * facts.response_bytes


def test_keys_are_uploaded_once(
    single: hushtable.ServerProcess, certificates: hushtable.Certificates
) -> None:
    with hushtable.connect(server=single.url, tls=certificates.ca) as client:
        facts = client.onion
        assert facts is not None
        sent = [client.lookup_with_stats([5])[1].bytes_up for _ in range(3)]
    once = facts.query_bytes
    assert sent == [facts.key_bytes + once, once, once]


@pytest.mark.parametrize("dtype", ["f16", "int8"])
def test_rows_of_other_dtypes_and_parameters(
    tmp_path: Path, certificates: hushtable.Certificates, weight: np.ndarray, dtype: str
) -> None:
    table = hushtable.Table.from_weight(weight[:700], name="films", dtype=dtype)
    table.save(tmp_path / "films")
    with (
        serve(tmp_path / "films", certificates, parameters="ive_paper", mapped=True) as server,
        hushtable.connect(
            server=server.url,
            tls=certificates.ca,
            options=hushtable.ClientOptions(parameter_sets=["n4096_128", "ive_paper"]),
        ) as client,
    ):
        assert client.onion is not None
        assert client.onion.parameters == "ive_paper"
        assert np.array_equal(client.lookup([[0, 699], [350, 1]]), table.rows([[0, 699], [350, 1]]))


def test_the_client_chooses_the_parameters(
    tmp_path: Path, certificates: hushtable.Certificates, weight: np.ndarray
) -> None:
    hushtable.Table.from_weight(weight[:100], name="films").save(tmp_path / "films")
    with serve(tmp_path / "films", certificates, parameters="ive_paper") as server:
        with pytest.raises(hushtable.ParametersRefused, match="nothing was sent") as caught:
            hushtable.connect(server=server.url, tls=certificates.ca)
        assert (caught.value.announced, caught.value.accepted) == ("ive_paper", "n4096_128")
        with pytest.raises(hushtable.ParametersRefused):
            asyncio.run(hushtable.connect_async(server=server.url, tls=certificates.ca))
        lookup = ["lookup", "3", "--json", "--server", server.url, "--ca", str(certificates.ca)]
        refused = run(*lookup)
        assert refused.returncode == 1
        error = json.loads(refused.stdout)["error"]
        assert "--parameter-set" in error["message"]
        taken = run(*lookup, "--parameter-set", "ive_paper")
        assert taken.returncode == 0, taken.stderr
        assert np.array_equal(json.loads(taken.stdout)["rows"], weight[[3]])


@pytest.mark.parametrize("sets", [(), "n4096_128", ["n256_test"], ["n4096_128", "fast"]])
def test_parameter_sets_that_there_are_not(sets: Any) -> None:
    with pytest.raises(hushtable.ConfigError, match="n4096_128"):
        hushtable.connect(
            server="http://127.0.0.1:1",
            scheme="onion",
            options=hushtable.ClientOptions(parameter_sets=sets),
        )


@pytest.mark.shipped
def test_what_is_shipped_has_no_test_set() -> None:
    module = Path(hushtable._native.__file__).read_bytes()
    assert b"n4096_128" in module
    assert b"n256_test" not in module


def test_a_layer_over_one_server(onion: hushtable.Client, weight: np.ndarray) -> None:
    ids = np.array([[1, 2, 0], [2999, 0, 0]])
    rows = np.asarray(PrivateEmbedding(onion, padding_idx=0, max_ids=4)(ids))
    assert np.array_equal(rows, weight[ids] * (ids != 0)[..., None])


def test_asyncio_lookups_run_side_by_side(
    single: hushtable.ServerProcess, certificates: hushtable.Certificates, weight: np.ndarray
) -> None:
    async def main() -> None:
        client = await hushtable.connect_async(server=single.url, tls=certificates.ca)
        async with client:
            found = await asyncio.gather(*(client.lookup([i, i + 9]) for i in range(6)))
            for i, rows in enumerate(found):
                assert np.array_equal(rows, weight[[i, i + 9]])

    asyncio.run(main())


def test_fork_leaves_both_processes_with_a_working_client(
    single: hushtable.ServerProcess,
    certificates: hushtable.Certificates,
    weight: np.ndarray,
    tmp_path: Path,
) -> None:
    forked.run("once", weight, tmp_path, server=single.url, tls=certificates.ca)


def test_bad_ids_are_refused_before_anything_is_sent(onion: hushtable.Client) -> None:
    with pytest.raises(hushtable.IdOutOfRange, match=f"from 0 to {ROWS - 1}") as caught:
        onion.lookup([0, ROWS])
    assert (caught.value.id, caught.value.rows) == (ROWS, ROWS)
    with pytest.raises(hushtable.TooManyIds):
        onion.lookup([1, 2, 3], max_ids=2)
    with pytest.raises(hushtable.TooManyIds) as too_many:
        onion.lookup([1], max_ids=onion.keys_per_request_max + 1)
    assert too_many.value.max_ids == onion.keys_per_request_max
    with pytest.raises(hushtable.NoLayout, match="look the rows up by lookup()"):
        onion.lookup_bag([1])


def test_a_server_of_the_other_kind(
    deployment: Deployment, single: hushtable.ServerProcess
) -> None:
    tls = deployment.certificates.ca
    with pytest.raises(hushtable.ProtocolError, match="speaks no scheme of a single server"):
        hushtable.connect(server=deployment.left.url, tls=tls)
    with pytest.raises(hushtable.ProtocolError, match="speaks pair.*as left or right of two"):
        hushtable.connect(server=deployment.left.url, scheme="onion", tls=tls)
    with pytest.raises(hushtable.ProtocolError, match="speaks onion.*as a single server, for rows"):
        hushtable.connect(single.url, single.url, tls=tls)
    with pytest.raises(hushtable.ProtocolError, match="speaks onion, and was asked by another"):
        hushtable.connect(single.url, single.url, scheme="shares", tls=tls)


@pytest.mark.parametrize("urls", [{}, {"left": "a"}, {"left": "a", "right": "b", "server": "c"}])
def test_two_servers_or_one(urls: dict[str, str]) -> None:
    with pytest.raises(hushtable.ConfigError, match="or server= alone"):
        hushtable.connect(**urls)


@pytest.mark.parametrize("is_kept", [True, False])
def test_keys_outlive_a_restart_in_their_folder(
    bundle: Path,
    certificates: hushtable.Certificates,
    weight: np.ndarray,
    tmp_path: Path,
    is_kept: bool,
) -> None:
    options: dict[str, Any] = {"keys_folder": tmp_path / "keys"} if is_kept else {}
    with serve(bundle, certificates, **options) as server:
        client = hushtable.connect(server=server.url, tls=certificates.ca)
        client.lookup([1])
        server.kill()
    addr = server.url.removeprefix("https://")
    with client, serve(bundle, certificates, addr=addr, **options):
        rows, stats = client.lookup_with_stats([2, 3])
        assert np.array_equal(rows, weight[[2, 3]])
        facts = client.onion
        assert facts is not None
        # Where the keys are gone the same lookup uploads them again, and asks once more.
        asked = 2 * facts.query_bytes
        assert stats.bytes_up == (asked if is_kept else 2 * asked + facts.key_bytes)


def test_clients_beyond_the_budget_upload_again(
    bundle: Path, certificates: hushtable.Certificates, weight: np.ndarray
) -> None:
    # Parsed keys take a few times their bytes: 2 MiB have room for one client's and not for two.
    with (
        serve(bundle, certificates, keys_memory_bytes_max=2 << 20) as server,
        hushtable.connect(server=server.url, tls=certificates.ca) as one,
        hushtable.connect(server=server.url, tls=certificates.ca) as other,
    ):
        facts = one.onion
        assert facts is not None
        for client in (one, other, one, other):
            rows, stats = client.lookup_with_stats([9])
            assert np.array_equal(rows, weight[[9]])
            assert stats.bytes_up >= facts.key_bytes


def test_a_table_that_changes_under_a_client(
    bundle: Path, other_bundle: Path, certificates: hushtable.Certificates, weight: np.ndarray
) -> None:
    with held_port() as port:
        addr = f"127.0.0.1:{port}"
        with serve(bundle, certificates, addr=addr) as server:
            client = hushtable.connect(server=server.url, tls=certificates.ca)
            assert np.array_equal(client.lookup([4]), weight[[4]])
        with client, serve(other_bundle, certificates, addr=addr):
            assert np.array_equal(client.lookup([4]), weight[[4]] + 1)


def test_a_server_that_is_gone(bundle: Path, certificates: hushtable.Certificates) -> None:
    with (
        held_port() as port,
        serve(bundle, certificates, addr=f"127.0.0.1:{port}") as server,
    ):
        client = hushtable.connect(
            server=server.url, tls=certificates.ca, options=hushtable.ClientOptions(timeout=HUNG_S)
        )
        server.kill()
        with client, pytest.raises(hushtable.ServerUnavailable):
            client.lookup([1])


def test_a_prepared_file_is_made_once(
    bundle: Path, single: hushtable.ServerProcess, certificates: hushtable.Certificates
) -> None:
    path = hushtable.prepared_path(bundle)
    assert path.parent == bundle.parent
    before = path.stat()  # the module's server has made it
    with serve(bundle, certificates):
        pass
    made = hushtable.Table.open(bundle).prepare()
    assert (made.path, made.reused, made.units) == (path, True, 0)
    after = path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_stale_or_cut_prepared_file_is_made_anew(
    bundle: Path, other_bundle: Path, tmp_path: Path
) -> None:
    out = tmp_path / "films.prepared"
    table, other = hushtable.Table.open(bundle), hushtable.Table.open(other_bundle)
    assert not table.prepare(out).reused
    assert not other.prepare(out).reused  # the older table's file gave way
    assert other.prepare(out).reused
    with out.open("r+b") as file:
        file.truncate(out.stat().st_size // 2)
    assert not other.prepare(out).reused
    assert other.prepare(out).reused


def test_a_damaged_prepared_file_is_named_and_not_served(
    bundle: Path, certificates: hushtable.Certificates, tmp_path: Path
) -> None:
    table, path = hushtable.Table.open(bundle), tmp_path / "films.prepared"
    made = table.prepare(path)
    hushtable.verify_prepared(table, path)
    command = ("table", "verify", bundle, "--prepared", path)
    assert run_json(*command)["prepared"] == [{"path": str(path), "defect": None}]
    with path.open("r+b") as file:
        file.seek(4096 + made.prepared_bytes // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(hushtable.PreparedError, match=r"block \d+ of \d+ is damaged"):
        hushtable.verify_prepared(table, path)
    done = run(*command, "--json")
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)["prepared"]
    assert "is damaged" in found["defect"]
    for mapped in (False, True):
        server = serve(bundle, certificates, prepared=path, mapped=mapped)
        with pytest.raises(hushtable.PreparedError, match="is damaged"):
            server.start()
    # Preparing again mends it.
    assert not table.prepare(path).reused
    hushtable.verify_prepared(table, path)


def test_preparing_in_memory(
    bundle: Path, tmp_path: Path, certificates: hushtable.Certificates, weight: np.ndarray
) -> None:
    link = tmp_path / "current"
    link.symlink_to(bundle)
    with (
        serve(link, certificates, prepared="none") as server,
        hushtable.connect(server=server.url, tls=certificates.ca) as client,
    ):
        assert np.array_equal(client.lookup([5]), weight[[5]])
    assert [path.name for path in tmp_path.iterdir()] == ["current"]


def test_what_is_in_the_way_of_a_prepared_file_stays(
    bundle: Path, tmp_path: Path, certificates: hushtable.Certificates
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("something else, longer than a file's mark")
    table = hushtable.Table.open(bundle)
    with pytest.raises(hushtable.PreparedError, match="notes.txt"):
        table.prepare(notes)
    other = tmp_path / "other.prepared"
    table.prepare(other, parameters="ive_paper")
    for path in (notes, other):
        content = path.read_bytes()
        server = serve(bundle, certificates, prepared=path)
        with pytest.raises(hushtable.PreparedError, match=path.name):
            server.start()
        assert path.read_bytes() == content


def test_parameters_and_places_that_cannot_be(bundle: Path, weight: np.ndarray) -> None:
    with pytest.raises(hushtable.ConfigError, match="n4096_128 or ive_paper"):
        hushtable.Table.open(bundle).prepare(parameters="n4096_129")
    with pytest.raises(hushtable.ConfigError, match="0 to 4096"):
        hushtable.Table.open(bundle).prepare(threads=5000)
    with pytest.raises(hushtable.ConfigError, match="give out="):
        hushtable.Table.from_weight(weight).prepare()
    wide = hushtable.Table.from_weight(np.zeros((2, 9000), np.float32))
    with pytest.raises(hushtable.TableError, match="36000 bytes"):
        wide.prepare("wide.prepared")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"parameters": "n256_test"}, "n4096_128 or ive_paper"),
        ({"side": "left"}, "has no side"),
        ({"keys_memory_bytes_max": 0}, "keys_memory_bytes_max"),
        ({"keys_folder_bytes_max": 8 << 20}, "give keys_folder too"),
        ({"queue_keys_max": 8}, "queue_keys_max"),
        ({"window_us": 1 << 40}, "window_us"),
    ],
)
def test_bad_servers_do_not_start(bundle: Path, options: dict[str, Any], named: str) -> None:
    with pytest.raises(hushtable.ConfigError, match=named):
        hushtable.ServerProcess(bundle, scheme="onion", **options).start()


def test_an_error_in_progress_stops_and_what_is_done_is_kept(large: Path, tmp_path: Path) -> None:
    table, out = hushtable.Table.open(large), tmp_path / "large.prepared"
    calls = []

    def stop_at_a_third(done: int, all_: int) -> None:
        calls.append((done, all_))
        if done > all_ / 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        table.prepare(out, threads=1, progress=stop_at_a_third)
    assert not out.exists()
    assert calls[-1][1] == table.info.table_bytes
    made = table.prepare(out, threads=1)
    assert made.units / 4 < made.resumed_units < made.units
    assert out.stat().st_size > made.prepared_bytes
    assert table.prepare(out).reused


#: Prepares, stands still once, so that a second passes and the journal is written, and is killed.
KILLED = """
import os, signal, sys, hushtable
calls = []
def progress(done, all_):
    calls.append(done)
    if len(calls) == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    elif len(calls) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
hushtable.Table.open(sys.argv[1]).prepare(sys.argv[2], threads=1, progress=progress)
"""


def test_a_killed_prepare_is_gone_on_with(large: Path, tmp_path: Path) -> None:
    out = tmp_path / "large.prepared"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(large), str(out)]) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        time.sleep(1.1)
        process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=COMMAND_HUNG_S) == -signal.SIGKILL
    assert not out.exists()
    made = hushtable.Table.open(large).prepare(out)
    assert 0 < made.resumed_units < made.units
    whole = tmp_path / "whole.prepared"
    hushtable.Table.open(large).prepare(whole)
    payloads = [path.read_bytes()[-made.prepared_bytes :] for path in (out, whole)]
    assert payloads[0] == payloads[1]


#: The command, which stands still in the midst of its work: a little of it, in the time of its own
#: processor, is done when it first looks at signals after that.
STANDING = """
import contextlib, os, signal
from hushtable.cli import main, table

progress_bar = table.progress_bar

@contextlib.contextmanager
def standing(*arguments, **options):
    signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
    with progress_bar(*arguments, **options) as progress:
        signal.setitimer(signal.ITIMER_PROF, 0.02)
        yield progress

table.progress_bar = standing
main()
"""


def test_ctrl_c_of_the_command(large: Path, tmp_path: Path) -> None:
    out = tmp_path / "large.prepared"
    command = [sys.executable, "-c", STANDING, "table", "prepare", str(large)]
    command += ["--out", str(out), "--threads", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert Path(f"{out}.partial").exists()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=COMMAND_HUNG_S)
    assert process.returncode == 130
    assert "what is done is kept" in said
    assert "the same command goes on" in said
    assert "Traceback" not in said
    made = run_json("table", "prepare", large, "--out", out)
    assert 0 < made["resumed_units"] < made["units"]
    assert made["table_bytes"] == LARGE_ROWS * LARGE_DIM * 4
    assert made["prepared_bytes"] > 3 * made["table_bytes"]
    assert "was there already" in run("table", "prepare", large, "--out", out).stdout


def test_serve_and_lookup_by_command(
    bundle: Path, certificates: hushtable.Certificates, weight: np.ndarray
) -> None:
    command = [*COMMAND, "serve", bundle, "--scheme", "onion", "--addr", "127.0.0.1:0"]
    command += ["--metrics-addr", "127.0.0.1:0", "--threads", "1", "--json"]
    command += ["--tls-cert", certificates.certificate, "--tls-key", certificates.key]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        assert (ready["event"], ready["side"], ready["scheme"]) == ("ready", None, "onion")
        found = run_json(
            *("lookup", 7, 2999, "--max-ids", 4),
            *("--server", ready["url"], "--ca", certificates.ca),
        )
        assert np.array_equal(np.array(found["rows"], np.float32), weight[[7, 2999]])
        assert found["stats"]["keys"] == 4
        assert found["stats"]["bytes_down"] == 4 * ready["onion"]["response_bytes"]
        said = run("lookup", 3, "--server", ready["url"], "--ca", certificates.ca)
        assert "# 1 queries" in said.stderr
        server.send_signal(signal.SIGTERM)
        assert json.loads(server.stdout.readline())["event"] == "stopped"
    done = run("lookup", 3, "--server", "https://127.0.0.1:1", "--left", "https://127.0.0.1:1")
    assert done.returncode == 2
    assert "or --server alone" in done.stderr


@pytest.mark.parametrize("command", ["table prepare", "bench onion", "bench ntt"])
def test_help_has_examples_and_json(command: str) -> None:
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    assert f"$ hushtable {command}" in done.stdout
    assert "--json" in done.stdout


def test_help_of_serve_names_what_a_single_server_has() -> None:
    printed = run("serve", "--help-all").stdout
    for name in ("--scheme", "--parameters", "--prepared", "--mapped", "--keys-folder"):
        assert name in printed


@pytest.fixture(scope="module")
def onion_record() -> dict[str, Any]:
    found = run_json(
        *("bench", "onion", "--table-mib", 1, "--row-bytes", 40, "--batch", 2),
        *("--schedule", "hierarchical:2", "--seconds", 0.05),
    )
    return dict(found)


@pytest.mark.timed
def test_no_engine_is_faster_than_its_memory(onion_record: dict[str, Any]) -> None:
    assert 0 < onion_record["value"] < onion_record["floor"]


def test_bench_onion(onion_record: dict[str, Any]) -> None:
    record = onion_record
    assert record.keys() == RECORD
    assert record["bench"] == "onion"
    assert record["params"] | {"levels": 0} == {
        "table_mib": 1,
        "row_bytes": 40,
        "batch": 2,
        "parameters": "n4096_128",
        "schedule": "hierarchical:2",
        "overlap": False,
        "levels": 0,
    }
    assert (record["unit"], record["threads"]) == ("GB/s", 1)
    assert record["value"] > 0
    assert record["of_floor"] == pytest.approx(record["value"] / record["floor"])
    detail = record["detail"]
    shares = [detail[f"{stage}_share"] for stage in ("expand", "row_select", "tournament")]
    assert all(share > 0 for share in shares)
    # What no stage accounts for is the way to the engine's threads: on a busy machine, any part.
    assert 0 <= detail["waiting_share"] < 1
    assert sum(shares) + detail["waiting_share"] == pytest.approx(1)
    table_bytes = (1 << 20) // 40 * 40
    seconds = detail["ms_per_query"] / 1e3
    assert record["value"] == pytest.approx(table_bytes / seconds / 1e9)
    assert detail["failure_log2"] <= -40
    assert detail["noise_budget_bits"] > 0
    assert 3 < detail["resident_bytes_per_table_byte"] < 4.5
    for field in ("key_bytes", "query_bytes", "response_bytes", "prepare_gb_per_s"):
        assert detail[field] > 0
    for field in ("keys_ms", "query_ms", "decode_ms", "ms_per_pass"):
        assert detail[field] > 0


@pytest.fixture(scope="module")
def ntt_record() -> dict[str, Any]:
    return dict(run_json("bench", "ntt", "--degree", 1024, "--inverse", "--seconds", 0.05))


@pytest.mark.timed
def test_no_transform_is_faster_than_its_multiplications(ntt_record: dict[str, Any]) -> None:
    if ntt_record["floor"] is not None:
        assert ntt_record["floor"] < ntt_record["value"]


def test_bench_ntt(ntt_record: dict[str, Any]) -> None:
    record = ntt_record
    assert record.keys() == RECORD
    assert record["params"] == {"degree": 1024, "modulus_bits": 50, "direction": "inverse"}
    assert record["unit"] == "us"
    assert 0 < record["value"] <= record["detail"]["median_us"]
    assert record["floor"] is None or record["floor"] > 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["onion", "--table-mib", "0"], "table_mib"),
        (["onion", "--table-mib", "1", "--row-bytes", "65536"], "32,768"),
        (["onion", "--table-mib", "1", "--batch", "0"], "batch"),
        (["onion", "--table-mib", "1", "--threads", "5000"], "0 to 4096"),
        (["onion", "--table-mib", "1", "--parameters", "x"], "n4096_128 or ive_paper"),
        (["onion", "--table-mib", "1", "--schedule", "hierarchical:0"], "hierarchical:DEPTH"),
        (["onion", "--table-mib", "1", "--levels", "99"], "rows"),
        (["ntt", "--degree", "1000"], "power of two"),
        (["ntt", "--modulus-bits", "60"], "27 to 51"),
    ],
)
def test_bench_refuses_what_cannot_be(arguments: list[str], named: str) -> None:
    done = run("bench", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert named in done.stderr
