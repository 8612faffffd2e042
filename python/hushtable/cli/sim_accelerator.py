"""``hushtable sim accelerator``: single-server retrieval on hardware described as data."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
