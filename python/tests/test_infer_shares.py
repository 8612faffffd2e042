"""Plans of predictions on shares: compiled, calibrated, described, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run, run_json
from test_infer import DESCRIPTION, build, tensors, users

import hushtable
from hushtable import BadFeatures, ConfigError, IdOutOfRange, Model, ModelError, infer, verify_model
from hushtable.cli.infer_users import load_users, one_user
from hushtable.infer._shares import ABSENT, sample_arrays
from hushtable.infer._shares_client import _features

RELU = DESCRIPTION.replace("square", "relu")
#: Each user has up to three ids of the second feature.
POOLED = f"{RELU}bag = 3\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shares")
    build(folder)
    (folder / "relu.toml").write_text(RELU)
    (folder / "pooled.toml").write_text(POOLED)
    return folder


def compiled(folder: Path, **options: Any) -> infer.SharesPlanInfo:
    options = {"spec": folder / "relu.toml", "name": "apart", "runs": 3, **options}
    return infer.compile_shares(folder / "clicks", *users(40), **options)


def test_a_plan_is_the_bundles(folder: Path) -> None:
    found = compiled(folder)
    assert (found.name, found.fraction_bits, found.value_bits) == ("apart", 12, 8)
    assert (found.activations, found.rounds) == (32, 4)
    assert found.error is not None and 0 < found.error < 2**-5
    # What servers would make beforehand, to deal themselves.
    assert found.precompute_bytes is not None and found.precompute_peer_bytes is not None
    assert 0 < found.precompute_bytes < found.precompute_peer_bytes
    model = Model.open(folder / "clicks")
    (plan,) = model.plans
    assert (plan.name, plan.scheme, plan.error) == ("apart", "shares", None)
    assert plan.version == found.plan
    assert verify_model(model.path).ok
    shown = infer.describe(model.path)
    assert isinstance(shown, infer.SharesPlanInfo) and shown.error is None
    for name in ("plan", "up_bytes", "peer_bytes", "rounds", "products", "down_bytes"):
        assert getattr(shown, name) == getattr(found, name)
    # Its own description again, and finer numbers: more bytes, and a smaller error.
    finer = compiled(folder, spec=None, fraction_bits=16, value_bits=16)
    assert finer.error is not None and finer.error < found.error / 4
    assert finer.up_bytes > found.up_bytes and finer.plan != found.plan
    # The same samples make the same plan, and no sample is in it.
    assert compiled(folder).plan == found.plan
    text = (model.path / "plans" / "apart.shares.json").read_text()
    ranges = json.loads(text)["plan"]["ranges"]
    assert set(ranges) >= {"bottom 0", "top 0", "logit"}
    assert all(value == np.ceil(value * 16) / 16 for value in ranges.values())
    # It is none for encrypted features.
    with pytest.raises(ConfigError, match="compiled for shares"):
        infer.Model.load(model.path)
    with pytest.raises(hushtable.Error, match="shares"), infer.ServerProcess(model.path):
        pass


def test_what_is_not_the_models_is_refused(folder: Path, tmp_path: Path) -> None:
    dense, sparse = users(10)
    path = folder / "clicks"

    def refused(
        error: type[hushtable.Error], match: str, *samples: Any, **options: Any
    ) -> hushtable.Error:
        options = {"spec": folder / "relu.toml", "name": "none", "runs": 1, **options}
        with pytest.raises(error, match=match) as caught:
            infer.compile_shares(path, *samples, **options)
        assert not (path / "plans" / "none.shares.json").exists()
        return caught.value

    refused(BadFeatures, "5", dense[:, 1:], sparse)
    refused(BadFeatures, "9 users", dense, sparse[1:])
    refused(BadFeatures, "3 indices", dense, np.concatenate([sparse, sparse[:, 1:]], axis=1))
    refused(BadFeatures, "whole numbers", dense, sparse + 0.5)
    refused(BadFeatures, "takes one", dense[:1], [[1, None]])
    refused(BadFeatures, "inf", np.where(dense == dense[3, 2], np.inf, dense), sparse)
    outside = refused(IdOutOfRange, "user 4", dense, sparse + 6 * (np.arange(10) == 4)[:, None])
    assert outside.id >= 2
    refused(ModelError, "no sample", dense[:0], sparse[:0])
    refused(ConfigError, "relu", dense, sparse, spec=folder / "model.toml")
    for bits in (30, -1):
        refused(ConfigError, f"fraction_bits is {bits}.*4 to 20", dense, sparse, fraction_bits=bits)
    for bits in (4, -8):
        refused(ConfigError, f"value_bits is {bits}.*8 or 16", dense, sparse, value_bits=bits)
    refused(ConfigError, "runs", dense, sparse, runs=0)
    refused(ModelError, "no plan", dense, sparse, spec=None)
    # A layer that grows out of the numbers is named.
    found = tensors(1)
    found["top_l.0.weight"] *= 50_000
    np.savez(tmp_path / "loud.npz", **found)
    path = Model.build(tmp_path / "loud.npz", tmp_path / "loud", name="loud").path
    refused(ModelError, r"top 0 reaches \d+", dense, sparse, fraction_bits=16)


def test_tables_that_are_whole_stay_whole(tmp_path: Path) -> None:
    found = tensors(1)
    found["emb_l.1.weight"] = np.random.default_rng(2).normal(size=(900, 4)).astype("f4")
    np.savez(tmp_path / "large.npz", **found)
    path = Model.build(tmp_path / "large.npz", tmp_path / "large", name="large").path
    # 900 rows are more than the threshold, above which encrypted features have digits.
    (tmp_path / "large.toml").write_text(RELU.replace("rows = 6", "rows = 900"))
    dense, sparse = users(20)
    sparse[3, 1] = 899
    spec = tmp_path / "large.toml"
    found_plan = infer.compile_shares(path, dense, sparse, spec=spec, runs=1)
    assert found_plan.error is not None and found_plan.error < 2**-5
    with pytest.raises(ModelError, match="900"):
        infer.compile(path, spec=spec, name="encrypted")


def test_histories_are_pooled(folder: Path) -> None:
    dense, _ = users(30)
    random = np.random.default_rng(5)
    histories = [list(random.integers(0, 6, random.integers(0, 4))) for _ in dense]
    nested = [
        [int(one), ids] for one, ids in zip(random.integers(0, 2, 30), histories, strict=True)
    ]
    options = {"spec": folder / "pooled.toml", "name": "pooled", "runs": 3}
    found = infer.compile_shares(folder / "clicks", dense, nested, **options)
    assert found.error is not None and found.error < 2**-5
    flat = [[one, *ids, *[None] * (3 - len(ids))] for one, ids in nested]
    assert infer.compile_shares(folder / "clicks", dense, flat, **options).plan == found.plan
    # Two rows more are looked up and opened, whatever a history's length.
    single = compiled(folder, name="single")
    assert found.peer_bytes >= single.peer_bytes + 2 * 4
    assert found.up_bytes >= single.up_bytes + 4 * 8 * (2 * 4)
    for row in ([1, [1, 2, 3, 4]], [[1, 1], [2]], [[], [2]], [1, [2], 3], [1, [2.5]], [1, 2]):
        with pytest.raises(BadFeatures, match="user 0"):
            infer.compile_shares(folder / "clicks", dense[:1], [row], **options)
    # Encrypted features have one id each.
    with pytest.raises(ModelError, match="bag"):
        infer.compile(folder / "clicks", spec=folder / "pooled.toml", name="encrypted")
    for name in ("pooled", "single"):
        (folder / "clicks" / "plans" / f"{name}.shares.json").unlink()


def test_plans_of_several_schemes(tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / "relu.toml").write_text(RELU)
    path, addr = tmp_path / "clicks", {"addr": "127.0.0.1:0", "metrics_addr": "127.0.0.1:0"}
    infer.compile(path, spec=tmp_path / "model.toml", name="a")
    with pytest.raises(ModelError, match="no shares plan"):
        infer.serve(path, side="left", **addr)
    infer.compile_shares(path, *users(20), spec=tmp_path / "relu.toml", name="b", runs=1)
    for ask in (infer.describe, infer.serve, infer.ServerProcess):
        with pytest.raises(ConfigError, match="has several plans: name one of a, b"):
            ask(path)
    described = infer.describe(path, plan="b")
    assert isinstance(described, infer.SharesPlanInfo)
    # Whoever says which side it is means the plan on shares.
    with pytest.raises(ConfigError, match="peer"):
        infer.serve(path, side="left", **addr)
    with infer.ServerProcess(path, side="right", threads=1) as right:
        assert isinstance(right.serving.model, infer.SharesInfo)
        assert right.serving.model.plan == described.plan
    # Which of two on shares, is still to be said.
    infer.compile_shares(path, *users(20), spec=tmp_path / "relu.toml", name="c", runs=1)
    with pytest.raises(ConfigError, match="name one of b, c"):
        infer.ServerProcess(path, side="right")
    with pytest.raises(ConfigError, match="side is a setting"):
        infer.ServerProcess(path, side="right", plan="a")


def test_the_command(folder: Path, tmp_path: Path) -> None:
    dense, sparse = users(40)
    table, lines = tmp_path / "users.csv", tmp_path / "users.jsonl"
    rows = [",".join(map(str, [*d, *s])) for d, s in zip(dense, sparse, strict=True)]
    table.write_text("\n".join(["a,b,c,d,e,smokes,pain", *rows]))
    pairs = zip(dense.tolist(), sparse.tolist(), strict=True)
    records = [{"dense": d, "sparse": [one, [two]]} for d, (one, two) in pairs]
    lines.write_text("\n".join(map(json.dumps, records)))
    model, spec = str(folder / "clicks"), str(folder / "relu.toml")
    command = ["infer", "compile", model, "--scheme", "shares", "--spec", spec, "--name", "apart"]
    found = run_json(*command, "--samples", str(table))
    expected = compiled(folder)
    assert (found["plan"], found["error"]) == (expected.plan, expected.error)
    assert run_json(*command, "--samples", str(lines))["plan"] == found["plan"]
    shown = run(*command, "--samples", str(table), "--fraction-bits", "14").stdout
    assert "apart" in shown and "14 bits" in shown and "of a logit" in shown
    planned = run_json("infer", "plan", model, "--shares", "--name", "apart")
    assert planned["fraction_bits"] == 14 and planned["error"] is None
    assert run_json("infer", "plan", model)["plan"] == planned["plan"]
    assert "shares" in run("model", "info", model).stdout
    assert run("model", "verify", model).returncode == 0
    pooled = tmp_path / "pooled.csv"
    pooled.write_text("1,2,3,4,5,1,5,,0\n0,0,0,0,0,0,,,\n")
    options = ["--spec", str(folder / "pooled.toml"), "--name", "wide", "--samples", str(pooled)]
    run_json("infer", "compile", model, "--scheme", "shares", *options)
    (folder / "clicks" / "plans" / "wide.shares.json").unlink()
    for bad in (
        [*command],
        [*command, "--samples", str(tmp_path / "none.csv")],
        [*command, "--samples", str(pooled)],
        [*command, "--samples", str(table), "--users", "2"],
        [*command, "--samples", str(table), "--bits", "20"],
        ["infer", "compile", model, "--fraction-bits", "12"],
        ["infer", "plan", model, "--shares", "--fraction-bits", "12"],
        ["infer", "plan", "--shape", "uci", "--shares", "--name", "apart"],
    ):
        refused = run(*bad)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr, (bad, refused)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        *(
            (f'{{"dense": [1], "sparse": [0, 1]}}\n{{"dense": [2], "sparse": [0, {bad}]}}', match)
            for bad, match in (
                ("1.9", "line 2: 1.9 is no row: rows are whole numbers"),
                ("true", "line 2: True is no row: rows are whole numbers"),
                ('"3"', "line 2: '3' is no row: rows are whole numbers"),
                ("Infinity", "line 2: inf is no row"),
                ("[1.5]", "line 2: 1.5 is no row"),
            )
        ),
        (f'{{"dense": [1{"0" * 400}], "sparse": [0, 1]}}', "line 1: .*expected"),
        # The first user is no header for one cell that is no number.
        ("NA,1,2\n0,1,2", "line 1: 'NA' is no number.*header"),
        ("0,1,NA\n0,1,2", "line 1: 'NA' is no row"),
        ("a,b,c\nNA,1,2", "line 2: 'NA' is no number$"),
        ("0,1,2.5", "line 1: '2.5' is no row"),
        ("0,1,", "line 1 has no index of feature 1"),
    ],
)
def test_users_that_a_file_cannot_have(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "users").write_text(text)
    with pytest.raises(ConfigError, match=match):
        load_users(tmp_path / "users", 1, [1, 1])


def test_users_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "users"
    for header in ("", "a,b,c\n", "a,,c\n"):
        path.write_text(f"{header}0.5,1,2\n")
        dense, sparse = load_users(path, 1, [1, 1])
        assert (dense.tolist(), sparse.tolist()) == ([[0.5]], [[1, 2]])
        assert sparse.dtype == np.int64
    # No row of a table, which whoever takes it says by its number.
    for far in (2**63, 2**64, 10**19, -(10**20)):
        for text in (f"0,1,{far}", f'{{"dense": [0], "sparse": [1, {far}]}}'):
            path.write_text(text)
            assert load_users(path, 1, [1, 1])[1].tolist() == [[1, far]]


def test_a_user_of_an_option(folder: Path) -> None:
    def rows(text: str, bags: list[int]) -> Any:
        return one_user("0.5", text, 1, bags)[1].tolist()

    assert one_user("0.5, 1,", "", 2, [])[0].tolist() == [[0.5, 1]]
    assert one_user("", "3", 0, [1])[0].shape == (1, 0)
    assert rows("", []) == [[]]
    assert rows("3,17", [1, 1]) == rows("3, 17,", [1, 1]) == [[3, 17]]
    assert rows("1,5,,", [1, 3]) == [[1, 5, None, None]]
    assert rows("1,,,", [1, 3]) == [[1, None, None, None]]
    assert rows("1,,5,0", [1, 3]) == [[1, None, 5, 0]]
    assert rows("1,5,2,", [1, 2]) == [[1, 5, 2]]
    assert rows("1,5,", [1, 2]) == [[1, 5, None]]
    assert rows(f"1,{10**19}", [1, 1]) == [[1, 10**19]]
    for text, bags, match in (
        ("", [1, 1], "has 1 numbers and 0 rows: the model takes 1 numbers and 2 rows"),
        ("1,5,,", [1, 1], "4 rows"),
        ("1,,5", [1, 1], "3 rows"),
        (",5", [1, 1], "no index of feature 0"),
        ("1,5", [1, 3], "2 rows: the model takes 1 numbers and 4 rows"),
        ("1,2.5", [1, 1], "'2.5' is no row"),
    ):
        with pytest.raises(ConfigError, match=match):
            rows(text, bags)
    # Whoever takes it names the id.
    for far, error in ((10**19, IdOutOfRange), (10**20, BadFeatures)):
        dense, sparse = one_user("0,0,0,0,0", f"1,{far}", 5, [1, 1])
        with pytest.raises(error, match=f"index {far}"):
            infer.compile_shares(folder / "clicks", dense, sparse, spec=folder / "relu.toml")


class Foreign:
    """An array of another library."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values

    def __len__(self) -> int:
        return len(self.values)


