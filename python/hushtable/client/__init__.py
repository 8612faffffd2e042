"""Private lookups, from two servers or from one."""

from __future__ import annotations

from .connecting import MAX_LAYOUT_BYTES, PARAMETER_SETS, Tls, TlsConfig, connect, connect_async
from .model import AsyncFeatureClient, AsyncModelClient, FeatureClient, ModelClient
from .table import AsyncClient, Client, Servers

__all__ = [
    "MAX_LAYOUT_BYTES",
    "PARAMETER_SETS",
    "AsyncClient",
    "AsyncFeatureClient",
    "AsyncModelClient",
    "Client",
    "FeatureClient",
    "ModelClient",
    "Servers",
    "Tls",
    "TlsConfig",
    "connect",
    "connect_async",
]
