"""A model on encrypted features: compiled, served, asked, and refused where it should be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run, run_json

import hushtable
from hushtable import (
    ActivationRange,
    BadFeatures,
    ConfigError,
    IdOutOfRange,
    KeysTooLarge,
    Model,
    ModelError,
    ModelTooDeep,
    PlanMismatch,
    QueryTooLarge,
    VersionMismatch,
    infer,
    verify_model,
)

DESCRIPTION = """
dense = 5
bottom = [16, 4]
top = [16, 1]
dim = 4
activation = "square"
[[features]]
name = "smokes"
rows = 2
table = "emb_l.0"
[[features]]
name = "pain"
rows = 6
table = "emb_l.1"
"""
ROWS = (2, 6)


def layer(
    random: np.random.Generator, name: str, outputs: int, inputs: int
) -> dict[str, np.ndarray]:
    weight = random.normal(scale=inputs**-0.5, size=(outputs, inputs))
    bias = random.normal(scale=0.1, size=outputs)
    return {f"{name}.weight": weight.astype("f4"), f"{name}.bias": bias.astype("f4")}


def tensors(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "emb_l.0.weight": random.normal(size=(ROWS[0], 4)).astype("f4"),
        "emb_l.1.weight": random.normal(size=(ROWS[1], 4)).astype("f4"),
        **layer(random, "bot_l.0", 16, 5),
        **layer(random, "bot_l.2", 4, 16),
        **layer(random, "top_l.0", 16, 12),
        **layer(random, "top_l.2", 1, 16),
    }


def build(folder: Path, seed: int = 1) -> Model:
    np.savez(folder / "checkpoint.npz", **tensors(seed))
    (folder / "model.toml").write_text(DESCRIPTION)
    return Model.build(folder / "checkpoint.npz", folder / "clicks", name="clicks")


def logits(seed: int, dense: np.ndarray, sparse: np.ndarray) -> np.ndarray:
    """The model in NumPy."""
    found = tensors(seed)

    def affine(name: str, x: np.ndarray) -> np.ndarray:
        return x @ found[f"{name}.weight"].T.astype("f8") + found[f"{name}.bias"]

    bottom = affine("bot_l.2", affine("bot_l.0", dense) ** 2)
    embedded = [found[f"emb_l.{i}.weight"][sparse[:, i]] for i in range(2)]
    joined = np.concatenate([bottom, *embedded], axis=1)
    return affine("top_l.2", affine("top_l.0", joined) ** 2)[:, 0]


def users(count: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    dense = random.uniform(-1, 1, (count, 5)).astype("f4")
    return dense, np.stack([random.integers(0, rows, count) for rows in ROWS], axis=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("infer")
    build(folder)
    infer.compile(folder / "clicks", spec=folder / "model.toml")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, certificates: hushtable.Certificates) -> Iterator[infer.ServerProcess]:
    tls = certificates.server
    with infer.ServerProcess(folder / "clicks", tls=tls, threads=1) as server:
        yield server


def test_a_plan_is_the_bundles(folder: Path) -> None:
    model = Model.open(folder / "clicks")
    (plan,) = model.plans
    assert (plan.name, plan.scheme, plan.error) == ("clicks", "ckks", None)
    assert verify_model(model.path).ok
    found = infer.describe(model.path)
    again = infer.compile(model)  # by the description in the plan
    assert found == again
    assert found.degree >= 4096
    assert found.levels >= 2
    assert found.log2_modulus < 881
    assert "128 bits" in found.text
    assert found.users_per_query == 1
    # Without weights the same comes out: the plan says nothing of them.
    sketch = infer.plan(DESCRIPTION)
    assert (sketch.degree, sketch.levels, sketch.key_bytes) == (
        found.degree,
        found.levels,
        found.key_bytes,
    )

    wide = infer.compile(model, spec=folder / "model.toml", name="wide", users=4)
    try:
        assert wide.users_per_query == 4
        assert {plan.name for plan in model.plans} == {"clicks", "wide"}
        with pytest.raises(ConfigError, match="several plans"):
            infer.Model.load(model.path)
        assert infer.Model.load(model.path, plan="wide").info.users_per_query == 4
    finally:
        (model.path / "plans" / "wide.ckks.json").unlink()


def test_the_three_ways_to_compute_agree_with_numpy(folder: Path) -> None:
    model = infer.Model.load(folder / "clicks")
    dense, sparse = users(3)
    expected = logits(1, dense, sparse)
    for fhe in ("clear", "simulate", "execute"):
        found = model.predict(dense, sparse, fhe=fhe)
        np.testing.assert_allclose(found.logits, expected, atol=2**-10)
        assert found.stats is None
        np.testing.assert_allclose(found.probabilities, 1 / (1 + np.exp(-found.logits)), rtol=1e-12)
    clear, noisy = (model.predict(dense, sparse, fhe=fhe).logits for fhe in ("clear", "simulate"))
    assert (clear != noisy).all()
    with pytest.raises(ConfigError, match="fhe"):
        model.predict(dense, sparse, fhe="later")  # type: ignore[arg-type]


def test_predictions_from_a_real_server(
    server: infer.ServerProcess, certificates: hushtable.Certificates
) -> None:
    dense, sparse = users(2)
    told: list[tuple[int, int]] = []
    with hushtable.connect(
        server=server.url,
        tls=certificates.ca,
        options=hushtable.ClientOptions(progress=lambda done, all_: told.append((done, all_))),
    ) as client:
        assert client.info == server.serving.model
        assert client.info.rows == ROWS
        found = client.predict(dense, sparse)
        np.testing.assert_allclose(found.logits, logits(1, dense, sparse), atol=2**-10)
        assert told[0] == (0, client.info.key_bytes)
        assert told[-1] == (client.info.key_bytes, client.info.key_bytes)
        assert found.stats is not None
        assert found.stats.queries == 2
        assert found.stats.bytes_up == client.info.key_bytes + 2 * client.info.query_bytes

        # One user alone, as a vector; the keys are there.
        one = client.predict(dense[0], sparse[0])
        np.testing.assert_allclose(one.logits, found.logits[:1], atol=2**-10)
        assert one.stats is not None
        assert one.stats.bytes_up == client.info.query_bytes
        shared = one.shareable()
        assert abs(shared - one.logits).max() <= 1 / 64
        assert (shared * 64 == np.round(shared * 64)).all()

    async def ask() -> list[infer.Predictions]:
        async with await hushtable.connect_async(server=server.url, tls=certificates.ca) as client:
            assert await client.upload() == client.info.key_bytes
            return list(await asyncio.gather(*(client.predict(dense, sparse) for _ in range(2))))

    for answer in asyncio.run(ask()):
        np.testing.assert_allclose(answer.logits, logits(1, dense, sparse), atol=2**-10)


def test_features_that_no_model_takes(
    server: infer.ServerProcess, certificates: hushtable.Certificates, folder: Path
) -> None:
    dense, sparse = users(1)
    local = infer.Model.load(folder / "clicks")
    with hushtable.connect(server=server.url, tls=certificates.ca) as client:
        for predict in (client.predict, local.predict):
            for bad in (np.nan, np.inf, 1e39):
                broken = dense.astype("f8")
                broken[0, 2] = bad
                with pytest.raises(BadFeatures, match="feature 2"):
                    predict(broken, sparse)
            with pytest.raises(IdOutOfRange, match="pain") as error:
                predict(dense, [[0, 6]])
            assert (error.value.id, error.value.rows) == (6, 6)
            for wrong in (dense[:, :4], dense[None], "abc", [["a"] * 5], dense > 0):
                with pytest.raises(BadFeatures):
                    predict(wrong, sparse)
            for rows in (sparse[:, :1], sparse - 9, sparse.astype("f4"), None, [[0, 1], [1, 2]]):
                with pytest.raises(BadFeatures):
                    predict(dense, rows)
            for far in (2**64, 10**30, -(10**20)):
                for given in ([[1, far]], np.array([[1, far]], object)):
                    with pytest.raises(BadFeatures, match=f"index {far} of user 0 .*'pain'"):
                        predict(dense, given)
            for given in ([[1, 2], [-3, 0]], np.array([[1, 2], [-3, 0]], object)):
                with pytest.raises(BadFeatures, match="index -3 of user 1 is no row of .*'smokes'"):
                    predict(np.repeat(dense, 2, 0), given)
            with pytest.raises(IdOutOfRange, match=str(2**63)):
                predict(dense, np.array([[1, 2**63]], object))


def test_a_server_of_another_plan_or_version(
    tmp_path: Path, certificates: hushtable.Certificates
) -> None:
    build(tmp_path, seed=2)
    infer.compile(tmp_path / "clicks", spec=tmp_path / "model.toml")
    dense, sparse = users(1)
    with infer.ServerProcess(tmp_path / "clicks", threads=1) as server:
        addr = server.url.removeprefix("http://")
        client = hushtable.connect(server=server.url)
        client.predict(dense, sparse)
        with pytest.raises(VersionMismatch):
            hushtable.connect(server=server.url, version="00" * 32)
        with pytest.raises(ConfigError, match="key_bytes_max"):
            hushtable.connect(
                server=server.url, options=hushtable.ClientOptions(key_bytes_max=1000)
            )
        with pytest.raises(hushtable.ProtocolError):
            hushtable.connect(server=server.url, scheme="onion")
    infer.compile(tmp_path / "clicks", users=2)
    with infer.ServerProcess(tmp_path / "clicks", addr=addr, threads=1):
        with pytest.raises(PlanMismatch) as error:
            client.predict(dense, sparse)
        assert error.value.found == client.info.plan != error.value.expected
    client.close()
    # Another model, the plan of the one before: neither served, nor loaded, nor called whole.
    stale = (tmp_path / "clicks" / "plans" / "clicks.ckks.json").read_bytes()
    model = build(tmp_path, seed=3)
    (model.path / "plans").mkdir()
    (model.path / "plans" / "clicks.ckks.json").write_bytes(stale)
    with pytest.raises(ModelError, match="compile it again"):
        infer.ServerProcess(model.path).start()
    with pytest.raises(ModelError, match="compile it again"):
        infer.Model.load(model.path)
    assert not verify_model(model.path).ok
    assert model.plans[0].error is not None


def test_models_that_cannot_be_compiled(tmp_path: Path) -> None:
    model = build(tmp_path)
    with pytest.raises(ModelError, match="no plan"):
        infer.compile(model)
    with pytest.raises(ModelError, match="bot_l"):
        (tmp_path / "other.toml").write_text(DESCRIPTION.replace("[16, 4]", "[17, 4]"))
        infer.compile(model, spec=tmp_path / "other.toml")
    for wrong in ("dense = 5\n", DESCRIPTION.replace('"square"', '"cube"'), DESCRIPTION + "more"):
        with pytest.raises(ModelError):
            infer.plan(wrong)
    # Squares have no range, without which nothing is bootstrapped.
    deep = DESCRIPTION.replace("top = [16, 1]", f"top = {[16] * 15 + [1]}")
    deep = deep.replace("bottom = [16, 4]", f"bottom = {[16] * 15 + [4]}")
    with pytest.raises(ModelTooDeep) as error:
        infer.plan(deep)
    assert error.value.levels > error.value.levels_max > 0
    with pytest.raises(ConfigError, match="description"):
        infer.compile(model, spec=tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="scheme"):
        infer.compile(model, scheme="bfv")  # type: ignore[arg-type]
    for users in (3, 0, -1):
        with pytest.raises(ConfigError, match=f"users is {users}, but must be a power of two"):
            infer.plan(DESCRIPTION, users=users)
        with pytest.raises(ConfigError, match=f"users is {users}, but must be a power of two"):
            infer.compile(model, spec=tmp_path / "model.toml", users=users)


def test_what_is_deeper_than_a_ring_is_bootstrapped() -> None:
    deep = DESCRIPTION.replace("top = [16, 1]", f"top = {[16] * 3 + [1]}")
    found = infer.plan(deep.replace("square", "relu"))
    assert found.bootstraps > 0
    leveled, *others = found.alternatives
    assert leveled.what == "without bootstraps"
    assert leveled.refused is not None
    assert leveled.key_bytes is leveled.predicted_ms is None
    assert [other.what.split(",")[0].rsplit(" ", 1)[1] for other in others] == ["31", "63", "127"]
    for other in others:
        assert other.refused is None
        assert other.predicted_ms is not None
        assert other.predicted_ms < found.predicted_ms
        assert other.what in found.text
    assert infer.plan(DESCRIPTION).alternatives == ()


def test_keys_are_bounded_or_the_least_is_said(tmp_path: Path) -> None:
    model, spec = build(tmp_path), tmp_path / "model.toml"
    free = infer.plan(DESCRIPTION)
    assert free.key_memory_bytes > free.key_bytes
    assert free.map_memory_bytes > 0
    with pytest.raises(KeysTooLarge, match="bytes are allowed|are allowed") as error:
        infer.plan(DESCRIPTION, key_bytes_max=1000)
    assert isinstance(error.value, ModelError)
    least, bound = error.value.least_bytes, error.value.max_bytes
    assert bound == 1000
    assert infer.plan(DESCRIPTION, key_bytes_max=least).key_bytes <= least
    with pytest.raises(KeysTooLarge):
        infer.compile(model, spec=spec, key_bytes_max=1000)
    assert infer.compile(model, spec=spec, key_bytes_max=least).key_bytes <= least
    for bound in (0, -1, 2**63):
        with pytest.raises(ConfigError, match=f"key_bytes_max is {bound}"):
            infer.plan(DESCRIPTION, key_bytes_max=bound)
    with pytest.raises(ConfigError, match="key_bytes_max"):
        infer.compile(model, scheme="hybrid", key_bytes_max=1)  # type: ignore[call-overload]


def test_queries_are_bounded_or_the_least_is_said(tmp_path: Path) -> None:
    model, spec = build(tmp_path), tmp_path / "model.toml"
    with pytest.raises(QueryTooLarge, match="are allowed") as error:
        infer.plan(DESCRIPTION, query_bytes_max=1000)
    assert isinstance(error.value, ModelError)
    least, bound = error.value.least_bytes, error.value.max_bytes
    assert bound == 1000
    assert infer.plan(DESCRIPTION, query_bytes_max=least).query_bytes <= least
    with pytest.raises(QueryTooLarge):
        infer.compile(model, spec=spec, query_bytes_max=1000)
    assert infer.compile(model, spec=spec, query_bytes_max=least).query_bytes <= least
    # A table of more rows than slots goes in parts where its whole vector is too large.
    large = DESCRIPTION.replace("dim = 4", "dim = 4\nthreshold = 60000")
    large = large.replace("rows = 6", "rows = 60000")
    bounded = infer.plan(large, query_bytes_max=1_500_000)
    assert bounded.query_bytes <= 1_500_000
    assert "in parts of" in bounded.text
    for bound in (0, -1, 2**63):
        with pytest.raises(ConfigError, match=f"query_bytes_max is {bound}"):
            infer.plan(DESCRIPTION, query_bytes_max=bound)
    with pytest.raises(ConfigError, match="query_bytes_max"):
        infer.compile(model, scheme="hybrid", query_bytes_max=1)  # type: ignore[call-overload]


def test_an_activation_out_of_its_range_is_named(tmp_path: Path) -> None:
    found = tensors(1)
    for part in ("bot", "top"):
        found[f"{part}_a.0.range"] = np.array([8.0], "f4")
    np.savez(tmp_path / "checkpoint.npz", **found)
    (tmp_path / "model.toml").write_text(DESCRIPTION.replace("square", "silu"))
    model = Model.build(tmp_path / "checkpoint.npz", tmp_path / "clicks")
    infer.compile(model, spec=tmp_path / "model.toml")
    local = infer.Model.load(model.path)
    dense, sparse = users(1)
    assert np.isfinite(local.predict(0.1 * dense, sparse, fhe="simulate").logits).all()
    for fhe in ("clear", "simulate"):
        with pytest.raises(ActivationRange, match="bottom 0") as error:
            local.predict(100 * dense, sparse, fhe=fhe)
        assert error.value.layer == "bottom 0"
        assert abs(error.value.value) > error.value.limit


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return dict(run_json("bench", "infer", "--model", "uci", "--threads", "1", "--runs", "1"))


@pytest.mark.timed
def test_no_prediction_is_faster_than_its_operations(record: dict[str, Any]) -> None:
    assert 0 < record["floor"] < record["value"]


def test_the_benchmark_says_what_a_prediction_takes(record: dict[str, Any]) -> None:
    assert (record["bench"], record["unit"], record["threads"]) == ("infer", "s", 1)
    detail = record["detail"]
    total = detail["client_ms"] + detail["server_ms"]
    assert record["value"] == pytest.approx(total / 1e3)
    assert record["floor"] > 0
    assert record["of_floor"] == pytest.approx(record["floor"] / record["value"])
    assert detail["error_bits"] >= 10
    for name in ("up_bytes", "down_bytes", "key_bytes", "memory_bytes"):
        assert detail[name] > 0
    refused = run("bench", "infer", "--model", "other")
    assert refused.returncode == 2
    # As the module has them and the help names them.
    shown = run("bench", "infer", "--help").stdout
    for name in ("uci-relu-composite", "criteo-silu", "criteo-relu"):
        assert name in refused.stderr and name in shown


@pytest.mark.timed
def test_shares_take_less_than_a_second() -> None:
    assert 0 < infer.plan_shares(infer.shape("uci"), runs=3).server_ms < 1000


def test_what_shares_would_take() -> None:
    spec = infer.shape("uci")
    plan = infer.plan_shares(spec, runs=3)
    # 16 activations below, and 16 above; what the last layer below gives goes on without one.
    assert (plan.activations, plan.rounds) == (32, 4)
    assert plan.error < 2**-8 and plan.server_ms > 0
    finer = infer.plan_shares(spec, fraction_bits=16, value_bits=16, runs=3)
    assert finer.up_bytes > plan.up_bytes and finer.peer_bytes > plan.peer_bytes
    shown = run_json("infer", "plan", "--shape", "uci", "--shares")
    assert shown["up_bytes"] == plan.up_bytes and shown["peer_bytes"] == plan.peer_bytes
    assert "each way, in 4 messages" in run("infer", "plan", "--shape", "uci", "--shares").stdout
    for name, bad in (
        *(("fraction_bits", bad) for bad in (-1, 2, 21, 2**40)),
        *(("value_bits", bad) for bad in (-8, 9, 2**40)),
        ("runs", 0),
    ):
        with pytest.raises(hushtable.ConfigError, match=f"{name} is {bad}, but must be"):
            infer.plan_shares(spec, **{name: bad})
    refused = run("infer", "plan", "--shape", "uci", "--shares", "--users", "2")
    assert refused.returncode == 2 and "--users" in refused.stderr
    assert run("infer", "plan", "--shape", "uci", "--fraction-bits", "9").returncode == 2


def test_the_command(
    folder: Path,
    server: infer.ServerProcess,
    certificates: hushtable.Certificates,
    tmp_path: Path,
) -> None:
    plan = run_json("infer", "plan", str(folder / "clicks"))
    assert plan == run_json("infer", "compile", str(folder / "clicks"))
    assert run_json("infer", "plan", "--shape", "uci")["users_per_query"] == 1
    assert run_json("model", "info", str(folder / "clicks"))["plans"][0]["scheme"] == "ckks"
    shown = run("infer", "plan", str(folder / "model.toml")).stdout
    assert "uploaded once" in shown

    dense, sparse = users(2)
    table = tmp_path / "users.csv"
    lines = [",".join(map(str, [*d, *s])) for d, s in zip(dense, sparse, strict=True)]
    table.write_text("\n".join(["a,b,c,d,e,smokes,pain", *lines]))
    where = ["--server", server.url, "--ca", str(certificates.ca)]
    found = run_json("infer", "query", "--input", str(table), *where)
    np.testing.assert_allclose(found["logits"], logits(1, dense, sparse), atol=2**-10)
    objects = tmp_path / "users.jsonl"
    records = [
        {"dense": d.tolist(), "sparse": s.tolist()} for d, s in zip(dense, sparse, strict=True)
    ]
    objects.write_text("\n".join(map(json.dumps, records)))
    again = run_json("infer", "query", "--input", str(objects), *where)
    np.testing.assert_allclose(again["logits"], found["logits"], atol=2**-10)
    numbers, rows = ",".join(map(str, dense[0])), ",".join(map(str, sparse[0]))
    one = run("infer", "query", f"--dense={numbers}", "--sparse", rows, *where)
    assert "probability" in one.stdout
    assert f"{server.serving.model.key_bytes:,} B" in one.stderr
    # No terminal, no bar.
    assert "uploading" not in one.stderr
    for wrong in (["--dense", "1,2"], [], ["--dense", "a"], ["--input", str(tmp_path / "none")]):
        refused = run("infer", "query", *wrong, *where)
        assert refused.returncode == 2, refused
        assert "Traceback" not in refused.stderr
    # What no plan holds, and what no table has, is said before there is a word of keys.
    for wrong, words in (
        (["--dense=200,0,0,0,0", f"--sparse={rows}"], "dense feature 0 of user 0 is 200"),
        ([f"--dense={numbers}", "--sparse=-1,2"], "index -1 of user 0"),
        ([f"--dense={numbers}", f"--sparse=1,{10**30}"], f"index {10**30} of user 0"),
    ):
        refused = run("infer", "query", *wrong, *where)
        assert refused.returncode != 0 and words in refused.stderr, refused
        assert "keys of" not in refused.stderr
