"""Names of branches and numbers as forges give them: those that git has, of a bounded length."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges import github_answers, gitlab_answers
from sandbox.forges.responses import ForgeResponse, parse_response
from sandbox.models.ids import MAX_BRANCH_CHARS
from tests.unit.conftest import refused

OID = "a" * 40
NAMES = ["main", "release/1.x", "space-agent/1a2b3c4d-fix", "a@b", "é/日本", "-x", "x" * MAX_BRANCH_CHARS]
NO_NAMES = [
    "", "x" * (MAX_BRANCH_CHARS + 1), "x" * 10_000_000, "a b", "a\n", "\x1b[31m", "a\x7f", "a..b", "a@{1}", "@", "a//b",
    "/a", "a/", ".a", "a/.b", "a.", "a.lock", "a.lock/b", "a~1", "a^", "a:b", "a?", "a*", "a[b", "a\\b", "\ud800",
]  # fmt: skip


def github_pull(head: str, base: str, number: int = 1) -> tuple[type[ForgeResponse], Any]:
    branch = {"sha": OID, "repo": None}
    pull = {"number": number, "html_url": "https://x/1", "state": "open", "title": "t"}
    return github_answers.Pull, {**pull, "head": {**branch, "ref": head}, "base": {**branch, "ref": base}}


def gitlab_request(head: str, base: str, number: int = 1) -> tuple[type[ForgeResponse], Any]:
    request = {"iid": number, "web_url": "https://x/1", "state": "opened", "title": "t", "target_project_id": 1}
    return gitlab_answers.MergeRequest, {**request, "source_branch": head, "target_branch": base}


BOTH = pytest.mark.parametrize("made", [github_pull, gitlab_request])


@BOTH
def test_a_name_that_git_has_is_accepted(made: Any) -> None:
    for name in NAMES:
        parse_response(*made(name, "main"))
        parse_response(*made("main", name))


@BOTH
def test_a_name_that_git_does_not_have_is_refused_in_few_words(made: Any) -> None:
    for name in NO_NAMES:
        for names in ((name, "main"), ("main", name)):
            with pytest.raises(SandboxError, match="not valid") as caught:
                parse_response(*made(*names))
            assert caught.value.code is ErrorCode.FORGE_ERROR, name[:20]
            assert len(str(caught.value)) < 1000


@BOTH
def test_a_number_is_one_of_a_data_base(made: Any) -> None:
    parse_response(*made("a", "b", 2**63 - 1))
    for number in (-1, 2**63, 10**4000):
        with refused(ErrorCode.FORGE_ERROR):
            parse_response(*made("a", "b", number))
