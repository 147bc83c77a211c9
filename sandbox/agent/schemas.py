"""The schemas in `tools/list`. Every client pays for them in every session, so they contain only what is needed.

Pydantic adds a title to each field and a docstring to each model. An agent has the names, and the server validates
input against the model itself. Of a result only the first level is listed, with its types; nested models are in the
reference (docs/reference/models.md) and visible in the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

_NEEDLESS = frozenset({"title", "format", "pattern", "minLength", "maxLength", "maxItems", "propertyNames"})
_OUTLINE = ("type", "enum", "const")
_NULL = {"type": "null"}


def input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The input schema of a tool, with the field descriptions."""
    schema = model.model_json_schema()
    schema = _inline_shapes(schema, schema.pop("$defs", {}))
    fields = {name: _strip_keys(field) for name, field in schema.pop("properties", {}).items()}
    return {**_strip_keys(schema), "properties": fields}


def result_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The result schema of a tool: the names and types of the first level."""
    schema = model.model_json_schema(mode="serialization")
    shapes = schema.get("$defs", {})
    fields = {name: _outline(field, shapes) for name, field in schema.get("properties", {}).items()}
    return {"type": "object", "properties": fields, "required": schema.get("required", [])}


def _inline_shapes(value: Any, shapes: Mapping[str, Any]) -> Any:
    """Put a nested model in the place of the reference to it."""
    if isinstance(value, list):
        return [_inline_shapes(entry, shapes) for entry in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inline_shapes(shapes[value["$ref"].rpartition("/")[2]], shapes)
    return {key: _inline_shapes(entry, shapes) for key, entry in value.items()}


def _strip_keys(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove keys that an agent does not need. Nullable stays an `anyOf` branch: clients warn about a list of types."""
    rest = {key: value for key, value in schema.items() if key not in _NEEDLESS | {"description", "anyOf"}}
    options = [_strip_keys(option) for option in schema.get("anyOf", ()) if option != _NULL]
    if options:
        rest["anyOf"] = [*options, *([_NULL] if _NULL in schema["anyOf"] else [])]
    if "default" in rest and rest["default"] is None:
        del rest["default"]
    if isinstance(more := rest.get("additionalProperties"), dict):
        rest["additionalProperties"] = _strip_keys(more)
    if isinstance(items := rest.get("items"), dict):
        rest["items"] = _strip_keys(items)
    if "properties" in rest:  # of a nested model
        rest["properties"] = {name: _strip_keys(field) for name, field in rest["properties"].items()}
    return rest | ({"description": schema["description"]} if "description" in schema else {})


def _outline(schema: dict[str, Any], shapes: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _outline(shapes[schema["$ref"].rpartition("/")[2]], shapes)
    if options := [_outline(option, shapes) for option in schema.get("anyOf", ())]:
        return {"anyOf": options} if all("type" in option for option in options) else {}
    outline = {key: schema[key] for key in _OUTLINE if key in schema}
    if "items" in schema:
        outline["items"] = {key: value for key, value in _outline(schema["items"], shapes).items() if key == "type"}
    return outline
