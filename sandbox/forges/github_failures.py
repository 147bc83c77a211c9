"""Translation of GitHub's and PyGithub's errors to ours.

Facts: https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests
from github import GithubException

from sandbox.credentials import remove_secret
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Project
from sandbox.forges.http_session import network_error, rate_limit_error, redact_secret, server_error
from sandbox.forges.responses import invalid_response
from sandbox.text import neutralise, one_line

_INVALID_ANSWER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What PyGithub raises for invalid answers."""


@contextmanager
def translate_errors(project: Project) -> Iterator[None]:
    """Translate errors of PyGithub and of the network. The token is removed from the forge's messages."""
    with redact_secret(project.credential):
        try:
            yield
        except GithubException as error:
            raise _as_error(error, project) from None
        except requests.RequestException as error:
            raise network_error(error, project.hostname) from None
        except _INVALID_ANSWER_ERRORS as error:
            raise invalid_response(f"{type(error).__name__}: {error}"[:300]) from None


def _as_error(error: GithubException, project: Project) -> SandboxError:
    headers = {name.lower(): str(value) for name, value in (error.headers or {}).items()}
    said = _read_message(error, project)
    if (wait_s := _read_pause_s(error, headers, said)) is not None:
        return rate_limit_error(project.hostname, said, wait_s)
    if error.status >= 500:
        return server_error(project.hostname, error.status, said)
    if error.status == 422:
        code, brief, hint = _explain_unprocessable(said)
    else:
        code, brief, hint = _explain_refusal(error.status, headers, said)
    brief = brief.format(host=project.hostname, path=project.path, status=error.status)
    return SandboxError(code, brief, details=said, hint=hint.replace("{host}", project.hostname))


_Meaning = tuple[ErrorCode, str, str]
_SCOPES = "docs/pull-requests.md lists the permissions that a token needs."
_BRANCHES = "Push first. Check that the base branch still exists."
_MEANINGS: Mapping[int, _Meaning] = {
    401: (
        ErrorCode.AUTH_FAILED,
        "{host} rejected the token",
        "It may have expired. Store a new one: sandbox credentials set {host}",
    ),
    403: (ErrorCode.AUTH_FAILED, "The token lacks a permission on {host}", _SCOPES),
    404: (
        ErrorCode.NOT_FOUND,
        "{host} has no project {path}, or the token has no access to it or to this part of it",
        _SCOPES,
    ),
}


def _explain_refusal(status: int, headers: Mapping[str, str], said: str) -> _Meaning:
    if "archived" in said:
        return ErrorCode.FORGE_ERROR, "{path} is archived on {host} and read-only", "Check the repository's URL."
    if status == 403 and "x-github-sso" in headers:
        return (*_MEANINGS[403][:2], "The organization requires single sign-on: authorize the token for it on GitHub.")
    if status == 400 and "FORBIDDEN" in said:  # GraphQL errors come with 200, which PyGithub reports as 400
        status = 403
    code, brief, hint = _MEANINGS.get(status, (ErrorCode.FORGE_ERROR, "{host} refused (HTTP {status})", ""))
    missing = _missing_permissions(headers)
    if missing and status in {403, 404}:
        return ErrorCode.AUTH_FAILED, _MEANINGS[403][1], f"The token lacks: {missing}. {_SCOPES}"
    return code, brief, hint


def _missing_permissions(headers: Mapping[str, str]) -> str:
    """Permissions or scopes that the request needs and the token lacks, if the forge names them."""
    permissions = headers.get("x-accepted-github-permissions", "")
    wanted = {scope.strip() for scope in headers.get("x-accepted-oauth-scopes", "").split(",") if scope.strip()}
    has = {scope.strip() for scope in headers.get("x-oauth-scopes", "").split(",")}
    lacking = ", ".join(sorted(wanted)) if "x-oauth-scopes" in headers and not wanted & has else ""
    return one_line(permissions or lacking)[:200]


def _explain_unprocessable(said: str) -> _Meaning:
    if "pull request already exists" in said:
        return ErrorCode.CONFLICT, "A pull request for this branch already exists", "Show it: sandbox pr status TASK"
    if "No commits between" in said:
        return ErrorCode.CONFLICT, "The branch has no commits that its base lacks", "It may have been merged already."
    if re.search(r"\b(head|base)\b.*\binvalid\b", said):
        return ErrorCode.NOT_FOUND, "{host} lacks the head or the base branch", _BRANCHES
    if "Draft pull requests are not supported" in said:
        return ErrorCode.FORGE_ERROR, "{path} has no drafts on {host}", "Open it as ready: sandbox pr open TASK --ready"
    return ErrorCode.FORGE_ERROR, "{host} rejected the request (HTTP 422)", ""


def _read_message(error: GithubException, project: Project) -> str:
    """Message and error details of an answer, one per line, without our token."""
    data = error.data if isinstance(error.data, dict) else {}
    lines = [str(data.get("message") or error.message or "")]
    reasons = data.get("errors")
    lines += [_reason(reason) for reason in (reasons if isinstance(reasons, list) else ())]
    return remove_secret(neutralise("\n".join(lines)), project.credential)[:2000]


def _reason(reason: Any) -> str:
    if not isinstance(reason, dict):
        return str(reason)
    return " ".join(str(reason[name]) for name in ("type", "resource", "field", "code", "message") if name in reason)


def _read_pause_s(error: GithubException, headers: Mapping[str, str], said: str) -> float | None:
    """Seconds to wait for the rate limit; None if the error is not a rate limit."""
    if error.status not in {400, 403, 429} or (error.status == 400 and "RATE_LIMITED" not in said):
        return None
    after = headers.get("retry-after", "")
    if _SECONDS.fullmatch(after):
        return float(after)
    if headers.get("x-ratelimit-remaining") == "0":
        reset = headers.get("x-ratelimit-reset", "")
        return max(1.0, int(reset) - time.time()) if _SECONDS.fullmatch(reset) else _DEFAULT_PAUSE_S
    return _DEFAULT_PAUSE_S if error.status == 429 or "rate limit" in said.lower() else None


_SECONDS = re.compile(r"[0-9]{1,12}")
_DEFAULT_PAUSE_S = 60.0
"""GitHub's documented pause when it names no time."""