def test_features_in_whatever_they_come() -> None:
    dense, sparse = [[0.5], [1.5]], [[3, 17, 4], [5, 6, 7]]
    for wrap in (list, np.array, Foreign, lambda it: [Foreign(row) for row in it]):
        numbers, rows = sample_arrays(Foreign(dense), wrap(sparse), 1, [1, 2])
        assert numbers.tolist() == dense and rows.tolist() == sparse
    bags = [[Foreign(3), [Foreign(17)]], (5, [])]
    assert sample_arrays(dense, bags, 1, [1, 2])[1].tolist() == [
        [3, 17, ABSENT],
        [5, ABSENT, ABSENT],
    ]
    for wrong, says in (
        (5, "sparse features are 5"),
        ("35", "sparse features are '35'"),
        ([3, 17], r"of user 0 are 3: .*\[users, 2\]"),
        (np.array([3, 17]), "of user 0 are 3"),
        ([[3, 17, 4], None], "of user 1 are None"),
        ([[3, 17, 4], [5, 1.5, 2]], "user 1: 1.5 is no index"),
    ):
        with pytest.raises(BadFeatures, match=says):
            sample_arrays(dense, wrong, 1, [1, 2])  # type: ignore[arg-type]
    for ragged in ([[1.0], [2.0, 3.0]], [["a"], ["b"]], [[None], [1.0]]):
        with pytest.raises(BadFeatures, match=r"dense features .*\[users, 1\]"):
            sample_arrays(ragged, sparse, 1, [1, 2])  # type: ignore[arg-type]


def test_columns_in_whatever_they_come() -> None:
    info = infer.SharesInfo(
        "m", "", "", "left", 0, ("user", "films"), (20, 20), (1, 2), "client", 1, 1, 1, 1
    )
    expected = [[3, 1, 2], [4, ABSENT, ABSENT]]
    for films in ([[1, 2], None], [(1, 2), ()], [Foreign([1, 2]), []], [{1: 0, 2: 0}.keys(), []]):
        found = _features({"user": Foreign([3, 4]), "films": films}, None, info)
        assert found[1].tolist() == expected
    for wrong, says in (
        ({"user": 3, "films": [[1]]}, "ids of user are 3: it takes one for each user"),
        ({"user": "3", "films": [[1]]}, "ids of user are '3'"),
        ({"user": [None], "films": [[1]]}, "user 0 has no index of feature 0"),
        ({"user": [3], "films": [1.5]}, "1.5 is no index|indices"),
        (7, "sparse features are 7"),
    ):
        with pytest.raises(BadFeatures, match=says):
            _features(wrong, None, info)  # type: ignore[arg-type]
