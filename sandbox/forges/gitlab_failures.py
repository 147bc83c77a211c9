"""Translation of GitLab's and python-gitlab's errors to ours.

python-gitlab would wait for any `Retry-After`, up to ten times. The session raises every answer other than success
before the library sees it. Facts: https://docs.gitlab.com/api/rest/troubleshooting/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import gitlab
import requests

from sandbox.errors import ErrorCode
from sandbox.forges import refusals
from sandbox.forges.forge import Project
from sandbox.forges.http_session import RefusedError
from sandbox.forges.refusals import DEFAULT_PAUSE_S, Meaning, RefusalRules, explain_status, read_seconds
from sandbox.forges.responses import invalid_response

_SCOPE = "The token needs the scope `api`, and its user at least the role Developer in the project."
_MEANINGS = {
    405: Meaning(
        ErrorCode.FORGE_ERROR,
        "{path} is read-only on {host}",
        "If the project was renamed or moved, clone it by its new URL.",
    ),
    409: Meaning(
        ErrorCode.CONFLICT, "A merge request for this branch already exists", "Show it: sandbox pr status TASK"
    ),
}


@contextmanager
def translate_errors(project: Project) -> Iterator[None]:
    """Translate errors of python-gitlab and of the network. The token is removed from the forge's messages."""
    with refusals.translate_errors(project, _RULES):
        try:
            yield
        except (requests.RequestException, UnicodeEncodeError):  # some are a ValueError too
            raise
        except (gitlab.GitlabError, AttributeError, KeyError, TypeError, ValueError) as error:
            # what python-gitlab raises for invalid answers
            raise invalid_response(type(error).__name__) from None


def _explain(refused: RefusedError, said: str) -> Meaning:
    status = refused.status
    if status == 400 and re.search(r'"(source|target)_branch"', said):
        return refusals.UNKNOWN_BRANCH
    meaning = _MEANINGS.get(status) or explain_status(status, _SCOPE)
    if status == 403 and "insufficient_scope" in said:
        return replace(meaning, brief="The token for {host} lacks a scope that this request needs")
    return meaning


def _read_message(refused: RefusedError) -> str:
    """The messages of an answer: a string, or lists of strings by field; for OAuth, a code and a description."""
    answer = refused.document
    if isinstance(answer, dict):
        words = [answer[key] for key in ("message", "error", "error_description") if answer.get(key)]
    else:
        words = [answer]
    return "\n".join(word if isinstance(word, str) else json.dumps(word) for word in words)


def _read_pause_s(refused: RefusedError, _said: str) -> float | None:
    if refused.status != 429:
        return None
    after_s = read_seconds(refused.headers, "Retry-After")
    return DEFAULT_PAUSE_S if after_s is None else after_s


_RULES = RefusalRules(_read_message, _read_pause_s, _explain)
