"""What failed between GitLab and us, as errors of ours.

python-gitlab would wait as long as a server likes (`Retry-After`), and ten times. So it is told of success only: any
other answer is raised before it sees it. Facts: https://docs.gitlab.com/api/rest/troubleshooting/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import gitlab
import requests

from sandbox.credentials import without_secret
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Project
from sandbox.forges.http_session import failed, limited, network_failure, unshown
from sandbox.forges.responses import unusable
from sandbox.text import neutral

_SCOPE = "It takes a token with the scope `api`, of someone who has at least the role Developer in the project."
_BRANCHES = "Push first; was the base deleted?"
_MEANINGS = {
    401: (
        ErrorCode.AUTH_FAILED,
        "{host} does not take our token",
        "It may have expired or been revoked: sandbox credentials set {host} stores another.",
    ),
    403: (ErrorCode.AUTH_FAILED, "Our token may not do this on {host}", _SCOPE),
    404: (
        ErrorCode.NOT_FOUND,
        "{host} has no project {path}, or our token may not see it or this part of it",
        f"GitLab does not tell the two apart. {_SCOPE}",
    ),
    405: (
        ErrorCode.FORGE_ERROR,
        "{host} does not let anybody change {path}",
        "When the project was renamed or moved, clone it by its new URL.",
    ),
    409: (ErrorCode.CONFLICT, "There is a merge request for this branch already", "sandbox pr status TASK"),
}


class _RefusedError(Exception):
    """An answer other than success."""

    def __init__(self, response: requests.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def raise_refusal(response: requests.Response, *_: object, **__: object) -> None:
    """A hook for answers, as `requests` calls it: only success passes."""
    if not 200 <= response.status_code < 300:
        raise _RefusedError(response)


@contextmanager
def translated(project: Project) -> Iterator[None]:
    """Failures of python-gitlab and of the network as ours; what the forge said never shows the token."""
    with unshown(project.credential):
        try:
            yield
        except _RefusedError as refused:
            raise _failure(refused.response, project) from None
        except UnicodeEncodeError:  # a header is Latin-1
            raise SandboxError(
                ErrorCode.AUTH_FAILED,
                f"Our token for {project.hostname} holds characters that no token has",
                hint=f"sandbox credentials set {project.hostname} stores another.",
            ) from None
        except requests.exceptions.InvalidSchema:  # no way to another origin, see `wire.session_for`
            raise unusable("it leads to another host") from None
        except requests.exceptions.JSONDecodeError:
            raise unusable("it is no JSON") from None
        except requests.RequestException as error:
            raise network_failure(error, project.hostname) from None
        except (gitlab.GitlabError, AttributeError, KeyError, TypeError, ValueError) as error:
            # what python-gitlab does with answers that no GitLab gives
            raise unusable(type(error).__name__) from None


def _failure(response: requests.Response, project: Project) -> SandboxError:
    status, host = response.status_code, project.hostname
    said = without_secret(neutral(_said(response)), project.credential)[:2000]
    if status == 429:
        return limited(host, said, _asked_pause_s(response))
    if status >= 500:
        return failed(host, status, said)
    code, brief, hint = _MEANINGS.get(status, (ErrorCode.FORGE_ERROR, "{host} refused (HTTP {status})", ""))
    if status == 403 and "insufficient_scope" in said:
        brief = "Our token for {host} lacks a scope that this needs"
    if status == 400 and re.search(r'"(source|target)_branch"', said):
        code, brief, hint = ErrorCode.NOT_FOUND, "{host} does not know one of the branches", _BRANCHES
    brief = brief.format(host=host, path=project.path, status=status)
    return SandboxError(code, brief, details=said, hint=hint.replace("{host}", host))


def _said(response: requests.Response) -> str:
    """Words of an answer: a string, or lists of them by field; of OAuth, a code and its description."""
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        return response.text
    if not isinstance(answer, dict):
        return response.text
    words = [answer[key] for key in ("message", "error", "error_description") if answer.get(key)]
    return "\n".join(word if isinstance(word, str) else json.dumps(word) for word in words)


def _asked_pause_s(response: requests.Response) -> float:
    after = response.headers.get("Retry-After", "")
    return float(after) if after.isascii() and after.isdigit() else _PAUSE_S


_PAUSE_S = 60.0
"""Limits of rate are per minute; a proxy before GitLab may name no time."""
