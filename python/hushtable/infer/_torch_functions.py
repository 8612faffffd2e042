"""Torch's functions of each number: activations, arithmetic, and what changes nothing."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from ._draft import Draft
from ._torch_tensors import Constant, Operators, Tensor, in_place, truth

_DROPOUT = "a dropout, which inference does without"


class Functions(Operators):
    """Activations, arithmetic with numbers, sums of tensors, dropouts, and a client's own."""

    def __init__(self, torch: Any, draft: Draft, dtype: Any) -> None:
        super().__init__(torch, draft, dtype)
        nn, functional = torch.nn, torch.nn.functional
        dropout = (self._dropout, ("p", "training", "inplace"))
        self.alike = {
            nn.ReLU: (self._relu, ("inplace",)),
            nn.ReLU6: (self._hardtanh, ("min_val", "max_val", "inplace")),
            nn.Hardtanh: (self._hardtanh, ("min_val", "max_val", "inplace")),
            nn.LeakyReLU: (self._leaky_relu, ("negative_slope", "inplace")),
            nn.Softmax: (self._softmax, ("dim",)),
            nn.Sigmoid: (self._sigmoid, ()),
            nn.Identity: (self._identity, ()),
            nn.Dropout: dropout,
            nn.Dropout2d: dropout,
            nn.AlphaDropout: dropout,
            nn.FeatureAlphaDropout: dropout,
        }
        self.functions = {
            functional.relu: self._relu,
            functional.relu6: self._relu6,
            functional.hardtanh: self._hardtanh,
            functional.hardtanh_: in_place(self._hardtanh),
            functional.leaky_relu: self._leaky_relu,
            functional.leaky_relu_: in_place(self._leaky_relu),
            functional.dropout: self._dropout,
            functional.dropout2d: self._dropout,
            functional.alpha_dropout: self._inactive_dropout,
            functional.feature_alpha_dropout: self._inactive_dropout,
            functional.softmax: self._functional_softmax,
            operator.add: self._plus,
            operator.sub: self._minus,
            operator.mul: self._times,
            operator.truediv: self._div,
            operator.neg: self._neg,
            operator.iadd: in_place(self._add),
            operator.isub: in_place(self._sub),
            operator.imul: in_place(self._mul),
            operator.itruediv: in_place(self._div),
        }
        self.of_both(
            {
                "relu": self._relu,
                "relu_": in_place(self._relu),
                "softmax": self._softmax,
                "sigmoid": self._sigmoid,
                "rsub": self._rsub,
            }
        )
        for function, names in (
            (self._clamp, ("clamp", "clip", "clamp_min")),
            (self._add, ("add",)),
            (self._sub, ("sub", "subtract")),
            (self._mul, ("mul", "multiply")),
            (self._div, ("div", "divide", "true_divide")),
            (self._neg, ("neg", "negative")),
        ):
            for name in names:
                self.of_both({name: function, f"{name}_": in_place(function)})
        self.first = [
            *(self._plus, self._minus, self._times),
            *(self._add, self._sub, self._rsub, self._mul),
        ]

    # Activations.

    def _relu(self, name: str, input: Tensor, inplace: Any = False) -> Tensor:
        return self._given(name, input, self.draft.relu(name, input.name), inplace)

    def _relu6(self, name: str, input: Tensor, inplace: Any = False) -> Tensor:
        return self._given(name, input, self.draft.relu(name, input.name, 6.0), inplace)

    def _hardtanh(
        self,
        name: str,
        input: Tensor,
        min_val: Any = -1.0,
        max_val: Any = 1.0,
        inplace: Any = False,
    ) -> Tensor:
        made = self.draft.clip(name, input.name, _number(min_val), _number(max_val))
        return self._given(name, input, made, inplace)

    def _clamp(self, name: str, input: Tensor, min: Any = None, max: Any = None) -> Tensor:
        if max is None and min is not None and _number(min) == 0:
            return self._relu(name, input)
        if min is None or max is None:
            raise self.wrong(
                name, f"numbers from {min} to {max}: from 0, or between two, is possible"
            )
        return self._hardtanh(name, input, min, max)

    def _leaky_relu(
        self, name: str, input: Tensor, negative_slope: Any = 0.01, inplace: Any = False
    ) -> Tensor:
        made = self.draft.leaky_relu(name, input.name, _number(negative_slope))
        return self._given(name, input, made, inplace)

    def _given(self, name: str, input: Tensor, made: str, inplace: Any) -> Tensor:
        return input.change(made, name) if truth(inplace) else Tensor(made, input.rank)

    # Arithmetic.

    def _plus(self, name: str, left: Any, right: Any) -> Tensor:
        return self._sum(name, left, right, 1.0, 1.0)

    def _minus(self, name: str, left: Any, right: Any) -> Tensor:
        return self._sum(name, left, right, 1.0, -1.0)

    def _add(self, name: str, input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
        return self._sum(name, self._first(name, input), other, 1.0, _number(alpha))

    def _sub(self, name: str, input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
        return self._sum(name, self._first(name, input), other, 1.0, -_number(alpha))

    def _rsub(self, name: str, input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
        return self._sum(name, self._first(name, input), other, -_number(alpha), 1.0)

    def _sum(self, name: str, left: Any, right: Any, own: float, others: float) -> Tensor:
        """own · left + others · right."""
        what = f"a sum of {own:g} times {left} and {others:g} times {right}"
        if not isinstance(left, Tensor):
            if not isinstance(right, Tensor):
                raise self.wrong(name, f"{what}: one with an input's tensor is possible")
            return self._sum(name, right, left, others, own)
        if not isinstance(right, Tensor):
            shift = others * self._each(name, left, right)
            return Tensor(self.draft.affine(name, left.name, own, shift), left.rank)
        if left.rank != right.rank:
            raise self.wrong(name, f"{what}: one of two tensors that are alike is possible")
        parts = [
            tensor.name
            if factor == 1
            else self.draft.affine(f"{name}.factor", tensor.name, factor, 0.0)
            for factor, tensor in ((own, left), (others, right))
        ]
        return Tensor(self.draft.add(name, *parts), left.rank)

    def _mul(self, name: str, input: Any, other: Any) -> Tensor:
        return self._times(name, self._first(name, input), other)

    def _times(self, name: str, left: Any, right: Any) -> Tensor:
        first, second = (left, right) if isinstance(left, Tensor) else (right, left)
        if not isinstance(first, Tensor) or isinstance(second, Tensor):
            raise self.wrong(
                name, f"a product of {left} and {right}: one with a number is possible"
            )
        return self._scaled(name, first, self._each(name, first, second))

    def _first(self, name: str, input: Any) -> Any:
        """What torch's own functions take first: no number."""
        if isinstance(input, (Tensor, Constant)):
            return input
        raise self.wrong(name, f"a function of {input}: one of a tensor is possible")

    def _div(self, name: str, input: Any, other: Any, *, rounding_mode: Any = None) -> Tensor:
        if not isinstance(input, Tensor) or isinstance(other, Tensor) or rounding_mode is not None:
            raise self.wrong(
                name, f"{input} by {other}, rounded {rounding_mode}: by a number is possible"
            )
        divisor = self._each(name, input, other)
        if not np.all(divisor):
            raise self.wrong(name, "a division by 0")
        return self._scaled(name, input, 1 / divisor)

    def _neg(self, name: str, input: Tensor) -> Tensor:
        return self._scaled(name, input, np.float64(-1))

    def _scaled(self, name: str, input: Tensor, scale: npt.ArrayLike) -> Tensor:
        return Tensor(self.draft.affine(name, input.name, scale, 0.0), input.rank)

    def _each(self, name: str, input: Tensor, other: Any) -> npt.NDArray[np.float64]:
        """A number for all, or one of each channel, by torch's rules of shapes."""
        if not isinstance(other, Constant):
            return np.asarray(_number(other), np.float64)
        values = np.asarray(other.values, np.float64)
        channels = self.draft.shape(input.name)[0]
        whole = (*(input.rank - values.ndim) * (1,), *values.shape)
        if whole[1:] == (channels, 1, 1)[: input.rank - 1] and whole[0] == 1:
            return values.reshape(channels)
        if values.size == 1 and values.ndim <= input.rank:
            return values.reshape(())
        raise self.wrong(
            name,
            f"a tensor of shape {values.shape} with {input}: one of one number, or of one for each "
            f"of {channels} channels, is possible",
        )

    # What changes nothing in an inference, and what a client does to an opened answer.

    def _identity(self, _name: str, input: Tensor) -> Tensor:
        return input

    def _dropout(
        self, name: str, input: Tensor, p: Any = 0.5, training: Any = True, inplace: Any = False
    ) -> Tensor:
        if truth(training) and p != 0:
            raise self.wrong(
                name, "a dropout that is active in evaluation too: give it training=self.training"
            )
        self.draft.leave_out(name, _DROPOUT)
        return input  # the same tensor, in torch too

    def _inactive_dropout(
        self, name: str, input: Tensor, p: Any = 0.5, training: Any = False, inplace: Any = False
    ) -> Tensor:
        return self._dropout(name, input, p, training, inplace)

    def _functional_softmax(
        self, name: str, input: Tensor, dim: Any = None, _stacklevel: Any = 3, dtype: Any = None
    ) -> Tensor:
        return self._softmax(name, input, dim, dtype)

    def _softmax(self, name: str, input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
        if dtype is not None:
            raise self.wrong(name, f"a softmax in {dtype}")
        if dim not in (1, 1 - input.rank):
            raise self.wrong(name, f"a softmax over dimension {dim}: 1 is possible")
        return Tensor(self.draft.post(name, "softmax", input.name), input.rank)

    def _sigmoid(self, name: str, input: Tensor) -> Tensor:
        return Tensor(self.draft.post(name, "sigmoid", input.name), input.rank)


def _number(value: Any) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    raise TypeError(f"{value!r} is no number that is known before an input is")
