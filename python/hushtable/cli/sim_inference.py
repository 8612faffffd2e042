"""``hushtable sim inference``: private inference under load."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
