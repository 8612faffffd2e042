"""What a model is made of, and ``model.toml``, which says so beside the weights."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ...errors import ConfigError, ModelError
from ._sizes import Compression, compression, digit_count, kept_rows

__all__ = ["ACTIVATIONS", "Activation", "Description", "Feature", "Interaction"]

Activation = Literal["square", "relu", "silu", "polynomial"]
Interaction = Literal["concat", "dot"]

#: Every activation that a model may have.
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)

#: Degrees of the one polynomial that may stand for ReLU.
RELU_DEGREES = (31, 63, 127)

#: A description is a few numbers a table: what is larger is something else.
_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Feature:
    """A categorical input.

    Attributes:
        name: of the column.
        rows: of its table before compression; its indices are below this.
    """

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Description:
    """A deep learning recommendation model, without its weights.

    The bottom layers read the dense inputs, an embedding table each categorical one; what comes
    out interacts, and the top layers make one logit of it.

    Attributes:
        dense: how many dense inputs.
        bottom: outputs of each bottom layer; the last is ``dim``.
        top: outputs of each top layer; the last is 1, the logit.
        dim: values a row of each table.
        features: the categorical inputs, in order: of the feature at N the checkpoint's table is
            ``emb_l.N``, and ``model.toml`` says so.
        interaction: ``"concat"`` puts the bottom's output and the rows after one another;
            ``"dot"`` keeps the bottom's output and adds the products of each pair of them.
        activation: between layers.
        relu_degree: 31, 63 or 127 for a model that is trained with the polynomial of this degree
            that comes nearest to ReLU on the activation's range, in ReLU's place, and computes it
            wherever it is computed; None for ReLU itself, which encryption approximates by a
            composite of 14 levels.
        bottom_activates_last: whether the last bottom layer has an activation as well. Without
            one, it and the first top layer are one linear map of a server's.
        base: of the digits of large tables.
        threshold: tables of more rows than this are kept as digits.

    Raises:
        ConfigError: sizes that do not fit each other.
    """

    dense: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    dim: int
    features: tuple[Feature, ...]
    interaction: Interaction = "concat"
    activation: Activation = "square"
    relu_degree: int | None = None
    bottom_activates_last: bool = False
    base: int = 4
    threshold: int = 500

    def __post_init__(self) -> None:
        wrong = self._what_is_wrong()
        if wrong:
            raise ConfigError(wrong)

    def _what_is_wrong(self) -> str | None:
        sizes = (self.dense, self.dim, self.threshold, *self.bottom, *self.top)
        if min(sizes) < 1:
            return f"a size of {min(sizes)}: every size is at least 1"
        if not self.bottom or self.bottom[-1] != self.dim:
            return f"bottom ends with {self.bottom[-1:]}: it ends with dim, which is {self.dim}"
        if not self.top or self.top[-1] != 1:
            return f"top ends with {self.top[-1:]}: it ends with 1, the logit"
        if not self.features:
            return "no features: a model reads at least one table"
        if self.base < 2:
            return f"base {self.base}: digits have a base of at least 2"
        if self.activation not in ACTIVATIONS:
            return f"activation {self.activation!r}: choose one of {', '.join(ACTIVATIONS)}"
        if self.relu_degree is not None and self.activation != "relu":
            return f"relu_degree {self.relu_degree}: the activation is {self.activation}, not relu"
        if self.relu_degree not in (None, *RELU_DEGREES):
            return f"relu_degree {self.relu_degree}: choose 31, 63, 127 or none for ReLU itself"
        if self.interaction not in get_args(Interaction):
            return f"interaction {self.interaction!r}: choose concat or dot"
        names = [feature.name for feature in self.features]
        if len(set(names)) < len(names) or "" in names:
            return "two features of one name, or one without: each needs a name of its own"
        small = [feature for feature in self.features if feature.rows < 1]
        return f"feature {small[0].name!r} has {small[0].rows} rows, at least 1" if small else None

    @property
    def interacted(self) -> int:
        """Inputs of the first top layer."""
        vectors = 1 + len(self.features)
        if self.interaction == "concat":
            return self.dim * vectors
        return self.dim + vectors * (vectors - 1) // 2

    @property
    def bottom_shapes(self) -> tuple[tuple[int, int], ...]:
        """Outputs and inputs of each bottom layer."""
        return tuple(zip(self.bottom, (self.dense, *self.bottom), strict=False))

    @property
    def top_shapes(self) -> tuple[tuple[int, int], ...]:
        """Outputs and inputs of each top layer."""
        return tuple(zip(self.top, (self.interacted, *self.top), strict=False))

    @property
    def bottom_activations(self) -> int:
        """How many of the bottom layers have an activation."""
        return len(self.bottom) - (0 if self.bottom_activates_last else 1)

    @property
    def top_activations(self) -> int:
        """How many of the top layers have an activation: all but the last."""
        return len(self.top) - 1

    @property
    def compression(self) -> Compression:
        """What its tables keep."""
        rows = [feature.rows for feature in self.features]
        return compression(rows, self.threshold, self.base, dim=self.dim)

    def digits(self, feature: Feature) -> int:
        """Rows of the feature's table that a lookup adds up; 1 where the table is whole."""
        return digit_count(feature.rows, self.base) if feature.rows > self.threshold else 1

    def kept(self, feature: Feature) -> int:
        """Rows that the feature's table has."""
        return kept_rows(feature.rows, threshold=self.threshold, base=self.base)

    def to_toml(self) -> str:
        """The text of ``model.toml``."""
        flag = "true" if self.bottom_activates_last else "false"
        lines = [
            f"dense = {self.dense}",
            f"bottom = {list(self.bottom)}",
            f"top = {list(self.top)}",
            f"dim = {self.dim}",
            f'interaction = "{self.interaction}"',
            f'activation = "{self.activation}"',
            *([] if self.relu_degree is None else [f"relu_degree = {self.relu_degree}"]),
            f"bottom_activates_last = {flag}",
            f"base = {self.base}",
            f"threshold = {self.threshold}",
        ]
        for at, feature in enumerate(self.features):
            # A JSON string without other than ASCII characters is a TOML string too.
            lines += ["", "[[features]]", f"name = {json.dumps(feature.name)}"]
            lines += [f"rows = {feature.rows}", f'table = "{_table(at)}"']
        return "\n".join(lines) + "\n"

    @classmethod
    def read(cls, path: Path) -> Description:
        """Out of a ``model.toml``.

        Raises:
            ModelError: a file that cannot be read, is no TOML, lacks a key, has one that is not
                known, or describes no model.
        """
        try:
            if path.stat().st_size > _BYTES_MAX:
                raise ModelError(f"{path} has over {_BYTES_MAX:,} bytes: it describes no model")
            fields = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise ModelError(f"cannot read {path} ({error.strerror})") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ModelError(f"{path} is not TOML: {error}") from error
        try:
            return cls(**_checked(fields))
        except (ConfigError, TypeError, KeyError, ValueError) as error:
            raise ModelError(f"{path} describes no model: {error}") from error


