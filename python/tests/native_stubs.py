"""A native module held against its stub."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any


class Stub:
    """What a stub declares."""

    def __init__(self, path: Path) -> None:
        self.body = ast.parse(path.read_text(encoding="utf-8")).body
        self.functions: dict[str, ast.FunctionDef] = self._declared(ast.FunctionDef)
        self.classes: dict[str, ast.ClassDef] = self._declared(ast.ClassDef)

    def _declared(self, kind: type[Any]) -> dict[str, Any]:
        return {node.name: node for node in self.body if isinstance(node, kind)}

    def listed(self) -> set[str]:
        """Names in `__all__`."""
        found = next(
            node.value
            for node in self.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        )
        return set(ast.literal_eval(found))

    def check_function(self, name: str, native: object) -> None:
        """Its parameters are the native function's."""
        assert _native_parameters(native) == _parameters(self.functions[name])

    def check_class(self, name: str, native: Any) -> None:
        """Its bases, members and their parameters are the native class's."""
        stub = self.classes[name]
        members = {n.name: n for n in stub.body if isinstance(n, ast.FunctionDef)}
        assert [base.__name__ for base in native.__bases__] == (
            [ast.unparse(base) for base in stub.bases] or ["object"]
        )
        public = {member for member in vars(native) if not member.startswith("_")}
        assert public == {member for member in members if not member.startswith("_")}
        for member, node in members.items():
            is_property = any(ast.unparse(d) == "property" for d in node.decorator_list)
            assert is_property == inspect.isdatadescriptor(vars(native).get(member)), member
            if not is_property:
                function = native if member == "__new__" else getattr(native, member)
                assert _native_parameters(function) == _parameters(node), member


def _parameters(node: ast.FunctionDef) -> list[str]:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args]
    rest = [] if arguments.vararg is None else [f"*{arguments.vararg.arg}"]
    return [
        *(a.arg for a in named if a.arg not in ("self", "cls")),
        *rest,
        *(f"*{a.arg}" for a in arguments.kwonlyargs),
    ]


def _native_parameters(function: object) -> list[str]:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return [
        f"*{p.name}" if p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) else p.name
        for p in signature.parameters.values()
        if p.name != "self"
    ]
