"""Private embedding tables: look rows up without the servers learning which.

Two servers that do not collude, *left* and *right*, hold the same table. A client sends each of
them keys that alone say nothing about the rows it wants, and adds the two answers up.

    import hushtable

    with hushtable.connect(
        left="https://left.example:4000", right="https://right.example:4000", tls="ca.pem"
    ) as client:
        rows = client.lookup([3, 14, 159], max_ids=8)  # float32 [3, dim]
        bag = client.lookup_bag(history)  # by the table's layout: bag.rows, bag.kept

Where there is no second operator, a single server computes on encrypted queries instead
(``hushtable serve --scheme onion``):

    with hushtable.connect(server="https://one.example:4000", tls="ca.pem") as client:
        rows = client.lookup([3, 14, 159], max_ids=8)

:class:`Table` builds and reads tables, :func:`serve` and :class:`ServerProcess` serve them,
:mod:`hushtable.nn` has the layers that stand where a model has ``torch.nn.Embedding``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._native import __version__
from ._types import (
    Bag,
    Damage,
    LayoutInfo,
    LookupStats,
    OnionInfo,
    PartInfo,
    PreparedInfo,
    TableInfo,
    VerifyReport,
)
from .client import AsyncClient, Client, TlsConfig, connect, connect_async
from .errors import (
    BadIds,
    BudgetSpent,
    ConfigError,
    ControllerError,
    DamagedTable,
    Error,
    IdOutOfRange,
    KeyFormatError,
    LayoutError,
    LayoutMismatch,
    ModelError,
    NoLayout,
    OperatorOnly,
    ParametersRefused,
    PinMismatch,
    PreparedError,
    ProtocolError,
    RoundError,
    RoundOver,
    RoundPending,
    ServerBusy,
    ServerError,
    ServerTimeout,
    ServerUnavailable,
    SwappedServers,
    TableError,
    TlsError,
    TooManyIds,
    UnknownKeys,
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

if TYPE_CHECKING:
    from . import nn

__all__ = [
    "AsyncClient",
    "BadIds",
    "Bag",
    "BudgetSpent",
    "Certificates",
    "Client",
    "ConfigError",
    "ControllerError",
    "Damage",
    "DamagedTable",
    "Error",
    "Feature",
    "IdOutOfRange",
    "KeyFormatError",
    "LayoutError",
    "LayoutInfo",
    "LayoutMismatch",
    "LookupStats",
    "Model",
    "ModelError",
    "ModelReport",
    "ModelTable",
    "NoLayout",
    "OnionInfo",
    "OperatorOnly",
    "ParametersRefused",
    "PartInfo",
    "PinMismatch",
    "PreparedError",
    "PreparedInfo",
    "ProtocolError",
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
    "SwappedServers",
    "Table",
    "TableError",
    "TableInfo",
    "TlsConfig",
    "TlsError",
    "TooManyIds",
    "UnknownKeys",
    "VerifyReport",
    "VersionMismatch",
    "__version__",
    "build_table",
    "connect",
    "connect_async",
    "make_certificates",
    "nn",
    "prepared_path",
    "serve",
    "verify_model",
    "verify_prepared",
    "verify_table",
]


def __getattr__(name: str) -> Any:
    # nn imports torch where it is installed, which takes seconds: only for those who ask for it.
    if name == "nn":
        return importlib.import_module(".nn", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
