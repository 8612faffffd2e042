"""Private embedding tables: look rows up without the servers learning which.

Two servers that do not collude, *left* and *right*, hold the same table. A client sends each of
them keys that alone say nothing about the rows it wants, and adds the two answers up.

    import hushtable

    with hushtable.connect(
        left="https://left.example:4000", right="https://right.example:4000", tls="ca.pem"
    ) as client:
        rows = client.lookup([3, 14, 159], max_ids=8)  # float32 [3, dim]
        bag = client.lookup_bag(history)  # by the table's layout: bag.rows, bag.kept

Servers of a whole model answer all its features in one round trip:

    with hushtable.connect(left, right, tls="ca.pem", model="clicks") as client:
        rows = client.lookup({"user": [7], "item": [3, 14, 159]})  # rows["item"]: float32 [3, dim]

Where there is no second operator, a single server computes on encrypted queries instead
(``hushtable serve --scheme onion``):

    with hushtable.connect(server="https://one.example:4000", tls="ca.pem") as client:
        rows = client.lookup([3, 14, 159], max_ids=8)

The whole model is computed on encrypted features, where it too must stay with the server, by
:mod:`hushtable.infer`.

:class:`Table` builds and reads tables, :func:`serve` and :class:`ServerProcess` serve them,
:mod:`hushtable.nn` has the layers that stand where a model has ``torch.nn.Embedding``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import infer, nn
    from ._native import __version__
    from ._types import (
        Bag,
        Damage,
        FeatureInfo,
        LayoutInfo,
        LookupStats,
        ModelInfo,
        OnionInfo,
        PartInfo,
        PreparedInfo,
        TableInfo,
        VerifyReport,
    )
    from .client import (
        AsyncClient,
        AsyncFeatureClient,
        AsyncModelClient,
        Client,
        ClientOptions,
        FeatureClient,
        ModelClient,
        TlsConfig,
        connect,
        connect_async,
    )
    from .errors import (
        ActivationRange,
        BadFeatures,
        BadIds,
        BudgetSpent,
        ConfigError,
        ControllerError,
        DamagedTable,
        Error,
        FetchError,
        IdOutOfRange,
        KeyFormatError,
        KeysTooLarge,
        LayoutError,
        LayoutMismatch,
        ModelError,
        ModelTooDeep,
        NoLayout,
        NoRoom,
        OperatorOnly,
        ParametersRefused,
        PartExists,
        PinMismatch,
        PlanMismatch,
        PrecomputeError,
        PreparedError,
        ProtocolError,
        PushRefused,
        QueryTooLarge,
        RoundError,
        RoundOver,
        RoundPending,
        ServerBusy,
        ServerError,
        ServerTimeout,
        ServerUnavailable,
        ShardAbsent,
        ShardMapError,
        SourceChanged,
        SwappedServers,
        TableError,
        TlsError,
        TooManyIds,
        UnknownFeature,
        UnknownKeys,
        UnknownModel,
        VersionMismatch,
    )
    from .model import Feature, Model, ModelReport, ModelTable, verify_model
    from .server import (
        Certificates,
        ServerProcess,
        ServerTls,
        Serving,
        make_certificates,
        serve,
    )
    from .table import Table, build_table, prepared_path, verify_prepared, verify_table

__all__ = [
    "ActivationRange",
    "AsyncClient",
    "AsyncFeatureClient",
    "AsyncModelClient",
    "BadFeatures",
    "BadIds",
    "Bag",
    "BudgetSpent",
    "Certificates",
    "Client",
    "ClientOptions",
    "ConfigError",
    "ControllerError",
    "Damage",
    "DamagedTable",
    "Error",
    "Feature",
    "FeatureClient",
    "FeatureInfo",
    "FetchError",
    "IdOutOfRange",
    "KeyFormatError",
    "KeysTooLarge",
    "LayoutError",
    "LayoutInfo",
    "LayoutMismatch",
    "LookupStats",
    "Model",
    "ModelClient",
    "ModelError",
    "ModelInfo",
    "ModelReport",
    "ModelTable",
    "ModelTooDeep",
    "NoLayout",
    "NoRoom",
    "OnionInfo",
    "OperatorOnly",
    "ParametersRefused",
    "PartExists",
    "PartInfo",
    "PinMismatch",
    "PlanMismatch",
    "PrecomputeError",
    "PreparedError",
    "PreparedInfo",
    "ProtocolError",
    "PushRefused",
    "QueryTooLarge",
    "RoundError",
    "RoundOver",
    "RoundPending",
    "ServerBusy",
    "ServerError",
    "ServerProcess",
    "ServerTimeout",
    "ServerTls",
    "ServerUnavailable",
    "Serving",
    "ShardAbsent",
    "ShardMapError",
    "SourceChanged",
    "SwappedServers",
    "Table",
    "TableError",
    "TableInfo",
    "TlsConfig",
    "TlsError",
    "TooManyIds",
    "UnknownFeature",
    "UnknownKeys",
    "UnknownModel",
    "VerifyReport",
    "VersionMismatch",
    "__version__",
    "build_table",
    "connect",
    "connect_async",
    "infer",
    "make_certificates",
    "nn",
    "prepared_path",
    "serve",
    "verify_model",
    "verify_prepared",
    "verify_table",
]

#: Modules that are imported when they are asked for, or what they define: most commands need few of
#: them, and nn imports torch. Names that are not here are of ``errors``.
_OF: dict[str, tuple[str, ...]] = {
    "_native": ("__version__",),
    "_types": (
        "Bag",
        "Damage",
        "FeatureInfo",
        "LayoutInfo",
        "LookupStats",
        "ModelInfo",
        "OnionInfo",
        "PartInfo",
        "PreparedInfo",
        "TableInfo",
        "VerifyReport",
    ),
    "client": (
        "AsyncClient",
        "AsyncFeatureClient",
        "AsyncModelClient",
        "Client",
        "ClientOptions",
        "FeatureClient",
        "ModelClient",
        "TlsConfig",
        "connect",
        "connect_async",
    ),
    "model": (
        "Feature",
        "Model",
        "ModelReport",
        "ModelTable",
        "verify_model",
    ),
    "server": (
        "Certificates",
        "ServerProcess",
        "ServerTls",
        "Serving",
        "make_certificates",
        "serve",
    ),
    "table": (
        "Table",
        "build_table",
        "prepared_path",
        "verify_prepared",
        "verify_table",
    ),
}


_MODULES = ("_native", "client", "errors", "infer", "model", "nn", "server", "table")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _OF.items() if name in names), "errors")
    found = globals()[name] = getattr(importlib.import_module(f".{module}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
