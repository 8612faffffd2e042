"""Federated training of embedding tables whose accesses stay private.

A :class:`Table` is trained round by round; :mod:`hushtable.fl.flower` makes its rounds part of a
Flower app (``pip install 'hushtable[fl]'``).
"""

from .plain import PlainReport, PlainTable
from .sealed import SealedController, SealedSession, Sessions, Terms
from .table import DUMMY, BadRound, Report, Table

__all__ = [
    "DUMMY",
    "BadRound",
    "PlainReport",
    "PlainTable",
    "Report",
    "SealedController",
    "SealedSession",
    "Sessions",
    "Table",
    "Terms",
]
