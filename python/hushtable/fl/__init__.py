"""Federated training of embedding tables whose accesses stay private.

A :class:`Controller` keeps a table in an oblivious memory and trains it round by round, in this
process or behind :func:`connect`; :mod:`hushtable.fl.flower` makes its rounds part of a Flower app
(``pip install 'hushtable[fl]'``), and :mod:`hushtable.fl.accountant` adds up what users lose.
"""

from ._arrays import DUMMY, Flags, Floats, Ids
from .budget import Budget
from .client import TrainInfo, TrainingClient, connect
from .clip import Clip
from .controller import Aggregate, Controller, RoundReport, Spent
from .plain import PlainReport, PlainTable
from .sealed import Credential, RoundTerms, SealedController, SealedSession, Sessions
from .session import Session
from .table import Report, TrainedTable
from .training import TrainServing, serve_training

__all__ = [
    "DUMMY",
    "Aggregate",
    "Budget",
    "Clip",
    "Controller",
    "Credential",
    "Flags",
    "Floats",
    "Ids",
    "PlainReport",
    "PlainTable",
    "Report",
    "RoundReport",
    "RoundTerms",
    "SealedController",
    "SealedSession",
    "Session",
    "Sessions",
    "Spent",
    "TrainInfo",
    "TrainServing",
    "TrainedTable",
    "TrainingClient",
    "connect",
    "serve_training",
]
