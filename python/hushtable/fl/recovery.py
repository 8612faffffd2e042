"""Backups of a controller, and what to do when one does not open.

    backup("films", "/backups/films-1", key="/keys/films.key")
    restore("/backups/films-1", "films", key="/keys/films.key", rounds_begun=812)
    diagnose("films", key="/keys/films.key").remedy    # None, or what to give to:
    recover("films", "accept-rollback", key="/keys/films.key")

What each costs in privacy: docs/recover.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _native
from .controller import Spent, place

__all__ = ["Backup", "Diagnosis", "SalvageReport", "backup", "diagnose", "recover", "restore"]
__all__ += ["verify_backup"]

Progress = Callable[[int, int], None]
_PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup is of.

    Attributes:
        table: the table's name.
        instance: the controller's instance, in hex.
        rounds: rounds committed.
        rounds_begun: rounds that ever began.
        bytes: of its files together.
        software: what wrote it.
    """

    table: str
    instance: str
    rounds: int
    rounds_begun: int
    bytes: int
    software: str


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What a folder holds.

    Attributes:
        rows: rows of the table.
        rounds: rounds committed.
        spent: what rounds have cost, those that the root counter knows of included.
        lost: rows of which nothing can be read; they get the default row.
        uncertain: rows whose value may be that of another round than the last.
        older_max: the most rows beside these that may have an earlier value.
        damaged_buckets: buckets of the tree that are not what was written last.
        unreadable_buckets: those of them that cannot be read at all.
        journal_damaged_at: the byte at which the journal is damaged; None for nowhere.
        redraws_noise: whether rows are owed noise, which undone rounds make drawn anew.
        was_serving: whether a round was cut short.
    """

    rows: int
    rounds: int
    spent: Spent
    lost: list[int]
    uncertain: list[int]
    older_max: int
    damaged_buckets: int
    unreadable_buckets: int
    journal_damaged_at: int | None
    redraws_noise: bool
    was_serving: bool


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is the matter with a controller.

    Attributes:
        found: in words.
        remedy: ``accept-rollback``, ``new-counter`` or ``salvage`` for :func:`recover`; ``finish``
            where any of these ends a recovery that was cut short; ``restore`` where only a backup
            helps; None where the controller opens as it is.
        counter_rounds: rounds committed as the root counter has it; None where it says nothing.
        rounds_unknown: there is a privacy budget, and nothing says how many rounds began that this
            folder does not know of.
        report: what the folder holds; None where that was not looked at.
    """

    found: str
    remedy: str | None
    counter_rounds: int | None
    rounds_unknown: bool
    report: SalvageReport | None


def _diagnosis(text: str) -> Diagnosis:
    facts: dict[str, Any] = json.loads(text)
    report = facts.pop("report")
    if report is not None:
        spent = report.pop("spent")
        # JSON has no infinity.
        epsilon = float("inf") if spent["epsilon"] is None else spent["epsilon"]
        report = SalvageReport(spent=Spent(**{**spent, "epsilon": epsilon}), **report)
    return Diagnosis(report=report, **facts)


def _backup(text: str) -> Backup:
    facts: dict[str, Any] = json.loads(text)
    size = sum(file["bytes"] for file in facts.pop("files").values())
    facts.pop("format")
    return Backup(bytes=size, **facts)


def _asked(approve: Callable[[Diagnosis], bool] | None) -> Callable[[str], bool]:
    return lambda text: approve is None or approve(_diagnosis(text))


def backup(
    folder: _PathLike,
    dest: _PathLike,
    *,
    key: _PathLike | None = None,
    counter: _PathLike | None = None,
    key_beside: bool = False,
    progress: Progress | None = None,
) -> Backup:
    """Backs up a controller that nobody serves to ``dest``, a new folder.

    :meth:`TrainingClient.backup` backs up a served one. Neither the key nor the root counter is
    in a backup: keep the key elsewhere, or the backup cannot be read.

    Raises:
        ConfigError: a folder that exists, a key file that cannot be read.
        ControllerError: as :meth:`Controller.open`; a full disk.
    """
    where = (*place(folder, key, counter, key_beside=key_beside), key_beside)
    return _backup(_native.controller_backup(where, Path(dest), progress=progress))


