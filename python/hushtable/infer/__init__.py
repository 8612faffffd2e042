"""A whole model on encrypted features, of which the server learns nothing, nor of the answer.

    import hushtable.infer

    hushtable.infer.compile("models/clicks", spec="model.toml")  # a plan, into the bundle
    # hushtable infer serve models/clicks ...

    with hushtable.connect(server="https://one.example:4000", tls="ca.pem") as client:
        found = client.predict(dense, indices)  # found.logits, found.probabilities: float64 [users]

A client makes a secret, which it keeps, and evaluation keys, which it uploads once
(:attr:`CkksClient.info` says how many bytes). :class:`Model` computes the same in this process: in
the clear, with the noise alone, or encrypted.

By hybrid inference the same calls compute a neural network with exact ReLUs: homomorphic encryption
ahead of time, garbled circuits for activations (docs/hybrid.md).

    hushtable.infer.compile("models/cifar", scheme="hybrid", samples=images)
    # hushtable infer serve models/cifar ...
    options = hushtable.ClientOptions(store="precomputes")
    with hushtable.connect(server=url, options=options) as client:
        client.precompute(10)
        client.predict(image).classes

On the shares of two servers that do not collude, which look rows up and compute on what neither
sees (docs/infer.md):

    hushtable.infer.compile_shares("models/clicks", dense, indices, spec="model.toml")
    # hushtable infer serve models/clicks --side left --peer https://right.example:4000 ...
    # hushtable infer serve models/clicks --side right ...
    with hushtable.connect(left, right, scheme="shares", tls=tls) as client:
        client.predict({"user": [17], "film": [4]}, dense).probabilities
"""

from __future__ import annotations

from ..client.options import Garbler
from . import networks
from ._ckks_client import AsyncCkksClient, CkksClient
from ._hybrid import (
    HybridModel,
    HybridPlanInfo,
    NetworkInfo,
    OnlineStats,
    Outputs,
    PrecomputeStats,
)
from ._hybrid_client import AsyncHybridClient, HybridClient
from ._kinds import describe
from ._model import FHE, Model
from ._plan import PlanAlternative, PlanInfo, compile, plan, shape
from ._project import Machine, Projection, machines, paper_trace, project, trace
from ._server import ServerProcess, Serving, serve
from ._shares import SharesPlanInfo, compile_shares, describe_shares, plan_shares
from ._shares_client import (
    AsyncSharesClient,
    SharesClient,
    SharesInfo,
    SharesPredictions,
    SharesStats,
)
from ._types import ModelInfo, Predictions, PredictionStats

__all__ = [
    "FHE",
    "AsyncCkksClient",
    "AsyncHybridClient",
    "AsyncSharesClient",
    "CkksClient",
    "Garbler",
    "HybridClient",
    "HybridModel",
    "HybridPlanInfo",
    "Machine",
    "Model",
    "ModelInfo",
    "NetworkInfo",
    "OnlineStats",
    "Outputs",
    "PlanAlternative",
    "PlanInfo",
    "PrecomputeStats",
    "PredictionStats",
    "Predictions",
    "Projection",
    "ServerProcess",
    "Serving",
    "SharesClient",
    "SharesInfo",
    "SharesPlanInfo",
    "SharesPredictions",
    "SharesStats",
    "compile",
    "compile_shares",
    "describe",
    "describe_shares",
    "machines",
    "networks",
    "paper_trace",
    "plan",
    "plan_shares",
    "project",
    "serve",
    "shape",
    "trace",
]
