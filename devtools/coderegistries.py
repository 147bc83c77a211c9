"""Registries of a test's own on loopback: crates in the protocol of a sparse index, modules in that of a Go proxy."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from sandbox.attack.harness.loopback_http import serve_http


@dataclass
class CodeRegistry:
    """What is served. `files`: content by path. `asked`: paths of all requests."""

    port: int
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def crates_url(self) -> str:
        """The sparse index."""
        return f"http://localhost:{self.port}/index"

    @property
    def modules_url(self) -> str:
        """The module proxy. In capitals, because go asks `localhost` without any proxy between."""
        return f"http://LOCALHOST:{self.port}/modules"

    def add_crate(
        self,
        name: str,
        version: str,
        files: Mapping[str, str] | bytes,
        *,
        requires: Sequence[tuple[str, str]] = (),
        published: str = "2020-01-01T00:00:00Z",
        yanked: bool = False,
    ) -> str:
        """Publish a crate; returns its sha256. `files`: or a whole archive. `requires`: names and versions."""
        content = files if isinstance(files, bytes) else make_crate(name, version, files, requires)
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"/crates/{name}/{version}"] = content
        self.files["/index/config.json"] = json.dumps(
            {"dl": f"http://localhost:{self.port}/crates/{{crate}}/{{version}}"}
        ).encode()
        wants: list[dict[str, Any]] = [
            {"name": n, "req": v, "features": [], "optional": False, "default_features": True, "target": None,
             "kind": "normal"}
            for n, v in requires
        ]  # fmt: skip
        entry = {"name": name, "vers": version, "deps": wants, "cksum": digest, "features": {}, "yanked": yanked}
        line = json.dumps(entry | {"pubtime": published}).encode() + b"\n"
        place = f"/index/{_find_index_path(name)}"
        others = [
            old
            for old in self.files.get(place, b"").splitlines(keepends=True)
            if f'"vers": "{version}"'.encode() not in old
        ]
        self.files[place] = b"".join([*others, line])
        return digest

    def add_module(self, path: str, version: str, files: Mapping[str, str], archive: bytes | None = None) -> str:
        """Publish a Go module with a `go.mod` among its files; returns its lines of a go.sum."""
        content = archive or make_module(path, version, files)
        place = f"/modules/{_escape(path)}/@v/{_escape(version)}"
        self.files[f"{place}.zip"] = content
        self.files[f"{place}.mod"] = files["go.mod"].encode()
        self.files[f"{place}.info"] = json.dumps({"Version": version, "Time": "2020-01-01T00:00:00Z"}).encode()
        with zipfile.ZipFile(io.BytesIO(content)) as stream:
            listed = {name: stream.read(name) for name in stream.namelist()}
        sums = {version: hash_files(listed), f"{version}/go.mod": hash_files({"go.mod": files["go.mod"].encode()})}
        return "".join(f"{path} {what} {value}\n" for what, value in sums.items())

    def answer(self, path: str) -> bytes | None:
        """The content of a path; go writes `!` as `%21`."""
        plain = unquote(path)
        self.asked.append(plain)
        return self.files.get(plain)


def make_crate(name: str, version: str, files: Mapping[str, str], requires: Sequence[tuple[str, str]] = ()) -> bytes:
    """A `.crate`: a compressed tar of one folder. `files` may have any path, or replace the manifest."""
    manifest = f'[package]\nname = "{name}"\nversion = "{version}"\nedition = "2021"\n[dependencies]\n'
    manifest += "".join(f'{n} = "{v}"\n' for n, v in requires)
    return make_tar({f"{name}-{version}/{p}": text for p, text in {"Cargo.toml": manifest, **files}.items()})


def make_tar(files: Mapping[str, str], links: Mapping[str, str] | None = None) -> bytes:
    """A compressed tar of these files, and of these symbolic links, which are first."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as stream:
        for path, target in (links or {}).items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            stream.addfile(entry)
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            stream.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(packed.getvalue(), mtime=0)


def make_module(path: str, version: str, files: Mapping[str, str]) -> bytes:
    """The zip of a Go module."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as stream:
        for name, text in files.items():
            stream.writestr(zipfile.ZipInfo(f"{path}@{version}/{name}"), text)
    return packed.getvalue()


def hash_files(files: Mapping[str, bytes]) -> str:
    """Go's `h1:` hash. https://pkg.go.dev/golang.org/x/mod/sumdb/dirhash#Hash1"""
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return "h1:" + base64.b64encode(hashlib.sha256("".join(lines).encode()).digest()).decode()


def _find_index_path(name: str) -> str:
    folder = {1: "1", 2: "2", 3: f"3/{name[0]}"}.get(len(name), f"{name[:2]}/{name[2:4]}")
    return f"{folder}/{name}"


def _escape(text: str) -> str:
    return "".join(f"!{letter.lower()}" if letter.isupper() else letter for letter in text)


@contextmanager
def serve_code() -> Iterator[CodeRegistry]:
    """Serve a registry on loopback."""
    registry = CodeRegistry(0)
    with serve_http(registry.answer) as registry.port:
        yield registry
