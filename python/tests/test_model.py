"""Model bundles: built from checkpoints, read back, damaged, and used by train, tune and sim."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from test_cli import run, run_json

import hushtable
from hushtable import Model, Table
from hushtable.fl import Controller
from hushtable.tune import CostModel, costs, save_costs

FIXTURES = Path(__file__).parents[2] / "crates" / "table" / "tests" / "fixtures"
DLRM = FIXTURES / "dlrm.pt"


def values(*shape: int, start: int = 0) -> np.ndarray:
    """What the fixtures hold (make.py)."""
    index = np.arange(start, start + int(np.prod(shape)))
    return (((index * 37) % 251 - 125) / 16).astype(np.float32).reshape(shape)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model.build(DLRM, tmp_path / "clicks", max_ids=3, pooling="mean")


def test_a_model_has_its_checkpoints_tensors(model: Model, tmp_path: Path) -> None:
    assert model.name == "clicks"
    assert model.path == tmp_path / "clicks"
    assert len(model.version) == 64
    assert model.features == (
        hushtable.Feature("emb_l.0", "emb_l.0", "mean", 3),
        hushtable.Feature("emb_l.1", "emb_l.1", "mean", 3),
    )
    assert [(t.rows, t.dim, t.dtype, t.layout) for t in model.tables] == [
        (6, 4, "f32", None),
        (5, 4, "bf16", None),
    ]
    table = model.table("emb_l.1")
    assert table.info.version == model.tables[1].version
    np.testing.assert_array_equal(table.rows(np.arange(5)), values(5, 4, start=24))
    dense = model.dense()
    assert {name: array.shape for name, array in dense.items()} == model.dense_shapes()
    np.testing.assert_array_equal(dense["state_dict.bot_l.0.weight"], values(4, 6).T)
    np.testing.assert_array_equal(dense["state_dict.top_l.0.weight"], values(4, 6)[:, 1:4])
    assert dense["state_dict.mask"].tolist() == [True, False]
    assert dense["state_dict.steps"] == 41
    assert dense["state_dict.steps"].dtype == np.int64

    for place in (model.path, model.path / "model.json"):
        assert Model.open(place).version == model.version
    again = Model.build(DLRM, tmp_path / "b", name="clicks", max_ids=3, pooling="mean")
    assert again.version == model.version


@pytest.mark.parametrize(
    "name", ["distributed", "distributed_safetensors", "sharded_safetensors", "model.npz"]
)
def test_every_kind_of_checkpoint_is_built(name: str, tmp_path: Path) -> None:
    done = []
    progress = lambda *now: done.append(now)  # noqa: E731
    model = Model.build(FIXTURES / name, tmp_path / "m", dtype="f32", progress=progress)
    assert done[-1][0] == done[-1][1] > 0
    first = model.table(model.features[-1].table)
    assert first.rows([0])[0, 0] in (values(1)[0], values(25)[24])
    assert hushtable.verify_model(model.path).ok


def test_bfloat16_reads_as_float32(tmp_path: Path) -> None:
    model = Model.build(DLRM, tmp_path / "m", tables=["*emb_l.0*"])
    dense = model.dense()["state_dict.emb_l.1.weight"]
    assert dense.dtype == np.float32
    np.testing.assert_array_equal(dense, values(5, 4, start=24))


def test_a_spec_says_it_one_by_one(tmp_path: Path) -> None:
    spec = tmp_path / "model.toml"
    spec.write_text("""
[[feature]]
name = "cart"
table = "items"
max_ids = 50

[[feature]]
name = "users"
pooling = "none"

[tables.items]
key = "state_dict.emb_l.0.weight"
dtype = "f16"

