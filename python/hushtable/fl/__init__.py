"""Federated training of embedding tables through an oblivious memory."""

from ._arrays import DUMMY
from .client import TrainInfo, TrainingClient, connect
from .controller import Aggregate, Controller, RoundReport
from .session import RoundTerms, Session

__all__ = [
    "DUMMY",
    "Aggregate",
    "Controller",
    "RoundReport",
    "RoundTerms",
    "Session",
    "TrainInfo",
    "TrainingClient",
    "connect",
]
