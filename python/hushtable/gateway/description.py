"""The gateway's routes for machines (OpenAPI 3.1) and for people, on a page that loads nothing."""

from __future__ import annotations

import html
from typing import Any

from .. import _native

__all__ = ["openapi", "page"]

_STRING, _NUMBER = {"type": "string"}, {"type": "number"}
_WHOLE = {"type": "integer", "minimum": 0}
_ID = {"oneOf": [_WHOLE, {"type": "string", "pattern": "^[0-9]+$"}]}
_IDS = {"oneOf": [_ID, {"type": "array", "items": _ID}]}
_FORMAT = {"enum": ["float", "base64"], "default": "float"}
_ROW = {
    "oneOf": [
        {"type": "array", "items": {"type": ["number", "null"]}},
        {"type": "string", "description": "float32, lowest byte first, in base64"},
    ]
}
_TIMEOUT = {**_NUMBER, "description": "seconds that the lookup may take"}


def _object(required: str = "", **properties: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        found["required"] = required.split()
    return found


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return _object("object data", object={"const": "list"}, data={"type": "array", "items": item})


_ERROR = _object(
    "error",
    error=_object(
        "message type code", message=_STRING, type=_STRING, param={"type": "null"}, code=_STRING
    ),
)
#: Of each route what it is for, what it takes and what it says.
_ROUTES: dict[str, tuple[str, dict[str, Any] | None, dict[str, Any] | None]] = {
    "/v1/lookup": (
        "Rows of a table.",
        {
            **_object(
                "ids",
                table={**_STRING, "description": "needed where there are several"},
                ids=_IDS,
                max_ids={**_WHOLE, "description": "what the servers see: keys, used or not"},
                timeout=_TIMEOUT,
                encoding_format=_FORMAT,
            ),
            "additionalProperties": False,
        },
        _object(
            "table version dim rows",
            table=_STRING,
            version=_STRING,
            dim=_WHOLE,
            rows={"type": "array", "items": _ROW},
        ),
    ),
    "/v1/embeddings": (
        "Rows of a table, as clients of OpenAI's API ask: the input is ids.",
        {
            **_object(
                "model input",
                model={**_STRING, "description": "a table's name"},
                input=_IDS,
                encoding_format=_FORMAT,
                dimensions={**_WHOLE, "description": "what a row has, where it is given"},
                user={**_STRING, "description": "taken, and not used"},
            ),
            "additionalProperties": False,
        },
        {
            **_list(
                _object(
                    "object index embedding",
                    object={"const": "embedding"},
                    index=_WHOLE,
                    embedding=_ROW,
                )
            ),
        },
    ),
    "/v1/features": (
        "Rows of all features of one inference, where a model is served. The servers see that one "
        "was made, and not which features it has ids of.",
        {
            **_object(
                "inputs",
                inputs={"type": "object", "additionalProperties": _IDS},
                timeout=_TIMEOUT,
                encoding_format=_FORMAT,
            ),
            "additionalProperties": False,
        },
        _object(
            "model version features",
            model=_STRING,
            version=_STRING,
            features={
                "type": "object",
                "additionalProperties": _object(
                    "rows kept",
                    rows={"type": "array", "items": _ROW},
                    kept={"type": "array", "items": {"type": "boolean"}},
                ),
            },
        ),
    ),
    "/v1/tables": (
        "What can be asked: a table, or a model's features by their tables.",
        None,
        _list(
            _object(
                "id name rows dim dtype row_bytes version",
                id=_STRING,
                name=_STRING,
                rows=_WHOLE,
                dim=_WHOLE,
                dtype=_STRING,
                row_bytes=_WHOLE,
                version=_STRING,
            )
        ),
    ),
    "/v1/models": (
        "The same, as clients of OpenAI's API list models.",
        None,
        _list(
            _object(
                "id object created owned_by",
                id=_STRING,
                object={"const": "model"},
                created=_WHOLE,
                owned_by=_STRING,
            )
        ),
    ),
    "/healthz": ("Whether it lives.", None, None),
    "/readyz": ("Whether it takes requests.", None, None),
    "/metrics": ("Counts and times, as Prometheus reads them.", None, None),
    "/openapi.json": ("This, for machines.", None, {"type": "object"}),
    "/docs": ("This, for people.", None, None),
}
_OPEN = ("/healthz", "/readyz")


def openapi(*, has_token: bool) -> dict[str, Any]:
    """The document of OpenAPI."""
    paths = {path: _operation(path, has_token) for path in _ROUTES}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "hushtable gateway",
            "version": _native.__version__,
            "description": "Private lookups over HTTP, by a client on this side.",
        },
        "paths": paths,
    }
    if has_token:
        document["components"] = {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}
        }
    return document


def _operation(path: str, has_token: bool) -> dict[str, Any]:
    text, takes, says = _ROUTES[path]
    content = {"text/plain": {}} if says is None else {"application/json": {"schema": says}}
    refused = {"description": "Refused.", "content": {"application/json": {"schema": _ERROR}}}
    operation: dict[str, Any] = {
        "summary": text,
        "responses": {"200": {"description": "Done.", "content": content}, "default": refused},
    }
    if has_token and path not in _OPEN:
        operation["security"] = [{"token": []}]
    if takes is not None:
        body = {"required": True, "content": {"application/json": {"schema": takes}}}
        return {"post": operation | {"requestBody": body}}
    return {"get": operation}


def page(*, has_token: bool) -> str:
    """The page: no script, and nothing from elsewhere."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>hushtable gateway</title>"
        "<style>body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
        "code,pre{background:#f2f2f2;padding:.1em .3em}h2{margin-top:2em}</style>"
        "<h1>hushtable gateway</h1><p>Private lookups over HTTP, by a client on this side. For "
        "machines: <a href=openapi.json>openapi.json</a>.</p>"
    ]
    if has_token:
        parts.append("<p>Requests carry <code>authorization: Bearer TOKEN</code>.</p>")
    for path, (text, takes, _) in _ROUTES.items():
        verb = "GET" if takes is None else "POST"
        parts.append(f"<h2><code>{verb} {path}</code></h2><p>{html.escape(text)}</p>")
        if takes is not None:
            rows = "".join(
                f"<li><code>{name}</code>{_said(name, of, takes['required'])}</li>"
                for name, of in takes["properties"].items()
            )
            parts.append(f"<ul>{rows}</ul>")
    return "".join(parts)


def _said(name: str, of: dict[str, Any], required: list[str]) -> str:
    said = [of["description"]] if "description" in of else []
    if name in required:
        said.insert(0, "required")
    return html.escape(": " + "; ".join(said)) if said else ""
