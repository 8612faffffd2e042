"""The actor of one side's coordinator."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from .coordinator import Coordinator

__all__ = ["CoordinatorActor", "coordinator_class"]


class CoordinatorActor:
    """The actor of one side's coordinator."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._coordinator = Coordinator(importlib.import_module("ray"), record)
        self._coordinator.start()

    def apply(self, record: Mapping[str, Any]) -> None:
        """Takes the entries of a file, and the version of its source, as wanted."""
        self._coordinator.apply(record)

    def status(self) -> dict[str, Any]:
        """What is wanted, and what there is."""
        return self._coordinator.status()

    def wanted(self) -> dict[str, Any]:
        """What is wanted."""
        return self._coordinator.wanted().record()


def coordinator_class(ray: Any, name: str) -> Any:
    """The class of the coordinator, ready for its argument."""
    return ray.remote(CoordinatorActor).options(
        name=name,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        max_task_retries=0,
        num_cpus=0,
    )
