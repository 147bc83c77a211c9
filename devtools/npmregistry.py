"""An npm registry of a test's own on loopback, and archives of any content."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote


def make_archive(files: Mapping[str, str], others: Sequence[tarfile.TarInfo] = ()) -> bytes:
    """A package's archive. `files`: by path below `package/`. `others`: links, devices and the like."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
        for entry in others:
            archive.addfile(entry)
    return packed.getvalue()


def write_integrity(content: bytes) -> str:
    """As lock files have it."""
    return f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"


@dataclass
class NpmRegistry:
    """What is served. `asked`: paths of all requests."""

    port: int
    versions: dict[str, dict[str, bytes]] = field(default_factory=dict)
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def add(
        self, name: str, version: str, files: Mapping[str, str], others: Sequence[tarfile.TarInfo] = (), **manifest: Any
    ) -> str:
        """Publish a version; returns its integrity."""
        whole = {"name": name, "version": version, **manifest}
        content = make_archive({"package.json": json.dumps(whole), **files}, others)
        self.versions.setdefault(name, {})[version] = content
        self.manifests[f"{name}@{version}"] = whole
        return write_integrity(content)

    def answer(self, path: str) -> bytes | None:
        """The document of a package, or an archive."""
        plain = unquote(path).strip("/")
        self.asked.append(plain)
        name, _, file = plain.partition("/-/")
        versions = self.versions.get(name, {})
        if file:
            return versions.get(file.removesuffix(".tgz").removeprefix(f"{name.rpartition('/')[2]}-"))
        if not versions:
            return None
        documents = {version: self._describe(name, version) for version in versions}
        return json.dumps({"name": name, "dist-tags": {"latest": max(versions)}, "versions": documents}).encode()

    def _describe(self, name: str, version: str) -> dict[str, Any]:
        file = f"{name.rpartition('/')[2]}-{version}.tgz"
        integrity = write_integrity(self.versions[name][version])
        return {
            **self.manifests[f"{name}@{version}"],
            "dist": {"tarball": f"{self.url}/{name}/-/{file}", "integrity": integrity},
        }


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, registry: NpmRegistry, *args: object) -> None:
        self.registry = registry
        super().__init__(*args)  # type: ignore[arg-type]  # what the server passes

    def do_GET(self) -> None:
        content = self.registry.answer(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve_npm_packages() -> Iterator[NpmRegistry]:
    """Serve a registry on loopback."""
    registry = NpmRegistry(0)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, registry)) as server:
        registry.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
