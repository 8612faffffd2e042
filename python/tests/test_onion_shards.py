"""Shards of a server that is asked alone: planned, fetched, killed on the way, served."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_cli import run, run_json
from test_shards import KILLS, left_over
from waiting import COMMAND_HUNG_S

import hushtable
from hushtable import Model, ServerProcess
from hushtable.shards import fetch_shard, plan_shards, read_shards, verify_shard

ITEMS, USERS = 50_000, 1_500
ALONE = "onion"


def weight(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two tables, one of them so small that not every shard has rows of it."""
    folder = tmp_path_factory.mktemp("models")
    np.savez(folder / "tables.npz", items=weight(ITEMS, 1), users=weight(USERS, 2))
    Model.build(folder / "tables.npz", folder / "clicks", tables=["*"], max_ids=2)
    plan_shards(folder / "clicks", scheme=ALONE, shards=2)
    return folder / "clicks"


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(made, tmp_path / "source" / "clicks"))


def check_copy(source: Path, fetched: Path, shard: int | None) -> None:
    """That a copy has the rows of a shard, and is as long as its source everywhere."""
    verify_shard(fetched, shard=shard, scheme=ALONE)
    mine, theirs = Model.open(fetched), Model.open(source)
    assert mine.version == theirs.version
    assert read_shards(fetched, scheme=ALONE) == read_shards(source, scheme=ALONE)
    for part in () if shard is None else read_shards(source, scheme=ALONE).shards[shard].parts:
        ids = np.arange(part.first, part.end)
        assert (mine.table(part.table).rows(ids) == theirs.table(part.table).rows(ids)).all()
    for file in fetched.rglob("*"):
        assert file.stat().st_size == (source / file.relative_to(fetched)).stat().st_size


def test_a_plan_has_every_row_once_and_leaves_a_pairs_alone(model: Path) -> None:
    pair = plan_shards(model, shards=3)
    planned = plan_shards(model, scheme=ALONE, shards=4, replicas=3)
    assert planned == read_shards(model, scheme=ALONE)
    assert plan_shards(model, scheme=ALONE, shards=4, replicas=3) == planned
    assert read_shards(model) == pair
    assert (planned.scheme, planned.parameters, planned.replicas) == (ALONE, "n4096_128", 3)
    assert (pair.scheme, pair.parameters) == ("pair", None)
    assert planned.model == pair.model == Model.open(model).version
    for table, rows in (("items", ITEMS), ("users", USERS)):
        held = [p for shard in planned.shards for p in shard.parts if p.table == table]
        assert [part.first for part in held] == [0, *(part.end for part in held)][:-1]
        assert held[-1].end == rows
    assert not any(table.prepared for table in planned.tables)
    # Columns of other parameters are others.
    other = plan_shards(model, scheme=ALONE, parameters="ive_paper", shards=4)
    assert other.shards != planned.shards
    assert other.version != planned.version


def test_as_many_as_the_memory_takes_and_numbers_that_make_no_map(model: Path) -> None:
    # A server has a GiB of clients' keys, a quarter for itself, and what a pass takes.
    found = [
        len(plan_shards(model, scheme=ALONE, memory_bytes=gib << 30, versions=versions).shards)
        for gib, versions in ((2, 1), (2, 75), (2, 125), (16, 125))
    ]
    assert found == [1, 2, 3, 1]
    before = read_shards(model, scheme=ALONE)
    for options, says in (
        ({"memory_bytes": 1 << 30}, "no room for columns.*more memory"),
        ({"memory_bytes": 2 << 30, "versions": 10_000}, "give shards more memory"),
        ({"shards": 4_000}, "must be 1 to"),
    ):
        with pytest.raises(hushtable.ShardMapError, match=says):
            plan_shards(model, scheme=ALONE, **options)
    for wrong in ({"shards": 0}, {"parameters": "n256"}, {"scheme": "single"}):
        with pytest.raises(hushtable.ConfigError):
            plan_shards(model, **{"scheme": ALONE, **wrong})  # type: ignore[arg-type]
    with pytest.raises(hushtable.ConfigError, match='scheme="onion"'):
        plan_shards(model, parameters="ive_paper")
    assert read_shards(model, scheme=ALONE) == before


