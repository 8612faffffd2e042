"""Federated training of embedding tables whose accesses stay private.

A :class:`Controller` keeps a table in an oblivious memory and trains it round by round, in this
process or behind :meth:`TrainingClient.connect`; :mod:`hushtable.fl.flower` makes its rounds part
of a Flower app (``pip install 'hushtable[fl]'``), and :mod:`hushtable.fl.accountant` adds up what
users lose.
"""

from ._arrays import DUMMY, Flags, Floats, Ids
from .budget import Budget
from .client import BackupMade, TrainInfo, TrainingClient
from .clip import Clip
from .controller import Aggregate, Controller, RoundReport, Spent
from .plain import PlainReport, PlainTable
from .recovery import Diagnosis, SalvageReport, backup, diagnose, recover, restore, verify_backup
from .sealed import Credential, RoundTerms, SealedController, SealedSession, Sessions
from .session import Session
from .table import Report, TrainedTable
from .training import TrainServing, serve_training

__all__ = [
    "DUMMY",
    "Aggregate",
    "BackupMade",
    "Budget",
    "Clip",
    "Controller",
    "Credential",
    "Diagnosis",
    "Flags",
    "Floats",
    "Ids",
    "PlainReport",
    "PlainTable",
    "Report",
    "RoundReport",
    "RoundTerms",
    "SalvageReport",
    "SealedController",
    "SealedSession",
    "Session",
    "Sessions",
    "Spent",
    "TrainInfo",
    "TrainServing",
    "TrainedTable",
    "TrainingClient",
    "backup",
    "diagnose",
    "recover",
    "restore",
    "serve_training",
    "verify_backup",
]
