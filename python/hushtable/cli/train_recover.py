"""``hushtable train backup``, ``restore`` and ``recover``."""

from __future__ import annotations

import dataclasses
import json as json_text
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConfigError
from ..fl import recovery
from ..fl.client import TrainingClient
from ..fl.recovery import Diagnosis
from ._servers import Ca, client_tls
from .output import Json, command, print_facts, print_json, progress_bar
from .train import _Counter, _Folder, _Key, _KeyBeside, _spent

_Yes = Annotated[
    bool, typer.Option("--yes", help="Do it without asking: you have read what it costs.")
]
_RoundsBegun = Annotated[
    int | None,
    typer.Option(
        help="How many rounds ever began, if more than the backup or the folder knows of: they "
        "count against the privacy budget.",
        min=0,
        metavar="N",
    ),
]


@command(
    "hushtable train backup --key /elsewhere/films.key films /backups/films-1",
    "hushtable train backup --url https://localhost:4000 --ca certs/ca.pem "
    "--operator-token-file token films-2",
    "hushtable train backup --verify --key /elsewhere/films.key /backups/films-1",
)
def backup(
    what: Annotated[
        list[str],
        typer.Argument(
            help="FOLDER DEST: the controller's folder, which nobody serves, and a new one. With "
            "--url NAME: of a folder in the server's backup_dir. With --verify DEST.",
            metavar="FOLDER DEST | NAME | DEST",
        ),
    ],
    url: Annotated[
        str | None, typer.Option(help="Of the server that serves the controller.", metavar="URL")
    ] = None,
    ca: Ca = None,
    operator_token_file: Annotated[
        Path | None, typer.Option(help="With --url, the operator's token.", metavar="FILE")
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="With --url, seconds to wait for the backup.")
    ] = 3600.0,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read a backup through instead of making one.")
    ] = False,
    key: _Key = None,
    key_beside: _KeyBeside = False,
    counter: _Counter = None,
    json: Json = False,
) -> None:
    """Back a controller up, at rest or while it is served, or check a backup.

    A backup holds one moment between two rounds. It is sealed as the folder is: keep the key
    elsewhere, without it nothing of a backup can be read. What restoring one costs in privacy is in
    docs/recover.md.
    """
    if url is not None:
        (name,) = _given(what, "NAME", 1)
        token = (
            None
            if operator_token_file is None
            else operator_token_file.read_text("utf-8-sig").strip()
        )
        client = TrainingClient.connect(url, tls=client_tls(ca), operator_token=token)
        made = client.backup(name, timeout=timeout)
        client.close()
        facts: dict[str, Any] = {"backup": name, **dataclasses.asdict(made)}
    elif verify:
        (dest,) = _given(what, "DEST", 1)
        if key is None:
            raise ConfigError("say where the key is, under which the backup opens: --key FILE")
        with progress_bar("reading", shown=not json) as bar:
            found = recovery.verify_backup(dest, key=key, progress=bar)
        facts = {"backup": dest, **dataclasses.asdict(found)}
    else:
        folder, dest = _given(what, "FOLDER DEST", 2)
        with progress_bar("copying", shown=not json) as bar:
            found = recovery.backup(
                folder, dest, key=key, counter=counter, key_beside=key_beside, progress=bar
            )
        facts = {"backup": dest, **dataclasses.asdict(found)}
    if json:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): str(fact) for name, fact in facts.items()})


@command(
    "hushtable train restore --key /elsewhere/films.key --rounds-begun 812 /backups/films-1 films",
    "hushtable train restore --key /elsewhere/films.key --old-counter old.counter "
    "--yes /backups/films-1 films",
)
def restore(
    backup: Annotated[Path, typer.Argument(help="The backup's folder.", metavar="BACKUP")],
    folder: Annotated[Path, typer.Argument(help="A new folder.", metavar="FOLDER")],
    key: _Key = None,
    key_beside: _KeyBeside = False,
    counter: _Counter = None,
    old_counter: Annotated[
        str | None,
        typer.Option(
            help="The root counter of the controller that was backed up, if it is still there: it "
            "knows how many rounds were committed since.",
            metavar="COUNTER",
        ),
    ] = None,
    rounds_begun: _RoundsBegun = None,
    yes: _Yes = False,
    json: Json = False,
) -> None:
    """Make a controller in a new FOLDER of a backup. It says what that costs, and asks.

    The pin stays as it was, so users notice nothing. An old FOLDER or counter is not written over:
    move it away first, to keep.
    """

    def run(approve: Any, bar: Any) -> Diagnosis | None:
        return recovery.restore(
            backup,
            folder,
            key=key,
            counter=counter,
            key_beside=key_beside,
            old_counter=old_counter,
            rounds_begun=rounds_begun,
            approve=approve,
            progress=bar,
        )

    looked: list[Diagnosis] = []

    def look(found: Diagnosis) -> bool:
        looked.append(found)
        return False

    with progress_bar("reading", shown=not json) as bar:
        run(look, bar)
    _ask(looked[0], _cost("restore", looked[0]), yes, json)
    with progress_bar("restoring", shown=not json) as bar:
        done = run(None, bar)
    _print_done(done, folder, None, json)


