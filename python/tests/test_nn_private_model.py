"""A whole model at two real servers as a layer, with torch and without."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_infer import ROWS, users
from test_infer_shares_serve import Sides, folder, logits

import hushtable
from hushtable import BadFeatures, BadIds, ConfigError, IdOutOfRange, infer
from hushtable.nn import PrivateModel

try:
    import torch
except ImportError:
    torch = None

__all__ = ["folder"]  # a fixture

needs_torch = pytest.mark.skipif(
    torch is None, reason="the extra hushtable[torch] is not installed"
)
#: What the fixed point numbers of shares may add to a logit.
NEAR = 2**-9
HISTORIES = [[], [1], [2, 2], [5, 0, 3], [4], [1, 2]]
PADDED = np.array([[*one, *[-1] * (3 - len(one))] for one in HISTORIES])
OFFSETS = np.cumsum([0] + [len(one) for one in HISTORIES])
FLAT = np.array([one for bag in HISTORIES for one in bag])


@pytest.fixture(scope="module")
def client(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[infer.SharesClient]:
    sides = Sides(folder, tmp_path_factory.mktemp("certificates"), "pooled")
    with (
        sides.right() as right,
        sides.left(right.url) as left,
        hushtable.connect(left.url, right.url, scheme="shares", tls=sides.tls) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def asked() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dense features, ids of the first feature, and the logits, with the histories above."""
    dense, sparse = users(len(HISTORIES), seed=4)
    return dense, sparse[:, 0], logits(dense, sparse, HISTORIES)


class Keyed:
    """What is asked of a torchrec.KeyedJaggedTensor."""

    def __init__(self, values: Any, lengths: Any) -> None:
        self._parts = values, lengths

    def keys(self) -> list[str]:
        return ["pain", "smokes", "of another model"]

    def values(self) -> Any:
        return self._parts[0]

    def lengths(self) -> Any:
        return self._parts[1]

    def weights_or_none(self) -> None:
        return None


def keyed(smokes: np.ndarray) -> Keyed:
    count = len(smokes)
    values = np.concatenate([FLAT, smokes, np.arange(count)])
    return Keyed(values, np.concatenate([np.diff(OFFSETS), np.ones(2 * count, np.int64)]))


def test_a_call_is_a_prediction(client: Any, asked: Any) -> None:
    dense, smokes, expected = asked
    model = PrivateModel(client)
    assert model.last_stats is None
    for pain in (
        PADDED,
        PADDED.tolist(),
        HISTORIES,
        [np.array(one, np.int64) for one in HISTORIES],
        (FLAT, OFFSETS),
        (FLAT.tolist(), OFFSETS.tolist()),
        np.pad(PADDED, ((0, 0), (2, 1)), constant_values=-1),
    ):
        for first in (smokes, smokes.tolist(), smokes[:, None], (smokes, np.arange(7))):
            found = model({"smokes": first, "pain": pain}, dense)
            assert isinstance(found, np.ndarray) and found.dtype == np.float32
            np.testing.assert_allclose(found, expected, atol=NEAR)
    assert model.last_stats.dealt_bytes == len(expected) * client.info.up_bytes
    np.testing.assert_allclose(model(keyed(smokes), dense.tolist()), expected, atol=NEAR)
    # A row's number may stand for none; a user of one id has no list of it.
    zero = PrivateModel(client, padding_idx=0)
    histories = np.array([[1, 0, 0], [0, 0, 4]])
    sparse = np.stack([smokes, smokes], axis=1)
    np.testing.assert_allclose(
        zero({"smokes": smokes[:2], "pain": histories}, dense[:2]),
        logits(dense[:2], sparse[:2], [[1], [4]]),
        atol=NEAR,
    )
    one_each = {"smokes": smokes, "pain": np.array([1, 5, -1, 0, 3, 2])}
    np.testing.assert_allclose(
        model(one_each, dense), logits(dense, sparse, [[1], [5], [], [0], [3], [2]]), atol=NEAR
    )
    assert model({"smokes": smokes[:0], "pain": PADDED[:0]}, dense[:0]).shape == (0,)