def _table(at: int) -> str:
    """What the table of the feature at this place is called."""
    return f"emb_l.{at}"


_INTEGERS = ("dense", "dim", "base", "threshold", "relu_degree")
_LISTS = ("bottom", "top")
_STRINGS = ("interaction", "activation")


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with their types; a missing one is left to its default, or to be missed."""
    known = {*_INTEGERS, *_LISTS, *_STRINGS, "bottom_activates_last", "features"}
    if unknown := sorted(set(fields) - known):
        raise ValueError(f"key {unknown[0]!r} is not known")
    found: dict[str, Any] = dict(fields)
    for name in _INTEGERS:
        if name in fields and type(fields[name]) is not int:
            raise ValueError(f"{name} = {fields[name]!r} is no whole number")
    for name in _STRINGS:
        if name in fields and type(fields[name]) is not str:
            raise ValueError(f"{name} = {fields[name]!r} is no string")
    for name in _LISTS:
        if name in fields:
            sizes = fields[name]
            if not isinstance(sizes, list) or any(type(size) is not int for size in sizes):
                raise ValueError(f"{name} = {sizes!r} is no list of whole numbers")
            found[name] = tuple(sizes)
    if type(fields.get("bottom_activates_last", False)) is not bool:
        raise ValueError("bottom_activates_last is true or false")
    features = fields["features"]
    if not isinstance(features, list) or not all(isinstance(one, dict) for one in features):
        raise ValueError("features is an array of tables: [[features]]")
    for at, one in enumerate(features):
        if set(one) - {"table"} != {"name", "rows"} or type(one["name"]) is not str:
            raise ValueError(f"feature {one!r}: each has a name, rows and a table, nothing else")
        if one.get("table", _table(at)) != _table(at):
            raise ValueError(
                f"feature {one['name']!r} reads the table {one['table']!r}: that of the feature at "
                f"{at} is {_table(at)!r}"
            )
        if type(one["rows"]) is not int:
            raise ValueError(f"feature {one['name']!r} has rows = {one['rows']!r}")
    found["features"] = tuple(Feature(one["name"], one["rows"]) for one in features)
    return found