@pytest.mark.parametrize("shard", [None, 0, 1])
def test_what_is_fetched_is_the_shards_part(made: Path, tmp_path: Path, shard: int | None) -> None:
    told: list[tuple[int, int]] = []
    fetched = fetch_shard(
        made, tmp_path, shard=shard, scheme=ALONE, progress=lambda *now: told.append(now)
    )
    part = "onion-front" if shard is None else f"onion-shard-{shard}"
    assert (fetched.part, fetched.copied_bytes) == (part, fetched.bytes)
    check_copy(made, fetched.path, shard)
    assert told[-1][0] == told[-1][1]
    assert all(before[0] <= after[0] for before, after in itertools.pairwise(told))
    rows = fetched.path / "tables" / "items" / "rows.safetensors"
    assert rows.stat().st_blocks * 512 < rows.stat().st_size * 0.6
    for other in {0, 1} - {shard}:
        with pytest.raises(hushtable.DamagedTable, match="hash to version"):
            verify_shard(fetched.path, shard=other, scheme=ALONE)
    assert fetch_shard(made, tmp_path, shard=shard, scheme=ALONE).copied_bytes == 0
    assert left_over(tmp_path) == set()
    with pytest.raises(hushtable.PartExists, match=f"has {part}, not"):
        fetch_shard(made, tmp_path, shard=0 if shard is None else None, scheme=ALONE)


def test_killed_anywhere_it_goes_on_and_is_right(made: Path, tmp_path: Path) -> None:
    seed = str(random.randrange(1 << 30))
    # The steps are a pair's, and so fewer of them do.
    kills = KILLS
    for text, of_onion in (
        ("shard=1)", 'shard=1, scheme="onion")'),
        ("steps - 16", "steps - 6"),
        ("), 12)", "), 6)"),
    ):
        assert text in kills
        kills = kills.replace(text, of_onion)
    arguments = [sys.executable, "-c", kills, str(made), str(tmp_path / "f"), seed]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=COMMAND_HUNG_S)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    fetched = fetch_shard(made, tmp_path / "f", shard=1, scheme=ALONE)
    assert fetched.copied_bytes == 0
    check_copy(made, fetched.path, 1)


def test_maps_and_sources_that_are_not_it(model: Path, tmp_path: Path) -> None:
    place = model / "shards.onion.json"
    with pytest.raises(hushtable.FetchError, match="no map of shards.*hushtable shard plan`"):
        fetch_shard(model, tmp_path / "f", shard=0)
    with pytest.raises(hushtable.ShardMapError, match="no shard 2: the map has 2"):
        fetch_shard(model, tmp_path / "f", shard=2, scheme=ALONE)
    with pytest.raises(hushtable.ConfigError, match="scheme must be pair or onion"):
        fetch_shard(model, tmp_path / "f", shard=0, scheme="single")
    plan_shards(model, shards=2)
    shutil.copy(model / "shards.json", place)
    with pytest.raises(hushtable.ShardMapError, match="for pair, not for onion"):
        fetch_shard(model, tmp_path / "f", shard=0, scheme=ALONE)
    # The map of the version before.
    plan_shards(model, scheme=ALONE, shards=2)
    before = place.read_bytes()
    users = hushtable.Table.from_weight(weight(USERS, 3), name="users")
    Model.open(model).replace_table("users", users)
    with pytest.raises(hushtable.FetchError, match="shard plan --scheme onion"):
        fetch_shard(model, tmp_path / "f", shard=0, scheme=ALONE)
    place.write_bytes(before)
    with pytest.raises(hushtable.ShardMapError, match="is of version"):
        fetch_shard(model, tmp_path / "f", shard=0, scheme=ALONE)
    # Rows that are not those of the version.
    plan_shards(model, scheme=ALONE, shards=2)
    first = read_shards(model, scheme=ALONE).shards[1].parts[0].first
    with (model / "tables" / "items" / "rows.safetensors").open("r+b") as file:
        file.seek(4096 + first * 64)
        file.write(b"\x55")
    with pytest.raises(hushtable.DamagedTable, match="nothing of it was kept"):
        fetch_shard(model, tmp_path / "f", shard=1, scheme=ALONE)
    assert left_over(tmp_path / "f") == set()