def verify_backup(dest: _PathLike, *, key: _PathLike, progress: Progress | None = None) -> Backup:
    """Reads a backup through: every file is what was written, every row opens under the key.

    Raises:
        ControllerError: a backup that is not whole, or of another key.
    """
    return _backup(_native.backup_verify(Path(key), Path(dest), progress=progress))


def restore(
    backup: _PathLike,
    folder: _PathLike,
    *,
    key: _PathLike | None = None,
    counter: _PathLike | None = None,
    key_beside: bool = False,
    old_counter: _PathLike | None = None,
    rounds_begun: int | None = None,
    approve: Callable[[Diagnosis], bool] | None = None,
    progress: Progress | None = None,
) -> Diagnosis | None:
    """Makes a controller in ``folder``, a new one, of a backup: same pin, every row elsewhere.

    Args:
        backup: the backup's folder.
        folder: a new one.
        key: as the controller was created with.
        counter: where the new root counter goes; ``FOLDER.counter`` by default.
        key_beside: take a key that lies beside the folder.
        old_counter: the root counter of the controller that was backed up, if it is still there.
        rounds_begun: how many rounds ever began, those since the backup included. Where there is a
            privacy budget, this or ``old_counter`` must be given.
        approve: asked before anything is written; None for yes.
        progress: called with work done and all of it.

    Returns:
        What was restored; None where ``approve`` said no.

    Raises:
        ConfigError: a folder or counter that exists; nothing that says how many rounds began.
        ControllerError: a backup that is incomplete or damaged, another key, a full disk.
    """
    where = (*place(folder, key, counter, key_beside=key_beside), key_beside)
    done = _native.controller_restore(
        Path(backup),
        where,
        old_counter=None if old_counter is None else os.fspath(old_counter),
        rounds_begun=rounds_begun,
        approve=_asked(approve),
        progress=progress,
    )
    return None if done is None else _diagnosis(done)


def diagnose(
    folder: _PathLike,
    *,
    key: _PathLike | None = None,
    counter: _PathLike | None = None,
    key_beside: bool = False,
    progress: Progress | None = None,
) -> Diagnosis:
    """Says what is the matter with a controller, and changes nothing.

    Raises:
        ConfigError: a key file that cannot be read.
        ControllerError: a controller that is running, another key, a counter out of reach.
    """
    where = (*place(folder, key, counter, key_beside=key_beside), key_beside)
    return _diagnosis(_native.controller_diagnose(where, progress=progress))


def recover(
    folder: _PathLike,
    remedy: str,
    *,
    key: _PathLike | None = None,
    counter: _PathLike | None = None,
    key_beside: bool = False,
    new_counter: _PathLike | None = None,
    rounds_begun: int | None = None,
    approve: Callable[[Diagnosis], bool] | None = None,
    progress: Progress | None = None,
) -> Diagnosis | None:
    """Goes on from a controller that does not open; what was there is kept.

    Args:
        folder: the controller's. The old one is ``FOLDER.before-recovery`` afterwards.
        remedy: ``accept-rollback``: go on from the older state that the folder is in.
            ``new-counter``: the folder is the newest, you say, and gets a root counter again.
            ``salvage``: keep the rows that can be read.
        key: as the controller was created with.
        counter: where its root counter is, or was.
        key_beside: take a key that lies beside the folder.
        new_counter: where the new root counter goes: in place of the old one by default, if that
            is a file.
        rounds_begun: how many rounds ever began, if more than the folder and the counter say.
        approve: asked before anything is written; None for yes.
        progress: called with work done and all of it.

    Returns:
        What was the matter, and what the controller holds now; None where ``approve`` said no.

    Raises:
        ConfigError: what an earlier recovery kept is in the way; nothing that says how many
            rounds began.
        ControllerError: a remedy that does not fit; as :func:`diagnose`; a full disk.
    """
    where = (*place(folder, key, counter, key_beside=key_beside), key_beside)
    done = _native.controller_recover(
        where,
        remedy,
        new_counter=None if new_counter is None else os.fspath(new_counter),
        rounds_begun=rounds_begun,
        approve=_asked(approve),
        progress=progress,
    )
    return None if done is None else _diagnosis(done)
