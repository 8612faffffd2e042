"""A trained model as a bundle with a plan, which a server of encrypted inference computes by."""

from __future__ import annotations

from pathlib import Path

import hushtable
from hushtable import infer

#: A patient has one value of each categorical finding.
MAX_IDS = 1


def build(trained: Path, folder: Path) -> Path:
    """Makes a bundle of ``trained``, a folder of a model, compiles it, and returns the bundle.

    Raises:
        hushtable.ModelError: a folder that is none of a model.
    """
    bundle = folder / trained.name
    hushtable.Model.build(
        trained / "model.safetensors",
        bundle,
        name=trained.name,
        tables=["emb_l.*"],
        max_ids=MAX_IDS,
    )
    infer.compile(bundle, spec=trained / "model.toml")
    return bundle