[tables.users]
key = "state_dict.emb_l.1.weight"
""")
    model = Model.build(DLRM, tmp_path / "m", spec=spec, dense=False)
    assert model.features == (
        hushtable.Feature("cart", "items", "sum", 50),
        hushtable.Feature("users", "users", "none", 1),
    )
    assert [table.dtype for table in model.tables] == ["f16", "bf16"]
    assert model.dense() == {}
    with pytest.raises(hushtable.ConfigError, match="not both"):
        Model.build(DLRM, tmp_path / "n", spec=spec, tables=["*"])
    with pytest.raises(hushtable.ModelError, match=r"no feature 'item'; it has cart, users"):
        model.feature("item")
    with pytest.raises(hushtable.ModelError, match="no table"):
        model.table("cart")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither"),
        ("[[feature]", "no TOML"),
        ("[[feature]]\ntable = 'a'", "needs a name"),
        ("[[feature]]\nname = 3", "must be a string"),
        ("[[feature]]\nname = 'a'\nmax_ids = 'x'", "whole number"),
        ("[[feature]]\nname = 'a'\nmax_ids = true", "whole number"),
        ("[[feature]]\nname = 'a'\nmax_ids = -1", "1 to 65536"),
        ("[[feature]]\nname = 'a'\ncolour = 1", "'colour'"),
        ("[feature]\nname = 'a'", "a list of them"),
        ("[tables.a]", "needs key"),
        ("tables = 1", "are tables"),
        ("[other]", "'other'"),
        ("[[feature]]\nname = 'a'\npooling = 'max'", "sum, mean or none"),
        ("[[feature]]\nname = 'a'\ntable = 'nope'", "no table"),
        ("[[feature]]\nname = 'a b'\ntable = 'emb_l.0'", "cannot name a feature"),
        ("[tables.a]\nkey = 'no'", "no tensor"),
        ("[tables.a]\nkey = 'state_dict.steps'", "no table: a table has two dimensions"),
        ("[tables.a]\nkey = 'state_dict.emb_l.0.weight'\ndtype = 'f8'", "f32, f16, bf16, int8"),
    ],
)
def test_bad_specs_are_one_line(text: str, said: str, tmp_path: Path) -> None:
    spec = tmp_path / "model.toml"
    spec.write_text(text)
    with pytest.raises(hushtable.Error, match=said) as error:
        Model.build(DLRM, tmp_path / "m", spec=spec)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "m").exists()


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "m"
    with pytest.raises(hushtable.ModelError, match=r"--tables.*items \[6, 4\] F64"):
        Model.build(FIXTURES / "two.safetensors", out)
    with pytest.raises(hushtable.ModelError, match='matches "nothing'):
        Model.build(DLRM, out, tables=["nothing*"])
    with pytest.raises(hushtable.ModelError, match="cannot name a model"):
        Model.build(DLRM, out, name="../m")
    with pytest.raises(hushtable.ConfigError, match="65536"):
        Model.build(DLRM, out, max_ids=0)
    with pytest.raises(hushtable.ConfigError, match="pooling"):
        Model.build(DLRM, out, pooling="max")
    with pytest.raises(hushtable.TableError, match=r"posix.*refused, and nothing was executed"):
        Model.build(FIXTURES / "evil.pt", out)
    with pytest.raises(hushtable.TableError, match="No such file"):
        Model.build(tmp_path / "none.pt", out)
    with pytest.raises(hushtable.ModelError, match="is not a model bundle"):
        Model.open(tmp_path)
    assert not out.exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(hushtable.TableError, match="will not be overwritten"):
        Model.build(DLRM, tmp_path / "mine")


def test_the_command_builds_describes_and_verifies(tmp_path: Path) -> None:
    out = tmp_path / "clicks"
    plan = run_json("model", "build", DLRM, "-o", out, "--dry-run")
    assert [table["key"] for table in plan["tables"]] == [
        "state_dict.emb_l.0.weight",
        "state_dict.emb_l.1.weight",
    ]
    assert "state_dict.bot_l.0.bias" in plan["dense"]
    assert not out.exists()
    done = run("model", "build", DLRM, "-o", out, "--dry-run")
    assert done.returncode == 0
    assert "emb_l.1" in done.stdout
    assert "bfloat16" in done.stdout

    built = run_json("model", "build", DLRM, "-o", out, "--max-ids", 7, "--dtype", "f16")
    assert built["features"][0] == {
        "name": "emb_l.0", "table": "emb_l.0", "pooling": "sum", "max_ids": 7,
    }  # fmt: skip
    info = run_json("model", "info", out)
    assert info == {key: value for key, value in built.items() if key != "seconds"}
    assert info["version"] == Model.open(out).version
    assert "state_dict.steps" in info["dense"]
    shown = run("model", "info", out).stdout
    assert info["version"] in shown
    assert run_json("model", "verify", out) == {
        "ok": True,
        "tables": [
            {"name": name, "rows": rows, "ok": True, "error": None, "damaged": [],
             "damaged_count": 0}
            for name, rows in (("emb_l.0", 6), ("emb_l.1", 5))
        ],
        "dense": None,
        "plans": [],
    }  # fmt: skip
    assert "11 rows" in run("model", "verify", out).stdout


def test_the_command_names_what_is_damaged(model: Model) -> None:
    rows = model.table_path("emb_l.0") / "rows.safetensors"
    content = bytearray(rows.read_bytes())
    content[4096 + 2 * 16] ^= 1
    rows.write_bytes(content)
    dense = model.path / "dense.safetensors"
    dense.write_bytes(dense.read_bytes()[:-1] + b"\xff")
    done = run("model", "verify", model.path)
    assert done.returncode == 1
    assert "table emb_l.0: rows.safetensors: row 2 is damaged" in done.stdout
    assert "dense.safetensors is not as it was built" in done.stdout
    done = run("model", "verify", model.path, "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert not report["ok"]
    assert [table["ok"] for table in report["tables"]] == [False, True]

    shutil.rmtree(model.table_path("emb_l.1"))
    done = run("model", "info", model.path, "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout or done.stderr)
    assert "emb_l.1" in json.dumps(error)
    assert "ModelError" in json.dumps(error)
    assert "Traceback" not in done.stderr


def test_a_damaged_dense_file_is_an_error(model: Model) -> None:
    dense = model.path / "dense.safetensors"
    whole = dense.read_bytes()
    for damaged in (
        b"\xff" * len(whole),
        whole[:8] + b"[" + whole[9:],
        whole.replace(b'"F32"', b'"F3x"'),
        whole.replace(b'"shape":[3]', b'"shape":[4]'),
    ):
        assert len(damaged) == len(whole)
        dense.write_bytes(damaged)
        with pytest.raises(hushtable.ModelError, match=r"damaged|NumPy"):
            model.dense()
    dense.write_bytes(whole[:-1])
    with pytest.raises(hushtable.ModelError, match="bytes"):
        Model.open(model.path)


@pytest.mark.parametrize("command", ["model build", "model info", "model verify"])
def test_help_has_examples_and_json(command: str) -> None:
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    assert f"$ hushtable {command}" in done.stdout
    assert "--json" in done.stdout


def test_a_table_is_replaced(model: Model, tmp_path: Path) -> None:
    table = Table.from_weight(values(6, 4) + 1, name="other")
    copy = model.replace_table("emb_l.0", table, tmp_path / "copy")
    assert copy.version != model.version
    assert copy.features == model.features
    assert copy.table("emb_l.0").info.version == table.info.version
    assert Model.open(model.path).version == model.version
    assert model.replace_table("emb_l.0", table).version == copy.version
    with pytest.raises(hushtable.ModelError, match="is not the model's"):
        model.table("emb_l.0")  # opened before its folder was replaced
    with pytest.raises(hushtable.ModelError, match="no table"):
        copy.replace_table("emb", table)


def test_a_prepared_file_is_kept_in_its_model(tmp_path: Path) -> None:
    table = Table.from_weight(values(300, 16), name="items")
    model = Model.of_table(table, tmp_path / "m")
    place = hushtable.prepared_path(model.table_path("items"))
    assert place.resolve() == model.prepared_path("items").resolve()
    made = run_json("table", "prepare", model.table_path("items"))
    assert Path(made["path"]).resolve() == place
    assert place.exists()
    assert run("table", "verify", model.table_path("items")).returncode == 0
    # It is derived: neither the model's version nor its being replaceable hangs on it.
    assert Model.open(model.path).version == model.version
    assert hushtable.verify_model(model.path).ok
    assert model.replace_table("items", Table.from_weight(values(300, 16) + 1)).path == model.path
    assert not place.exists()


def test_a_trained_table_is_exported_into_a_model(tmp_path: Path) -> None:
    start = values(40, 4)
    options = {"epsilon": np.inf, "users": 2, "slots": 4, "cached_levels": 2, "key_beside": True}
    with Controller.create(tmp_path / "films", table=start, **options):
        pass
    out = tmp_path / "m"
    made = run_json(
        "train", "export", "--key-beside", tmp_path / "films", "--model", out, "--table", "items"
    )
    first = Model.open(out)
    assert made["version"] == first.version
    assert [(f.name, f.table) for f in first.features] == [("items", "items")]
    np.testing.assert_array_equal(first.table("items").rows(np.arange(40)), start)

    base = Model.build(DLRM, tmp_path / "clicks")
    into = ("train", "export", "--key-beside", tmp_path / "films", "--model", base.path)
    again = run_json(*into, "--table", "emb_l.1", "-o", tmp_path / "next")
    after = Model.open(tmp_path / "next")
    assert again["version"] == after.version != base.version
    assert after.table("emb_l.1").info.version == again["table_version"]
    assert after.tables[0] == base.tables[0]
    assert after.dense_shapes() == base.dense_shapes()
    run_json(*into, "--table", "emb_l.1")
    assert Model.open(base.path).version == after.version

    done = run(*into, "--table", "emb_l.2", "--json")
    assert done.returncode == 2
    assert "emb_l.0, emb_l.1" in done.stdout + done.stderr
    for arguments, said in (
        (["--table", "t", "-o", tmp_path / "b"], "--model"),
        ([], "--output"),
    ):
        done = run("train", "export", "--key-beside", tmp_path / "films", *arguments)
        assert done.returncode == 2
        assert said in done.stderr
    assert [path.name for path in tmp_path.glob(".hushtable-export-*")] == []


def test_tune_and_sim_read_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = (1e-5, 1e-7, 2e-8, 3e-7, 6e-9, 6e-13, 1.5e-11, 0.0, 1e-11, 4e-9)
    machine = CostModel(constants, constants, 0.02, 0.1, *costs._machine())
    save_costs(machine, tmp_path / "cache" / "hushtable" / "layout-costs.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    random = np.random.default_rng(3)
    tables = tmp_path / "tables"
    tables.mkdir()
    np.save(tables / "items.npy", random.normal(size=(800, 8)).astype(np.float32))
    np.save(tables / "users.npy", random.normal(size=(90, 4)).astype(np.float32))
    model = Model.build(tables, tmp_path / "m", max_ids=12)
    ids = np.minimum(random.zipf(1.3, 3000) - 1, 799)
    np.savez(tmp_path / "trace.npz", ids=ids, offsets=np.arange(0, 3001, 12))
    budgets = ("--max-comm-kb", 20, "--evaluations", 20, "--sample-bags", 40)
    command = ("tune", model.path, tmp_path / "trace.npz", *budgets)
    made = run_json(*command, "--feature", "items", "--apply", model.path)
    tuned = Model.open(model.path)
    assert made["applied"]["model_version"] == tuned.version != model.version
    assert tuned.tables[0].layout == made["applied"]["layout_version"]
    assert tuned.tables[1].layout is None
    layout = tuned.table("items").layout
    assert layout is not None
    assert layout.ids_max == 12
    assert hushtable.verify_model(tuned.path).ok

    for arguments, said in (
        (command, "--feature"),
        ((*command, "--feature", "item"), "it has items, users"),
        (("tune", tuned.table_path("items"), *command[2:], "--feature", "items"), "is none"),
    ):
        done = run(*arguments)
        assert done.returncode == 2
        assert said in done.stderr

    both = run("sim", "fl", "--model", tuned.path, "--requests", 64, "--k", 32, "--json")
    assert both.returncode == 0, both.stderr
    records = [json.loads(line) for line in both.stdout.splitlines()]
    sizes = {r["params"]["rows"] for r in records if "rows" in r["params"]}
    assert sizes == {800, 90}
    one = run("sim", "fl", "--model", tuned.path, "--feature", "items", "--requests", 64)
    assert one.returncode == 0, one.stderr
    assert "items" in one.stdout
    assert "users" not in one.stdout
    for arguments, said in (
        (("--model", tuned.path, "--rows", 5), "--rows"),
        (("--feature", "items"), "--model"),
    ):
        done = run("sim", "fl", *arguments)
        assert done.returncode == 2
        assert said in done.stderr
