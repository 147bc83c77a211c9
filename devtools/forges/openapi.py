"""Requests and answers held against an OpenAPI 3.0 description."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jsonschema import Draft4Validator, FormatChecker, validators
from referencing import Registry
from referencing.jsonschema import DRAFT4

from devtools.forges.exchange import Answer, Request

_ROOT = "urn:description"
_MOST_SAID = 5
_ANYWHERE = {301, 307, 401, 403, 404, 429, 500, 502, 503, 504}
"""Any operation may answer so; descriptions name them only here and there."""

_FORMATS = FormatChecker(formats=())


def _is_date_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value) is not None


_FORMATS.checks("date-time", raises=ValueError)(_is_date_time)


def _or_null(keyword: str) -> Any:
    """OpenAPI 3.0 says `nullable` beside a keyword where JSON Schema has a type `null`."""
    plain = Draft4Validator.VALIDATORS[keyword]

    def check(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if instance is None and schema.get("nullable"):
            return
        yield from plain(validator, value, instance, schema) or ()

    return check


_KEYWORDS = ("type", "enum", "allOf", "anyOf", "oneOf")
_Validator: Any = validators.extend(Draft4Validator, {keyword: _or_null(keyword) for keyword in _KEYWORDS})


class OpenApi:
    """`document`: a description, parsed."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._registry: Any = Registry().with_resource(_ROOT, DRAFT4.create_resource(document))
        templates = sorted(document["paths"], key=lambda template: template.count("{"))
        self._paths = [(_pattern(template), template) for template in templates]

    def example(self, name: str) -> Any:
        """A value that the description publishes."""
        return self.document["components"]["examples"][name]["value"]

    def misasked(self, request: Request) -> list[str]:
        """What does not fit in a request, a line each."""
        operation = self._operation(request)
        if operation is None:
            return ["no such operation is described"]
        parameters = [self._resolved(p) for p in operation.get("parameters", [])]
        queried = [f"query: {line}" for line in self._query(parameters, request)]
        return queried + [f"request: {line}" for line in self._body(operation, request)]

    def misanswered(self, request: Request, answer: Answer) -> list[str]:
        """What does not fit in the answer to such a request, a line each."""
        operation = self._operation(request)
        return [f"answer {answer.status}: {line}" for line in self._answer(operation, answer)] if operation else []

    def _operation(self, request: Request) -> dict[str, Any] | None:
        template = next((t for pattern, t in self._paths if pattern.fullmatch(request.path)), None)
        found: dict[str, Any] | None = self.document["paths"].get(template, {}).get(request.method.lower())
        return found

    def _query(self, parameters: list[dict[str, Any]], request: Request) -> Iterator[str]:
        described = {p["name"]: p for p in parameters if p["in"] == "query"}
        given = parse_qsl(request.raw_query, keep_blank_values=True)
        for name, value in given:
            if name not in described:
                yield f"{name} is not described"
            else:
                schema = self._resolved(described[name].get("schema", {}))
                yield from (f"{name}: {line}" for line in self._misfits(schema, _typed(value, schema)))
        missing = {n for n, p in described.items() if p.get("required")} - {name for name, _ in given}
        yield from (f"{name} is missing" for name in sorted(missing))

    def _body(self, operation: Mapping[str, Any], request: Request) -> Iterator[str]:
        described = self._resolved(operation.get("requestBody", {}))
        if not request.body:
            if described.get("required"):
                yield "the body is missing"
            return
        schema = described.get("content", {}).get("application/json", {}).get("schema")
        try:
            value = request.json
        except ValueError as error:
            yield f"no JSON: {error}"
            return
        if schema is not None:
            yield from self._misfits(schema, value)
            yield from self._unknown_fields(schema, value)
        elif value:
            yield "no body is described"

    def _unknown_fields(self, schema: Mapping[str, Any], value: Any) -> Iterator[str]:
        """A misspelt field is nothing a forge complains about: it does nothing."""
        names = self._resolved(schema).get("properties")
        if names and isinstance(value, dict):
            yield from (f"{name} is not described" for name in sorted(value.keys() - names.keys()))

    def _answer(self, operation: Mapping[str, Any], answer: Answer) -> Iterator[str]:
        described = operation["responses"].get(str(answer.status))
        if answer.status == 304:
            return
        if described is None:
            if answer.status not in _ANYWHERE:
                yield "no such status is described"
            return
        content = self._resolved(described).get("content", {})
        if not content or (answer.status >= 400 and answer.content_type == "text/html"):
            return
        if answer.content_type not in content:
            yield f"{answer.content_type} instead of {' or '.join(content)}"
            return
        schema = content[answer.content_type].get("schema")
        if schema is not None and answer.content_type == "application/json":
            yield from self._misfits(schema, json.loads(answer.content))

    def _misfits(self, schema: Mapping[str, Any], value: Any) -> list[str]:
        validator = _Validator(_absolute(schema), registry=self._registry, format_checker=_FORMATS)
        errors = sorted(validator.iter_errors(value), key=lambda error: bool(error.validator == "required"))
        return [f"{error.json_path} {_short(error.message)}" for error in errors[:_MOST_SAID]]

    def _resolved(self, value: Any) -> dict[str, Any]:
        while "$ref" in value:
            value = functools.reduce(lambda at, key: at[key], value["$ref"].split("/")[1:], self.document)
        return dict(value)


@functools.cache
def load(path: Path) -> OpenApi:
    """Read a description, once a process."""
    return OpenApi(json.loads(path.read_bytes()))


def _short(message: str) -> str:
    """The value comes first in it, what is wrong with it last."""
    return message if len(message) <= 300 else f"{message[:150]} ... {message[-150:]}"


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"(\{[^}]+\})", template)
    return re.compile("".join("[^/]+" if part.startswith("{") else re.escape(part) for part in parts))


def _typed(value: str, schema: Mapping[str, Any]) -> Any:
    """A query has only strings."""
    kind = schema.get("type")
    if kind == "integer" and re.fullmatch(r"-?\d+", value):
        return int(value)
    if kind == "boolean" and value in {"true", "false"}:
        return value == "true"
    return [value] if kind == "array" else value


def _absolute(schema: Any) -> Any:
    """References that a validator of a part of the document finds in the whole."""
    if isinstance(schema, dict):
        return {k: _ROOT + v if k == "$ref" and isinstance(v, str) else _absolute(v) for k, v in schema.items()}
    return [_absolute(v) for v in schema] if isinstance(schema, list) else schema
