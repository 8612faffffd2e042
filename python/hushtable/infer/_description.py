"""A model's description, as users give it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError, ModelError
from ..model import Model, ModelPlan

_Path = str | os.PathLike[str]


def read_description(spec: _Path | str) -> str:
    """A description's text, which may be given as it is.

    Raises:
        ConfigError: a file that is not there, or no text.
    """
    is_text = isinstance(spec, str) and "\n" in spec
    return (str(spec) if is_text else read_spec(spec)) or ""


def read_spec(spec: _Path | None) -> str | None:
    """The text of a description's file; None where there is none to read.

    Raises:
        ConfigError: a file that is not there, or no text.
    """
    if spec is None:
        return None
    try:
        return Path(spec).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the model's description: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the model's description {os.fspath(spec)} is no text") from error


def plan_of(path: _Path, plan: str | None, scheme: str | None) -> str:
    """The name of a bundle's plan: the one named, or the only one of the scheme.

    Raises:
        ModelError: there is none.
        ConfigError: several plans, and none named.
    """
    if plan is not None:
        return plan
    found = [one for one in Model.open(path).plans if scheme in (None, one.scheme)]
    if not found:
        what = "plan" if scheme is None else f"{scheme} plan"
        raise ModelError(
            f"the model at {os.fspath(path)} has no {what}: compile it "
            f"(hushtable infer compile{'' if scheme is None else f' --scheme {scheme}'})"
        )
    if len(found) > 1:
        raise _several(path, found)
    return found[0].name


def scheme_of(path: _Path, plan: str | None) -> str:
    """The scheme that a bundle's plan is for; empty without a plan.

    Raises:
        ConfigError: plans of several schemes, and none named.
    """
    named = [one for one in Model.open(path).plans if plan in (None, one.name)]
    if len({one.scheme for one in named}) > 1:
        raise _several(path, named)
    return named[0].scheme if named else ""


def _several(path: _Path, plans: Sequence[ModelPlan]) -> ConfigError:
    names = ", ".join(one.name for one in plans)
    return ConfigError(f"the model at {os.fspath(path)} has several plans: name one of {names}")
