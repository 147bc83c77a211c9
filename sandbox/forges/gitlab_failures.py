"""Translation of GitLab's and python-gitlab's errors to ours.

python-gitlab would wait for any `Retry-After`, up to ten times. So a hook raises every answer other than success before
the library sees it. Facts: https://docs.gitlab.com/api/rest/troubleshooting/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import gitlab
import requests

from sandbox.credentials import remove_secret
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Project
from sandbox.forges.http_session import network_error, rate_limit_error, redact_secret, server_error
from sandbox.forges.responses import invalid_response
from sandbox.text import neutralise

_SCOPE = "The token needs the scope `api`, and its user at least the role Developer in the project."
_BRANCHES = "Push first. Check that the base branch still exists."
_MEANINGS = {
    401: (
        ErrorCode.AUTH_FAILED,
        "{host} rejected the token",
        "It may have expired or been revoked. Store a new one: sandbox credentials set {host}",
    ),
    403: (ErrorCode.AUTH_FAILED, "The token lacks a permission on {host}", _SCOPE),
    404: (
        ErrorCode.NOT_FOUND,
        "{host} has no project {path}, or the token has no access to it or to this part of it",
        f"GitLab gives the same answer for both. {_SCOPE}",
    ),
    405: (
        ErrorCode.FORGE_ERROR,
        "{path} is read-only on {host}",
        "If the project was renamed or moved, clone it by its new URL.",
    ),
    409: (ErrorCode.CONFLICT, "A merge request for this branch already exists", "Show it: sandbox pr status TASK"),
}


class _RefusedError(Exception):
    """An answer other than success."""

    def __init__(self, response: requests.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def raise_refusal(response: requests.Response, *_: object, **__: object) -> None:
    """A response hook of `requests`. Raises `_RefusedError` for any answer other than success."""
    if not 200 <= response.status_code < 300:
        raise _RefusedError(response)


@contextmanager
def translate_errors(project: Project) -> Iterator[None]:
    """Translate errors of python-gitlab and of the network. The token is removed from the forge's messages."""
    with redact_secret(project.credential):
        try:
            yield
        except _RefusedError as refused:
            raise _as_error(refused.response, project) from None
        except UnicodeEncodeError:  # headers are Latin-1
            raise SandboxError(
                ErrorCode.AUTH_FAILED,
                f"The token for {project.hostname} has characters that are not allowed in a token",
                hint=f"Store a new one: sandbox credentials set {project.hostname}",
            ) from None
        except requests.exceptions.InvalidSchema:  # another origin, see `http_session.build_session`
            raise invalid_response("it redirects or links to another host") from None
        except requests.exceptions.JSONDecodeError:
            raise invalid_response("it is not JSON") from None
        except requests.RequestException as error:
            raise network_error(error, project.hostname) from None
        except (gitlab.GitlabError, AttributeError, KeyError, TypeError, ValueError) as error:
            # what python-gitlab raises for invalid answers
            raise invalid_response(type(error).__name__) from None


def _as_error(response: requests.Response, project: Project) -> SandboxError:
    status, host = response.status_code, project.hostname
    said = remove_secret(neutralise(_read_message(response)), project.credential)[:2000]
    if status == 429:
        return rate_limit_error(host, said, _read_pause_s(response))
    if status >= 500:
        return server_error(host, status, said)
    code, brief, hint = _MEANINGS.get(status, (ErrorCode.FORGE_ERROR, "{host} refused (HTTP {status})", ""))
    if status == 403 and "insufficient_scope" in said:
        brief = "The token for {host} lacks a scope that this request needs"
    if status == 400 and re.search(r'"(source|target)_branch"', said):
        code, brief, hint = ErrorCode.NOT_FOUND, "{host} lacks the head or the base branch", _BRANCHES
    brief = brief.format(host=host, path=project.path, status=status)
    return SandboxError(code, brief, details=said, hint=hint.replace("{host}", host))


def _read_message(response: requests.Response) -> str:
    """The messages of an answer: a string, or lists of strings by field; for OAuth, a code and a description."""
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        return response.text
    if not isinstance(answer, dict):
        return response.text
    words = [answer[key] for key in ("message", "error", "error_description") if answer.get(key)]
    return "\n".join(word if isinstance(word, str) else json.dumps(word) for word in words)


def _read_pause_s(response: requests.Response) -> float:
    after = response.headers.get("Retry-After", "")
    return float(after) if after.isascii() and after.isdigit() else _DEFAULT_PAUSE_S


_DEFAULT_PAUSE_S = 60.0
"""Rate limits are per minute; a proxy in front of GitLab may name no time."""
