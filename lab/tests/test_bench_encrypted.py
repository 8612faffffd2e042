"""The scripts that measure encrypted inference: their tables, and how peers are compared."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"bench_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


models = load(ROOT / "bench" / "encrypted_models.py")
peers = load(ROOT / "bench" / "peers" / "run.py")


def kept() -> Any:
    return json.loads(sorted(models.RESULTS.glob("encrypted-models-*.json"))[-1].read_text())


def test_the_page_shows_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(models.PAGE.read_text())
    monkeypatch.setattr(models, "PAGE", copy)
    models.write_page(kept())
    original = ROOT / "docs" / "encrypted-models.md"
    assert copy.read_text() == original.read_text(), "run bench/encrypted_models.py --write-only"
    copy.write_text("no marks")
    with pytest.raises(SystemExit, match="sizes: begin"):
        models.write_page(kept())


def test_lower_thresholds_learn_less_and_activations_no_less() -> None:
    settings = kept()["settings"]
    areas = [one["auc"] for one in settings if one["activation"] == "ReLU"]
    assert areas == sorted(areas)
    for one in settings:
        assert 0.6 < one["auc"] < 0.95
        if one["threshold"] == models.COMPARED_AT:
            assert one["auc"] > areas[0] - 0.01
        # What a server must be ready for is near what training enforced.
        assert one["range"] is None or one["largest"] < 3 * one["range"]


def test_the_recipe_has_the_lowest_degree_of_which_no_seed_loses_a_thousandth() -> None:
    document = kept()["degrees"]
    clear, *degrees = document["settings"]
    assert clear["degree"] is None and document["seeds"] == len(clear["auc_by_seed"]) == 3
    assert [one["degree"] for one in degrees] == list(models.DEGREES)
    loses = {
        one["degree"]: max(
            a - b for a, b in zip(clear["auc_by_seed"], one["auc_by_seed"], strict=True)
        )
        for one in degrees
    }
    text = (ROOT / "examples" / "dlrm" / "encrypted.py").read_text()
    assert f"\nRELU_DEGREE = {min(at for at in loses if loses[at] <= 0.001)}\n" in text
    for one in degrees:
        # No impression leaves the range, in which alone it is near ReLU.
        assert 0.5 * one["range"] < one["largest"] <= one["range"]


def test_plots_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra hushtable[plot] is not installed")
    models.draw(kept(), tmp_path / "plots" / "models.svg")
    assert (tmp_path / "plots" / "models.svg").read_text().count("5,000,000") >= 1


def test_peers_are_matched_by_operation_and_degree() -> None:
    own = [
        {"operation": "rotate", "degree": 8192, "limbs": 4, "found": {"value": 0.5}},
        {"operation": "rescale", "degree": 8192, "limbs": 4, "found": {"value": 0.25}},
    ]
    found = peers.compare(
        own,
        {
            "lattigo": [
                {"operation": "rotate", "degree": 16384, "best_ms": 22.0},
                {"operation": "rotate", "degree": 8192, "best_ms": 3.0},
                {"operation": "rescale", "degree": 8192, "best_ms": 1.0},
            ],
            "poulpy": [{"operation": "rotate", "degree": 8192, "best_ms": 0.75}],
        },
    )
    assert found[0] == {
        "operation": "rotate",
        "degree": 8192,
        "limbs": 4,
        "ms": 0.5,
        "lattigo_ms": 3.0,
        "lattigo_ratio": 6.0,
        "poulpy_ms": 0.75,
        "poulpy_ratio": 1.5,
    }
    assert "poulpy_ms" not in found[1]
    assert found[1]["lattigo_ratio"] == 4.0


def test_a_peer_that_cannot_be_built_is_missing(tmp_path: Path) -> None:
    with pytest.raises(peers.Missing, match="no_such_tool build"):
        peers.printed(["no_such_tool", "build"], where=tmp_path)
    with pytest.raises(peers.Missing, match="exit status 3"):
        peers.printed([sys.executable, "-c", "raise SystemExit(3)"], where=tmp_path)
    assert peers.printed([sys.executable, "-c", "print(7)"], where=tmp_path) == "7\n"


def bootstrapped(name: str, degree: int, best_ms: float) -> dict[str, Any]:
    sizes = {"levels_left": 9, "key_bytes": 700, "mean_bits": 20.0}
    return {
        "operation": "bootstrap",
        "set": name,
        "degree": degree,
        "best_ms": best_ms,
        **sizes,
    }


def test_the_fastest_set_that_bootstraps_a_degree_is_compared() -> None:
    detail = {"levels_left": 12, "key_bytes": 900, "random_mean_bits": 18.5}
    shape = {"operation": "bootstrap", "degree": 65536, "slots": 32768}
    own = [{**shape, "found": {"value": 4000.0, "detail": detail}}]
    found = [
        bootstrapped("slow", 65536, 16000.0),
        bootstrapped("fast", 65536, 12000.0),
        bootstrapped("small", 32768, 1000.0),
    ]
    (row,) = peers.compare(own, {"lattigo": found, "poulpy": []})
    assert row == {
        **shape,
        "ms": 4000.0,
        "levels_left": 12,
        "key_bytes": 900,
        "mean_bits": 18.5,
        "lattigo_ms": 12000.0,
        "lattigo_ratio": 3.0,
        "lattigo_set": "fast",
        "lattigo_levels_left": 9,
        "lattigo_key_bytes": 700,
        "lattigo_mean_bits": 20.0,
    }


@pytest.mark.parametrize("options", [["--runs", "0"], ["--runs", "-1"], ["--bootstraps", "-1"]])
def test_peers_that_are_not_to_be_measured_are_refused(
    monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", *options])
    with pytest.raises(SystemExit) as refused:
        peers.main()
    assert refused.value.code == 2


def test_bootstraps_are_asked_for_by_their_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def printed(command: list[str], **_: Any) -> str:
        commands.append(command)
        return "{}"

    monkeypatch.setattr(peers, "printed", printed)
    shapes = list(peers.ours(False, True))
    assert [(one["degree"], one["slots"]) for one in shapes] == list(peers.BOOTSTRAPS)
    assert all("--slots" in command and "--limbs" not in command for command in commands)
    assert len(list(peers.ours(True, True))) == len(peers.COMPARED) + len(peers.BOOTSTRAPS)
