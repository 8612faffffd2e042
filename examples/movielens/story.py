"""What the demo says: each scene in a few sentences and one table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hushtable import TableInfo
from hushtable.data import MovieLens

from .evaluation import Ranking
from .films import Judgement, Overheard, Training, titles
from .model import DIM
from .split import HISTORY_MAX, Person, Split
from .words import KNOWN_COUNT, MAX_IDS, Answer


class Story:
    """The demo's voice. On a terminal in colour, elsewhere plain."""

    #: What a request consists of, and who answers it.
    asked_by, answered_by = "keys", "each server"
    holders = "The servers hold"

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, *sentences: str) -> None:
        """A paragraph."""
        self._console.print(" ".join(sentences), highlight=False)

    def head(self, title: str) -> None:
        """The title of a scene."""
        self._console.print()
        self._console.rule(f"[bold]{title}", align="left", style="dim")

    def note(self, line: str) -> None:
        """A line that is not the demo's own, as it is."""
        self._console.print(line, style="dim", markup=False, highlight=False)

    @contextmanager
    def wait(self, doing: str) -> Iterator[None]:
        """While something takes seconds: a spinner on a terminal, one line elsewhere."""
        if self._console.is_terminal:
            with self._console.status(doing):
                yield
        else:
            self._console.print(f"{doing} ...", highlight=False)
            yield

    def opening(self) -> None:
        """What is about to be shown, and who does what."""
        self._console.print(
            Panel(
                "A model looks rows up in a table. [bold]Which rows it reads says who you are.[/]\n"
                "Here two servers hold the table, you get your rows, and neither learns which.",
                title="hushtable",
                box=box.ROUNDED,
                padding=(0, 2),
            )
        )
        roles = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("you: the device", "left server", "right server"):
            roles.add_column(column)
        for row in (
            (
                "keep your history, send none of it",
                "holds the whole table",
                "holds the same table",
            ),
            ("make two keys for each row", "gets one key: noise", "gets the other: noise"),
            (
                "XOR the two answers: your row",
                "XORs the rows its key selects",
                "XORs the rows its key selects",
            ),
            ("run the model on it", "reads every row, always", "reads every row, always"),
        ):
            roles.add_row(*row)
        self._console.print(roles)
        self.say("What that rests on: the two servers do not share what they receive.")

    def training(self, split: Split, training: Training, seconds: float) -> None:
        """How the model came about."""
        items = training.factors.items
        self.say(
            f"Learned in {seconds:.1f} s from {len(split.training):,} users: {len(items):,} films x"
            f" {DIM} factors, {training.sweeps} sweeps of implicit least squares.",
            f"{len(split.validation)} other users said when to stop;"
            f" {len(split.test)} more have not been touched yet.",
        )

    def table(self, info: TableInfo) -> None:
        """What the servers hold."""
        self.say(
            f"{self.holders} {info.rows:,} rows of {info.row_bytes} bytes"
            f" ({info.table_bytes / 1e6:.1f} MB), version {info.version[:12]}."
        )

    def servers(self, left: str, right: str) -> None:
        """That they run."""
        self.say(f"Two processes, TLS on loopback: left {left}, right {right}.")

    def recommendations(
        self, ratings: MovieLens, people: list[tuple[Person, Ranking]], judged: int
    ) -> None:
        """Some users, and what the device recommends them."""
        self.say(
            f"{len(people)} of the {judged} held-out users. The rows of the films on the left were"
            " looked up in private; a tick marks what the user really went on to watch."
        )
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        shown.add_column("watched (stays on the device)", ratio=1)
        shown.add_column("recommended", ratio=1)
        for number, (person, ranking) in enumerate(people):
            newest = titles(ratings, person.history[-5:][::-1])
            best = [
                Text.assemble(("✓ ", "green") if hit else "  ", _short(title))
                for title, hit in zip(titles(ratings, ranking.films[:7]), ranking.hit, strict=False)
            ]
            shown.add_row(
                Text("\n".join([*map(_short, newest), f"and {len(person.seen) - 5} earlier"])),
                Text("\n").join(best),
                end_section=number + 1 < len(people),
            )
        self._console.print(shown)

    def judgement(self, judgement: Judgement, info: TableInfo) -> None:
        """How good, at what price, and that nothing was lost."""
        figures = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
        figures.add_column("what")
        figures.add_column("figure", justify="right")
        figures.add_column("remark", style="dim")
        same = f"equal to the last bit, as are all {judgement.rows:,} rows"
        for row in (
            (
                "AUC, private lookups",
                f"{judgement.auc:.4f}",
                f"95 % interval {judgement.low:.3f} to {judgement.high:.3f}"
                f", {judgement.users_judged} users",
            ),
            ("AUC, in the clear", f"{judgement.auc_clear:.4f}", same),
            ("AUC, most popular first", f"{judgement.auc_popular:.4f}", "what no history gives"),
            (
                "watched, of the first ten",
                f"{judgement.hits:.2f}",
                f"most popular first: {judgement.hits_popular:.2f}",
            ),
            ("one lookup, p50", f"{judgement.p50_ms:.1f} ms", f"p95 {judgement.p95_ms:.1f} ms"),
            *self._messages(judgement, info),
        ):
            figures.add_row(*row)
        self._console.print(figures)
        self.say(
            f"This table is small: {info.rows:,} rows are {info.table_bytes / 1e6:.1f} MB, which a"
            " device could simply download. The second table is the honest case."
        )

    def _messages(self, judgement: Judgement, info: TableInfo) -> list[tuple[str, str, str]]:
        return [
            (
                "bytes up",
                f"{judgement.bytes_up:,}",
                f"{judgement.key_count} keys to each server, whatever the history",
            ),
            (
                "bytes down",
                f"{judgement.bytes_down:,}",
                f"{judgement.key_count} answers of {info.row_bytes} bytes from each",
            ),
        ]

    def overheard(self, ratings: MovieLens, overheard: Overheard) -> None:
        """What one server saw."""
        film = ratings.titles[overheard.film]
        self.say(
            "A wiretap behind the left server's own TLS notes what arrives. Two lookups of"
            f" [bold]{film}[/], then one of another film; the first key of each:"
        )
        self._first_bytes(film, overheard, "the key begins")
        self.say(
            f"Keys for the same film differ in {overheard.same_differ:.1%} of their bits, keys for"
            f" different films in {overheard.other_differ:.1%}: coin flips both."
            f" {counted(overheard, 'keys')}",
        )
        self.say(
            "So a server learns: that you asked, when, from which address, for which table, and"
            f" the bound of {HISTORY_MAX}. Nothing else. (SECURITY.md says why, and what is not"
            " hidden.)"
        )

    def _first_bytes(self, film: str, overheard: Overheard, title: str) -> None:
        keys = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        keys.add_column("looked up")
        keys.add_column("same for all", style="dim", no_wrap=True)
        keys.add_column(title, no_wrap=True)
        for name, key in (
            (_short(film), overheard.once),
            ("the same, again", overheard.again),
            ("another film", overheard.other),
        ):
            header, rest = key[: overheard.header_bytes], key[overheard.header_bytes :]
            keys.add_row(name, header.hex(), f"{rest[:8].hex(' ', 2)} ...")
        self._console.print(keys)

    def words(self, info: TableInfo, answers: list[Answer]) -> None:
        """The second table's answers."""
        self.say(
            "Which word someone looks up can be as telling as a film. The device carries the"
            f" {KNOWN_COUNT:,} most frequent words, as everyone's does; the vector of the word"
            f" asked for is fetched in private, {MAX_IDS} {self.asked_by} a lookup."
        )
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        shown.add_column("looked up in private")
        shown.add_column("nearest on the device")
        shown.add_column("lookup", justify="right")
        for answer in answers:
            shown.add_row(
                answer.question, ", ".join(answer.nearest), f"{answer.milliseconds:.1f} ms"
            )
        self._console.print(shown)
        self.say(
            "Every row equals the table's, bit by bit. To answer one lookup"
            f" {self.answered_by} read all {info.table_bytes / 1e6:.0f} MB:"
            " whoever skips rows gives away which."
        )

    def ending(self, seconds: float) -> None:
        """The last line."""
        self.head(f"done in {seconds:.0f} s")
        self.say("Next: README.md for the Python API, docs/tutorial.md to serve your own table.")


def counted(overheard: Overheard, asked_by: str) -> str:
    """How many keys or queries the lookups brought: the bound, whatever was looked up."""
    counts = ", ".join(map(str, overheard.counts[:-1]))
    return (
        f"Lookups of 1 film brought {counts} {asked_by}, one of 100 films"
        f" {overheard.counts[-1]}: always {HISTORY_MAX}."
    )


def _short(title: str) -> str:
    """A title that fits half a terminal of 80 columns, its year kept."""
    name, _, year = title.rpartition(" ")
    return title if len(title) <= 36 else f"{name[: 36 - len(year) - 4].rstrip()}... {year}"
