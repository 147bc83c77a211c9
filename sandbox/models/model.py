"""Base classes of all models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

HostPath = Annotated[Path, WithJsonSchema({"type": "string"})]
"""A path of the host. In schemas it is a string: `path` is not a format of JSON Schema, and clients warn about it."""


class Model(BaseModel):
    """Base of all models: immutable, unknown fields fail. Validators are built at first use, so commands start fast."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class SparseModel(Model):
    """A model that omits fields without a value from its JSON; they are never null there."""

    @model_serializer(mode="wrap")
    def _without_none(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema of the fields, not that of the serializer function."""
        plain: Any = {name: value for name, value in schema.items() if name != "serialization"}
        found = handler(plain)
        for field in handler.resolve_ref_schema(found).get("properties", {}).values():
            _remove_null(field)
        return found


def _remove_null(field: dict[str, Any]) -> None:
    options = [option for option in field.pop("anyOf", ()) if option != {"type": "null"}]
    if field.get("default", "") is None:
        del field["default"]
    field.update(options[0] if len(options) == 1 else {"anyOf": options} if options else {})