def test_what_no_model_takes_is_refused(client: Any, asked: Any) -> None:
    dense, smokes, _ = asked
    model = PrivateModel(client)

    def refused(kind: Any, match: str, ids: Any, dense: Any = dense) -> None:
        with pytest.raises(kind, match=match):
            model(ids, dense)

    good = {"smokes": smokes, "pain": PADDED}
    refused(BadFeatures, "no ids of pain", {"smokes": smokes})
    refused(BadFeatures, "'films' is no feature", {**good, "films": smokes})
    refused(BadFeatures, "5 of pain", {**good, "pain": PADDED[1:]})
    refused(BadFeatures, "4 ids of feature 1", {**good, "pain": [*HISTORIES[:5], [0, 1, 2, 3]]})
    refused(BadFeatures, "one of each user", {**good, "smokes": np.abs(PADDED)})
    refused(BadFeatures, "one id of each user", {**good, "smokes": (FLAT, OFFSETS)})
    refused(BadFeatures, r"of shape \[1, 6, 3\]", {**good, "pain": PADDED[None]})
    refused(BadFeatures, "takes 5 numbers", good, None)
    refused(BadFeatures, "6 users beside 5", good, dense[1:])
    refused(BadIds, "integers", {**good, "pain": PADDED.astype(np.float32)})
    refused(BadIds, "integers", {**good, "smokes": smokes > 0})
    refused(IdOutOfRange, "user 0", {**good, "smokes": smokes + ROWS[0]})
    # Of a feature with one id there is no padding, and another number is none of a history's.
    refused(IdOutOfRange, "start at 0", {**good, "smokes": smokes - 5})
    refused(IdOutOfRange, "start at 0", {**good, "pain": np.where(PADDED < 0, -100, PADDED)})
    refused(ConfigError, "no feature 'pain'|holds no bags", [1, 2])
    with pytest.raises(ConfigError, match="computes no model"):
        PrivateModel(hushtable.Table.from_weight(np.eye(3, dtype=np.float32)))


def test_it_waits_for_no_client_of_asyncio() -> None:
    class Awaited:
        async def predict(self, ids: Any = None, dense: Any = None) -> None: ...

    with pytest.raises(ConfigError, match="predictions are awaited.*scheme=.shares"):
        PrivateModel(Awaited())


def test_copies_connect_by_themselves(client: Any, asked: Any) -> None:
    dense, smokes, expected = asked
    model = PrivateModel(client, padding_idx=None)
    ids = {"smokes": smokes, "pain": HISTORIES}
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.source is not client and other.handle != model.handle
        assert other.padding_idx is None
        with other.source:
            np.testing.assert_allclose(other(ids, dense), expected, atol=NEAR)
        with pytest.raises(ConfigError, match="it is closed"):
            copy.deepcopy(other)
    np.testing.assert_allclose(model(ids, dense), expected, atol=NEAR)


def test_its_state_says_which_model(client: Any) -> None:
    model = PrivateModel(client)
    state = model.extra_state()
    said = state["model is at servers"]
    assert said["name"] == "clicks" and said["version"] == client.info.version
    assert said["features"] == {
        "smokes": {"rows": ROWS[0], "bag": 1},
        "pain": {"rows": ROWS[1], "bag": 3},
    }
    model.set_extra_state({"model is at servers": {**said, "version": "another"}})
    with pytest.raises(ConfigError, match="dense 6, but 'clicks'.* has 5"):
        model.set_extra_state({"model is at servers": {**said, "dense": 6}})
    with pytest.raises(ConfigError, match="not of a model"):
        model.set_extra_state({"rows are at servers": {}})
    assert model.extra_repr() == "clicks, dense=5, smokes: 2, pain: 6 (up to 3 ids)"


