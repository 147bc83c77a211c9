"""npm's `emulate`, a stateful GitHub of somebody else's making, behind a proxy that validates both directions.

It computes real git object ids and keeps drafts, check runs and annotations. It has no GraphQL, no statuses and no git
over http; it takes duplicate pull requests and unknown heads, and a pull request's head stays where it was. For those
the scripted GitHub is right. `DEVIATIONS` says where its answers are not as GitHub describes them.

Tests that use it say `pytest.mark.xdist_group("emulator")`, so that one process starts it, once.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import requests

from devtools.forges import graphql, openapi, packages
from devtools.forges.cases import recorded
from devtools.forges.exchange import Answer, Request

_ENTRY = packages.FOLDER / "node_modules" / "emulate" / "dist" / "api.js"
_DEADLINE_S = 60.0
_NOT_FORWARDED = {"host", "connection", "content-length", "accept-encoding"}
_NOT_RETURNED = {"connection", "content-length", "transfer-encoding", "content-encoding", "date", "keep-alive"}


class Deviation(NamedTuple):
    """An answer that is not as described: where, and what is said of it (regular expressions)."""

    path: str
    problem: str


DEVIATIONS = (
    Deviation("/repos/[^/]+/[^/]+", "'(network_count|subscribers_count)' is a required property"),
    Deviation("/repos/.+/check-runs(/[0-9]+)?", "output 'annotations_url' is a required property"),
    Deviation("/repos/.+/check-runs/[0-9]+/annotations", "check_annotations.* is not of type 'array'"),
)


@dataclass
class EmulatedRules:
    """Forwards to the emulator at `upstream`; `deviated`: which of the known deviations were met."""

    upstream: str
    token: str
    prefixes: tuple[str, ...] = ("/api/v3", "/api")
    deviated: set[Deviation] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.description = openapi.load(packages.GITHUB_OPENAPI)

    def misasked(self, request: Request) -> list[str]:
        if request.path == "/graphql":
            return graphql.misasked(graphql.load(packages.GITHUB_GRAPHQL), request)
        return self.description.misasked(request)

    def misanswered(self, request: Request, answer: Answer) -> list[str]:
        return [p for p in self.description.misanswered(request, answer) if not self._is_known(request, p)]

    def answer(self, request: Request) -> Answer:
        """Its own URLs in the answer become those of the proxy. It takes any token for its first user's: we do not."""
        if request.header("Authorization") not in {f"token {self.token}", f"Bearer {self.token}"}:
            return recorded("github", "bad-credentials")
        headers = {name: value for name, value in request.headers.items() if name not in _NOT_FORWARDED}
        url = f"{self.upstream}{request.path}?{request.raw_query}"
        told = requests.request(request.method, url, headers=headers, data=request.body, timeout=_DEADLINE_S,
                                allow_redirects=False)  # fmt: skip
        ours = request.base_url.encode()
        content = told.content.replace(self.upstream.encode(), ours)
        kept = {n: v.replace(self.upstream, request.base_url) for n, v in told.headers.items()
                if n.lower() not in _NOT_RETURNED}  # fmt: skip
        is_json = content and "json" in told.headers.get("content-type", "")
        return Answer(told.status_code, json.loads(content) if is_json else content, kept)

    def _is_known(self, request: Request, problem: str) -> bool:
        for deviation in DEVIATIONS:
            if re.fullmatch(deviation.path, request.path) and re.search(deviation.problem, problem):
                self.deviated.add(deviation)
                return True
        return False


@contextmanager
def emulating(log: Path, token: str, owner: str) -> Iterator[str]:
    """The emulator as a process of its own, with one user and the user's token: its URL. `log`: what it says."""
    seed = {"tokens": {token: {"login": owner, "scopes": ["repo", "user"]}},
            "github": {"users": [{"login": owner, "name": owner, "email": f"{owner}@example.org"}]}}  # fmt: skip
    argv = [
        str(packages.NODE),
        str(packages.HERE / "emulate.mjs"),
        str(_ENTRY),
        json.dumps(seed),
    ]
    with log.open("wb") as stream, subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream, text=True
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, f"The emulator did not start: {log.read_text()}"
            yield url
        finally:
            process.terminate()


@dataclass(frozen=True)
class EmulatedRepository:
    """Sets up a repository over the emulator's own REST API, past the proxy."""

    upstream: str
    token: str
    full_name: str

    def create(self) -> None:
        """With one commit on its default branch."""
        self._ask("POST", "/user/repos", {"name": self.full_name.split("/")[1], "auto_init": True})

    def push(self, branch: str, subject: str = "change") -> str:
        """A new commit on a branch, which begins at `main`: its id."""
        refs = {r["ref"]: r["object"]["sha"] for r in self._ask("GET", f"{self._at}/git/matching-refs/heads/", None)}
        ref = f"refs/heads/{branch}"
        parent = refs.get(ref, refs["refs/heads/main"])
        tree = self._ask("GET", f"{self._at}/git/commits/{parent}", None)["tree"]["sha"]
        made = {"message": subject, "tree": tree, "parents": [parent]}
        oid: str = self._ask("POST", f"{self._at}/git/commits", made)["sha"]
        if ref in refs:
            self._ask("PATCH", f"{self._at}/git/{ref}", {"sha": oid})
        else:
            self._ask("POST", f"{self._at}/git/refs", {"ref": ref, "sha": oid})
        return oid

    def check(self, oid: str, **fields: Any) -> int:
        """A check run of a commit: its number."""
        number: int = self._ask("POST", f"{self._at}/check-runs", {"head_sha": oid, **fields})["id"]
        return number

    @property
    def _at(self) -> str:
        return f"/repos/{self.full_name}"

    def _ask(self, method: str, path: str, body: object) -> Any:
        headers = {"Authorization": f"token {self.token}"}
        told = requests.request(method, f"{self.upstream}{path}", headers=headers, json=body, timeout=_DEADLINE_S)
        told.raise_for_status()
        return told.json()