def check_answers(source: Path, copies: list[Path], front: Path, ids: list[int]) -> None:
    """That shards which have a copy of their part each give right answers, by a front."""
    file = front.parent.parent / "shards.toml"
    with contextlib.ExitStack() as servers:
        urls = [
            servers.enter_context(ServerProcess(copy, scheme=ALONE, shard=shard, threads=1)).url
            for shard, copy in enumerate(copies)
        ]
        file.write_text("".join(f'[[shard]]\nreplicas = ["{url}"]\n' for url in urls))
        process = ServerProcess(front, scheme=ALONE, shards_file=str(file), threads=1)
        url = servers.enter_context(process).url
        version = read_shards(source, scheme=ALONE).tables[0].version
        with hushtable.connect(
            server=url, tls=None, version=version, options=hushtable.ClientOptions(max_ids=4)
        ) as client:
            found = client.lookup(ids)
    assert np.array_equal(found, Model.open(source).table("items").rows(np.array(ids)))


def test_the_command(made: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(made, tmp_path / "clicks"))
    shown = run("shard", "plan", str(model), "--scheme", ALONE, "--shards", "2").stdout
    assert "onion, n4096_128" in shown
    assert "--scheme onion --shard 0" in shown
    assert "a side" not in shown
    record = run_json("shard", "show", str(model), "--scheme", ALONE)
    assert (record["scheme"], len(record["shards"])) == (ALONE, 2)
    fetched = run_json(
        *("shard", "fetch", str(model), "-o", str(tmp_path / "f")), *("--scheme", ALONE, "--front")
    )
    assert fetched["part"] == "onion-front"


@pytest.mark.skipif(
    not os.environ.get("HUSHTABLE_SCALE_LONG"),
    reason="a prepared file that is cut between its blocks has 800 MB: HUSHTABLE_SCALE_LONG=1",
)
def test_a_shard_takes_its_part_of_a_large_prepared_file_killed_on_the_way(tmp_path: Path) -> None:
    rows = 3_800_000
    items = hushtable.Table.from_weight(
        np.arange(rows * 16, dtype=np.float32).reshape(rows, 16), name="items"
    )
    model = tmp_path / "clicks"
    Model.of_table(items, model, max_ids=4)
    assert run("model", "prepare", str(model)).returncode == 0
    planned = plan_shards(model, scheme=ALONE, shards=2)
    assert planned.tables[0].prepared
    prepared = model / "prepared" / "items.onion"
    copies = []
    for shard in (0, 1):
        command = [sys.executable, "-m", "hushtable", "shard", "fetch", str(model), "-o"]
        command += [str(tmp_path / str(shard)), "--scheme", ALONE, "--shard", str(shard), "--json"]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        journal = tmp_path / str(shard)
        until = time.monotonic() + 60
        while time.monotonic() < until and running.poll() is None:
            if sum(len(file.read_bytes()) for file in journal.glob(".*.journal")) > 1500:
                break
            time.sleep(0.005)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL, "it had ended before it was killed"
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        fetched = json.loads(done.stdout.splitlines()[-1])
        assert 0 < fetched["copied_bytes"] < fetched["bytes"]
        copies.append(Path(fetched["path"]))
        own = planned.shards[shard].bytes
        held = copies[-1] / "prepared" / "items.onion"
        assert held.stat().st_size == prepared.stat().st_size
        assert held.stat().st_blocks * 512 < own + (1 << 20)
        verify_shard(copies[-1], shard=shard, scheme=ALONE)
        print(f"shard {shard}: {fetched['bytes']:,} bytes of it, {fetched['seconds']} s again")
    front = fetch_shard(model, tmp_path / "front", shard=None, scheme=ALONE).path
    end = planned.shards[0].parts[0].end
    check_answers(model, copies, front, [0, end - 1, end, rows - 1])
    # A damaged part is none that is served or fetched.
    with prepared.open("r+b") as file:
        file.seek(prepared.stat().st_size // 4)
        file.write(b"\x55\x55\x55\x55")
    with pytest.raises(hushtable.DamagedTable, match="block .* is damaged"):
        fetch_shard(model, tmp_path / "other", shard=0, scheme=ALONE)
