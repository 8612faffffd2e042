"""The kinds of clients that predict."""

from __future__ import annotations

from ._ckks_client import CKKS
from ._hybrid_client import HYBRID
from ._shares_client import SHARES

KINDS = {kind.scheme: kind for kind in (CKKS, HYBRID, SHARES)}
