"""How models are computed: a row for each scheme, which its own file writes."""

from __future__ import annotations

import os

from ._ckks_client import CKKS
from ._description import scheme_of
from ._hybrid import HybridPlanInfo, NetworkInfo
from ._hybrid_client import HYBRID
from ._plan import PlanInfo
from ._shares import SharesPlanInfo
from ._shares_client import SHARES, SharesInfo
from ._types import ModelInfo

_Path = str | os.PathLike[str]

#: What a server says of its model.
Info = ModelInfo | NetworkInfo | SharesInfo

KINDS = {row.kind.scheme: row for row in (CKKS, HYBRID, SHARES)}


def kind_of(model: _Path, plan: str | None) -> str:
    """The scheme of a bundle's plan; without a plan the first, which says so.

    Raises:
        ConfigError: plans of several schemes, and none named.
    """
    scheme = scheme_of(model, plan)
    return scheme if scheme in KINDS else next(iter(KINDS))


def describe(
    model: _Path, *, plan: str | None = None
) -> PlanInfo | HybridPlanInfo | SharesPlanInfo:
    """The plan in a model's bundle: the one of this name, or the only one.

    What one for shares takes is measured.

    Raises:
        ModelError: a model without a plan, or with one of another version.
        ConfigError: several plans, and none named.
    """
    found: PlanInfo | HybridPlanInfo | SharesPlanInfo
    found = KINDS[kind_of(model, plan)].describe(model, plan)
    return found
