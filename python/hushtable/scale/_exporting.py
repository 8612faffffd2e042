"""A model of which several tables are new, written in one step."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..model import Model
from ..table import Table


def staged_model(
    model: Model,
    tables: Sequence[str],
    out: Path,
    write: Callable[[Mapping[str, Path]], None],
) -> Model:
    """``model`` at ``out`` with the tables that ``write`` puts into the folders it is given."""
    for name in tables:
        model.table_path(name)  # rather refused now than after all rows are read
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    # Beside it, so that files are shared and the last step is the only one that is seen.
    stage = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        folders = {name: stage / "tables" / str(i) for i, name in enumerate(tables)}
        (stage / "tables").mkdir()
        write(folders)
        for number, (name, folder) in enumerate(folders.items()):
            is_last = number + 1 == len(folders)
            place = out if is_last else stage / f"model-{number}"
            model = model.replace_table(name, Table.open(folder), place)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return model
