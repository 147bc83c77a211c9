"""What failed between GitHub and us, as errors of ours.

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

from sandbox.credentials import without_secret
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Project
from sandbox.forges.github_answers import unusable
from sandbox.forges.wire import ForgeFailure, network_failure
from sandbox.text import neutral


@contextmanager
def translated(project: Project) -> Iterator[None]:
    """Failures of PyGithub and of the network as ours; what the forge said never shows the token."""
    try:
        yield
    except GithubException as error:
        raise _failure(error, project) from None
    except requests.RequestException as error:
        raise network_failure(error, project.hostname) from None
    except (AssertionError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        # what PyGithub does with answers that no GitHub gives
        raise unusable(f"{type(error).__name__}: {error}"[:300]) from None


def _failure(error: GithubException, project: Project) -> SandboxError:
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    said = _said(error, project)
    if error.status in {403, 429} and (wait_s := _asked_pause(headers, said)) is not None:
        return _limited(project.hostname, said, wait_s)
    if error.status >= 500:
        return ForgeFailure(
            SandboxError(
                ErrorCode.FORGE_ERROR, f"{project.hostname} failed (HTTP {error.status})", details=said, hint=_LATER
            )
        )
    code, brief, hint = _MEANINGS.get(error.status, (ErrorCode.FORGE_ERROR, "{host} refused (HTTP {status})", ""))
    if error.status == 422:
        code, brief, hint = _unprocessable(said)
    brief = brief.format(host=project.hostname, path=project.path, status=error.status)
    return SandboxError(code, brief, details=said, hint=hint)


_LATER = "Try again later: nothing is lost."
_SCOPES = "It needs read access to the project's metadata, checks and statuses, and write access to pull requests."
_MEANINGS = {
    401: (
        ErrorCode.AUTH_FAILED,
        "{host} does not take our token",
        "It may have expired: sandbox credentials set HOST stores another.",
    ),
    403: (ErrorCode.AUTH_FAILED, "Our token may not do this on {host}", _SCOPES),
    404: (
        ErrorCode.NOT_FOUND,
        "{host} has no project {path}, or our token may not see it or this part of it",
        _SCOPES,
    ),
}


def _unprocessable(said: str) -> tuple[ErrorCode, str, str]:
    if "pull request already exists" in said:
        return ErrorCode.CONFLICT, "There is a pull request for this branch already", "sandbox pr status TASK"
    if "No commits between" in said:
        return ErrorCode.CONFLICT, "The branch has nothing that its base lacks", "Was it merged already?"
    if re.search(r"\b(head|base)\b.*\binvalid\b", said):
        return ErrorCode.NOT_FOUND, "{host} does not know one of the branches", "Push first; was the base deleted?"
    return ErrorCode.FORGE_ERROR, "{host} does not accept this", ""


def _said(error: GithubException, project: Project) -> str:
    """Message and reasons of an answer, on one line each, without our token."""
    data = error.data if isinstance(error.data, dict) else {}
    lines = [str(data.get("message") or error.message or "")]
    lines += [_reason(reason) for reason in data.get("errors") or ()]
    return without_secret(neutral("\n".join(lines)), project.credential)[:2000]


def _reason(reason: Any) -> str:
    if not isinstance(reason, dict):
        return str(reason)
    return " ".join(str(reason[name]) for name in ("resource", "field", "code", "message") if name in reason)


def _asked_pause(headers: Mapping[str, Any], said: str) -> float | None:
    """Seconds until the forge wants to hear from us again; None when it is no limit of rate that it names."""
    after = str(headers.get("retry-after", ""))
    if after.isdigit():
        return float(after)
    if str(headers.get("x-ratelimit-remaining", "")) == "0":
        reset = str(headers.get("x-ratelimit-reset", ""))
        return max(1.0, int(reset) - time.time()) if reset.isdigit() else _SECONDARY_S
    return _SECONDARY_S if "rate limit" in said.lower() else None


_SECONDARY_S = 60.0
"""What GitHub asks for when it names no time."""


def _limited(hostname: str, said: str, wait_s: float) -> ForgeFailure:
    hint = f"{hostname} asks for a pause of {wait_s:.0f} s."
    return ForgeFailure(
        SandboxError(ErrorCode.FORGE_ERROR, f"{hostname} limits how often we may ask", details=said, hint=hint), wait_s
    )
