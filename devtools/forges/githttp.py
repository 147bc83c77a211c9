"""git over http on the forge's own host, as both forges serve it: real git behind the forge's token as a password."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from devtools.forges.exchange import Answer, Request

_GIT = shutil.which("git") or "git"
_DEADLINE_S = 60.0
_CONFIGURATION = {"safe.directory": "*", "http.receivepack": "true"}


@dataclass(frozen=True)
class GitHttp:
    """`path`: `/owner/name.git`; `folder`: the bare repository."""

    path: str
    folder: Path
    token: str

    def serves(self, request: Request) -> bool:
        return request.path.startswith(f"{self.path}/")

    def answer(self, request: Request) -> Answer:
        """What `git http-backend` says, when the password is the token."""
        if not self._is_known(request.header("Authorization")):
            return Answer(401, b"", {"WWW-Authenticate": 'Basic realm="forge"'}, checked=False)
        done = subprocess.run(
            [_GIT, "http-backend"],
            input=request.body,
            env=self._environment(request),
            capture_output=True,
            timeout=_DEADLINE_S,
            check=True,
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return Answer(int(headers.pop("Status", "200").split()[0]), content, headers, checked=False)

    def _is_known(self, authorization: str) -> bool:
        kind, _, encoded = authorization.partition(" ")
        return kind == "Basic" and base64.b64decode(encoded).decode().partition(":")[2] == self.token

    def _environment(self, request: Request) -> dict[str, str]:
        rest = request.path.removeprefix(self.path)
        numbered = {f"GIT_CONFIG_KEY_{n}": key for n, key in enumerate(_CONFIGURATION)}
        values = {f"GIT_CONFIG_VALUE_{n}": value for n, value in enumerate(_CONFIGURATION.values())}
        return {
            "PATH": os.defpath, "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **numbered, **values,
            "GIT_CONFIG_COUNT": str(len(_CONFIGURATION)), "GIT_PROJECT_ROOT": str(self.folder.parent),
            "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": f"/{self.folder.name}{rest}", "QUERY_STRING": request.raw_query,
            "REQUEST_METHOD": request.method, "REMOTE_USER": "demo", "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": request.header("Content-Type"), "CONTENT_LENGTH": str(len(request.body)),
            "HTTP_CONTENT_ENCODING": request.header("Content-Encoding"), "GIT_PROTOCOL": request.header("Git-Protocol"),
        }  # fmt: skip
