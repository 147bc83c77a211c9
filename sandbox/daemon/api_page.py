"""The JSON API as a page for a person: what the OpenAPI document says of each call. All of its text is ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import Any

from sandbox.daemon.tool_calls import PREFIX, describe_api
from sandbox.lazy_dataclass import dataclass
from sandbox.workbench import Workbench

_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "as {}",
}


@dataclass(frozen=True)
class ApiField:
    """A field of JSON. `default`: as JSON; '' for none. `bounds`: what a value must keep to, in words."""

    name: str
    type: str
    is_required: bool
    default: str
    bounds: str


@dataclass(frozen=True)
class ApiShape:
    """An object that several calls have."""

    name: str
    description: str
    fields: tuple[ApiField, ...]


@dataclass(frozen=True)
class ApiCall:
    """One path, which takes POST. `preset`: the preset of tools that it is in. `result`: what it answers."""

    path: str
    preset: str
    summary: str
    arguments: tuple[ApiField, ...]
    result: ApiShape


def read_api(_person: Workbench) -> Mapping[str, Any]:
    """All calls by preset, and the shapes that they share."""
    calls, shapes = _read_document()
    presets = [(name, tuple(group)) for name, group in groupby(calls, lambda call: call.preset)]
    return {"presets": presets, "shapes": shapes, "document": f"{PREFIX}/openapi.json"}


@cache
def _read_document() -> tuple[tuple[ApiCall, ...], tuple[ApiShape, ...]]:
    """The schemas of all tools, which take a moment to make, and never change."""
    document = describe_api()
    calls = [_describe_call(path, item["post"]) for path, item in document["paths"].items()]
    shapes = [_describe_shape(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    return tuple(sorted(calls, key=lambda call: call.preset)), tuple(shapes)


def _describe_call(path: str, operation: Mapping[str, Any]) -> ApiCall:
    answer = _schema_of(operation["responses"]["200"])
    return ApiCall(
        path=path,
        preset=operation["tags"][0],
        summary=operation["summary"],
        arguments=tuple(_list_fields(_schema_of(operation["requestBody"]))),
        result=_describe_shape(answer.get("title", "result"), answer),
    )


def _schema_of(content: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = content["content"]["application/json"]["schema"]
    return found


def _describe_shape(name: str, schema: Mapping[str, Any]) -> ApiShape:
    description = schema.get("description", "")
    if "properties" not in schema:
        description = f"{name_type(schema)}. {description}".strip()
    return ApiShape(name, description, tuple(_list_fields(schema)))


def _list_fields(schema: Mapping[str, Any]) -> Iterator[ApiField]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        default = json.dumps(field["default"]) if "default" in field else ""
        yield ApiField(name, name_type(field), name in required, default, describe_bounds(field))


def name_type(schema: Mapping[str, Any]) -> str:
    """The type of a value in words. Pure."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema or "const" in schema:
        return " or ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    for options in ("anyOf", "oneOf"):
        if options in schema:
            return " or ".join(name_type(one) for one in schema[options])
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"list of {name_type(schema['items'])}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object with values of {name_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


def describe_bounds(schema: Mapping[str, Any]) -> str:
    """What a value must keep to, also one of several types. Pure."""
    own = [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]
    return ", ".join([*own, *(found for one in schema.get("anyOf", ()) if (found := describe_bounds(one)))])
