"""Clients of servers, and how they connect."""

from __future__ import annotations

from .connecting import connect, connect_async
from .model import AsyncFeatureClient, AsyncModelClient, FeatureClient, ModelClient
from .options import MAX_LAYOUT_BYTES, PARAMETER_SETS, ClientOptions, Tls, TlsConfig
from .reach import Servers
from .table import AsyncClient, Client

__all__ = [
    "MAX_LAYOUT_BYTES",
    "PARAMETER_SETS",
    "AsyncClient",
    "AsyncFeatureClient",
    "AsyncModelClient",
    "Client",
    "ClientOptions",
    "FeatureClient",
    "ModelClient",
    "Servers",
    "Tls",
    "TlsConfig",
    "connect",
    "connect_async",
]
