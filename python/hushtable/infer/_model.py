"""A model in this process: in the clear, with the noise of encryption alone, or encrypted."""

from __future__ import annotations

import os
from typing import Literal

import numpy.typing as npt

from .. import _native
from ..errors import ConfigError
from ._types import ModelInfo, Predictions, features

#: How a model in this process computes.
FHE = Literal["clear", "simulate", "execute"]


class Model:
    """A compiled model in this process, with the same predictions as a server's.

    ``clear`` computes as a server does, on numbers instead of ciphertexts. ``simulate`` adds the
    noise that encryption would, and nothing else: accuracy in a fraction of the time. ``execute``
    encrypts, computes and decrypts.
    """

    def __init__(self, native: _native.CkksModel) -> None:
        self._native = native
        self._info = ModelInfo.of_facts(native.info())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, plan: str | None = None) -> Model:
        """Opens a model bundle and one of its plans, the only one by default.

        Raises:
            ModelError: a model without a plan, or with one of another version.
            ConfigError: several plans, and none named.
        """
        return cls(_native.CkksModel(os.fspath(path), plan))

    @property
    def info(self) -> ModelInfo:
        """What a server of it would announce."""
        return self._info

    def predict(
        self,
        dense: npt.ArrayLike,
        sparse: npt.ArrayLike | None = None,
        *,
        fhe: FHE = "clear",
    ) -> Predictions:
        """Logits and probabilities of users; arguments as :meth:`Client.predict`'s.

        Raises:
            BadFeatures: other shapes than the model's, NaN or infinity.
            IdOutOfRange: an index that is no row of its table.
            ActivationRange: with ``clear`` and ``simulate``, an activation that met a value outside
                the range that its polynomial was made for. Encrypted, nobody can see that.
            ConfigError: ``fhe`` is none of these.
        """
        if fhe not in ("clear", "simulate", "execute"):
            raise ConfigError(f"fhe must be clear, simulate or execute, not {fhe!r}")
        return Predictions(self._native.predict(*features(dense, sparse, self._info), fhe))

    def __repr__(self) -> str:
        return f"Model({self._info.name!r}, version {self._info.version[:16]})"