@command(
    "hushtable train recover --key /elsewhere/films.key films",
    "hushtable train recover --key /elsewhere/films.key --accept-rollback films",
    "hushtable train recover --key /elsewhere/films.key --salvage --yes films",
)
def recover(
    folder: _Folder,
    accept_rollback: Annotated[
        bool,
        typer.Option("--accept-rollback", help="Go on from the older state of the folder."),
    ] = False,
    new_counter: Annotated[
        bool,
        typer.Option(
            "--new-counter",
            help="The root counter is lost, and you know that the folder is the newest.",
        ),
    ] = False,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Keep the rows that can be read.")
    ] = False,
    key: _Key = None,
    key_beside: _KeyBeside = False,
    counter: _Counter = None,
    new_counter_at: Annotated[
        str | None,
        typer.Option(
            help="Where the new root counter goes: needed where the old one is no file, or on a "
            "disk that is gone. Default: in the old one's place.",
            metavar="COUNTER",
        ),
    ] = None,
    rounds_begun: _RoundsBegun = None,
    lost_rows: Annotated[
        Path | None,
        typer.Option(
            help="With --salvage, a file for the rows that are lost or uncertain. They tell where "
            "rows lay: keep it from who watches the disk. Default: FOLDER.lost-rows.json.",
            metavar="FILE",
        ),
    ] = None,
    yes: _Yes = False,
    json: Json = False,
) -> None:
    """Say what is the matter with a controller that does not open, and go on.

    Without a flag it only looks, and exits with 1 where something is to be decided. With one it
    says what that costs in privacy and in rows, asks, and makes the controller anew; the old folder
    and the old counter are kept beside it, as FOLDER.before-recovery and COUNTER.before-recovery.
    """
    flags = {
        "accept-rollback": accept_rollback,
        "new-counter": new_counter,
        "salvage": salvage,
    }
    chosen = [name for name, is_chosen in flags.items() if is_chosen]
    if len(chosen) > 1:
        raise ConfigError(f"--{' and --'.join(chosen)} exclude each other: give one")
    where: dict[str, Any] = {"key": key, "counter": counter, "key_beside": key_beside}
    with progress_bar("looking", shown=not json) as bar:
        found = recovery.diagnose(folder, progress=bar, **where)
    if not chosen:
        _print_found(found, folder, json)
        if found.remedy is not None:
            raise typer.Exit(1)
        return
    remedy = chosen[0]
    if found.remedy not in (None, "finish", "restore"):
        _ask(found, _cost(remedy, found), yes, json)
    with progress_bar("recovering", shown=not json) as bar:
        done = recovery.recover(
            folder,
            remedy,
            new_counter=new_counter_at,
            rounds_begun=rounds_begun,
            progress=bar,
            **where,
        )
    listed = None
    if done is not None and done.report is not None and (done.report.lost or done.report.uncertain):
        listed = lost_rows or folder.with_name(folder.name + ".lost-rows.json")
        text = json_text.dumps({"lost": done.report.lost, "uncertain": done.report.uncertain})
        listed.touch(mode=0o600)
        listed.write_text(text, encoding="utf-8")
    _print_done(done, folder, listed, json)


def _given(what: list[str], expected: str, count: int) -> list[str]:
    if len(what) != count:
        raise ConfigError(f"expected {expected}, found {' '.join(what)}")
    return what


