"""A network on inputs that its server never sees: compiled, served, asked, and refused."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_cli import run, run_json
from waiting import held_port

import hushtable
from hushtable import (
    BadFeatures,
    ConfigError,
    Model,
    ModelError,
    PrecomputeError,
    ProtocolError,
    VersionMismatch,
    infer,
    verify_model,
)
from hushtable.infer import networks

INPUT = (2, 8, 8)


def network(seed: int) -> networks.Network:
    random = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray:
        return random.normal(scale=0.3, size=shape).astype("f4")

    draft = networks.Draft(INPUT, "a test")
    first = draft.conv("first", "input", weights(4, 2, 3, 3), weights(4), pad=(1, 1, 1, 1))
    active = draft.relu("active", first)
    second = draft.conv(
        "second", active, weights(6, 4, 3, 3), None, stride=(2, 2), pad=(1, 1, 1, 1)
    )
    flat = draft.flatten("flat", draft.relu("again", second))
    draft.linear("last", flat, weights(5, 96), weights(5))
    return draft.finish("last", range=(-1, 1))


def images(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, *INPUT)).astype("f4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrid")
    network(1).build(folder / "shapes", name="shapes")
    infer.compile(folder / "shapes", scheme="hybrid", samples=images(8, 2))
    np.save(folder / "images.npy", images(2))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, certificates: hushtable.Certificates) -> Iterator[infer.ServerProcess]:
    tls = certificates.server
    with infer.ServerProcess(folder / "shapes", tls=tls, store=folder / "kept") as server:
        yield server


def test_a_plan_is_the_bundles(folder: Path) -> None:
    model = Model.open(folder / "shapes")
    (plan,) = model.plans
    assert (plan.name, plan.scheme, plan.error) == ("shapes", "hybrid", None)
    assert verify_model(model.path).ok
    found = infer.describe(model.path)
    assert isinstance(found, infer.HybridPlanInfo)
    assert (found.input, found.outputs, found.fraction) == (INPUT, 5, 12)
    assert found.activations == 4 * 64 + 6 * 16
    assert 16 <= found.bits <= 64
    server, client = found.bytes_if_server_garbles, found.bytes_if_client_garbles
    assert server["client"] > 10 * server["server"]
    assert client["server"] > 10 * client["client"]
    for link in (found.link_if_server_garbles, found.link_if_client_garbles):
        up, down = link["up_bytes"] ** 0.5, link["down_bytes"] ** 0.5
        assert link["up_share"] == pytest.approx(up / (up + down))
        assert link["seconds"] == pytest.approx(8e-9 * (up + down) ** 2)
        assert link["even_seconds"] >= link["seconds"]
    assert found.link_if_server_garbles["up_share"] < found.link_if_client_garbles["up_share"]
    again = infer.compile(model, scheme="hybrid", samples=images(8, 2))
    assert again == found
    nearest = infer.compile(model, scheme="hybrid", name="near", rounding="nearest", bits=40)
    assert (nearest.bits, nearest.rounding) == (40, "nearest")
    assert sum(nearest.bytes_if_server_garbles.values()) > sum(server.values())
    (model.path / "plans" / "near.hybrid.json").unlink()


def test_a_client_proves_its_uploads_where_the_plan_says_so(
    tmp_path: Path, certificates: hushtable.Certificates
) -> None:
    network(1).build(tmp_path / "shapes", name="shapes")
    command = ("infer", "compile", tmp_path / "shapes", "--scheme", "hybrid")
    told = run(*command).stdout
    assert "taken as they are: a client that cheats can read weights (--verify-uploads)" in told
    bare = infer.describe(tmp_path / "shapes")
    assert isinstance(bare, infer.HybridPlanInfo)
    assert bare.proof_bytes == 0
    told = run(*command, "--verify-uploads").stdout
    assert "B that prove them to be encryptions (" in told
    found = infer.describe(tmp_path / "shapes")
    assert isinstance(found, infer.HybridPlanInfo)
    assert found.lattice == "linear_8192_verified"
    assert found.proof_bytes > 500_000
    assert found.link_if_server_garbles["up_bytes"] > bare.link_if_server_garbles["up_bytes"]
    x = images(2)
    tls = certificates.server
    with infer.ServerProcess(tmp_path / "shapes", tls=tls) as server:
        for garbler in ("client", "server"):
            with hushtable.connect(
                server=server.url,
                scheme="hybrid",
                tls=certificates.ca,
                options=hushtable.ClientOptions(garbler=garbler),
            ) as client:
                assert client.info.lattice == found.lattice
                outputs = client.predict(x).outputs
            assert np.abs(outputs - network(1).evaluate(x)).max() < 2**-5
    refused = run(*command[:3], "--verify-uploads")
    assert refused.returncode != 0
    assert "--verify-uploads is for --scheme hybrid" in refused.stderr


def test_what_cannot_be_compiled_is_said(folder: Path, tmp_path: Path) -> None:
    path = folder / "shapes"
    with pytest.raises(ModelError, match="bits"):
        infer.compile(path, scheme="hybrid", bits=20)
    with pytest.raises(ConfigError, match="fraction"):
        infer.compile(path, scheme="hybrid", fraction=60)
    with pytest.raises(ConfigError, match="rounding"):
        infer.compile(path, scheme="hybrid", rounding="up")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="spec, users and key_bytes_max"):
        infer.compile(path, scheme="hybrid", users=2)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="samples"):
        infer.compile(path, samples=images(1))  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="scheme"):
        infer.compile(path, scheme="other")  # type: ignore[call-overload]
    with pytest.raises(ModelError, match="no hybrid plan"):
        network(3).build(tmp_path / "bare", name="bare")
        infer.HybridModel.load(tmp_path / "bare")


def test_in_this_process_all_ways_agree(folder: Path) -> None:
    model = infer.HybridModel.load(folder / "shapes")
    x = images(2)
    expected = network(1).evaluate(x)
    clear = model.predict(x)
    assert np.allclose(clear.outputs, expected, atol=1e-4)
    assert (clear.classes == expected.argmax(axis=1)).all()
    simulated = model.predict(x, fhe="simulate")
    assert np.abs(simulated.outputs - expected).max() < 2**-5
    one = model.predict(x[0], fhe="execute", garbler="client")
    assert one.outputs.shape == (5,)
    assert np.abs(one.outputs - expected[0]).max() < 2**-5
    with pytest.raises(ConfigError, match="fhe"):
        model.predict(x, fhe="other")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="garbler"):
        model.predict(x, fhe="execute", garbler="other")  # type: ignore[arg-type]


def test_predictions_are_the_networks(
    server: infer.ServerProcess, certificates: hushtable.Certificates
) -> None:
    x = images(3)
    expected = network(1).evaluate(x)
    told: list[tuple[int, int]] = []
    for garbler in ("server", "client"):
        with hushtable.connect(
            server=server.url,
            scheme="hybrid",
            tls=certificates.ca,
            options=hushtable.ClientOptions(garbler=garbler, up_mbps=10_000),
        ) as client:
            assert client.info.input == INPUT
            made = client.precompute(2, progress=lambda done, all_: told.append((done, all_)))
            assert (made.precomputes, client.precomputes) == (2, 2)
            assert told[-1] == (made.steps, made.steps)
            found = client.predict(x)
            assert np.abs(found.outputs - expected).max() < 2**-5
            assert [one.offline is None for one in found.stats] == [True, True, False]
            assert all(one.bytes_up > 0 and one.bytes_down > 0 for one in found.stats)


def test_connecting_goes_by_what_the_server_offers(
    server: infer.ServerProcess, certificates: hushtable.Certificates
) -> None:
    with hushtable.connect(server=server.url, tls=certificates.ca) as client:
        assert isinstance(client, infer.HybridClient)
    with pytest.raises(ProtocolError):
        hushtable.connect(server=server.url, scheme="ckks", tls=certificates.ca)
    with pytest.raises(ConfigError, match="scheme"):
        hushtable.connect(server=server.url, scheme="other", tls=certificates.ca)
    with pytest.raises(VersionMismatch):
        hushtable.connect(
            server=server.url, scheme="hybrid", tls=certificates.ca, version="00" * 32
        )
    for wrong in (
        {"garbler": "nobody"},
        {"parallel": "much"},
        {"steps": 0},
        {"up_mbps": -1.0},
        {"store_bytes_max": 10},
    ):
        with pytest.raises(ConfigError):
            hushtable.connect(
                server=server.url,
                scheme="hybrid",
                tls=certificates.ca,
                options=hushtable.ClientOptions(**wrong),
            )

    async def ask() -> np.ndarray:
        async with await hushtable.connect_async(server=server.url, tls=certificates.ca) as client:
            assert isinstance(client, infer.AsyncHybridClient)
            await client.precompute()
            return (await client.predict(images(1)[0])).outputs

    found = asyncio.run(ask())
    assert np.abs(found - network(1).evaluate(images(1))[0]).max() < 2**-5


def test_inputs_that_do_not_fit_use_nothing_up(
    server: infer.ServerProcess, certificates: hushtable.Certificates
) -> None:
    with hushtable.connect(server=server.url, scheme="hybrid", tls=certificates.ca) as client:
        client.precompute(1)
        x = images(1)[0]
        bad = [x[:1], x.astype(str), np.full(INPUT, np.nan), np.full(INPUT, 1e6)]
        for one in bad:
            with pytest.raises(BadFeatures):
                client.predict(one)
        assert client.precomputes == 1


def test_the_command_keeps_precomputes_between_runs(
    server: infer.ServerProcess,
    certificates: hushtable.Certificates,
    folder: Path,
    tmp_path: Path,
) -> None:
    store = tmp_path / "mine"
    reach = ["--server", server.url, "--ca", str(certificates.ca), "--store", str(store)]
    made = run_json("infer", "precompute", "--count", "1", *reach)
    assert (made["precomputes"], made["ready"]) == (1, 1)
    query = ["infer", "query", "--input", str(folder / "images.npy"), *reach]
    found = run_json(*query)
    expected = network(1).evaluate(images(2))
    assert np.abs(np.array(found["outputs"]) - expected).max() < 2**-5
    assert found["classes"] == expected.argmax(axis=1).tolist()
    assert [one["offline"] is None for one in found["stats"]] == [True, False]
    shown = run(*query)
    assert shown.returncode == 0
    assert "0 precomputes are ready for 2 inputs" in shown.stderr
    assert "class" in shown.stdout
    # One process at a time takes from a folder.
    with hushtable.connect(
        server=server.url,
        scheme="hybrid",
        tls=certificates.ca,
        options=hushtable.ClientOptions(store=store),
    ):
        refused = run(*query)
    assert refused.returncode == 1
    assert "in use" in refused.stderr
    # A backup that is put back gives nothing out again, with a ledger here or there.
    for more in ([], ["--store-ledger", str(tmp_path / "ledgers")]):
        assert run_json("infer", "precompute", *reach, *more)["ready"] == 1
        shutil.copytree(store, tmp_path / "backup", copy_function=shutil.copy2)
        assert run_json(*query, *more)["stats"][0]["offline"] is None
        shutil.rmtree(store)
        shutil.move(tmp_path / "backup", store)
        shown = run(*query, *more)
        assert shown.returncode == 0
        assert f"1 precomputes of {store} may have been used before" in shown.stderr
        assert "0 precomputes are ready for 2 inputs" in shown.stderr
    assert len(list((tmp_path / "ledgers").glob("*.ledger"))) == 2
    with pytest.raises(PrecomputeError, match="outside of it"):
        hushtable.connect(
            server=server.url,
            scheme="hybrid",
            tls=certificates.ca,
            options=hushtable.ClientOptions(store=store, store_ledger=store / "ledgers"),
        )
    with pytest.raises(PrecomputeError, match="key"):
        (store / "key").write_bytes(b"short")
        hushtable.connect(
            server=server.url,
            scheme="hybrid",
            tls=certificates.ca,
            options=hushtable.ClientOptions(store=store),
        )


def test_the_command_compiles_and_describes(folder: Path, tmp_path: Path) -> None:
    network(1).build(tmp_path / "shapes", name="shapes")
    compiled = run_json(
        *("infer", "compile", str(tmp_path / "shapes"), "--scheme", "hybrid"),
        *("--samples", str(folder / "images.npy")),
    )
    described = run_json("infer", "plan", str(tmp_path / "shapes"))
    assert compiled == described
    plan = infer.describe(tmp_path / "shapes")
    assert json.loads(json.dumps(dataclasses.asdict(plan))) == described
    shown = run("infer", "plan", str(tmp_path / "shapes"))
    assert "rounding" in shown.stdout
    with held_port() as port:
        gone = f"http://127.0.0.1:{port}"
        assert run("infer", "query", "--dense", "1", "--server", gone).returncode == 1
