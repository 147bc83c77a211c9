"""What a refusal of a forge means, without a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest
from requests.structures import CaseInsensitiveDict

from sandbox.credentials import make_credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges import github_failures, gitlab_failures
from sandbox.forges.forge import Project
from sandbox.forges.http_session import RefusedError, TransientForgeError
from sandbox.forges.refusals import DEFAULT_PAUSE_S, MAX_DETAILS, redact_secret
from sandbox.retries import MAX_PAUSE_S

CREDENTIAL = make_credential(host="git.example", username="x", secret="a-secret-token")
PROJECT = Project("git.example", "o/n", "https://git.example/api", "https://git.example", CREDENTIAL)
Translate = Callable[[Project], AbstractContextManager[None]]
BOTH = pytest.mark.parametrize(
    "translate", [github_failures.translate_errors, gitlab_failures.translate_errors], ids=["github", "gitlab"]
)


def translated(
    translate: Translate, status: int, document: Any = None, headers: Mapping[str, str] | None = None
) -> SandboxError:
    with pytest.raises(SandboxError) as caught, translate(PROJECT):
        raise RefusedError(status, CaseInsensitiveDict(headers or {}), document)
    return caught.value


@BOTH
@pytest.mark.parametrize(
    ("status", "code", "transient"),
    [
        (304, ErrorCode.FORGE_ERROR, False),
        (401, ErrorCode.AUTH_FAILED, False),
        (403, ErrorCode.AUTH_FAILED, False),
        (404, ErrorCode.NOT_FOUND, False),
        (418, ErrorCode.FORGE_ERROR, False),
        (429, ErrorCode.FORGE_ERROR, True),
        (500, ErrorCode.FORGE_ERROR, True),
        (503, ErrorCode.FORGE_ERROR, True),
    ],
)
def test_a_status_means_the_same_on_every_forge(
    translate: Translate, status: int, code: ErrorCode, transient: bool
) -> None:
    error = translated(translate, status, {"message": "No: a-secret-token"})
    assert (error.code, isinstance(error, TransientForgeError)) == (code, transient)
    assert error.details == "No: ***"
    assert "{" not in f"{error.brief}{error.hint}"
    assert error.hint


@BOTH
@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, DEFAULT_PAUSE_S),
        ({"retry-after": "7"}, 7.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, DEFAULT_PAUSE_S),
        ({"Retry-After": "9" * 5000}, DEFAULT_PAUSE_S),
    ],
    ids=["unnamed", "seconds", "date", "huge"],
)
def test_the_pause_after_a_rate_limit_is_named(translate: Translate, headers: Mapping[str, str], wait_s: float) -> None:
    error = translated(translate, 429, "Retry later", headers)
    assert isinstance(error, TransientForgeError)
    assert (error.wait_s, error.hint) == (wait_s, f"Wait {wait_s:.0f} s, then try again.")


def test_a_read_does_not_wait_for_the_default_pause() -> None:
    assert DEFAULT_PAUSE_S > MAX_PAUSE_S


def test_permissions_that_the_forge_names_are_not_a_template() -> None:
    error = translated(
        github_failures.translate_errors, 403, {"message": "No"}, {"X-Accepted-GitHub-Permissions": "{status}=write"}
    )
    assert "{status}=write" in error.hint


@pytest.mark.parametrize("padding", ["", "x" * 190], ids=["whole", "where it is cut"])
@pytest.mark.parametrize(
    "headers",
    [
        {"X-Accepted-GitHub-Permissions": "{padding}a-secret-token"},
        {"X-Accepted-OAuth-Scopes": "{padding}a-secret-\x1b[1mtoken", "X-OAuth-Scopes": "repo"},
    ],
    ids=["permissions", "scopes"],
)
def test_s214_a_server_that_names_our_token_gets_it_into_no_hint(headers: Mapping[str, str], padding: str) -> None:
    sent = {name: text.replace("{padding}", padding) for name, text in headers.items()}
    error = translated(github_failures.translate_errors, 403, {"message": "No"}, sent)
    assert f"The token lacks: {padding}***"[:150] in error.hint
    assert "a-secret" not in f"{error.payload()} {error.args}"


def test_s214_no_part_of_an_error_has_our_token() -> None:
    """The control: the error as it was raised."""
    said = "a\x1b[1m-secret-token"
    raised = SandboxError(
        ErrorCode.FORGE_ERROR, said, details=said, hint=said, data={said: [said, {"x": (said, 1, None)}]}
    )
    assert "-secret-token" in f"{raised.args}"
    with pytest.raises(SandboxError) as caught, redact_secret(CREDENTIAL):
        raise raised
    assert caught.value is raised
    assert (raised.brief, raised.details, raised.hint, raised.args) == ("***", "***", "***", ("***",))
    assert raised.data == {"***": ["***", {"x": ["***", 1, None]}]}


@pytest.mark.parametrize(("secret", "kept"), [("x", True), ("fixed", True), ("--max=", False)])
def test_a_password_that_is_no_secret_stays_in_our_words(secret: str, kept: bool) -> None:
    """git's user name is the token then. Details are of the server."""
    brief, hint = "The fixed list of files exceeds the limit", "Run: sandbox fix --max=2"
    with (
        pytest.raises(SandboxError) as caught,
        redact_secret(make_credential(host="git.example", username="a-token", secret=secret)),
    ):
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, brief, details=f"a {secret} b", hint=hint)
    assert (caught.value.brief, caught.value.args[0]) == (brief, brief)
    assert (caught.value.hint == hint) is kept
    assert caught.value.details == "a *** b"


def test_s214_a_long_text_is_cut_after_the_token_was_removed() -> None:
    place = "https://x/" + "a" * (MAX_DETAILS - 40) + "/a-secret-token"
    with pytest.raises(SandboxError) as caught, redact_secret(CREDENTIAL):
        raise SandboxError(ErrorCode.FORGE_ERROR, "x", details=f"HTTP 302 to {place}")
    assert len(caught.value.details) <= MAX_DETAILS
    assert "a-secret" not in caught.value.details


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([{"type": "FORBIDDEN", "message": "x"}], ErrorCode.AUTH_FAILED),
        ([{"message": "x"}, {"type": "NOT_FOUND", "message": "x"}], ErrorCode.NOT_FOUND),
        ([{"type": "RATE_LIMITED", "message": "x"}], ErrorCode.FORGE_ERROR),
        ([{"type": "UNPROCESSABLE", "message": "x"}], ErrorCode.FORGE_ERROR),
        ([{"type": ["FORBIDDEN"]}, None, 5], ErrorCode.FORGE_ERROR),
        ("x", ErrorCode.FORGE_ERROR),
        ({"type": "FORBIDDEN"}, ErrorCode.FORGE_ERROR),
    ],
)
def test_an_error_of_graphql_means_what_it_means_in_rest(errors: Any, code: ErrorCode) -> None:
    with pytest.raises(SandboxError) as caught, github_failures.translate_errors(PROJECT):
        github_failures.require_data({"data": None, "errors": errors}, {})
    assert caught.value.code is code


@pytest.mark.parametrize("document", [{"data": {}}, {"data": {}, "errors": []}, {"errors": None}, [], "x", None])
def test_an_answer_of_graphql_without_errors_is_accepted(document: Any) -> None:
    github_failures.require_data(document, {})
