"""The schemas in `tools/list`. Every client pays for them in every session, so they contain only what a model needs.

Pydantic adds a title to each field, a docstring to each model, and a second branch to each field that may be null; an
agent has the names, and leaves out what it does not give. The server validates input against the model itself, with an
error that names the field. Of results only the first names that every answer has are listed: an answer shows its own
shape, and the reference has the models (docs/reference/models.md, docs/adr/0073).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

_NEEDLESS = frozenset(
    {
        *("title", "format", "pattern", "propertyNames"),
        *("minLength", "maxLength", "maxItems", "minimum", "exclusiveMinimum"),
    }
)
RESULT_NAMES = 5
_NULL = {"type": "null"}


def input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The input schema of a tool, with the field descriptions."""
    schema = model.model_json_schema()
    schema = _inline_shapes(schema, schema.pop("$defs", {}))
    required = schema.get("required", [])
    fields = {name: _shorten(field, nullable=name in required) for name, field in schema.get("properties", {}).items()}
    return {"type": "object", "properties": fields} | ({"required": required} if required else {})


def result_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The result schema of a tool: the first names that every answer has, which are the ones that matter."""
    required = model.model_json_schema(mode="serialization").get("required", [])[:RESULT_NAMES]
    return {"type": "object"} | ({"required": required} if required else {})


def _inline_shapes(value: Any, shapes: Mapping[str, Any]) -> Any:
    """Put a nested model in the place of the reference to it."""
    if isinstance(value, list):
        return [_inline_shapes(entry, shapes) for entry in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inline_shapes(shapes[value["$ref"].rpartition("/")[2]], shapes)
    return {key: _inline_shapes(entry, shapes) for key, entry in value.items()}


def _shorten(schema: dict[str, Any], *, nullable: bool = True) -> dict[str, Any]:
    """Remove keys that an agent does not need. `nullable`: keep the branch for null, because the field is required.

    That stays an `anyOf` branch: clients warn about a list of types.
    """
    rest = {key: value for key, value in schema.items() if key not in _NEEDLESS | {"description", "anyOf"}}
    rest |= _shorten_options(schema.get("anyOf", ()), nullable=nullable)
    if "default" in rest and not rest["default"]:  # null, false, empty: what a reader expects anyway
        del rest["default"]
    if isinstance(more := rest.get("additionalProperties"), dict):
        rest["additionalProperties"] = _shorten(more)
    if isinstance(items := rest.get("items"), dict):
        rest["items"] = _shorten(items)
    if isinstance(fields := rest.get("properties"), dict):  # of a nested model
        required = rest.get("required", [])
        rest["properties"] = {name: _shorten(field, nullable=name in required) for name, field in fields.items()}
    return rest | ({"description": schema["description"]} if "description" in schema else {})


def _shorten_options(options: Any, *, nullable: bool) -> dict[str, Any]:
    found = [_shorten(option) for option in options if option != _NULL]
    if nullable and _NULL in options:
        found.append(_NULL)
    return found[0] if len(found) == 1 else {"anyOf": found} if found else {}
