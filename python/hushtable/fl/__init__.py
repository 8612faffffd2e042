"""Federated training of embedding tables through an oblivious memory."""

from .controller import (
    DUMMY,
    Aggregate,
    Controller,
    RoundReport,
    RoundTerms,
    Session,
    TrainInfo,
    TrainingClient,
    connect,
)

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
