"""Work that is spread over processes and machines, on Ray or without it.

:class:`ModelController` trains a model's tables by a controller each, side by side, in rounds that
its users and Flower see as one; :func:`open_pool` gives workers to :func:`hushtable.tune.tune`,
:func:`prepare_model` and :func:`prepare_table`. Ray is an executor:
``pip install 'hushtable[ray]'``.
"""

from __future__ import annotations

from ._ray import join
from .accounting import ModelAccountant, ModelBudget, ModelSpent
from .hosts import HostFacts, RayHosts, TablePlace, ThreadHosts
from .ledger import ModelRound
from .messages import ModelSession, model_pin
from .pool import Pool, WorkerLost, open_pool
from .preparing import prepare_model, prepare_table
from .training import ModelController, ModelReport, TableFailed

__all__ = [
    "HostFacts",
    "ModelAccountant",
    "ModelBudget",
    "ModelController",
    "ModelReport",
    "ModelRound",
    "ModelSession",
    "ModelSpent",
    "Pool",
    "RayHosts",
    "TableFailed",
    "TablePlace",
    "ThreadHosts",
    "WorkerLost",
    "join",
    "model_pin",
    "open_pool",
    "prepare_model",
    "prepare_table",
]
