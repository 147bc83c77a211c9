"""A package index of a test's own on loopback, in the simple protocol of PyPI, with archives of any content."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event

from sandbox.attack.harness.loopback_http import serve_http

_LONGEST_HOLD_S = 120.0


def make_wheel(name: str, version: str, files: Mapping[str, str], requires: tuple[str, ...] = ()) -> tuple[str, bytes]:
    """Name and bytes of a pure wheel. `files`: further files, by any path, or others instead of its own."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {text}\n" for text in requires)
    content = {
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **files,
    }
    lines = [f"{path},sha256={_encode(text)},{len(text.encode())}\n" for path, text in content.items()]
    content[f"{info}/RECORD"] = "".join([*lines, f"{info}/RECORD,,\n"])
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as stream:
        for path, text in content.items():
            entry = zipfile.ZipInfo(path)  # without the time, so that equal content gives equal bytes
            stream.writestr(entry, text, compress_type=zipfile.ZIP_DEFLATED)
    return f"{name}-{version}-py3-none-any.whl", archive.getvalue()


def _encode(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@dataclass
class PackageIndex:
    """What is served. `asked`: paths of all requests."""

    port: int
    wheels: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    _released: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self.release()

    def hold(self) -> None:
        """Answer no request until `release`."""
        self._released.clear()

    def release(self) -> None:
        """Answer again, also the requests that wait."""
        self._released.set()

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/simple"

    def add(self, name: str, version: str, files: Mapping[str, str], requires: tuple[str, ...] = ()) -> str:
        """Publish a wheel; returns its sha256."""
        file, content = make_wheel(name, version, files, requires)
        self.wheels[file] = content
        return hashlib.sha256(content).hexdigest()

    def add_source(
        self, name: str, version: str, files: Mapping[str, str], requires: tuple[str, ...] = (),
        members: Iterable[tarfile.TarInfo] = (),
    ) -> str:  # fmt: skip
        """Publish a source distribution, built by the `backend.py` among its files; returns its sha256.

        `members`: further entries of its archive, such as links.
        """
        metadata = f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {text}\n" for text in requires)
        build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as stream:
            for path, text in {"PKG-INFO": metadata, "pyproject.toml": build, **files}.items():
                member = tarfile.TarInfo(f"{name}-{version}/{path}")
                member.size = len(text.encode())
                stream.addfile(member, io.BytesIO(text.encode()))
            for member in members:
                stream.addfile(member)
        self.wheels[f"{name}-{version}.tar.gz"] = archive.getvalue()
        return hashlib.sha256(archive.getvalue()).hexdigest()

    def answer(self, path: str) -> bytes | None:
        """The page of a project, or a file."""
        self.asked.append(path)
        self._released.wait(_LONGEST_HOLD_S)
        parts = path.strip("/").split("/")
        if parts[0] == "files":
            return self.wheels.get(parts[-1])
        names = [name for name in self.wheels if name.split("-")[0].replace("_", "-") == parts[-1]]
        digests = {name: hashlib.sha256(self.wheels[name]).hexdigest() for name in names}
        links = (f'<a href="/files/{name}#sha256={digest}">{name}</a>\n' for name, digest in digests.items())
        return f"<!DOCTYPE html><html><body>\n{''.join(links)}</body></html>".encode() if names else None


@contextmanager
def serve_packages() -> Iterator[PackageIndex]:
    """Serve an index on loopback."""
    index = PackageIndex(0)
    with serve_http(index.answer) as index.port:
        try:
            yield index
        finally:
            index.release()
