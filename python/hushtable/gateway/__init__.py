"""A gateway beside a service: lookups over HTTP and JSON, for what has no client of ours.

It runs on the client's side and sees ids, so it belongs to whoever may see them. Its servers see
what they see of any other client. ``hushtable gateway`` runs it; :class:`Gateway` is the ASGI
application alone, to be run by any server of ASGI or mounted in a larger one.
"""

from __future__ import annotations

from .application import Gateway
from .listening import GatewayOptions, Listening, run_gateway
from .statuses import STATUSES, status_of

__all__ = [
    "STATUSES",
    "Gateway",
    "GatewayOptions",
    "Listening",
    "run_gateway",
    "status_of",
]
