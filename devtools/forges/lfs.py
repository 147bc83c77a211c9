"""A server of Git LFS beside a repository over http: the batch API and the objects, as forges serve them.

Source: git-lfs, docs/api/batch.md and docs/api/basic-transfers.md. `git lfs pull` of git-lfs 3.3.0 accepts its answers.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import trustme

from devtools.forges.exchange import Answer, Request
from devtools.forges.githttp import GitHttp
from devtools.forges.server import StandIn, serving

TOKEN = "lfs-canary-3b1f"  # noqa: S105 - of a stand-in
MEDIA_TYPE = "application/vnd.git-lfs+json"


def pointer_of(content: bytes) -> bytes:
    """What git holds in place of a file."""
    return b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n" % (
        sha256(content).hexdigest().encode(),
        len(content),
    )


class _GitBesideLfs(GitHttp):
    def serves(self, request: Request) -> bool:
        return super().serves(request) and "/info/lfs/" not in request.path


@dataclass
class LfsRules:
    """`path`: of the repository. `objects`: by id. `place`: URL before the id of an object, '' for this host.
    `header`: of each action.
    """

    path: str
    token: str = TOKEN
    objects: dict[str, bytes] = field(default_factory=dict)
    place: str = ""
    header: dict[str, str] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()

    def add(self, content: bytes) -> bytes:
        """Store an object; returns its pointer."""
        self.objects[sha256(content).hexdigest()] = content
        return pointer_of(content)

    def answer(self, request: Request) -> Answer:
        expected = base64.b64encode(f"demo:{self.token}".encode()).decode()
        if self.token and request.header("Authorization") != f"Basic {expected}":
            return Answer(401, {"message": "Credentials needed"}, {"WWW-Authenticate": 'Basic realm="lfs"'})
        if request.path == f"{self.path}/info/lfs/objects/batch":
            rows = [self._describe(request, row) for row in request.json["objects"]]
            return Answer(200, {"transfer": "basic", "objects": rows}, {"Content-Type": MEDIA_TYPE})
        found = self.objects.get(request.path.removeprefix("/objects/"))
        return Answer(404, {"message": "Not found"}) if found is None else Answer(200, found)

    def _describe(self, request: Request, row: dict[str, Any]) -> dict[str, Any]:
        oid = row["oid"]
        if oid not in self.objects:
            return {**row, "error": {"code": 404, "message": "Object does not exist"}}
        href = f"{self.place or f'{request.base_url}/objects/'}{oid}"
        action = {"href": href, "header": self.header, "expires_in": 3600}
        return {**row, "size": len(self.objects[oid]), "actions": {"download": action}}

    def misasked(self, request: Request) -> list[str]:
        if not request.path.endswith("/objects/batch"):
            return [] if request.method == "GET" else [f"{request.method} for an object"]
        asked = request.json or {}
        problems = [f"no {name}" for name in ("operation", "objects") if name not in asked]
        problems += [f"{name} is not the media type" for name in ("Accept",) if request.header(name) != MEDIA_TYPE]
        return problems + [f"{row}" for row in asked.get("objects", ()) if set(row) != {"oid", "size"}]

    def misanswered(self, request: Request, answer: Answer) -> list[str]:
        return []


@dataclass(frozen=True)
class LfsHost:
    """`rules`, `stand_in`: what it answers, and what it was asked. `url`: of the repository."""

    rules: LfsRules
    stand_in: StandIn

    @property
    def url(self) -> str:
        return f"{self.stand_in.url}{self.rules.path}"


@contextmanager
def serving_lfs(folder: Path, authority: trustme.CA) -> Iterator[LfsHost]:
    """Serve the repository in `folder`, bare or not, over https with git and Git LFS, behind one token."""
    rules = LfsRules("/demo/project.git")
    stand_in = StandIn(rules, token=TOKEN, git=_GitBesideLfs(rules.path, folder, TOKEN))
    with serving(stand_in, authority):
        yield LfsHost(rules, stand_in)


def store_credential(home: Path, host: LfsHost, authority: trustme.CA) -> None:
    """Give a home the token and the CA of a server."""
    home.mkdir(mode=0o700, exist_ok=True)
    authority.cert_pem.write_to_path(str(home.parent / "ca.pem"))
    path = home / "credentials.toml"
    path.touch(mode=0o600)
    authority_part = host.stand_in.url.removeprefix("https://")
    path.write_text(
        f'[[credential]]\nhost = "{authority_part}"\nusername = "demo"\nsecret = "{TOKEN}"\n'
        f'ca_file = "{home.parent}/ca.pem"\n'
    )
