"""A server that is no forge, or a hostile one: whatever it says is an error of ours, never a crash."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

import pytest
import tenacity

from devtools.forges.exchange import Answer
from devtools.forges.fixtures import GitHub, GitLab
from sandbox import retries
from sandbox.credentials import make_credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Forge, Project
from sandbox.forges.github import GitHub as GitHubForge
from sandbox.forges.gitlab import GitLab as GitLabForge

BODIES = {
    "empty": b"",
    "null": b"null",
    "number": b"1",
    "object": b"{}",
    "list-of-nothing": b"[null]",
    "list-of-empty": b"[{}]",
    "wrong-types": b'[{"number": "one", "iid": "one", "head": [], "source_branch": 5}]',
    "huge-number": b'[{"number": ' + b"9" * 5000 + b"}]",
    "infinity": b'[{"number": Infinity, "iid": NaN}]',
    "deep": b"[" * 100_000,
    "deep-object": b'{"errors":' * 100_000,
    "surrogate": b'["\\ud800"]',
    "no-utf-8": b'["\xff"]',
    "text": b"It works!",
}
REASONS = {
    "number": b'{"message": 5, "errors": 5, "error": 5}',
    "words": b'{"message": ["a"], "errors": "no", "error": {"a": null}}',
    "mixed": b'{"message": {"a": [1]}, "errors": [null, 1, {"type": [], "field": {}}], "error": []}',
    "surrogate": b'{"message": "\\ud800", "errors": ["\\udfff"]}',
    "control": b'{"message": "\\u001b[31m\\u202e\\u0000"}',
}


@dataclass
class Server:
    """One forge that answers every question with `answer`, and our adapter for it."""

    stand_in: GitHub | GitLab
    answer: Answer = field(default_factory=Answer)

    def ask(self, answer: Answer) -> ErrorCode:
        """What comes of a look for a pull request."""
        self.answer = answer
        credential = make_credential(host="127.0.0.1", username="x", secret=self.stand_in.token)
        project = Project("127.0.0.1", "demo-owner/demo", self.stand_in.api_url, self.stand_in.url, credential)
        forge: Forge = GitHubForge(project) if isinstance(self.stand_in, GitHub) else GitLabForge(project)
        with closing(forge), pytest.raises(SandboxError) as raised:
            forge.find("topic")
        shown = str(raised.value.payload())
        assert shown.encode()
        assert not {"\x1b", "\u202e", "\x00"} & set(shown)
        assert self.stand_in.token not in shown
        return raised.value.code


@pytest.fixture(params=["github", "gitlab"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(retries, "BACKOFF", tenacity.wait_none())
    found = Server(request.getfixturevalue(request.param))
    found.stand_in.on("GET", ".*", lambda _: found.answer, forever=True)
    return found


def said(status: int, body: bytes, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, body, {"Content-Type": "application/json", **named}, checked=False)


def test_nonsense_for_an_answer_is_an_error_of_the_forge(server: Server) -> None:
    codes = {name: server.ask(said(200, body)) for name, body in BODIES.items()}
    assert codes == dict.fromkeys(BODIES, ErrorCode.FORGE_ERROR)


@pytest.mark.parametrize("status", [401, 422, 500])
def test_nonsense_for_a_reason_is_a_refusal(server: Server, status: int) -> None:
    codes = {name: server.ask(said(status, body)) for name, body in (BODIES | REASONS).items()}
    expected = ErrorCode.AUTH_FAILED if status == 401 else ErrorCode.FORGE_ERROR
    assert set(codes.values()) <= {expected, ErrorCode.FORGE_ERROR}, codes
    assert codes["text"] is expected


@pytest.mark.parametrize("header", ["Retry_After", "X_RateLimit_Reset", "X_RateLimit_Remaining", "X_RateLimit_Limit"])
def test_a_pause_that_is_no_number_is_no_crash(server: Server, header: str) -> None:
    limited = {"X_RateLimit_Remaining": "0"}
    body = b'{"message": "You have exceeded a rate limit."}'
    values = ("\xb2", "9" * 5000, "-1", "soon", "1e400", "nan", "")
    codes = {value[:9]: server.ask(said(429, body, **limited | {header: value})) for value in values}
    assert set(codes.values()) == {ErrorCode.FORGE_ERROR}, codes


def test_a_redirect_to_nowhere_is_an_error_of_the_forge(server: Server) -> None:
    named = server.stand_in.token
    places = (
        "",
        "//",
        "http://[",
        "file:///etc/passwd",
        "https://user@other.invalid/\xff",
        f"https://x.invalid/{named}",
    )
    codes = {place: server.ask(said(302, b"", Location=place)) for place in places}
    assert codes == dict.fromkeys(places, ErrorCode.FORGE_ERROR)
