"""The model on behaviour histories, on tiny files of the real formats and on made-up ratings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.clicks import report, synthetic
from examples.clicks.judging import Judge
from examples.clicks.pages import ABSENT
from examples.histories import __main__, items, journeys, model, people, taobao
from examples.histories.app import SMALL, SMALL_ROWS, App, Shop
from examples.histories.model import attend

import hushtable
from hushtable.data import DataError, MalformedData, MovieLens

SAMPLE = """user,time_stamp,adgroup_id,pid,nonclk,clk
581738,1494137644,1,430548_1007,1,0
449818,1494638778,3,430548_1007,1,0
581738,1494137644,4,430548_1007,0,1
581738,1494137644,4,430539_1007,1,0
914836,1494650879,4,430548_1007,1,0
914836,1494650880,1,430548_1007,0,1
"""
LOG = """user,time_stamp,btag,cate,brand
581738,1494137644,pv,6250,91286
581738,1494137643,cart,6250,91286
914836,1494650000,pv,4520,1
581738,1493741625,pv,6250,91286
123,1493741625,pv,6250,91286
914836,1494640000,buy,6250,91286
"""
PROFILE = (
    "userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,shopping_level,"
    "occupation,new_user_class_level \n"
    "581738,0,5,2,5,,3,0,3\n"
    "914836,5,2,2,2,1,3,1,\n"
)


def write_taobao(
    folder: Path, sample: str = SAMPLE, log: str = LOG, profile: str = PROFILE
) -> Path:
    (folder / "raw_sample.csv").write_text(sample)
    (folder / "behavior_log.csv").write_text(log)
    (folder / "user_profile.csv").write_text(profile)
    return folder


@pytest.fixture(scope="module")
def app() -> App:
    return App.small()


def test_taobao_is_read_as_it_comes(tmp_path: Path) -> None:
    found = taobao.load_taobao(write_taobao(tmp_path))
    assert found.users == ("581738", "449818", "914836")
    assert found.adgroups == ("1", "3", "4")
    assert found.user.tolist() == [0, 1, 0, 0, 2, 2]
    assert found.adgroup.tolist() == [0, 1, 2, 2, 2, 0]
    assert found.place.tolist() == [0, 0, 0, 1, 0, 0] and found.place_count == 2
    assert found.clicked.tolist() == [False, False, True, False, False, True]
    # In each user's order of time: looks before the cart; the other user is left out.
    assert found.events.starts.tolist() == [0, 3, 3, 5]
    assert found.event_time.tolist() == [1493741625, 1494137643, 1494137644, 1494640000, 1494650000]
    look, cart, other, buy = (0, 1, 2, 3)
    assert found.events.item.tolist() == [look, cart, look, buy, other]
    parts = found.parts
    assert parts.shape == (4, 3) and found.part_count == 2 + 2 + 3
    assert (parts[look, :2] == parts[cart, :2]).all() and parts[look, 2] != parts[cart, 2]
    assert (parts[look, :2] != parts[other, :2]).all() and parts[look, 2] == parts[other, 2]
    assert all(set(parts[:, one]).isdisjoint(parts[:, two]) for one, two in ((0, 1), (1, 2)))
    assert found.profile.shape == (3, 8)
    # Of the one without a profile nothing is known, and of another not one column.
    assert (found.profile[1] != found.profile[2])[:-1].all()
    assert found.profile[1, 7] == found.profile[2, 7]
    assert found.profile[0, 4] == found.profile[1, 4] != found.profile[2, 4]


def test_fewer_users_are_the_first_ones(tmp_path: Path) -> None:
    found = taobao.load_taobao(write_taobao(tmp_path), users_max=2)
    assert found.users == ("581738", "449818")
    assert len(found.user) == 4 and len(found.event_time) == 3


def test_columns_may_have_the_names_of_other_copies(tmp_path: Path) -> None:
    plain = taobao.load_taobao(write_taobao(tmp_path))
    sample = [line.split(",") for line in SAMPLE.replace("nonclk", "noclk").splitlines()]
    swapped = "\n".join(",".join([line[2], *line[:2], *line[3:]]) for line in sample) + "\n"
    other = taobao.load_taobao(
        write_taobao(tmp_path, swapped.replace("\n", "\r\n"), LOG.replace("user,", "nick,"))
    )
    assert other.adgroups == plain.adgroups
    assert other.clicked.tolist() == plain.clicked.tolist()
    assert other.events.item.tolist() == plain.events.item.tolist()


@pytest.mark.parametrize(
    ("sample", "log", "profile", "said"),
    [
        ("user,time_stamp\n", LOG, PROFILE, "raw_sample.csv:1: the header is"),
        (SAMPLE + "1,2,3,4,1,1\n", LOG, PROFILE, "raw_sample.csv:8: nonclk and clk are 1 and 1"),
        (SAMPLE + "1,2,3,4,1\n", LOG, PROFILE, "raw_sample.csv:8: 5 fields, expected 6"),
        (SAMPLE + "1,-2,3,4,1,0\n", LOG, PROFILE, "raw_sample.csv:8: time_stamp is '-2'"),
        (SAMPLE + f"1,{2**40},3,4,1,0\n", LOG, PROFILE, "raw_sample.csv:8: time_stamp"),
        (SAMPLE + f"1,{'9' * 3000},3,4,1,0\n", LOG, PROFILE, "raw_sample.csv:8: time_stamp"),
        (SAMPLE + "1" * 5000, LOG, PROFILE, "raw_sample.csv:8: a line of over 4096 bytes"),
        (SAMPLE.splitlines()[0] + "\n", LOG, PROFILE, "raw_sample.csv: no impressions"),
        (SAMPLE, LOG + "914836,9,look,1,2\n", PROFILE, "behavior_log.csv:8: btag 'look'"),
        (SAMPLE, LOG + "914836,9,pv,1,NULL\n", PROFILE, "behavior_log.csv:8: brand is 'NULL'"),
        (SAMPLE, LOG.splitlines()[0] + "\n", PROFILE, "behavior_log.csv: no behaviour"),
        (SAMPLE, LOG, PROFILE + "914836,5,2,2,2,x,3,1,1\n", "user_profile.csv:4: pvalue_level"),
        (SAMPLE, LOG, "", "user_profile.csv:1: the header is ''"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(
    tmp_path: Path, sample: str, log: str, profile: str, said: str
) -> None:
    with pytest.raises(MalformedData, match=said):
        taobao.load_taobao(write_taobao(tmp_path, sample, log, profile))


def test_files_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="tianchi"):
        taobao.load_taobao(tmp_path)


def test_a_page_is_what_was_shown_at_one_moment(tmp_path: Path) -> None:
    found = taobao.load_taobao(write_taobao(tmp_path))
    pages, owners = taobao._make_pages(found)
    assert owners.tolist() == [0, 0, 1, 2, 2]
    shown = [page[page != ABSENT].tolist() for page in pages.candidates]
    assert shown == [[0, 2], [2], [1], [2], [0]]
    assert pages.clicked.sum(axis=1).tolist() == [1, 0, 0, 0, 1]
    # What was done in the second of the page itself is left out.
    bags = [bag[bag != ABSENT].tolist() for bag in pages.bags]
    assert bags == [[0, 1], [0, 1], [], [3, 2], [3, 2]]
    assert pages.features.shape == (5, 9)
    assert pages.features[0, 8] != pages.features[1, 8] == pages.features.max()


def test_more_than_a_page_is_another_inference() -> None:
    count = taobao.PAGE_LENGTH + 1
    found = taobao.Taobao(
        users=("a",),
        adgroups=tuple(map(str, range(count))),
        user=np.zeros(count, np.int64),
        adgroup=np.arange(count),
        time=np.full(count, 5),
        place=np.zeros(count, np.int64),
        clicked=np.zeros(count, np.bool_),
        events=taobao.Events(item=np.zeros(1, np.int32), starts=np.array([0, 1])),
        event_time=np.array([4]),
        parts=np.zeros((1, 3), np.int32),
        part_count=1,
        profile=np.zeros((1, 8), np.int32),
        profile_count=1,
        place_count=1,
    )
    pages, _owners = taobao._make_pages(found)
    assert (pages.candidates != ABSENT).sum(axis=1).tolist() == [count - 1, 1]
    assert (pages.bags[:, -1] == 0).all()


def made_up_taobao(folder: Path, users: int = 60) -> Path:
    """Users who click advertisements with the parity of the categories that they look at."""
    random = np.random.default_rng(5)
    sample, log = [SAMPLE.splitlines()[0]], [LOG.splitlines()[0]]
    for user in range(users):
        for step in range(30):
            category = 2 * int(random.integers(6)) + user % 2
            log.append(f"{user},{1000 + step},pv,{category},{category // 4}")
            advertisement = int(random.integers(12))
            click = int(advertisement % 2 == user % 2)
            sample.append(f"{user},{1010 + step // 2},{advertisement},1,{1 - click},{click}")
    profile = [PROFILE.splitlines()[0], *(f"{user},1,1,1,1,1,1,1,1" for user in range(users))]
    return write_taobao(folder, *("\n".join(one) + "\n" for one in (sample, log, profile)))


def test_items_tell_film_stars_and_week_and_lie_anywhere() -> None:
    found = synthetic.ratings()
    stock, item = items.of_movielens(found, SMALL_ROWS)
    weeks = (found.time - found.time.min()) // (7 * 24 * 3600)
    films = len(found.titles)
    parts = stock.parts[item]
    assert np.array_equal(parts[:, 0], found.item)
    assert np.array_equal(parts[:, 1], films + found.rating - 1)
    assert np.array_equal(parts[:, 2], films + 5 + weeks)
    assert stock.part_count == films + 5 + weeks.max() + 1
    assert len(set(stock.row)) == len(stock.parts) and stock.row.max() < SMALL_ROWS
    assert stock.row.max() > 0.99 * SMALL_ROWS and not (np.diff(stock.row) > 0).all()
    assert np.array_equal(stock.row, items.of_movielens(found, SMALL_ROWS)[0].row)
    with pytest.raises(ValueError, match="over 100"):
        items.of_movielens(found, 100)


def test_rows_that_nothing_reads_look_like_the_others() -> None:
    random = np.random.default_rng(1)
    own = random.normal(0, 0.3, (60, 4)).astype(np.float32)
    stock = items.Items(np.zeros((60, 1), np.int32), 1, items.scatter(60, 500), 500)
    table = stock.place(own)
    assert table.dtype == np.float32 and np.array_equal(table[stock.row], own)
    others = np.delete(table, stock.row, axis=0)
    assert others.std() == pytest.approx(own.std(), rel=0.1)


def test_a_page_has_what_comes_next_and_what_never_comes() -> None:
    found = synthetic.ratings(users=40)
    stock, item = items.of_movielens(found, SMALL_ROWS)
    features = synthetic.people(users=40) + 100 * np.arange(40, dtype=np.int32)[:, None]
    dealt = journeys.deal(found, item, features)
    whose: list[set[int]] = []
    for pages in (dealt.lessons, dealt.validation, dealt.test):
        whose.append(set())
        for number, (bag, page) in enumerate(zip(pages.bags, pages.candidates, strict=True)):
            user = int(pages.features[number, 2]) // 100
            whose[-1].add(user)
            own = found.user == user
            life = found.item[own][np.argsort(found.time[own])].tolist()
            past = [int(stock.parts[one, 0]) for one in bag if one != ABSENT]
            clicked = page[pages.clicked[number]].tolist()
            passed = page[~pages.clicked[number]]
            passed = set(passed[passed != ABSENT].tolist())
            assert life[: len(past)] == past and len(past) >= journeys.HISTORY_MIN
            assert clicked == life[len(past) :][: journeys.CLICKED_COUNT] and clicked
            assert passed and passed.isdisjoint(life)
    assert whose[0].isdisjoint(whose[1] | whose[2]) and whose[1].isdisjoint(whose[2])


def test_films_passed_by_are_drawn_by_popularity() -> None:
    shelf = journeys.Shelf(
        film=np.zeros(0, np.int32),
        rated=np.array([4 * 0 + 1, 4 * 1 + 2, 4 * 1 + 3]),
        popularity=np.array([0, 10, 30, 60]),
    )
    drawn = shelf.pass_by(np.array([0] * 400 + [1] * 400), 5, np.random.default_rng(1))
    shares = np.bincount(drawn[:400].ravel(), minlength=4) / 2000
    assert shares[:2].tolist() == [0, 0]
    assert shares[3] == pytest.approx(2 / 3, abs=0.04)
    # Of what user 1 has not rated all is film 1, and at times too few are found.
    assert set(np.unique(drawn[400:]).tolist()) == {ABSENT, 1}
    assert (np.diff((drawn == ABSENT).astype(int), axis=1) >= 0).all()


def test_attention_goes_to_what_is_alike_and_not_to_what_is_missing() -> None:
    rows = jnp.asarray([[[9.0, 0.0], [0.0, 9.0], [9.0, 9.0]]])
    wanted = jnp.asarray([[[9.0, -9.0], [0.0, 0.0]]])
    run = jax.jit(lambda rows, kept: attend(wanted, rows, kept))
    seen = run(rows, np.array([[True, True, False]]))
    assert np.allclose(seen, [[[9.0, 0.0], [4.5, 4.5]]], atol=1e-5)
    nothing = np.zeros((1, 3), np.bool_)
    assert np.allclose(run(rows, nothing), 0)
    assert np.allclose(jax.jit(jax.grad(lambda rows: run(rows, nothing).sum()))(rows), 0)


def test_the_model_learns_and_forgives_drops(app: App) -> None:
    clear = app.quality("test")
    assert clear > 0.65
    assert app.quality("test", kept=np.zeros(len(app.test.ids), np.bool_)) < 0.6
    few = report.drop_at_random(app.test, 0.1)
    assert clear - 0.04 < app.quality("test", kept=few) != clear


def test_the_interface_is_what_the_harness_expects(app: App) -> None:
    assert (app.name, app.metric, app.higher_is_better) == ("histories", "AUC", True)
    assert app.weight.dtype == np.float32 and app.weight.shape == (SMALL_ROWS, SMALL.dim)
    for trace in (app.train, app.validation, app.test):
        trace.check(len(app.weight), ids_max=journeys.BAG_LENGTH)
    table = hushtable.Table.from_weight(app.weight, dtype=app.dtype)
    rows = table.rows(app.test.ids)
    assert app.quality("test", rows=rows) == app.quality("test")
    kept = report.drop_at_random(app.test, 0.3)
    rows[~kept] = 1e6
    assert app.quality("test", kept, rows) == app.quality("test", kept)


def test_training_is_repeatable() -> None:
    shop = Shop.of_movielens(synthetic.ratings(), synthetic.people(), rows=SMALL_ROWS)
    recipe = replace(SMALL, epochs=2)
    once, again = (App.of(shop, recipe, cached=False) for _ in range(2))
    assert np.array_equal(once.weight, again.weight)
    judge = Judge(shop.journeys.test)
    scores = [
        judge.scores(model.score, one.device, one.weight[one.test.ids]) for one in (once, again)
    ]
    assert np.array_equal(*scores)


def ratings_of(users: tuple[str, ...]) -> MovieLens:
    return replace(synthetic.ratings(users=len(users)), users=users)


PEOPLE = """user_id:token\tage:float\tgender:token\toccupation:float\tzip_code:token
1m_1\t1\tF\t10\t48067
1m_2\t56\tM\t16\t70072
"""


def test_people_are_read_in_the_order_of_the_ratings(tmp_path: Path) -> None:
    path = tmp_path / "ml-1m.user"
    path.write_text(PEOPLE)
    listed = people.load_people(path, ratings_of(("1m_2", "1m_1")))
    assert listed.tolist() == [[6, 8, 9 + 16], [0, 7, 9 + 10]]
    assert people.FEATURE_VALUES == 30


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("user_id:token\n", "ml-1m.user:1: the header is"),
        (PEOPLE + "1m_3\t19\tF\t1\t1\n", "ml-1m.user:4: found '1m_3\\\\t19"),
        (PEOPLE + "1m_3\t18\tF\t21\t1\n", "ml-1m.user:4"),
        (PEOPLE + "1m_3\t18\tF\t1\n", "ml-1m.user:4"),
        (PEOPLE.replace("1m_2", "1m_4"), "ml-1m.user: user '1m_2' is not in it"),
    ],
)
def test_a_wrong_list_of_people_is_named_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "ml-1m.user"
    path.write_text(text)
    with pytest.raises(MalformedData, match=said):
        people.load_people(path, ratings_of(("1m_1", "1m_2")))


def test_the_command_learns_from_taobaos_log_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HUSHTABLE_DATA", str(tmp_path))
    monkeypatch.setattr(model, "RECIPE", replace(SMALL, batch=64))
    made_up_taobao(tmp_path)
    said = []
    monkeypatch.setattr("sys.argv", ["histories", "--taobao", str(tmp_path), "--json"])
    for _run in range(2):
        assert __main__.main() == 0
        printed = capsys.readouterr()
        said.append(printed.err)
        figures = json.loads(printed.out)
    assert "training on" in said[0] and "from the cache" in said[1]
    assert figures["table"]["rows"] == 12
    quality = figures["quality"]
    assert quality["auc"] > 0.9 and quality["random_drops"]["1.0"] < 0.7
    monkeypatch.setattr("sys.argv", ["histories", "--taobao", str(tmp_path), "--users", "60"])
    assert __main__.main() == 0
    assert "the rarest ids" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["histories", "--taobao", str(tmp_path / "none")])
    assert __main__.main() == 1
    assert "cannot read" in capsys.readouterr().err
    write_taobao(tmp_path)
    monkeypatch.setattr("sys.argv", ["histories", "--taobao", str(tmp_path)])
    assert __main__.main() == 1
    assert "too few" in capsys.readouterr().err
