"""Base of every shape we own."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Model(BaseModel):
    """Base of every shape we own: immutable, typos fail. Validators are built on first use: commands start fast."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def _without_null(schema: dict[str, Any]) -> None:
    for field in schema.get("properties", {}).values():
        options = [option for option in field.pop("anyOf", ()) if option != {"type": "null"}]
        field.pop("default", None)
        field.update(options[0] if len(options) == 1 else {"anyOf": options} if options else {})


class Sparse(Model):
    """A shape with fields that are left out of its JSON, and are never null there, where there is nothing to say."""

    model_config = ConfigDict(json_schema_extra=_without_null)

    @model_serializer(mode="wrap")
    def _without_none(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}
