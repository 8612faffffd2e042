"""Private lookups, from two servers or from one."""

from __future__ import annotations

from .connecting import MAX_LAYOUT_BYTES, PARAMETER_SETS, TlsConfig, connect, connect_async
from .table import AsyncClient, Client

__all__ = [
    "MAX_LAYOUT_BYTES",
    "PARAMETER_SETS",
    "AsyncClient",
    "Client",
    "TlsConfig",
    "connect",
    "connect_async",
]
