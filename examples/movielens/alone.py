"""What the demo says where there is a single server: `make demo SCHEME=onion`."""

from __future__ import annotations

from rich import box
from rich.panel import Panel
from rich.table import Table

from hushtable import OnionInfo, PreparedInfo, TableInfo
from hushtable.data import MovieLens

from .films import Judgement, Overheard
from .split import HISTORY_MAX
from .story import Story, counted


class LoneStory(Story):
    """The same scenes, with one server: what it does, what it costs, and what it sees."""

    asked_by, answered_by, holders = "queries", "the server", "The server holds"

    def opening(self) -> None:
        """What is about to be shown, and who does what."""
        self._console.print(
            Panel(
                "A model looks rows up in a table. [bold]Which rows it reads says who you are.[/]\n"
                "Here a single server holds the table, you get your rows, and it does not learn"
                " which.",
                title="hushtable, one server",
                box=box.ROUNDED,
                padding=(0, 2),
            )
        )
        roles = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("you: the device", "the server"):
            roles.add_column(column)
        for row in (
            ("keep your history and a secret, send neither", "holds the whole table"),
            ("upload keys that belong to the secret, once", "keeps them: it can compute, not read"),
            ("encrypt each row's place: a query", "gets noise"),
            ("decrypt the response: your row", "multiplies every row with the query, always"),
        ):
            roles.add_row(*row)
        self._console.print(roles)
        self.say(
            "What that rests on: the hardness of lattice problems, at 128 bits. No second server,"
            " and nobody who must not talk to anybody. The price is work, which you will see."
        )

    def single(self, url: str, made: PreparedInfo, costs: OnionInfo) -> None:
        """That it runs, and what it took to get there."""
        self.say(
            f"One process, TLS on loopback: {url}. Before, the table was prepared in"
            f" {made.seconds:.2f} s to {made.prepared_bytes / 1e6:.1f} MB, the form in which it is"
            f" multiplied. A client's keys are {costs.key_bytes / 1e6:.2f} MB, a query"
            f" {costs.query_bytes / 1e3:.1f} KB, a response {costs.response_bytes / 1e3:.1f} KB"
            f" ({costs.parameters})."
        )

    def sample(self, shown: int, held_out: int) -> None:
        """That not everybody is judged."""
        self.say(
            f"Each lookup is {HISTORY_MAX} encrypted queries, so {shown} of the {held_out} held-out"
            " users are judged here, the first as they were dealt; --users takes more."
        )

    def _messages(self, judgement: Judgement, info: TableInfo) -> list[tuple[str, str, str]]:
        return [
            (
                "bytes up",
                f"{judgement.bytes_up:,}",
                f"{judgement.key_count} encrypted queries, whatever the history",
            ),
            (
                "bytes down",
                f"{judgement.bytes_down:,}",
                f"{judgement.key_count} ciphertexts, each for one row of {info.row_bytes} bytes",
            ),
            ("keys, once", f"{judgement.upload_bytes:,}", "kept by the server for later lookups"),
        ]

    def overheard(self, ratings: MovieLens, overheard: Overheard) -> None:
        """What the server saw."""
        film = ratings.titles[overheard.film]
        self.say(
            "A wiretap behind the server's own TLS notes what arrives. Two lookups of"
            f" [bold]{film}[/], then one of another film; the first query of each:"
        )
        self._first_bytes(film, overheard, "the query begins")
        self.say(
            f"Queries for the same film differ in {overheard.same_differ:.1%} of their bits,"
            f" queries for different films in {overheard.other_differ:.1%}: coin flips both."
            f" {counted(overheard, self.asked_by)}",
        )
        senders = ", ".join(f"{sender.hex()[:16]}..." for sender in overheard.senders)
        self.say(
            f"What is not noise: all {len(overheard.counts) + 1} requests name the keys that answer"
            f" them ({senders}). The server can tell that they come from one client. A client that"
            " wants two lookups unlinked connects anew, and uploads new keys."
        )
        self.say(
            "So the server learns: that you asked, when, from which address, for which table, under"
            f" which keys, and the bound of {HISTORY_MAX}. Not which films. (SECURITY.md says why,"
            " and what is not hidden.)"
        )
