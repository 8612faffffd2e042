"""Predictions on the shares of two real servers: served, asked, refused where they should be."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run, run_json
from test_infer import ROWS, build, tensors, users
from test_infer_shares import POOLED, RELU
from waiting import held_port

import hushtable
from hushtable import (
    BadFeatures,
    ConfigError,
    Error,
    IdOutOfRange,
    ServerTimeout,
    ServerUnavailable,
    SwappedServers,
    TlsConfig,
    VersionMismatch,
    infer,
    make_certificates,
)


def logits(dense: np.ndarray, sparse: np.ndarray, histories: Any = None) -> np.ndarray:
    """The model in NumPy; with histories, each a list of ids of the second feature."""
    found = tensors(1)

    def affine(name: str, x: np.ndarray) -> np.ndarray:
        return x @ found[f"{name}.weight"].T.astype("f8") + found[f"{name}.bias"]

    def relu(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0)

    tables = [found[f"emb_l.{i}.weight"].astype("f8") for i in range(2)]
    second = tables[1][sparse[:, 1]]
    if histories is not None:
        second = np.stack([tables[1][list(ids)].sum(axis=0) for ids in histories])
    bottom = affine("bot_l.2", relu(affine("bot_l.0", dense)))
    joined = np.concatenate([bottom, tables[0][sparse[:, 0]], second], axis=1)
    return affine("top_l.2", relu(affine("top_l.0", joined)))[:, 0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shares")
    build(folder)
    (folder / "relu.toml").write_text(RELU)
    (folder / "pooled.toml").write_text(POOLED)
    dense, sparse = users(60)
    options: dict[str, Any] = {"fraction_bits": 14, "value_bits": 16, "runs": 1}
    infer.compile_shares(
        folder / "clicks", dense, sparse, spec=folder / "relu.toml", name="apart", **options
    )
    random = np.random.default_rng(5)
    nested = [[int(one), list(random.integers(0, 6, 3))] for one in sparse[:, 0]]
    infer.compile_shares(
        folder / "clicks", dense, nested, spec=folder / "pooled.toml", name="pooled", **options
    )
    return folder


class Sides:
    """Two operators with an authority each, their servers, and how clients check both."""

    def __init__(self, folder: Path, certificates: Path, plan: str) -> None:
        self.model = folder / "clicks"
        self.plan = plan
        self.files = {
            side: make_certificates(certificates / side, side=side) for side in ("left", "right")
        }

    def right(self, **options: Any) -> infer.ServerProcess:
        left, right = self.files["left"], self.files["right"]
        given = {"tls": right.peer, "peer_ca": left.ca, "side": "right", **options}
        return infer.ServerProcess(self.model, plan=self.plan, threads=1, **given)

    def left(self, peer: str, **options: Any) -> infer.ServerProcess:
        left, right = self.files["left"], self.files["right"]
        given = {
            "tls": left.server,
            "side": "left",
            "peer": peer,
            "peer_ca": right.ca,
            "peer_cert": left.peer_certificate,
            "peer_key": left.peer_key,
            **options,
        }
        return infer.ServerProcess(self.model, plan=self.plan, threads=1, **given)

    @property
    def tls(self) -> TlsConfig:
        return TlsConfig(left_ca=self.files["left"].ca, right_ca=self.files["right"].ca)


@pytest.fixture(scope="module")
def served(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Sides, infer.ServerProcess, infer.ServerProcess]]:
    sides = Sides(folder, tmp_path_factory.mktemp("certificates"), "apart")
    with sides.right() as right, sides.left(right.url) as left:
        yield sides, left, right


def test_two_servers_predict(served: tuple[Sides, Any, Any]) -> None:
    sides, left, right = served
    assert isinstance(left.serving.model, infer.SharesInfo)
    assert (left.serving.name, right.serving.name) == (
        "left inference server",
        "right inference server",
    )
    dense, sparse = users(12, seed=9)
    expected = logits(dense, sparse)
    with hushtable.connect(left.url, right.url, scheme="shares", tls=sides.tls) as client:
        info = client.info
        assert (info.name, info.dense, info.side) == ("clicks", 5, "left")
        assert (info.features, info.rows, info.bags) == (("smokes", "pain"), ROWS, (1, 1))
        assert info.version == left.serving.model.version == right.serving.model.version
        found = client.predict({"smokes": sparse[:, 0], "pain": sparse[:, 1]}, dense)
        np.testing.assert_allclose(found.logits, expected, atol=2**-9)
        np.testing.assert_allclose(found.probabilities, 1 / (1 + np.exp(-found.logits)))
        assert len(found) == 12 and found.stats.retries == 0
        assert found.stats.dealt_bytes == 12 * info.up_bytes
        assert found.stats.bytes_down == 12 * info.down_bytes
        # In the model's order, and one user.
        np.testing.assert_allclose(client.predict(sparse, dense).logits, expected, atol=2**-9)
        one = client.predict(
            {"pain": [int(sparse[3, 1])], "smokes": [int(sparse[3, 0])]}, dense[3:4]
        )
        np.testing.assert_allclose(one.logits, expected[3:4], atol=2**-9)
        assert len(client.predict(sparse[:0], dense[:0])) == 0

    async def ask() -> np.ndarray:
        async with await hushtable.connect_async(
            left.url, right.url, scheme="shares", tls=sides.tls
        ) as client:
            with pytest.raises(ConfigError, match="connect_async"):
                copy.copy(client)
            parts = await asyncio.gather(
                *(client.predict(sparse[i : i + 3], dense[i : i + 3]) for i in range(0, 12, 3))
            )
            return np.concatenate([part.logits for part in parts])

    np.testing.assert_allclose(asyncio.run(ask()), expected, atol=2**-9)


def test_features_that_no_model_takes(served: tuple[Sides, Any, Any]) -> None:
    sides, left, right = served
    dense, sparse = users(4)
    ids = {"smokes": sparse[:, 0], "pain": sparse[:, 1]}
    with hushtable.connect(left.url, right.url, scheme="shares", tls=sides.tls) as client:

        def refused(kind: type[Error], match: str, ids: Any, dense: Any) -> None:
            with pytest.raises(kind, match=match):
                client.predict(ids, dense)

        refused(BadFeatures, "no ids of pain", {"smokes": sparse[:, 0]}, dense)
        refused(BadFeatures, "'films' is no feature", {**ids, "films": sparse[:, 0]}, dense)
        refused(BadFeatures, "4 of smokes, 3 of pain", {**ids, "pain": sparse[1:, 1]}, dense)
        refused(BadFeatures, "4 users beside 3", ids, dense[1:])
        refused(BadFeatures, r"\[users, 5\]", ids, dense[:, 1:])
        refused(BadFeatures, "takes 5 numbers", ids, None)
        refused(BadFeatures, "no index", {**ids, "pain": [0.5] * 4}, dense)
        refused(BadFeatures, "dense feature 2", ids, np.where(dense == dense[1, 2], np.nan, dense))
        refused(BadFeatures, "dense feature 0", ids, dense * 1e9)
        refused(IdOutOfRange, "user 2", {**ids, "pain": [0, 1, 6, 2]}, dense)
        assert len(client.predict(ids, dense)) == 4
        client.close()
        refused(ConfigError, "closed", ids, dense)


def test_servers_that_are_none_of_a_pair(
    served: tuple[Sides, Any, Any], tmp_path: Path, folder: Path
) -> None:
    sides, left, right = served
    for pair in ((right.url, left.url), (left.url, left.url)):
        with pytest.raises(SwappedServers, match="left"):
            both = TlsConfig(_joined(sides, tmp_path))
            hushtable.connect(*pair, scheme="shares", tls=both)
    with pytest.raises(VersionMismatch):
        hushtable.connect(left.url, right.url, scheme="shares", tls=sides.tls, version="ab" * 32)
    with pytest.raises(hushtable.TlsError):
        hushtable.connect(left.url, right.url, scheme="shares", tls=sides.files["left"].ca)
    # What a server is not told is said at once.
    for options, match in (
        ({"side": "left"}, "peer"),
        ({"side": "right", "peer": left.url}, "left"),
        ({}, "left or right"),
        ({"side": "left", "peer": right.url, "keys_folder": "keys"}, "keys_folder"),
    ):
        with (
            pytest.raises(ConfigError, match=match),
            infer.ServerProcess(folder / "clicks", plan="apart", **options),
        ):
            pass
    # A left that shows right no certificate of left's is turned away: nobody is predicted for.
    with (
        sides.left(right.url, peer_cert=None, peer_key=None) as stranger,
        hushtable.connect(
            stranger.url,
            right.url,
            scheme="shares",
            tls=sides.tls,
            options=hushtable.ClientOptions(timeout=3),
        ) as client,
        pytest.raises(Error),
    ):
        dense, sparse = users(1)
        client.predict(sparse, dense)


def _joined(sides: Sides, folder: Path) -> Path:
    """Both authorities in one file."""
    path = folder / "both.pem"
    path.write_text("".join(files.ca.read_text() for files in sides.files.values()))
    return path


@pytest.mark.parametrize("inferences", [-1, 0, 2**16 + 1, 2**70])
def test_a_count_that_cannot_be_under_way(inferences: int) -> None:
    url = "http://127.0.0.1:1"
    with pytest.raises(ConfigError, match=f"inferences is {inferences}, but must be 1 to 65536"):
        hushtable.connect(
            url, url, scheme="shares", options=hushtable.ClientOptions(inferences=inferences)
        )


def test_histories_and_a_server_that_ends(folder: Path, tmp_path: Path) -> None:
    with held_port() as port:
        _histories_and_an_end(Sides(folder, tmp_path, "pooled"), f"127.0.0.1:{port}")


def _histories_and_an_end(sides: Sides, addr: str) -> None:
    dense, sparse = users(6, seed=4)
    histories = [[], [1], [2, 2], [5, 0, 3], [4], [1, 2]]
    ids = {"smokes": sparse[:, 0], "pain": histories}
    expected = logits(dense, sparse, histories)
    with sides.right(addr=addr) as right, sides.left(right.url) as left:
        with hushtable.connect(
            left.url,
            right.url,
            scheme="shares",
            tls=sides.tls,
            options=hushtable.ClientOptions(timeout=600),
        ) as client:
            assert client.info.bags == (1, 3)
            np.testing.assert_allclose(client.predict(ids, dense).logits, expected, atol=2**-9)
            with pytest.raises(BadFeatures, match="4 ids of feature 1"):
                client.predict({**ids, "pain": [*histories[:5], [0, 1, 2, 3]]}, dense)
            # Right is killed and comes back at its address: left finds it, and so does the client.
            right.kill()
            started = time.monotonic()
            with sides.right(addr=addr):
                found = client.predict(ids, dense)
                np.testing.assert_allclose(found.logits, expected, atol=2**-9)
                # The client's ten minutes are not waited for.
                assert time.monotonic() - started < 120
        # Right has ended again.
        with pytest.raises((ServerUnavailable, ServerTimeout)):
            hushtable.connect(
                left.url,
                right.url,
                scheme="shares",
                tls=sides.tls,
                options=hushtable.ClientOptions(connect_timeout=1, timeout=1),
            )


def test_the_commands(folder: Path, tmp_path: Path) -> None:
    dense, sparse = users(3)
    for side in ("left", "right"):
        made = run_json("certificates", str(tmp_path / side), "--side", side)
        assert made["peer_certificate"].endswith("peer.pem")
    assert "peer_key" not in run_json("certificates", str(tmp_path / "none"))
    sides = Sides(folder, tmp_path, "apart")
    table = tmp_path / "users.csv"
    rows = [",".join(map(str, [*d, *s])) for d, s in zip(dense, sparse, strict=True)]
    table.write_text("\n".join(rows))
    with sides.right() as right, sides.left(right.url) as left:
        reach = ["--left", left.url, "--right", right.url]
        reach += ["--left-ca", str(tmp_path / "left/ca.pem")]
        reach += ["--right-ca", str(tmp_path / "right/ca.pem")]
        found = run_json("infer", "query", *reach, "--input", str(table))
        np.testing.assert_allclose(found["logits"], logits(dense, sparse), atol=2**-9)
        assert found["stats"]["dealt_bytes"] > 0
        one = run(
            *["infer", "query", *reach, "--dense", ",".join(map(str, dense[0]))],
            *["--sparse", ",".join(map(str, sparse[0]))],
        )
        assert f"{found['logits'][0]:.4f}"[:5] in one.stdout and "lookup keys" in one.stderr
        for bad in (
            ["--left", left.url, "--input", str(table)],
            [*reach, "--server", left.url, "--input", str(table)],
            [*reach],
            ["--left-ca", str(table), "--input", str(table)],
        ):
            refused = run("infer", "query", *bad)
            assert refused.returncode == 2 and "Traceback" not in refused.stderr, (bad, refused)
    model = str(folder / "clicks")
    for bad in (
        ["serve", model, "--infer", "shares", "--side", "left", "--plan", "apart"],
        ["serve", model, "--infer", "ckks", "--side", "left"],
        ["serve", model, "--infer", "shares", "--scheme", "onion"],
        ["serve", model, "--infer", "shares", "--side", "left"],
        ["serve", model, "--side", "left", "--peer", "http://127.0.0.1:1"],
    ):
        refused = run(*bad)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr, (bad, refused)


def test_serve_with_infer_is_the_same_server(folder: Path, tmp_path: Path) -> None:
    settings = {"addr": "127.0.0.1:0", "metrics_addr": None, "plan": "apart", "infer": "shares"}

    class Process(infer.ServerProcess):
        _command = ("serve",)

        def __init__(self, **options: Any) -> None:
            given = {**settings, "table": str(folder / "clicks"), **options}
            self._prepare(given, "server", None, None, 60.0)

    with (
        Process(side="right") as right,
        Process(side="left", peer=right.url) as left,
        hushtable.connect(left.url, right.url, scheme="shares") as client,
    ):
        dense, sparse = users(2)
        found = client.predict(sparse, dense).logits
        np.testing.assert_allclose(found, logits(dense, sparse), atol=2**-9)


def test_servers_that_deal_themselves(folder: Path, tmp_path: Path) -> None:
    sides = Sides(folder, tmp_path / "certificates", "apart")
    dense, sparse = users(8, seed=6)
    expected = logits(dense, sparse)

    def keeps(side: str) -> dict[str, Any]:
        return {"dealer": "servers", "precomputes": tmp_path / side, "refill_batch": 2}

    with sides.right(**keeps("right")) as right, sides.left(right.url, **keeps("left")) as left:
        with hushtable.connect(
            left.url,
            right.url,
            scheme="shares",
            tls=sides.tls,
            options=hushtable.ClientOptions(dealer="servers", timeout=600),
        ) as client:
            info = client.info
            # A seed to left, four bytes a number to right: nothing that a client could deal badly.
            assert (info.dealer, info.up_bytes) == ("servers", 32 + 4 * 5)
            found = client.predict(sparse, dense)
            np.testing.assert_allclose(found.logits, expected, atol=2**-9)
            # What is asked before anything is dealt for is asked again.
            stats = found.stats
            assert stats.dealt_bytes == (8 + stats.retries) * info.up_bytes
        with pytest.raises(hushtable.ProtocolError, match="dealt by"):
            hushtable.connect(
                left.url,
                right.url,
                scheme="shares",
                tls=sides.tls,
                options=hushtable.ClientOptions(dealer="client"),
            )
        with pytest.raises(ConfigError, match="client or servers"):
            hushtable.connect(
                left.url,
                right.url,
                scheme="shares",
                tls=sides.tls,
                options=hushtable.ClientOptions(dealer="left"),
            )  # type: ignore[arg-type]
        # A right that lets clients deal is no peer of a left that does not.
        with (
            sides.right() as other,
            sides.left(other.url, **keeps("other")) as alone,
            pytest.raises(Error),
            hushtable.connect(
                alone.url,
                other.url,
                scheme="shares",
                tls=sides.tls,
                options=hushtable.ClientOptions(timeout=3),
            ) as client,
        ):
            client.predict(sparse, dense)
    with pytest.raises(ConfigError, match="precomputes"), sides.right(dealer="servers"):
        pass
