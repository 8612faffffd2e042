"""ONNX graphs at random: each is refused, or computed as onnx's reference evaluator does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_networks_onnx import FLOAT, helper, integers, model_of, node, onnx, read, reference

from hushtable.errors import ModelError
from hushtable.infer import _onnx
from hushtable.infer._compare import difference
from hushtable.infer.networks import Network

#: Graphs of one run.
GRAPHS = 10_000 if os.environ.get("HUSHTABLE_SCALE_LONG") else 500


class Maker:
    """Nodes at random, each of them run as it is added: what does not run is left out again."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        #: How often something is put in that an importer could take for something else.
        self.oddity = (0.0, 0.05, 0.2)[seed % 3]
        self.opset = self.pick(12, 13, 14, 17, 18, 21)
        self.fixed = self.pick(True, False, False)
        sizes = self.random.integers(1, 6, self.pick(3, 3, 3, 1))
        self.shape = tuple(int(one) for one in sizes)
        self.images = self.floats(1 if self.fixed else 3, *self.shape)
        self.values = {"x": self.images}
        self.constants: dict[str, np.ndarray] = {}
        self.nodes: list[Any] = []
        self.at = "x"
        for _ in range(int(self.random.integers(1, 7))):
            self.step()

    def pick(self, *options: Any, odd: Sequence[Any] = ()) -> Any:
        if odd and self.random.random() < self.oddity:
            options = tuple(odd)
        return options[self.random.integers(len(options))]

    def floats(self, *shape: int) -> np.ndarray:
        return self.random.normal(0, 1, shape).astype(np.float32)

    def constant(self, value: np.ndarray) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def add(self, op: str, inputs: list[str], parts: int = 1, **attributes: Any) -> bool:
        """Adds a node whose attributes that are None are not there; whether it runs."""
        kept = {name: value for name, value in attributes.items() if value is not None}
        outputs = [f"v{len(self.nodes)}"]
        if op == "Split":
            outputs += [f"{outputs[0]}_{at}" for at in range(1, parts)]
        if op in ("MaxPool", "Dropout") and self.pick(True, False):
            outputs.append(f"{outputs[0]}_2")
        made = node(op, inputs, *outputs, **kept)
        known = {name: (self.values | self.constants)[name] for name in inputs if name}
        infos = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in known.items()
        ]
        empty = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph([made], "one", infos, empty)
        opsets = [helper.make_opsetid("", self.opset)]
        try:
            one = reference.ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))
            with np.errstate(all="ignore"):
                found = one.run(None, known)
        except Exception:  # of any kind: the evaluator's own, numpy's
            return False
        if not all(np.isfinite(value).all() and value.size for value in found):
            return False
        self.nodes.append(made)
        self.values.update(zip(outputs, found, strict=True))
        self.at = outputs[0] if op != "Split" else self.pick(*outputs)
        return True

    def step(self) -> None:
        """One more node, or a few."""
        if self.values[self.at].ndim < 2:
            self.at = "x"
        rank = self.values[self.at].ndim
        steps = [self.constant_step, self.shape_step, self.value_step, self.value_step]
        steps += [self.bound_step, self.part_step, self.order_step]
        if rank == 4:
            steps += [self.conv_step, self.conv_step, self.pool_step, self.mean_step]
        if rank == 2:
            steps += [self.matrix_step, self.matrix_step]
        self.pick(*steps)()

    def windows(self, op: str, inputs: list[str], kernel: list[int], **own: Any) -> None:
        own["strides"] = self.pick(None, [2, 2], [1, 2])
        own["auto_pad"] = self.pick(None, None, "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
        pads = ([1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 0, 0])
        if own["auto_pad"] in (None, "NOTSET"):
            pads = [
                [min(one, size - 1) for one, size in zip(p, kernel * 2, strict=True)] for p in pads
            ]
            own["pads"] = self.pick(None, *pads, odd=[[1] * 4, [2, 2, 0, 0]])
        else:
            own["pads"] = self.pick(None, odd=pads)
        own["dilations"] = self.pick(None, [1, 1], [2, 1], odd=[[2, 2], [1, 3]])
        if op == "MaxPool":  # where the evaluator mistakes pads
            own["strides"] = self.pick([2, 2], [1, 2])
            if own["auto_pad"] == "SAME_LOWER":
                own["auto_pad"] = "SAME_UPPER"
        if op == "AveragePool" and self.opset < 19:
            del own["dilations"]
        if op == "MaxPool":  # it has no other dilations than 1
            own["dilations"] = self.pick(None, [1, 1], odd=[[2, 1]])
        self.add(op, inputs, **own)

    def conv_step(self) -> None:
        channels = self.values[self.at].shape[1]
        group = self.pick(1, 1, channels, 2 if channels % 2 == 0 else 1)
        outputs, kernel = group * self.pick(1, 2), [self.pick(1, 2, 3), self.pick(1, 2, 3)]
        inputs = [self.at, self.constant(self.floats(outputs, channels // group, *kernel))]
        if self.pick(True, False):
            inputs.append(self.constant(self.floats(outputs)))
        if self.pick(True, False, False):
            self.pad_step()
            inputs[0] = self.at
        self.windows("Conv", inputs, kernel, group=group, kernel_shape=self.pick(None, kernel))

    def pad_step(self) -> None:
        rank = self.values[self.at].ndim
        ends = [0, *self.random.integers(0, 3, 2 * rank - 1)]
        ends[rank] = 0
        if rank == 4 and self.pick(True, odd=[False]):
            ends[1] = ends[5] = 0
        mode = self.pick(None, "constant", odd=["edge", "reflect", "wrap"])
        inputs = [self.at, self.constant(integers(*ends))]
        if self.opset >= 18 and self.pick(True, False):
            axes = self.random.permutation(rank)
            inputs[1] = self.constant(
                integers(*[ends[at + one] for one in (0, rank) for at in axes])
            )
            inputs += ["", self.constant(integers(*(axes - self.pick(0, rank))))]
        self.add("Pad", inputs, mode=mode)

    def bound_step(self) -> None:
        """Bounds and slopes."""
        op = self.pick("Clip", "Clip", "LeakyRelu", "PRelu", "Max")
        if op == "Max":
            zero = self.constant(np.full(self.pick((), (1,)), self.pick(0, odd=[1]), np.float32))
            self.add(op, self.pick([self.at, zero], [zero, self.at]))
        elif op == "Clip":
            least = self.pick(0.0, 0.0, -0.5, 0.25, odd=[None, 2.0, -np.inf])
            most = self.pick(6.0, 0.5, 1.0, odd=[None, np.inf])
            bounds = [
                "" if one is None else self.constant(np.array(np.float32(one)))
                for one in (least, most)
            ]
            self.add(op, [self.at, *bounds])
        elif op == "LeakyRelu":
            self.add(op, [self.at], alpha=self.pick(None, 0.25, -0.5, 0.0))
        else:
            sizes = self.values[self.at].shape
            each = [sizes[1], *[1] * (len(sizes) - 2)]
            slope = self.pick(each, [1], [], odd=[sizes[1:], sizes[-1:], [sizes[1]]])
            self.add(op, [self.at, self.constant(self.floats(*slope))])

    def part_step(self) -> None:
        """What is put together, or a part of it."""
        value = self.values[self.at]
        axis = self.pick(1, 1 - value.ndim, odd=[0, *range(2, value.ndim)])
        op = self.pick("Concat", "Slice", "Slice", "Split", "Pad")
        if op == "Concat":
            alike = [
                name
                for name, one in self.values.items()
                if one.ndim == value.ndim and one.shape[2:] == value.shape[2:]
            ]
            each = [self.pick(*alike, odd=list(self.values)) for _ in range(self.pick(1, 2))]
            self.add(op, self.pick([self.at, *each], [*each, self.at]), axis=axis)
        elif op == "Pad":
            self.pad_step()
        elif op == "Split":
            size, parts = value.shape[axis], self.pick(2, 3)
            own: dict[str, Any] = {"parts": parts, "axis": axis}
            inputs = [self.at]
            if size > 1 and self.pick(True, False):
                parts = own["parts"] = 2
                each = [one := int(self.random.integers(1, size)), size - one]
                if self.opset < 13:
                    own["split"] = each
                else:
                    inputs.append(self.constant(integers(*each)))
            elif self.opset >= 18:
                own["num_outputs"] = parts
            self.add(op, inputs, **own)
        else:
            many = self.pick(1, 1, 2)
            axes = [int(one) for one in self.random.permutation(value.ndim)[:many]]
            axes = [one - self.pick(0, value.ndim) for one in axes]
            if self.pick(True, False):
                axes = [axis]
            starts = [self.pick(0, 1, -1, -2, 5) for _ in axes]
            ends = [self.pick(2**31 - 1, 2**63 - 1, 3, -1, odd=[-(2**63), 0]) for _ in axes]
            steps = [self.pick(1, 1, 2, -1, 3, odd=[-2]) for _ in axes]
            parts_of = [starts, ends, axes, steps][: self.pick(3, 4, odd=[2])]
            kind = np.int64
            self.add(op, [self.at, *(self.constant(np.array(one, kind)) for one in parts_of)])

    def order_step(self) -> None:
        """Another order of axes, which is often turned back."""
        rank = self.values[self.at].ndim
        order = self.pick([0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)])
        order = self.pick(order, order, [0, *(1 + self.random.permutation(rank - 1))])
        order = self.pick([int(one) for one in order], odd=[None])
        if not self.add("Transpose", [self.at], perm=order) or order is None:
            return
        for _ in range(self.pick(0, 1, 2)):
            self.pick(self.constant_step, self.bound_step, self.value_step, self.last_step)()
        if self.values[self.at].ndim == rank and self.pick(True, True, False):
            self.add("Transpose", [self.at], perm=[order.index(one) for one in range(rank)])

    def last_step(self) -> None:
        """Along the last axis, as channels that are last are read."""
        value = self.values[self.at]
        last = value.shape[-1]
        op = self.pick("MatMul", "Add", "ReduceMean", "Reshape", "Pad", "Concat")
        if op == "MatMul":
            self.add(op, [self.at, self.constant(self.floats(last, self.pick(1, 2, last)))])
        elif op == "Add":
            self.add(op, [self.at, self.constant(self.floats(last))])
        elif op == "ReduceMean":
            axes = list(range(1, value.ndim - 1))
            if axes and self.opset < 18:
                self.add(op, [self.at], axes=axes, keepdims=self.pick(None, 0))
        elif op == "Reshape":
            if self.add(op, [self.at, self.constant(integers(0, -1))]):
                self.matrix_step()
        elif op == "Concat":
            self.add(op, [self.at, self.at], axis=-1)
        else:
            self.pad_step()

    def pool_step(self) -> None:
        _, _, rows, columns = self.values[self.at].shape
        kernel = self.pick([1, 1], [2, 2], [3, 2], [rows, columns])
        own = {"kernel_shape": kernel, "ceil_mode": self.pick(None, 0, 1)}
        if self.pick(True, False):
            order = self.pick(None, 0, 1)
            self.windows("MaxPool", [self.at], kernel, storage_order=order, **own)
        else:
            count = self.pick(1, odd=[None, 0])
            self.windows("AveragePool", [self.at], kernel, count_include_pad=count, **own)

    def mean_step(self) -> None:
        if self.pick(True, False):
            self.add(self.pick("GlobalAveragePool", "GlobalMaxPool"), [self.at])
            return
        axes = self.pick([2, 3], [-1, -2], [3, -2], odd=[[1, 2], [3], [0, 2, 3], [-3], [2, 3, 1]])
        keep = self.pick(None, 0, 1)
        op = self.pick("ReduceMean", "ReduceMean", "ReduceMax")
        if self.opset < 18:
            self.add(op, [self.at], axes=axes, keepdims=keep)
        else:
            self.add(op, [self.at, self.constant(integers(*axes))], keepdims=keep)

    def constant_step(self) -> None:
        sizes = self.values[self.at].shape
        each = [1, sizes[1], *[1] * (len(sizes) - 2)][self.pick(0, 1) :] if len(sizes) > 1 else [1]
        some = [size if self.pick(True, False) else 1 for size in sizes]
        shape = self.pick(each, [1], [], [1] * len(sizes), odd=[some, some[1:], some[-1:], [1] * 5])
        value = self.pick(self.floats(*shape), odd=[np.ones(shape, np.float32)])
        inputs = [self.at, self.constant(value)]
        op = self.pick("Add", "Sub", "Mul", "Div")
        if op != "Div" or self.pick(False, odd=[True]):
            inputs = self.pick(inputs, inputs[::-1])
        self.add(op, inputs)

    def matrix_step(self) -> None:
        width = self.values[self.at].shape[-1]
        turned = self.pick(None, 0, 1)
        outputs = self.pick(1, 2, 3, width)
        if self.pick(True, False):
            self.add("MatMul", [self.at, self.constant(self.floats(width, outputs))])
            return
        shape = (outputs, width) if turned else (width, outputs)
        inputs = [self.at, self.constant(self.floats(*shape))]
        shapes = [(outputs,), (1, outputs), (1,), (), (1, 1)]
        if self.pick(True, True, False):
            bias = self.pick(*shapes, odd=[(outputs, 1), (len(self.images), 1)])
            inputs.append(self.constant(self.floats(*bias)))
        own = {"alpha": self.pick(None, 0.5), "beta": self.pick(None, 2.0, 0.0)}
        self.add("Gemm", inputs, transB=turned, transA=self.pick(None, 0, odd=[1]), **own)

    def shape_step(self) -> None:
        value = self.values[self.at]
        rank, batch, numbers = value.ndim, len(value), int(value[0].size)
        op = self.pick("Flatten", "Reshape", "Reshape", "Squeeze", "Unsqueeze", "Shape")
        if op == "Flatten":
            axis = self.pick(None, 1, 1 - rank, odd=[0, 2, 3, -1])
            self.add(op, [self.at], axis=axis)
        elif op == "Reshape":
            target = self.pick(
                *([0, -1], [-1, numbers], [0, numbers], [0, -1, 1, 1], list(value.shape)),
                odd=[
                    *([batch, -1], [1, -1], [-1, 1], [0, 1, 1, -1], [0, 0, -1]),
                    *([1, numbers], [0, *value.shape[:0:-1]], [-1, *value.shape[1:]]),
                    *([0, 1, -1], [0, 0, -1, 1], [0, *[one for one in value.shape[1:] if one > 1]]),
                ],
            )
            zero = self.pick(None, odd=[0, 1]) if self.opset >= 14 else None
            self.add(op, [self.at, self.constant(integers(*target))], allowzero=zero)
        elif op in ("Squeeze", "Unsqueeze"):
            axes = self.pick([2, 3], [-1, -2], [3], [1], odd=[[1, 2], [0]])
            if self.opset < 13:
                self.add(op, [self.at], axes=axes)
            else:
                self.add(op, [self.at, self.constant(integers(*axes))])
        else:
            self.size_step()

    def size_step(self) -> None:
        """A reshape by sizes that were computed, or a factor that was."""
        source = self.at
        self.add("Shape", [source])
        if self.pick(True, odd=[False]):
            self.add("Gather", [self.at, self.constant(integers(self.pick(0, odd=[1])))])
            self.add("Concat", [self.at, self.constant(integers(-1))], axis=0)
            self.add("Reshape", [source, self.at])
        else:
            self.add("Cast", [self.at], to=FLOAT)
            self.add("ReduceProd", [self.at], keepdims=0)
            self.add("Mul", [source, self.at])
        if self.values[self.at].dtype != np.float32:
            self.at = source

    def value_step(self) -> None:
        value = self.values[self.at]
        op = self.pick(
            *("Relu", "Relu", "Identity", "Dropout", "Add", "Sub", "Sum", "BatchNormalization"),
            *(("Sigmoid", "Softmax") if value[0].size == value.shape[-1] else ()),
            odd=["Cast", "Mul", "Sigmoid", "Softmax"],
        )
        if op == "BatchNormalization":
            if self.opset < 14 or value.ndim < 2:
                return  # the evaluator has that of training there
            channels = value.shape[1]
            parts = [self.constant(self.floats(channels)) for _ in range(3)]
            parts.append(self.constant(np.abs(self.floats(channels)) + np.float32(0.5)))
            self.add(op, [self.at, *parts], epsilon=self.pick(None, 0.1), momentum=0.5)
        elif op == "Softmax":
            if self.opset >= 13:  # the evaluator takes no account of the opset
                self.add(op, [self.at], axis=self.pick(None, 1, -1, odd=[0, 2]))
        elif op in ("Add", "Sub", "Sum", "Mul"):
            alike = [name for name, one in self.values.items() if one.shape == value.shape]
            count = self.pick(0, 1, 2) if op == "Sum" else 1
            self.add(
                op, [self.at, *(self.pick(*alike, odd=list(self.values)) for _ in range(count))]
            )
        else:
            self.add(op, [self.at], to=FLOAT if op == "Cast" else None)


def test_graphs_at_random_are_computed_as_the_evaluator_does_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the reader alone, without what compares its networks."""
    turned: list[bool] = []

    def uncompared(network: Network, _framework: str, answers: Any, *_: Any) -> Network:
        turned.append(answers.__self__.ends.is_turned)
        return network

    monkeypatch.setattr(_onnx, "compared", uncompared)
    taken: set[str] = set()
    count = 0
    for seed in range(GRAPHS):
        maker = Maker(seed)
        expected = maker.values[maker.at]
        model = model_of(
            maker.nodes,
            maker.constants,
            shape=[1 if maker.fixed else "batch", *maker.shape],
            out=maker.at,
            opset=maker.opset,
        )
        try:
            network = read(model, tmp_path)
        except ModelError:
            continue
        images = maker.images.transpose(0, 3, 1, 2) if turned[-1] else maker.images
        found = network.evaluate(images.reshape(-1, *network.input))
        # What is left of large numbers that cancel is as exact as they were.
        of = max(float(np.abs(one).max()) for one in maker.values.values()) / 1000
        error = difference(found, expected, of)
        assert error < 1e-4, f"seed {seed}: {onnx.printer.to_text(model)}"
        count += 1
        taken.update(one.op_type for one in maker.nodes)
    assert count > GRAPHS / 4
    assert len(taken) > len(_onnx._READ) / 2