#: What to run, by what fits.
_COMMANDS = {
    "accept-rollback": "hushtable train recover --accept-rollback",
    "new-counter": "hushtable train recover --new-counter",
    "salvage": "hushtable train recover --salvage",
    "finish": "hushtable train recover --accept-rollback",
    "restore": "hushtable train restore BACKUP",
}


def _cost(remedy: str, found: Diagnosis) -> list[str]:
    """What a remedy costs, a sentence a line."""
    report = found.report
    if remedy == "new-counter":
        return [
            "You say that this folder is the newest copy there is; nothing here can tell.",
            "If it is an older one, the rounds since are undone without being charged to the "
            "privacy budget, and rows are read from places that were shown already: who watches "
            "the disk then sees which rounds want the same rows.",
            "If you do not know, take --accept-rollback, which moves every row and charges the "
            "rounds that you say began.",
        ]
    assert report is not None
    lines = []
    since = (found.counter_rounds or report.rounds) - report.rounds
    rounds = f"{since:,} committed rounds" if since > 0 else "Rounds committed"
    lines.append(
        f"{rounds} after round {report.rounds:,} are undone: what they trained is lost."
        if remedy != "salvage" or since > 0
        else "No committed round is undone, as far as the root counter tells."
    )
    lines.append(f"What they cost stays spent: epsilon {_spent(report.spent)}.")
    if found.rounds_unknown:
        lines.append("Nothing here knows of rounds since: --rounds-begun N charges them.")
    if report.redraws_noise:
        lines.append(
            "Rows' noise is drawn anew: who saw a row of an undone round has seen one noisy answer "
            "more than was accounted for. Count the undone rounds' noise twice."
        )
    lines.append(
        "Every row moves to a fresh place, so what rounds have shown of places so far tells "
        "nothing of later ones. Users' messages of undone rounds open in no later round."
    )
    if report.lost or report.uncertain or report.older_max:
        lines.append(
            f"{len(report.lost):,} of {report.rows:,} rows are lost and get the default row; "
            f"{len(report.uncertain):,} may have the value of another round, and up to "
            f"{report.older_max:,} others an earlier one."
        )
    if report.journal_damaged_at is not None:
        lines.append(
            "Rounds behind the damage in the journal are partly in the tree: rows that they "
            "changed have their value from before or after."
        )
    if not (report.damaged_buckets == 0 and report.journal_damaged_at is None):
        lines.append(
            "Which rows are lost tells where rows lay, and finding them out shows it to who "
            "watches this machine's memory: do it where nobody does, and guard the list."
        )
    return lines


def _ask(found: Diagnosis, cost: list[str], yes: bool, as_json: bool) -> None:
    if not as_json:
        print(f"found: {found.found}", file=sys.stderr)
        for line in cost:
            print(f"- {line}", file=sys.stderr)
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise ConfigError(
            "this is not undone by itself, and there is no terminal to ask at: read what it costs "
            f"and say --yes. {' '.join(cost)}"
        )
    typer.confirm("Go on?", abort=True, err=True)


def _print_found(found: Diagnosis, folder: Path, as_json: bool) -> None:
    if as_json:
        print_json({"folder": str(folder), **dataclasses.asdict(found)})
        return
    facts = {"found": found.found}
    if found.remedy is not None:
        command = _COMMANDS[found.remedy]
        facts["what fits"] = f"{command} {folder}"
        if found.remedy == "new-counter":
            facts["or, if it may be old"] = f"{_COMMANDS['accept-rollback']} {folder}"
    if found.report is not None:
        facts["rounds"] = f"{found.report.rounds:,}"
        facts["spent"] = _spent(found.report.spent)
    print_facts(facts)


def _print_done(done: Diagnosis | None, folder: Path, listed: Path | None, as_json: bool) -> None:
    assert done is not None, "nobody said no"
    if as_json:
        record = {"folder": str(folder), **dataclasses.asdict(done)}
        print_json({**record, "lost_rows": None if listed is None else str(listed)})
        return
    facts = {"controller": str(folder), "was": done.found}
    if done.report is not None:
        facts["rounds"] = f"{done.report.rounds:,}"
        facts["spent"] = _spent(done.report.spent)
        facts["lost rows"] = f"{len(done.report.lost):,}"
    if listed is not None:
        facts["list of rows"] = str(listed)
    print_facts(facts)
