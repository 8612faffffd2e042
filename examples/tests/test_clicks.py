"""The click model, on tiny files of the real formats and on ratings made up here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.clicks import __main__, kept, model, ratings, report, synthetic
from examples.clicks import app as clicks
from examples.clicks.app import SMALL, App, Groups, parts_of_items
from examples.clicks.judging import JUDGED_BATCH, Judge
from examples.clicks.pages import ABSENT, Events, Pages, cut_evenly, cut_often, deal_users
from examples.clicks.scoring import Inputs, masked_mean
from examples.clicks.table import Summands, add_up, write_out
from examples.clicks.training import Lessons
from examples.weights import read_weights, write_weights

import hushtable
from hushtable.data import DataError, MalformedData
from hushtable.tune.trace import Trace

FILMS = "movieId,title,genres\n" + "\n".join(
    (
        "1,Toy Story (1995),Adventure|Animation|Children",
        '11,"American President, The (1995)",Comedy|Drama|Romance',
        "2,Jumanji (1995),Adventure",
        '7,"Say ""Yes"" (1996)",(no genres listed)',
    )
)
RATINGS = """userId,movieId,rating,timestamp
3,11,3.5,1112486027
3,1,5.0,1112484676
1,7,0.5,1112484819
1,11,4.0,1112484727
"""


def write_20m(folder: Path, films: str = FILMS, rated: str = RATINGS) -> Path:
    (folder / "movies.csv").write_text(films, encoding="utf-8")
    (folder / "ratings.csv").write_text(rated, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def app() -> App:
    return App.small()


def test_movielens_20m_is_read_as_it_comes(tmp_path: Path) -> None:
    found = ratings.load_movielens_20m(write_20m(tmp_path))
    assert found.users == ("1", "3")
    # In the order of movies.csv; film 2 has no rating.
    assert found.titles == (
        "Toy Story (1995)",
        "American President, The (1995)",
        'Say "Yes" (1996)',
    )
    assert found.genres[0] == ("Adventure", "Animation", "Children")
    assert found.user.tolist() == [1, 1, 0, 0]
    assert found.item.tolist() == [1, 0, 2, 1]
    assert found.rating.tolist() == [3.5, 5.0, 0.5, 4.0]
    assert found.time.tolist() == [1112486027, 1112484676, 1112484819, 1112484727]
    assert ratings.stars(found).tolist() == [3, 4, 0, 3]


@pytest.mark.parametrize(
    ("films", "rated", "said"),
    [
        (FILMS, "userId,movieId,rating\n1,1,4\n", "ratings.csv:1: the header is"),
        (FILMS, RATINGS + "1,5,4.0,9\n", "ratings.csv:6: film 5 is not in movies.csv"),
        (FILMS, RATINGS + "1,1,5.5,9\n", "ratings.csv:6: 5.5 stars"),
        (FILMS, RATINGS + "1,1,nan,9\n", "ratings.csv:6: nan stars"),
        (FILMS, RATINGS + "1,1,four,9\n", "ratings.csv:6: found '1,1,four,9'"),
        (FILMS, RATINGS + "1,1,4.0\n", "ratings.csv:6: found '1,1,4.0'"),
        (FILMS, RATINGS + "99999999999,1,4.0,9\n", "ratings.csv:6: found '99999999999,1"),
        (FILMS, "userId,movieId,rating,timestamp\n", "no ratings"),
        ("movieId,title\n1,Toy Story\n", RATINGS, "movies.csv:1: the header is"),
        ("movieId,title,genres\n", RATINGS, "ratings.csv:2: film 11 is not in movies.csv"),
        (FILMS + "\nnine,Nine,Drama\n", RATINGS, "movies.csv:6: expected a film's number"),
        (FILMS + "\n9,Nine, the film,Drama\n", RATINGS, "movies.csv:6: expected a film's number"),
        (FILMS + '\n9,"Nine,Drama\n', RATINGS, "movies.csv:6: not CSV"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(
    tmp_path: Path, films: str, rated: str, said: str
) -> None:
    with pytest.raises(MalformedData, match=said):
        ratings.load_movielens_20m(write_20m(tmp_path, films, rated))


def test_files_that_are_no_text_or_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="grouplens.org"):
        ratings.load_movielens_20m(tmp_path)
    write_20m(tmp_path)
    (tmp_path / "ratings.csv").write_bytes(b"userId,movieId,rating,timestamp\n1,\xff,3,4\n")
    with pytest.raises(MalformedData, match="UTF-8"):
        ratings.load_movielens_20m(tmp_path)


def test_users_are_in_one_group_only() -> None:
    groups = deal_users(100)
    assert [len(group) for group in groups] == [80, 10, 10]
    assert sorted(np.concatenate(groups).tolist()) == list(range(100))
    assert deal_users(100)[2].tolist() == groups[2].tolist()


def test_a_bag_is_what_came_before_and_a_page_what_came_next() -> None:
    found = synthetic.ratings(users=40)
    groups = Groups.of(found)
    # Each user's (film, stars) in order of time; times of one user differ here.
    order = np.lexsort((found.time, found.user))
    lives = [
        [(int(found.item[at]), int(found.rating[at]) - 1) for at in order if found.user[at] == user]
        for user in range(40)
    ]
    owners: list[set[int]] = []
    for pages in (groups.lessons, groups.validation, groups.test):
        owners.append(set())
        for bag, page, clicked in zip(pages.bags, pages.candidates, pages.clicked, strict=True):
            past = [divmod(int(item), 5) for item in bag if item != ABSENT]
            future = [int(film) for film in page if film != ABSENT]
            whose = [
                user
                for user, life in enumerate(lives)
                if life[: len(past)] == past
                and [film for film, _stars in life[len(past) :][: len(page)]] == future
            ]
            assert len(past) >= clicks.HISTORY_MIN and future
            assert len(whose) == 1
            stars = dict(lives[whose[0]])
            liked = [film for film, click in zip(page, clicked, strict=True) if click]
            assert liked == [film for film in future if stars[film] >= 3]
            owners[-1].add(whose[0])
    assert owners[0].isdisjoint(owners[1] | owners[2]) and owners[1].isdisjoint(owners[2])


def test_a_long_past_keeps_its_newest_items() -> None:
    events = Events(item=np.arange(100, dtype=np.int32), starts=np.array([0, 10, 100]))
    bags = events.bags(np.array([0, 1, 1]), np.array([3, 12, 90]), 4)
    assert bags.tolist() == [[-1, 0, 1, 2], [-1, -1, 10, 11], [86, 87, 88, 89]]


def test_cuts_leave_a_past_and_a_future() -> None:
    starts = np.array([0, 5, 6, 30, 70])
    users, cuts = cut_often(starts, np.array([3, 0, 1, 2]), before_min=5, stride=8, seed=1)
    assert set(users.tolist()) == {2, 3}
    for user in (2, 3):
        own = cuts[users == user]
        assert (np.diff(own) == 8).all()
        assert starts[user] + 5 <= own[0] < starts[user] + 13
        assert own[-1] < starts[user + 1] <= own[-1] + 8
    users, cuts = cut_evenly(starts, np.array([0, 1, 2]), before_min=4, cuts_max=3, seed=1)
    assert users.tolist() == [0, 2, 2, 2]
    assert cuts[0] == 4 and (np.diff(cuts[1:]) > 0).all() and cuts[1] >= 18 and cuts[-1] < 30


def test_a_trace_has_a_bag_for_each_inference() -> None:
    pages = Pages(
        bags=np.array([[-1, 4, 2], [-1, -1, -1], [1, 1, 3]], np.int32),
        candidates=np.zeros((3, 1), np.int32),
        clicked=np.zeros((3, 1), np.bool_),
        features=np.zeros((3, 0), np.int32),
    )
    assert pages.trace().ids.tolist() == [4, 2, 1, 1, 3]
    assert pages.trace().offsets.tolist() == [0, 2, 2, 5]
    placed = pages.trace(np.array([50, 51, 52, 53, 54]))
    assert placed.ids.tolist() == [54, 52, 51, 51, 53]


def test_rows_are_the_sums_of_their_parts() -> None:
    random = np.random.default_rng(3)
    parts = parts_of_items(4)
    assert parts[7].tolist() == [1, 4 + 2]
    seen = np.array([2, 7, 19], np.int32)
    summands = Summands(
        parts=jnp.asarray(random.normal(size=(9, 3)), jnp.float32),
        own=jnp.asarray(random.normal(size=(3, 3)), jnp.float32),
    )
    rows = write_out(summands, parts, seen)
    assert np.allclose(rows[7], summands.parts[1] + summands.parts[6] + summands.own[1])
    assert np.allclose(rows[8], summands.parts[1] + summands.parts[7])
    places = np.full(20, ABSENT)
    places[seen] = np.arange(3)
    assert np.allclose(rows, jax.jit(add_up)(summands, parts, places), atol=1e-6)


def test_a_dropped_row_is_left_out_of_the_mean() -> None:
    rows = np.array([[[1.0, 2.0], [3.0, 6.0], [100.0, 100.0]]] * 2)
    kept_rows = np.array([[True, True, False], [False, False, False]])
    assert jax.jit(masked_mean)(rows, kept_rows).tolist() == [[2.0, 4.0], [0.0, 0.0]]


def test_the_model_learns_and_forgives_drops(app: App) -> None:
    clear = app.quality("test")
    assert clear > 0.8
    # Without its history it knows no taste at all.
    nothing = np.zeros(len(app.test.ids), np.bool_)
    assert app.quality("test", kept=nothing) < 0.65
    few = report.drop_at_random(app.test, 0.1)
    assert clear - 0.03 < app.quality("test", kept=few) != clear


def test_the_interface_is_what_the_harness_expects(app: App) -> None:
    assert (app.name, app.metric, app.higher_is_better) == ("clicks", "AUC", True)
    assert app.weight.dtype == np.float32 and app.weight.shape == (synthetic.FILMS * 5, SMALL.dim)
    for trace in (app.train, app.validation, app.test):
        assert isinstance(trace, Trace)
        trace.check(len(app.weight), ids_max=clicks.BAG_LENGTH)
        assert (trace.lengths == trace.distinct_counts()).all()


def test_fetched_rows_count_as_the_tables_own(app: App) -> None:
    table = hushtable.Table.from_weight(app.weight, dtype=app.dtype)
    for split in ("validation", "test"):
        ids = app.held_out(split).ids
        assert app.quality(split, rows=table.rows(ids)) == app.quality(split)
    kept_ids = report.drop_at_random(app.test, 0.3)
    rows = table.rows(app.test.ids)
    rows[~kept_ids] = 1e6
    assert app.quality("test", kept_ids, rows) == app.quality("test", kept_ids)
    # And other rows are other answers: they are what is scored.
    assert app.quality("test", rows=-table.rows(app.test.ids)) < 0.5


def test_how_a_table_is_stored_is_seen_in_what_is_scored(app: App) -> None:
    other = app.stored_as("f16")
    assert (app.row_bytes, other.row_bytes) == (SMALL.dim + 4, 2 * SMALL.dim)
    ids = app.test.ids
    expected = hushtable.Table.from_weight(app.weight, dtype="f16").rows(ids)
    assert np.array_equal(other.stored.take(ids), expected)
    assert abs(other.quality("test") - app.quality("test")) < 0.02


def test_arrays_of_another_shape_are_refused(app: App) -> None:
    with pytest.raises(ValueError, match="kept of shape"):
        app.quality("test", kept=np.ones(3, np.bool_))
    with pytest.raises(ValueError, match="rows of shape"):
        app.quality("test", rows=np.ones((len(app.test.ids), 3), np.float32))


def test_many_inferences_are_scored_as_each_alone(app: App) -> None:
    pages = app.pages["test"]
    count = JUDGED_BATCH + 3
    many = Pages(*(np.resize(one, (count, *one.shape[1:])) for one in vars(pages).values()))
    rows = app.weight[many.items]
    scores = Judge(many).scores(model.score, app.device, rows)
    assert scores.shape == (count, clicks.PAGE_LENGTH)
    for number in (0, JUDGED_BATCH - 1, JUDGED_BATCH, count - 1):
        bag = many.bags[number][many.bags[number] != ABSENT]
        inputs = Inputs(
            rows=app.weight[bag][None],
            kept=np.ones((1, len(bag)), np.bool_),
            candidates=np.maximum(many.candidates[number : number + 1], 0),
            features=np.zeros((1, 0), np.int32),
        )
        alone = jax.jit(model.score)(app.device, inputs, None)[0]
        assert np.allclose(scores[number], alone, atol=1e-5)


def test_dropping_the_rarest_takes_ids_that_training_reads_least(app: App) -> None:
    dropped = report.drop_rarest(app.test, app.train, 0.25)
    reads = np.bincount(app.train.ids, minlength=len(app.weight))[app.test.ids]
    assert (~dropped).sum() == round(0.25 * len(dropped))
    assert reads[~dropped].max() <= reads[dropped].min()


def test_weights_come_back_as_they_were(tmp_path: Path) -> None:
    start = model.start(SMALL, parts=9, seen=3, films=4)
    path = tmp_path / "models" / "one.npz"
    assert read_weights(path, start) is None
    write_weights(path, start)
    again = read_weights(path, start)
    assert again is not None and again.device.layers[1].weight.shape == (16, 8)
    for one, other in zip(jax.tree.leaves(start), jax.tree.leaves(again), strict=True):
        assert np.array_equal(one, other)
    assert read_weights(path, model.start(SMALL, parts=8, seen=3, films=4)) is None
    path.write_bytes(path.read_bytes()[:-100])
    assert read_weights(path, start) is None


def test_another_recipe_or_other_data_is_another_model() -> None:
    groups = Groups.of(synthetic.ratings(users=40))
    lessons, judge = (
        Lessons.of(groups.lessons, parts_of_items(synthetic.FILMS)),
        Judge(groups.validation),
    )
    digests = {
        kept.fingerprint(lessons, judge, SMALL),
        kept.fingerprint(lessons, judge, replace(SMALL, lookup_dropout=0.0)),
        kept.fingerprint(lessons, Judge(groups.test), SMALL),
        kept.fingerprint(replace(lessons, parts=lessons.parts[:, ::-1]), judge, SMALL),
    }
    assert len(digests) == 4


def test_the_command_trains_once_and_prints_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HUSHTABLE_DATA", str(tmp_path))
    monkeypatch.setattr(model, "RECIPE", replace(SMALL, epochs=1))
    found = synthetic.ratings()
    lines = zip(found.user, found.item, found.rating, found.time, strict=True)
    write_20m(
        tmp_path,
        "movieId,title,genres\n"
        + "".join(f"{film},Film,Drama\n" for film in range(synthetic.FILMS)),
        "userId,movieId,rating,timestamp\n"
        + "".join(f"{user},{film},{stars},{when}\n" for user, film, stars, when in lines),
    )
    said = []
    monkeypatch.setattr("sys.argv", ["clicks", "--movielens-20m", str(tmp_path), "--json"])
    for _run in range(2):
        assert __main__.main() == 0
        printed = capsys.readouterr()
        said.append(printed.err)
        figures = json.loads(printed.out)
    assert "training on" in said[0] and "from the cache" in said[1]
    assert figures["table"]["rows"] == synthetic.FILMS * 5
    assert figures["quality"]["random_drops"]["0.0"] == figures["quality"]["auc"]
    monkeypatch.setattr("sys.argv", ["clicks", "--movielens-20m", str(tmp_path / "none")])
    assert __main__.main() == 1
    assert "cannot read" in capsys.readouterr().err
