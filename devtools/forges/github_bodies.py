"""What GitHub shows of things: the examples that it publishes with its description, filled with our facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from devtools.forges.exchange import Request
from devtools.forges.openapi import OpenApi

_EXAMPLE_SHA = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
_EXAMPLE_NUMBER = 1347
_FULL_ONLY = {"merged", "mergeable", "rebaseable", "mergeable_state", "merged_by", "comments", "review_comments",
              "maintainer_can_modify", "commits", "additions", "deletions", "changed_files"}  # fmt: skip
"""Not in a list of pull requests."""


@dataclass
class Pull:
    """One pull request; while it is open, its head commit is where its branch is: the others read `last_head`."""

    number: int
    head: str
    base: str
    title: str
    body: str | None
    draft: bool
    state: str = "open"
    merged: bool = False
    last_head: str = ""
    fork: str = ""  # `owner/name`, when its head is a branch of another repository

    @property
    def owner(self) -> str:
        """Of the fork; empty for the repository itself."""
        return self.fork.partition("/")[0]

    @property
    def node_id(self) -> str:
        return f"PR_demo{self.number}"


@dataclass(frozen=True)
class Bodies:
    """Of one repository."""

    description: OpenApi
    owner: str
    name: str
    default_branch: str

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    def example(self, name: str, request: Request, *, oid: str = _EXAMPLE_SHA, number: int = _EXAMPLE_NUMBER) -> Any:
        """A published example as if it were of our repository."""
        text = json.dumps(self.description.example(name))
        rows = {"https://api.github.com": request.base_url, "https://github.com": site_of(request),
                "octocat/Hello-World": self.full_name, '"Hello-World"': f'"{self.name}"',
                '"octocat"': f'"{self.owner}"', _EXAMPLE_SHA: oid, f"/{_EXAMPLE_NUMBER}": f"/{number}"}  # fmt: skip
        for old, new in rows.items():
            text = text.replace(old, new)
        return json.loads(text)

    def repository(self, request: Request, *, may_write: bool) -> dict[str, Any]:
        permissions = {"admin": False, "maintain": False, "push": may_write, "triage": may_write, "pull": True}
        fields = {"default_branch": self.default_branch, "permissions": permissions, "language": "Python"}
        shown = {**self.example("full-repository-default-response", request), **fields}
        return {name: value for name, value in shown.items() if name not in {"source", "parent"}}  # those of a fork

    def pull(self, request: Request, pull: Pull, base_oid: str, *, simple: bool = False) -> dict[str, Any]:
        """`simple`: as lists show it."""
        example = self.example("pull-request", request, oid=pull.last_head, number=pull.number)
        at = example["updated_at"]
        fields: dict[str, Any] = {
            "number": pull.number, "node_id": pull.node_id, "title": pull.title, "body": pull.body, "draft": pull.draft,
            "state": pull.state, "locked": False, "merged": pull.merged, "requested_teams": [], "labels": [],
            "html_url": f"{site_of(request)}/{self.full_name}/pull/{pull.number}",
            "url": f"{request.base_url}/repos/{self.full_name}/pulls/{pull.number}",
            "closed_at": None if pull.state == "open" else at, "merged_at": at if pull.merged else None,
            "milestone": None, "auto_merge": None,
            "head": self._side(example["head"], pull.head, pull.last_head, pull.fork or self.full_name),
            "base": self._side(example["base"], pull.base, base_oid, self.full_name),
        }  # fmt: skip
        shown = {**example, **fields}
        return {name: value for name, value in shown.items() if not (simple and name in _FULL_ONLY)}

    def _side(self, example: Mapping[str, Any], branch: str, oid: str, full_name: str) -> dict[str, Any]:
        repository = {**example["repo"], "default_branch": self.default_branch, "full_name": full_name}
        label = f"{full_name.partition('/')[0]}:{branch}"
        return {**example, "label": label, "ref": branch, "sha": oid, "repo": repository}


def site_of(request: Request) -> str:
    """Where people look."""
    return request.base_url.removesuffix("/api/v3")
