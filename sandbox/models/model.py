"""Base of every shape we own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

HostPath = Annotated[Path, WithJsonSchema({"type": "string"})]
"""A path of the host. In schemas it is a string: `path` is no format of JSON Schema, and clients warn of it."""


class Model(BaseModel):
    """Base of every shape we own: immutable, typos fail. Validators are built on first use: commands start fast."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Sparse(Model):
    """A shape with fields that are left out of its JSON, and are never null there, where there is nothing to say."""

    @model_serializer(mode="wrap")
    def _without_none(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """That of its fields, not of the function that serializes them."""
        plain: Any = {name: value for name, value in schema.items() if name != "serialization"}
        found = handler(plain)
        for field in handler.resolve_ref_schema(found).get("properties", {}).values():
            _leave_null_out(field)
        return found


def _leave_null_out(field: dict[str, Any]) -> None:
    options = [option for option in field.pop("anyOf", ()) if option != {"type": "null"}]
    if field.get("default", "") is None:
        del field["default"]
    field.update(options[0] if len(options) == 1 else {"anyOf": options} if options else {})
