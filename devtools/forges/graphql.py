"""GraphQL requests executed against the published schema: what GitHub would refuse is refused, shapes are its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphql import GraphQLSchema, build_schema, execute_sync, parse, validate
from graphql.error import GraphQLError

from devtools.forges.exchange import Answer, Request

Resolvers = Mapping[str, Callable[..., Any]]
"""Root fields: called with `info` and the field's arguments by name."""


def answer(schema: GraphQLSchema, request: Request, resolvers: Resolvers) -> Answer:
    """Execute the request."""
    try:
        document = parse(request.json["query"])
    except GraphQLError as error:
        return Answer(200, {"errors": [_error(error)]})
    errors = validate(schema, document)
    if errors:
        return Answer(200, {"errors": [_error(error) for error in errors]})
    done = execute_sync(schema, document, root_value=resolvers, variable_values=request.json.get("variables") or {})
    value: dict[str, Any] = {"data": done.data}
    if done.errors:
        value["errors"] = [_error(error) for error in done.errors]
    return Answer(200, value)


def misasked(schema: GraphQLSchema, request: Request) -> list[str]:
    """What does not fit in the query and its variables."""
    try:
        document = parse(request.json["query"])
    except (GraphQLError, ValueError, KeyError, TypeError) as error:
        return [f"GraphQL: {error}"]
    return [f"GraphQL: {error.message}" for error in validate(schema, document)]


def misanswered(schema: GraphQLSchema, request: Request, given: Answer) -> list[str]:
    """What does not fit in the shape of the data: each field is resolved by its name, so aliases are not for us."""
    errors = given.body.get("errors", [])
    if errors or not given.body.get("data"):
        return [] if all(isinstance(e.get("message"), str) for e in errors) else ["answer: GraphQL: no message"]
    data = given.body["data"]
    asked = request.json
    done = execute_sync(schema, parse(asked["query"]), root_value=data, variable_values=asked.get("variables") or {})
    return [f"answer: GraphQL: {error.message}" for error in done.errors or []]


class Refused(Exception):
    """A resolver's no. `kind`: GitHub's `type`, such as `FORBIDDEN` or `NOT_FOUND`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@functools.cache
def load(path: Path) -> GraphQLSchema:
    """Read a schema, once a process: it takes about a second."""
    return build_schema(path.read_text(), assume_valid=True)


def _error(error: GraphQLError) -> dict[str, Any]:
    kind = error.original_error.kind if isinstance(error.original_error, Refused) else None
    plain = {"message": error.message, "path": error.path, "type": kind}
    return {name: value for name, value in plain.items() if value is not None}
