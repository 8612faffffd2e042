"""The model as torch modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from ...errors import ConfigError, IdOutOfRange
from .._module import NumpyModule
from ._description import Activation, Description
from ._sizes import digit_count, kept_rows

if TYPE_CHECKING:

    class Module(NumpyModule):
        """``torch.nn.Module``, as far as its callers are checked where torch is not installed."""

        training: bool

        def __getattr__(self, name: str) -> Any: ...

else:
    Module = torch.nn.Module

__all__ = ["DLRM", "DigitEmbedding", "RangedActivation", "RangedPolynomial", "make_activation"]

#: Tables of more rows than this have sparse gradients: a step then costs what its batch reads.
_DENSE_ROWS_MAX = 10_000
#: Pre-activations are pushed back from this share of their range on, so that few reach its end.
_PUSHED_FROM = 0.9


class DigitEmbedding(Module):
    """An embedding table that is kept as digits where it is large.

    Up to ``threshold`` rows it is an ordinary table. Above, an index is written in ``base``, lowest
    digit first, and its row is the sum of one row a digit: digit ``j`` reads one of the rows
    ``j * base`` to ``(j + 1) * base``. Nothing is hashed, so two indices share all of their rows
    only where they are equal (the quotient-remainder trick of Shi et al., with as many digits as
    it takes; HE-LRM, section 4).

    Args:
        rows: before compression; indices are below this.
        dim: values a row.
        threshold: the largest table that is kept whole.
        base: of the digits.

    Attributes:
        weight: the one parameter, [rows or base * digits, dim].
        digits: rows that a lookup adds up; 1 where the table is whole.
    """

    weight: Any

    def __init__(self, rows: int, dim: int, *, threshold: int = 500, base: int = 4) -> None:
        super().__init__()
        kept = kept_rows(rows, threshold=threshold, base=base)
        self.rows, self.dim, self.base = rows, dim, base
        self.digits = digit_count(rows, base) if rows > threshold else 1
        self.is_whole = rows <= threshold
        # A sum of digits then has the variance of a row of a whole table as large as they are.
        bound = (1 / kept) ** 0.5
        self.weight = torch.nn.Parameter(torch.empty(kept, dim).uniform_(-bound, bound))

    @property
    def is_sparse(self) -> bool:
        """Whether its gradient holds only the rows that a batch read."""
        return len(self.weight) > _DENSE_ROWS_MAX

    def forward(self, indices: Any) -> Any:
        """The rows of ``indices`` (integers of any shape ``[*]``): ``[*, dim]``.

        Raises:
            IdOutOfRange: an index that is no row.
        """
        least, most = map(int, torch.aminmax(indices)) if indices.numel() else (0, 0)
        if least < 0 or most >= self.rows:
            wrong = least if least < 0 else most
            raise IdOutOfRange(f"index {wrong} of {self.rows} rows", id=wrong, rows=self.rows)
        if self.is_whole:
            return functional.embedding(indices, self.weight, sparse=self.is_sparse)
        places = torch.arange(self.digits, device=indices.device)
        digits = indices.unsqueeze(-1) // self.base**places % self.base
        return functional.embedding(digits + self.base * places, self.weight).sum(-2)


class RangedActivation(Module):
    """An activation that notes, and may hold, what it reads.

    With a range ``r``, training reads ``x`` clipped to ``[-r, r]`` and adds to the loss what is
    beyond nine tenths of it; evaluation reads ``x`` as it is, as a server does.

    Args:
        function: applied to what is read, elementwise.
        range: of the inputs; None to hold nothing.

    Attributes:
        range: a tensor [1], or None.
        overflow: of the last forward in training: the mean square of what went beyond.
        largest: the largest magnitude read since it was last set to 0.
    """

    range: Any
    overflow: Any

    def __init__(self, function: Callable[[Any], Any], range: float | None = None) -> None:
        super().__init__()
        if range is not None and not (np.isfinite(range) and range > 0):
            raise ConfigError(f"range {range}: it is a finite number above 0")
        self.function = function
        self.register_buffer("range", None if range is None else torch.tensor([float(range)]))
        self.overflow = None
        self.largest = 0.0

    def forward(self, x: Any) -> Any:
        """The activation of ``x`` [*], in the same shape."""
        return self.function(self.hold(x))

    def hold(self, x: Any) -> Any:
        """What of ``x`` is read."""
        if not self.training:
            self.largest = max(self.largest, float(x.detach().abs().max()))
            return x
        if self.range is None:
            return x
        over = functional.relu(x.abs() - _PUSHED_FROM * self.range)
        self.overflow = (over * over).mean()
        return x.clamp(-self.range, self.range)


class RangedPolynomial(RangedActivation):
    """A polynomial whose coefficients are trained, over inputs that are held in a range.

    It begins as the least-squares fit of ReLU over the range. A server evaluates the polynomial as
    it is: no approximation error is added to the model's.

    Args:
        range: ``r``; inputs are held inside ``[-r, r]``.
        degree: of the polynomial, at least 1; 2 costs one level of multiplications, 3 two.

    Attributes:
        coefficients: the parameter [degree + 1], lowest first.
    """

    coefficients: Any

    def __init__(self, range: float = 4.0, degree: int = 2) -> None:
        super().__init__(self._evaluate, range)
        if degree < 1:
            raise ConfigError(f"degree {degree}: a polynomial of at least 1 is needed")
        points = np.linspace(-range, range, 512)
        fit = np.polynomial.polynomial.polyfit(points, np.maximum(points, 0), degree)
        self.coefficients = torch.nn.Parameter(torch.tensor(fit, dtype=torch.float32))

    def _evaluate(self, x: Any) -> Any:
        found = torch.zeros_like(x)
        for coefficient in self.coefficients.flip(0):
            found = found * x + coefficient
        return found


def make_activation(
    name: Activation, *, range: float | None = None, degree: int = 2
) -> RangedActivation:
    """The activation of this name.

    Raises:
        ConfigError: an unknown name, a range that is none, a polynomial without a range.
    """
    match name:
        case "square":
            return RangedActivation(torch.square, range)
        case "relu":
            return RangedActivation(functional.relu, range)
        case "silu":
            return RangedActivation(functional.silu, range)
        case "polynomial":
            if range is None:
                raise ConfigError("a polynomial needs a range: it grows without bound outside it")
            return RangedPolynomial(range, degree)
    raise ConfigError(f"activation {name!r} is not known")


class DLRM(Module):
    """A deep learning recommendation model (Naumov et al.) for encrypted inference.

    Its parameters have the names of Facebook's code: ``emb_l.{i}.weight``, ``bot_l.{2k}.weight``,
    ``bot_l.{2k}.bias``, ``top_l.{2k}.weight``, ``top_l.{2k}.bias``. Activations that have
    parameters or a range are ``bot_a.{k}`` and ``top_a.{k}``.

    Args:
        description: its sizes.
        range: that inputs of activations are held in; None to hold nothing.
        degree: of polynomial activations.
        gain: that the linear layers' first weights are multiplied by. Below 1 keeps a chain of
            squares small.

    Raises:
        ConfigError: a polynomial activation without a range.
    """

    bot_l: Any
    top_l: Any
    bot_a: Any
    top_a: Any
    emb_l: Any

    def __init__(
        self,
        description: Description,
        *,
        range: float | None = None,
        degree: int = 2,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.description = description
        self.emb_l = torch.nn.ModuleList(
            DigitEmbedding(
                feature.rows,
                description.dim,
                threshold=description.threshold,
                base=description.base,
            )
            for feature in description.features
        )

        def activations(count: int) -> Any:
            name = description.activation
            made = [make_activation(name, range=range, degree=degree) for _ in _times(count)]
            return torch.nn.ModuleList(made)

        self.bot_l = _linear(description.bottom_shapes, gain)
        self.top_l = _linear(description.top_shapes, gain)
        self.bot_a = activations(description.bottom_activations)
        self.top_a = activations(description.top_activations)

    @property
    def activations(self) -> tuple[RangedActivation, ...]:
        """Those of the bottom layers, then those of the top ones."""
        return (*self.bot_a, *self.top_a)

    def forward(self, dense: Any, indices: Any) -> Any:
        """One logit a sample, [samples].

        Args:
            dense: float [samples, dense].
            indices: integers [samples, features], each below its feature's rows.

        Raises:
            IdOutOfRange: an index that is no row.
        """
        bottom = _run(self.bot_l, self.bot_a, dense)
        vectors = [bottom, *(table(indices[:, at]) for at, table in enumerate(self.emb_l))]
        if self.description.interaction == "concat":
            joined = torch.cat(vectors, dim=1)
        else:
            stacked = torch.stack(vectors, dim=1)
            products = torch.bmm(stacked, stacked.transpose(1, 2))
            rows, columns = torch.tril_indices(len(vectors), len(vectors), -1)
            joined = torch.cat([bottom, products[:, rows, columns]], dim=1)
        return _run(self.top_l, self.top_a, joined)[:, 0]


def _times(count: int) -> range:
    return range(count)


def _linear(shapes: tuple[tuple[int, int], ...], gain: float) -> Any:
    layers = {}
    for at, (outputs, inputs) in enumerate(shapes):
        layer = torch.nn.Linear(inputs, outputs)
        # As in Facebook's code, but for the gain.
        torch.nn.init.normal_(layer.weight, 0.0, gain * (2 / (outputs + inputs)) ** 0.5)
        torch.nn.init.normal_(layer.bias, 0.0, gain * (1 / outputs) ** 0.5)
        # Between two linear layers torch's code counts an activation.
        layers[str(2 * at)] = layer
    return torch.nn.ModuleDict(layers)


def _run(layers: Any, activations: Any, values: Any) -> Any:
    for at, layer in enumerate(layers.values()):
        values = layer(values)
        if at < len(activations):
            values = activations[at](values)
    return values
