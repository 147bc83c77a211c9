"""Translation of GitHub's errors to ours.

Facts: https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api, and for GraphQL
https://docs.github.com/en/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from sandbox.errors import ErrorCode
from sandbox.forges import refusals
from sandbox.forges.forge import Project
from sandbox.forges.http_session import RefusedError
from sandbox.forges.refusals import DEFAULT_PAUSE_S, Meaning, RefusalRules, explain_status, read_seconds
from sandbox.text import one_line

_SCOPES = "docs/pull-requests.md lists the permissions that a token needs."
_GRAPHQL_STATUS = {"FORBIDDEN": 403, "NOT_FOUND": 404, "RATE_LIMITED": 429}
"""The status with which the REST API gives the same error."""


def translate_errors(project: Project) -> AbstractContextManager[None]:
    """Translate GitHub's refusals and errors of the network. The token is removed from the forge's messages."""
    return refusals.translate_errors(project, _RULES)


def require_data(document: Any, headers: Mapping[str, str]) -> None:
    """Raise `RefusedError` for errors of GraphQL, which come with HTTP 200: with the status of REST, else with 400."""
    errors = document.get("errors") if isinstance(document, dict) else None
    if not errors:
        return
    kinds = [str(error.get("type")) for error in _items(errors) if isinstance(error, dict)]
    raise RefusedError(next((_GRAPHQL_STATUS[k] for k in kinds if k in _GRAPHQL_STATUS), 400), headers, document)


def _explain(refused: RefusedError, said: str) -> Meaning:
    status, headers = refused.status, refused.headers
    if status == 422:
        return _explain_unprocessable(said)
    if "archived" in said:
        return Meaning(
            ErrorCode.FORGE_ERROR, "{path} is archived on {host} and read-only", "Check the repository's URL."
        )
    if status == 403 and "X-GitHub-SSO" in headers:
        hint = "The organization requires single sign-on: authorize the token for it on GitHub."
        return replace(explain_status(403, ""), hint=hint)
    if status in {403, 404} and (missing := _missing_permissions(headers)):
        return explain_status(403, f"The token lacks: {missing}. {_SCOPES}")
    return explain_status(status, _SCOPES)


def _missing_permissions(headers: Mapping[str, str]) -> str:
    """Permissions or scopes that the request needs and the token lacks, if the forge names them."""
    permissions = headers.get("X-Accepted-GitHub-Permissions", "")
    wanted = {scope.strip() for scope in headers.get("X-Accepted-OAuth-Scopes", "").split(",") if scope.strip()}
    has = {scope.strip() for scope in headers.get("X-OAuth-Scopes", "").split(",")}
    lacking = ", ".join(sorted(wanted)) if "X-OAuth-Scopes" in headers and not wanted & has else ""
    return one_line(permissions or lacking)[:200]


def _explain_unprocessable(said: str) -> Meaning:
    if "pull request already exists" in said:
        brief = "A pull request for this branch already exists"
        return Meaning(ErrorCode.CONFLICT, brief, "Show it: sandbox pr status TASK")
    if "No commits between" in said:
        brief = "The branch has no commits that its base lacks"
        return Meaning(ErrorCode.CONFLICT, brief, "It may have been merged already.")
    if re.search(r"\b(head|base)\b.*\binvalid\b", said):
        return refusals.UNKNOWN_BRANCH
    if "Draft pull requests are not supported" in said:
        hint = "Open it as ready: sandbox pr open TASK --ready"
        return Meaning(ErrorCode.FORGE_ERROR, "{path} has no drafts on {host}", hint)
    return Meaning(ErrorCode.FORGE_ERROR, "{host} rejected the request (HTTP 422)", refusals.UNEXPLAINED)


def _read_message(refused: RefusedError) -> str:
    """Message and error details of an answer, one per line. Empty for an answer that is not JSON: a proxy's page."""
    document = refused.document if isinstance(refused.document, dict) else {}
    lines = [str(document.get("message") or ""), *map(_reason, _items(document.get("errors")))]
    return "\n".join(line for line in lines if line)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _reason(reason: Any) -> str:
    if not isinstance(reason, dict):
        return str(reason)
    return " ".join(str(reason[name]) for name in ("type", "resource", "field", "code", "message") if name in reason)


def _read_pause_s(refused: RefusedError, said: str) -> float | None:
    status, headers = refused.status, refused.headers
    if status not in {403, 429}:
        return None
    if (after_s := read_seconds(headers, "Retry-After")) is not None:
        return after_s
    if headers.get("X-RateLimit-Remaining") == "0":
        reset = read_seconds(headers, "X-RateLimit-Reset")  # in seconds since 1970
        return DEFAULT_PAUSE_S if reset is None else max(1.0, reset - time.time())
    return DEFAULT_PAUSE_S if status == 429 or "rate limit" in said.lower() else None


_RULES = RefusalRules(_read_message, _read_pause_s, _explain)
