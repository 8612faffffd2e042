"""docs/layouts.md and its plots are those of the results that are kept."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("jax", reason="the applications need hushtable[examples]")

from examples.codesign.curves import LINES, figures_of
from examples.codesign.kept import points_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("codesign", ROOT / "bench" / "codesign.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_what_is_kept(script: ModuleType) -> None:
    results = json.loads(script.newest("codesign").read_text(encoding="utf-8"))
    made = script.newest("collocation")
    records = json.loads(made.read_text(encoding="utf-8"))["results"] if made else []
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.render(text, results, records) == text, "run bench/codesign.py --write-only"
    changed = text.replace("| unbatched |", "| batched |")
    assert changed != text
    assert script.render(changed, results, records) == text


def test_every_curve_that_is_kept_is_linked_and_judged(script: ModuleType) -> None:
    results = json.loads(script.newest("codesign").read_text(encoding="utf-8"))
    text = script.PAGE.read_text(encoding="utf-8")
    documents = [one for one in results["applications"].values() if "points" in one]
    assert documents
    for document in documents:
        points = [point for kind, point in points_of(document) if kind in LINES]
        for figure in figures_of(document):
            path = f"plots/{document['application']}-{figure.name}.svg"
            assert f"({path})" in text
            picture = (ROOT / "docs" / path).read_text(encoding="utf-8")
            # That nothing meets a limit, as the paper's calls over a table of three times its
            # rows, is said in the picture; and only there.
            is_met = any(figure.shows(point) for point in points)
            assert ("no layout within this limit" in picture) != is_met, path
        for kind in LINES:
            judged = [p for one, p in points_of(document) if one == kind and p.quality is not None]
            assert len(judged) > 1


def test_a_page_without_marks_is_refused(script: ModuleType) -> None:
    with pytest.raises(SystemExit, match="has no <!-- recs: begin"):
        script.render("text", {"applications": {}, "recs": {"families": {}}}, [])
