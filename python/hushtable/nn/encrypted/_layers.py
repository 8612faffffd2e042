"""The model as torch modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from ..._native import relu_coefficients
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

__all__ = [
    "DLRM",
    "DigitEmbedding",
    "RangedActivation",
    "RangedPolynomial",
    "RangedRelu",
    "make_activation",
]

#: Tables of more rows than this have sparse gradients: a step then costs what its batch reads.
_DENSE_ROWS_MAX = 10_000
#: Pre-activations are pushed back from this share of their range on, so that few reach its end: and
#: earlier where a polynomial of a high degree is elsewhere within a few hundredths of it.
_PUSHED_FROM, _PUSHED_FROM_STEEP = 0.9, 0.75


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
    beyond ``pushed_from`` of it; evaluation reads ``x`` as it is, as a server does.

    Args:
        function: applied to what is read, elementwise.
        range: of the inputs; None to hold nothing.
        pushed_from: the share of the range from which on training pushes back.

    Attributes:
        range: a tensor [1], or None.
        overflow: of the last forward in training: the mean square of what went beyond.
        largest: the largest magnitude read since it was last set to 0.
    """

    range: Any
    overflow: Any

    def __init__(
        self,
        function: Callable[[Any], Any],
        range: float | None = None,
        pushed_from: float = _PUSHED_FROM,
    ) -> None:
        super().__init__()
        if range is not None and not (np.isfinite(range) and range > 0):
            raise ConfigError(f"range {range}: it is a finite number above 0")
        self.function = function
        self.register_buffer("range", None if range is None else torch.tensor([float(range)]))
        self.pushed_from = pushed_from
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
        over = functional.relu(x.abs() - self.pushed_from * self.range)
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


class RangedRelu(RangedActivation):
    """ReLU's one polynomial, with the coefficients that a server computes it by.

    Nothing of it is trained, and what is trained around it knows it: no approximation error is
    left at inference.

    Args:
        range: ``r``; inputs are held inside ``[-r, r]``, where it is nearest to ReLU, and pushed
            back from three quarters of it on.
        degree: 31, 63 or 127, of 5, 6 or 7 levels.
    """

    def __init__(self, range: float, degree: int) -> None:
        super().__init__(self._evaluate, range, _PUSHED_FROM_STEEP)
        # Beside x / 2 it is even: a series in u = 2 t^2 - 1, of half the degree.
        even = relu_coefficients(degree)[::2]
        self._even: list[float] = even.tolist()
        self._slope: list[float] = np.polynomial.chebyshev.chebder(even).tolist()

    def _evaluate(self, x: Any) -> Any:
        t = x / self.range
        return self.range * (t / 2 + _Series.apply(t, self._even, self._slope))


class _Series(torch.autograd.Function):
    """A series of Chebyshev's polynomials of 2 t^2 - 1; only ``t`` is kept for the slope."""

    @staticmethod
    def forward(ctx: Any, t: Any, even: list[float], slope: list[float]) -> Any:
        ctx.save_for_backward(t)
        ctx.slope = slope
        return _clenshaw(even, 2 * t * t - 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (t,) = ctx.saved_tensors
        return gradients[0] * 4 * t * _clenshaw(ctx.slope, 2 * t * t - 1), None, None


def _clenshaw(coefficients: list[float], u: Any) -> Any:
    """The sum of ``coefficients[k]`` times Chebyshev's T_k of ``u``."""
    following, after, doubled = torch.zeros_like(u), torch.zeros_like(u), 2 * u
    for coefficient in reversed(coefficients[1:]):
        following, after = (doubled * following).sub_(after).add_(coefficient), following
    return (u * following).sub_(after).add_(coefficients[0])


def make_activation(
    name: Activation,
    *,
    range: float | None = None,
    degree: int = 2,
    relu_degree: int | None = None,
) -> RangedActivation:
    """The activation of this name; ``relu_degree`` is that of :class:`Description`.

    Raises:
        ConfigError: an unknown name, a range that is none, a polynomial without a range.
    """
    match name:
        case "relu" if relu_degree is not None:
            if range is None:
                raise ConfigError(
                    f"relu_degree {relu_degree} needs a range: outside it, a polynomial is no ReLU"
                )
            return RangedRelu(range, relu_degree)
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
        degree: of trained polynomial activations.
        gain: that the linear layers' first weights are multiplied by. Below 1 keeps a chain of
            squares small.

    Raises:
        ConfigError: a polynomial without a range.
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
            return torch.nn.ModuleList(
                make_activation(
                    description.activation,
                    range=range,
                    degree=degree,
                    relu_degree=description.relu_degree,
                )
                for _ in _times(count)
            )

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
