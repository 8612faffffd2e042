"""Recommendation models that a server can evaluate on encrypted features: sizes, training, files.

A server that computes on ciphertexts pays for what is cheap in the clear: rows of a table that
nobody asks for, and every multiplication that follows another. The models here are made for that:

- :func:`compression` counts what tables of digits in place of large ones save (HE-LRM,
  arXiv:2506.18150, section 4 and appendix C);
- :class:`DLRM` is the model, with :class:`DigitEmbedding` tables and activations of which
  :class:`RangedPolynomial` and :class:`RangedRelu` are computed as they were trained, and not
  approximated afterwards;
- :func:`train` trains one, and :func:`save` writes the folder that ``hushtable infer compile``
  reads;
- :class:`SavedModel` is that folder in numpy: the same model in the clear, without torch.

What needs torch (``pip install 'hushtable[torch]'``) is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._description import ACTIVATIONS, Activation, Description, Feature, Interaction
from ._files import Preprocess, SavedModel
from ._scores import Scores, area_under_curve, score
from ._sizes import Compression, compression, digit_count, kept_rows

if TYPE_CHECKING:
    from ._layers import DLRM, DigitEmbedding, RangedPolynomial, RangedRelu
    from ._training import Recipe, Report, Samples, save, train

__all__ = [
    "ACTIVATIONS",
    "DLRM",
    "Activation",
    "Compression",
    "Description",
    "DigitEmbedding",
    "Feature",
    "Interaction",
    "Preprocess",
    "RangedPolynomial",
    "RangedRelu",
    "Recipe",
    "Report",
    "Samples",
    "SavedModel",
    "Scores",
    "area_under_curve",
    "compression",
    "digit_count",
    "kept_rows",
    "save",
    "score",
    "train",
]

_BY_MODULE = {
    "_layers": ("DLRM", "DigitEmbedding", "RangedPolynomial", "RangedRelu"),
    "_training": ("Recipe", "Report", "Samples", "save", "train"),
}


def __getattr__(name: str) -> Any:
    for module, names in _BY_MODULE.items():
        if name in names:
            from importlib import import_module

            try:
                return getattr(import_module(f".{module}", __name__), name)
            except ModuleNotFoundError as error:
                if error.name != "torch":
                    raise
                raise ImportError(
                    f"hushtable.nn.encrypted.{name} needs torch: pip install 'hushtable[torch]'"
                ) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