@needs_torch
def test_tensors_in_a_tensor_out(client: Any, asked: Any) -> None:
    dense, smokes, expected = asked
    model = PrivateModel(client).eval()
    wanted = torch.tensor(expected, dtype=torch.float32)
    first = torch.tensor(smokes)
    jagged = (torch.tensor(FLAT), torch.tensor(OFFSETS))
    for pain in (torch.tensor(PADDED), torch.tensor(PADDED, dtype=torch.int32), jagged, HISTORIES):
        for numbers in (torch.tensor(dense), torch.tensor(dense, dtype=torch.float64), dense):
            found = model({"smokes": first, "pain": pain}, numbers)
            assert isinstance(found, torch.Tensor)
            assert (found.dtype, found.device) == (torch.float32, first.device)
            assert not found.requires_grad
            torch.testing.assert_close(found, wanted, atol=NEAR, rtol=0)
    ragged = [torch.tensor(one, dtype=torch.int64) for one in HISTORIES]
    found = model({"smokes": smokes.tolist(), "pain": ragged}, dense)
    torch.testing.assert_close(found, wanted, atol=NEAR, rtol=0)
    assert isinstance(model({"smokes": smokes, "pain": PADDED}, dense), np.ndarray)


@needs_torch
def test_a_gradient_is_refused_where_one_is_made(client: Any, asked: Any) -> None:
    dense, smokes, expected = asked
    net = torch.nn.Linear(5, 5)
    torch.nn.init.eye_(net.weight)
    torch.nn.init.zeros_(net.bias)
    ids = {"smokes": torch.tensor(smokes), "pain": torch.tensor(PADDED)}
    model = PrivateModel(client)
    with pytest.raises(ConfigError, match="torch.no_grad"):
        model(ids, net(torch.tensor(dense)))
    wanted = torch.tensor(expected, dtype=torch.float32)
    for guard in (torch.no_grad, torch.inference_mode):
        with guard():
            found = model(ids, net(torch.tensor(dense)))
        torch.testing.assert_close(found, wanted, atol=NEAR, rtol=0)
    found = model(ids, net(torch.tensor(dense)).detach())
    torch.testing.assert_close(found, wanted, atol=NEAR, rtol=0)


@needs_torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
@pytest.mark.filterwarnings("ignore::FutureWarning:torch.*")
def test_it_compiles_and_is_exported(client: Any, asked: Any) -> None:
    dense, smokes, expected = asked

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = PrivateModel(client)

        def forward(self, smokes: Any, pain: Any, offsets: Any, dense: Any) -> Any:
            ids = {"smokes": smokes, "pain": pain if offsets is None else (pain, offsets)}
            return torch.sigmoid(self.model(ids, dense * 2))

    net = Net()
    given = (torch.tensor(smokes), torch.tensor(PADDED), None, torch.tensor(dense) / 2)
    jagged = (given[0], torch.tensor(FLAT), torch.tensor(OFFSETS), given[3])
    wanted = torch.sigmoid(torch.tensor(expected, dtype=torch.float32))
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for call in (net, compiled):
        for one in (given, jagged):
            torch.testing.assert_close(call(*one), wanted, atol=NEAR, rtol=0)
    program = torch.export.export(net, given)
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert called.count("hushtable.predict.default") == 1
    assert not program.state_dict
    torch.testing.assert_close(program.module()(*given), wanted, atol=NEAR, rtol=0)


@needs_torch
def test_a_state_dict_has_no_weights_and_takes_none(client: Any) -> None:
    net = torch.nn.Sequential(PrivateModel(client))
    state = net.state_dict()
    assert list(state) == ["0._extra_state"] and not list(net.parameters())
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    net.load_state_dict(torch.load(file, weights_only=True))
    checkpoint = {"0.top_l.0.weight": torch.zeros(3, 12)}
    with pytest.raises(RuntimeError, match="top_l.0.weight .no place for it: the model 'clicks'"):
        net.load_state_dict(checkpoint)
    assert net.load_state_dict(checkpoint, strict=False).unexpected_keys == ["0.top_l.0.weight"]
    assert "PrivateModel(clicks, dense=5" in repr(net)
