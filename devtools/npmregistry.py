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
from typing import Any
from urllib.parse import unquote

from sandbox.attack.harness.loopback_http import serve_http


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
    """What is served. `asked`: paths of all requests. `refused`: the status of HTTP by name of a package. `times`: when
    the versions of a package appeared, by its name.
    """

    port: int
    versions: dict[str, dict[str, bytes]] = field(default_factory=dict)
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    times: dict[str, dict[str, str]] = field(default_factory=dict)

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

    def answer(self, path: str) -> bytes | int | None:
        """The document of a package, or an archive; a status of HTTP."""
        plain = unquote(path).strip("/")
        self.asked.append(plain)
        name, _, file = plain.partition("/-/")
        versions = self.versions.get(name, {})
        if name in self.refused:
            return self.refused[name]
        if file:
            return versions.get(file.removesuffix(".tgz").removeprefix(f"{name.rpartition('/')[2]}-"))
        if not versions:
            return None
        documents = {version: self._describe(name, version) for version in versions}
        times = {"time": self.times[name]} if name in self.times else {}
        return json.dumps(
            {"name": name, "dist-tags": {"latest": max(versions)}, "versions": documents, **times}
        ).encode()

    def _describe(self, name: str, version: str) -> dict[str, Any]:
        file = f"{name.rpartition('/')[2]}-{version}.tgz"
        integrity = write_integrity(self.versions[name][version])
        return {
            **self.manifests[f"{name}@{version}"],
            "dist": {"tarball": f"{self.url}/{name}/-/{file}", "integrity": integrity},
        }


@contextmanager
def serve_npm_packages() -> Iterator[NpmRegistry]:
    """Serve a registry on loopback."""
    registry = NpmRegistry(0)
    with serve_http(registry.answer) as registry.port:
        yield registry
