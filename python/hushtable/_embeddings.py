"""Embedding layers of torch and torchrec: whether one gives rows of its weight and nothing else.

They are told by the names of their classes, so that neither torch nor torchrec has to be there.
"""

from __future__ import annotations

from typing import Any

__all__ = ["COLLECTION", "altered", "kind_of"]

COLLECTION = "EmbeddingBagCollection"

#: Where the layers are whose arithmetic is known: others of their names are quantised, or fused.
_HOMES = {
    "Embedding": ("torch", "torch.nn.modules.sparse"),
    "EmbeddingBag": ("torch", "torch.nn.modules.sparse"),
    COLLECTION: ("torchrec", "torchrec.modules"),
}
#: What a class may have of its own and look up as its base does: how a layer is made, first filled
#: and printed is over, or says nothing, once it is asked for rows.
_HARMLESS = frozenset({"__init__", "extra_repr", "reset_parameters"})
#: What Python itself writes into classes.
_WRITTEN = frozenset(
    {
        "__abstractmethods__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__classcell__",
        "__doc__",
        "__firstlineno__",
        "__module__",
        "__orig_bases__",
        "__parameters__",
        "__static_attributes__",
        "__type_params__",
        "_abc_impl",
    }
)


def kind_of(module: Any) -> str | None:
    """``Embedding``, ``EmbeddingBag`` or ``EmbeddingBagCollection``, also of what is made of one.

    None of any other module.
    """
    if _is_scripted(module):
        scripted = getattr(module, "original_name", None)
        return scripted if scripted in _HOMES else None
    for base in type(module).__mro__:
        package, _ = _HOMES.get(base.__name__, ("", ""))
        if package and base.__module__.partition(".")[0] == package:
            return base.__name__
    return None


def altered(layer: Any) -> str | None:
    """Why an embedding layer may give something else than its kind does; None of a plain one.

    A layer is plain where its class is torch's own, or adds nothing to it but how it is made, and
    where nothing was hung on the layer itself. (A language model's embedding that multiplies by the
    root of the dim, or counts ids from another number, is a class of its own, or has a hook.)
    """
    kind = kind_of(layer)
    if _is_scripted(layer):
        return "it is a program of torch.jit: script the model once its layers are private"
    if "parametrizations" in getattr(layer, "_modules", {}):
        return "it has parametrizations, which compute its weight anew"
    return _of_class(type(layer), kind) or _of_hooks(layer) or _of_parts(layer, kind)


def _is_scripted(module: Any) -> bool:
    return type(module).__module__.startswith("torch.jit")


def _of_class(cls: type, kind: str | None) -> str | None:
    for base in cls.__mro__:
        if base.__name__ == kind:
            home = _HOMES[kind][1]
            if f"{base.__module__}.".startswith(f"{home}."):
                return None
            return f"it is a {base.__module__}.{kind}, whose arithmetic is another"
        own = sorted(vars(base).keys() - _HARMLESS - _WRITTEN)
        if own:
            return (
                f"its class {base.__name__} has its own {own[0]}, and may give something else than "
                "rows"
            )
    return f"its class {cls.__name__} is no embedding layer's"


def _of_hooks(layer: Any) -> str | None:
    for name, value in vars(layer).items():
        if name not in _HARMLESS and callable(getattr(type(layer), name, None)):
            return f"its {name} was replaced"
        # Those of state dicts say nothing of what is looked up.
        if name.endswith("_hooks") and value and "state_dict" not in name:
            return f"it has {name.strip('_').replace('_', ' ')}, which may change what it gives"
    return None


def _of_parts(layer: Any, kind: str | None) -> str | None:
    own = {"_modules": {"embedding_bags"}} if kind == COLLECTION else {"_parameters": {"weight"}}
    for part in ("_parameters", "_buffers", "_modules"):
        more = sorted(getattr(layer, part, {}).keys() - own.get(part, set()))
        if more:
            what = part.strip("_").removesuffix("s")
            return f"it has a {what} {more[0]}, which torch's own has not"
    return None
