"""Translation of errors of forges and of the network to ours: all that GitHub and GitLab have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import requests
from requests.structures import CaseInsensitiveDict

from sandbox.credentials import Credential, remove_secret
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Project
from sandbox.forges.http_session import RefusedError, TransientForgeError, network_error
from sandbox.forges.responses import invalid_response
from sandbox.text import neutralise

DEFAULT_PAUSE_S = 60.0
"""The pause after a rate limit that names none. GitHub documents a minute; GitLab's limits are per minute.

It is above `MAX_PAUSE_S`, so a read is not retried: the hint names the pause, and `pr status --watch` waits for it.
"""


MIN_SECRET_CHARS = 6
"""A shorter password is no secret: it can be guessed."""

MAX_DETAILS = 2000
"""Characters of a server's words in an error."""


@dataclass(frozen=True)
class Meaning:
    """What a refusal means. `{host}`, `{path}` and `{status}` are replaced in the brief, `{host}` in the hint."""

    code: ErrorCode
    brief: str
    hint: str = ""


UNEXPLAINED = "The details are the forge's own words, if it gave any. Look at the project there, then try again."
"""The hint for an answer that has no meaning for us."""

UNKNOWN_BRANCH = Meaning(
    ErrorCode.NOT_FOUND,
    "{host} lacks the head or the base branch",
    "Push first. Check that the base branch still exists.",
)


@dataclass(frozen=True)
class RefusalRules:
    """How one kind of forge refuses.

    `read_message`: the messages of an answer. `read_pause_s`: from an answer and its messages, the pause after a rate
    limit; None if it is none. `explain`: from the same, the meaning of an answer with a status below 500.
    """

    read_message: Callable[[RefusedError], str]
    read_pause_s: Callable[[RefusedError, str], float | None]
    explain: Callable[[RefusedError, str], Meaning]


@contextmanager
def translate_errors(project: Project, rules: RefusalRules) -> Iterator[None]:
    """Translate refusals and errors of the network. The token is removed from the forge's messages."""
    host = project.hostname
    with redact_secret(project.credential):
        try:
            yield
        except RefusedError as refused:
            raise _as_error(refused, project, rules) from None
        except UnicodeEncodeError:  # headers are Latin-1
            raise SandboxError(
                ErrorCode.AUTH_FAILED,
                f"The token for {host} has characters that are not allowed in a token",
                hint=f"Store a new one: sandbox credentials set {host}",
            ) from None
        except requests.exceptions.InvalidSchema:  # another origin, see `http_session.build_session`
            raise invalid_response("it redirects or links to another host") from None
        except requests.RequestException as error:
            raise network_error(error, host) from None


@contextmanager
def redact_secret(credential: Credential | None) -> Iterator[None]:
    """Remove the credential's secret from all texts of an error: a server may repeat it in a status line, a redirect's
    address, or a header. Details are cut after that: of a secret that is cut before, the beginning would stay.
    """
    try:
        yield
    except SandboxError as error:
        # Changed in place: a copy raised from it would keep the original, with the secret, in its traceback.
        error.brief = _redact_mixed(error.brief, credential)
        error.details = _redact(error.details, credential)[:MAX_DETAILS]
        error.hint = _redact_mixed(error.hint, credential)
        error.data = _redact_value(error.data, credential)
        error.args = (error.brief, *error.args[1:])
        raise


def _redact(text: str, credential: Credential | None) -> str:
    return remove_secret(neutralise(text), credential)


def _redact_mixed(text: str, credential: Credential | None) -> str:
    """A text of ours, with parts of a server's. A password that is too short to be a secret, such as the `x` beside a
    token that is git's user name, stands in many words of ours.
    """
    short = credential is not None and len(credential.secret.get_secret_value()) < MIN_SECRET_CHARS
    return neutralise(text) if short else _redact(text, credential)


def _redact_value(value: Any, credential: Credential | None) -> Any:
    """A JSON value."""
    if isinstance(value, str):
        return _redact(value, credential)
    if isinstance(value, Mapping):
        return {_redact_value(name, credential): _redact_value(one, credential) for name, one in value.items()}
    return [_redact_value(one, credential) for one in value] if isinstance(value, list | tuple) else value


def _as_error(answer: RefusedError, project: Project, rules: RefusalRules) -> SandboxError:
    """The headers of the answer lose the secret first: parts of them, cut to a length, may be in the meaning."""
    headers = {name: _redact(text, project.credential) for name, text in answer.headers.items()}
    refused = RefusedError(answer.status, CaseInsensitiveDict(headers), answer.document)
    host, status = project.hostname, refused.status
    said = _redact(rules.read_message(refused), project.credential)[:MAX_DETAILS]
    if (wait_s := rules.read_pause_s(refused, said)) is not None:
        return _rate_limit_error(host, said, wait_s)
    if status >= 500:
        return _server_error(host, status, said)
    meaning = rules.explain(refused, said)
    brief = meaning.brief.format(host=host, path=project.path, status=status)
    return SandboxError(meaning.code, brief, details=said, hint=meaning.hint.replace("{host}", host))


def _server_error(hostname: str, status: int, said: str) -> TransientForgeError:
    brief, hint = f"{hostname} failed (HTTP {status})", "Try again later. No work was lost."
    return TransientForgeError(SandboxError(ErrorCode.FORGE_ERROR, brief, details=said, hint=hint))


def _rate_limit_error(hostname: str, said: str, wait_s: float) -> TransientForgeError:
    brief, hint = f"The rate limit of {hostname} was reached", f"Wait {wait_s:.0f} s, then try again."
    return TransientForgeError(SandboxError(ErrorCode.FORGE_ERROR, brief, details=said, hint=hint), wait_s)


_MEANINGS = {
    401: Meaning(
        ErrorCode.AUTH_FAILED,
        "{host} rejected the token",
        "It may have expired or been revoked. Store a new one: sandbox credentials set {host}",
    ),
    403: Meaning(ErrorCode.AUTH_FAILED, "The token lacks a permission on {host}"),
    404: Meaning(
        ErrorCode.NOT_FOUND,
        "{host} has no project {path}, or the token has no access to it or to this part of it",
        "The forge gives the same answer for both. ",
    ),
}


def explain_status(status: int, permissions: str) -> Meaning:
    """The meaning of a status alone. `permissions`: what a token needs, for the hint if it may lack one."""
    meaning = _MEANINGS.get(status, Meaning(ErrorCode.FORGE_ERROR, "{host} refused (HTTP {status})", UNEXPLAINED))
    return replace(meaning, hint=meaning.hint + permissions) if status in {403, 404} else meaning


def read_seconds(headers: Mapping[str, str], name: str) -> float | None:
    """A header that is a number of seconds. None if there is no such header, or it is something else."""
    text = headers.get(name, "")
    return float(text) if re.fullmatch("[0-9]{1,12}", text) else None
