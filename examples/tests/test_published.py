"""Folders of published data sets that are not whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="the applications need hushtable[examples]")

from examples.clicks import model, synthetic
from examples.clicks.app import SMALL
from examples.codesign import __main__
from examples.codesign.curves import figures_of
from made_up_costs import keep_costs


@pytest.mark.parametrize(
    ("application", "names"),
    [
        ("next-word", ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")),
        ("clicks", ("movies.csv", "ratings.csv")),
        ("histories", ("raw_sample.csv", "behavior_log.csv", "user_profile.csv")),
    ],
)
def test_what_is_missing_is_named_with_all_that_is_expected(
    application: str,
    names: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = ("--out", str(tmp_path / "out"))
    monkeypatch.setattr("sys.argv", ["x", application, "--data", str(tmp_path / "none"), *out])
    assert __main__.main() == 1
    said = capsys.readouterr().err
    assert "no such folder" in said
    assert all(name in said for name in names)
    # The first is there, the second is not.
    (tmp_path / names[0]).write_text("")
    monkeypatch.setattr("sys.argv", ["x", application, "--data", str(tmp_path), *out])
    assert __main__.main() == 1
    said = capsys.readouterr().err
    assert f"{tmp_path / names[1]} (no such file)" in said
    assert names[0] in said


def test_files_are_of_one_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["x", "--data", str(tmp_path)])
    with pytest.raises(SystemExit):
        __main__.main()
    assert "one application" in capsys.readouterr().err


def test_published_files_give_the_result_that_ours_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSHTABLE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep_costs(tmp_path / "cache")
    monkeypatch.setattr(model, "RECIPE", replace(SMALL, epochs=1))
    found = synthetic.ratings()
    films = (f"{film},Film,Drama" for film in range(synthetic.FILMS))
    rated = zip(found.user, found.item, found.rating, found.time, strict=True)
    lines = (f"{user},{film},{stars},{when}" for user, film, stars, when in rated)
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n" + "\n".join(films) + "\n")
    (tmp_path / "ratings.csv").write_text(
        "userId,movieId,rating,timestamp\n" + "\n".join(lines) + "\n"
    )
    out = tmp_path / "out"
    options = ("--no-servers", "--evaluations", "20", "--out", str(out))
    monkeypatch.setattr("sys.argv", ["x", "clicks", "--data", str(tmp_path), *options])
    assert __main__.main() == 0
    document = json.loads((out / "clicks.json").read_text())
    assert document["data"] == "MovieLens-20M"
    assert document["rows"] == synthetic.FILMS * 5
    assert {saving["figure"] for saving in document["savings"]} >= {"Figure 12", "Figure 13"}
    drawn = {path.stem for path in (out / "clicks").glob("*.svg")}
    assert drawn == {figure.name for figure in figures_of(document)}
    # Again from what was kept: nothing is searched.
    kept = ("--kept", str(out / "clicks.json"))
    argv = ["x", "clicks", "--data", str(tmp_path), *kept, *options[:1], "--out", str(out / "2")]
    monkeypatch.setattr("sys.argv", argv)
    assert __main__.main() == 0
    again = json.loads((out / "2" / "clicks.json").read_text())
    assert again["search"] == document["search"]
    assert [one["ratio"] for one in again["savings"]] == [
        one["ratio"] for one in document["savings"]
    ]
