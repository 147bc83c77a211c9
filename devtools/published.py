"""Published projects, pinned by hash: fetch an archive and unpack it, without running anything that is in it.

Not `pip download`: for a source distribution that runs the project's build back-end on this host.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import urljoin

import requests
from pydantic import BaseModel, ConfigDict

PUBLIC_INDEX = "https://pypi.org/simple"
PUBLIC_NPM = "https://registry.npmjs.org"
PUBLIC_DEBIAN = "http://deb.debian.org/debian"
MAX_BYTES = 128 * 1024**2  # of an archive, of an index page, and of an unpacked tree; reached: refused
DEADLINE_S = 120.0  # for one download, whatever it drips
_TIMEOUTS_S = (10, 30)  # to connect, and between two packets
_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"
_APT_SOURCE = re.compile(r"^(?:URIs:\s*|deb\s+(?:\[[^\]]*\]\s+)?)(https?://\S+/debian/?)(?=\s|$)", re.MULTILINE)


class FetchError(Exception):
    """An input could not be had, or is not what was pinned."""


class Archive(BaseModel):
    """One pinned archive. `file`: a name in the package's index page, or a path in the Debian archive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str
    source: Literal["pypi", "npm", "debian"]
    file: str
    sha256: str
    leave_out: tuple[str, ...] = ()


def fetch(archive: Archive, cache: Path, environ: Mapping[str, str]) -> Path:
    """The archive, from `cache` or from its registry, with the pinned hash."""
    target = cache / PurePosixPath(archive.file).name
    if target.exists() and _sha256(target) == archive.sha256:
        return target
    cache.mkdir(parents=True, exist_ok=True)
    url = _find_url(archive, environ)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as sink:
            for block in _download(url):
                sink.write(block)
        if (found := _sha256(part)) != archive.sha256:
            raise FetchError(f"{archive.file} has the hash {found}, expected {archive.sha256}")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def pypi_index(environ: Mapping[str, str]) -> str:
    """The package index pip uses on this host: PIP_INDEX_URL, pip's configuration, else the public one."""
    if environ.get("PIP_INDEX_URL"):
        return environ["PIP_INDEX_URL"].rstrip("/")
    argv = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "config", "get", "global.index-url"]
    asked = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603 -- fixed argv
    return (asked.stdout.strip() if asked.returncode == 0 else "").rstrip("/") or PUBLIC_INDEX


def npm_registry() -> str:
    """The registry npm uses on this host, else the public one."""
    npm = shutil.which("npm")
    if npm is None:
        return PUBLIC_NPM
    asked = subprocess.run(  # noqa: S603 -- fixed argv
        [npm, "config", "get", "registry"], capture_output=True, text=True, timeout=60, check=False
    )
    found = asked.stdout.strip().rstrip("/")
    return found if asked.returncode == 0 and found.startswith("http") else PUBLIC_NPM


def debian_mirror(environ: Mapping[str, str], apt: Path = Path("/etc/apt")) -> str:
    """The Debian archive of this host: DEMO_DEBIAN_MIRROR, the first in apt's sources, else the public one."""
    if environ.get("DEMO_DEBIAN_MIRROR"):
        return environ["DEMO_DEBIAN_MIRROR"].rstrip("/")
    for source in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if source.is_file() and (match := _APT_SOURCE.search(source.read_text(errors="replace"))):
            return match[1].rstrip("/")
    return PUBLIC_DEBIAN


def unpack(archive: Path, target: Path, leave_out: tuple[str, ...] = ()) -> int:
    """Write the archive's files below `target`, without their common top folder; the newest time of a file, in s.

    Files get modes 644 or 755. A hard link becomes a file, a symbolic link is written last, and only if it leads to a
    place inside. Raises: `FetchError` for a device, a path or link that leaves `target`, or more than MAX_BYTES. By
    hand: `tarfile.data_filter` is missing in Python 3.11.2.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    total, newest = 0, 0
    links: list[tuple[Path, str]] = []
    with tarfile.open(archive) as tar:
        for member in tar:
            path = _require_inside(archive, PurePosixPath(member.name))
            inner = path.parts[1:]
            total += member.size
            if total > MAX_BYTES:
                raise FetchError(f"{archive.name} unpacks to more than {MAX_BYTES} bytes")
            if member.isdir() or not inner or inner[0] in leave_out:
                continue
            newest = max(newest, int(member.mtime))
            if member.issym():
                _require_inside(archive, path.parent, PurePosixPath(member.linkname))
                links.append((target.joinpath(*inner), member.linkname))
            elif member.isfile() or member.islnk():
                _write(tar, member, target.joinpath(*inner))
            else:
                raise FetchError(f"{archive.name} holds something that is not a plain file: {member.name!r}")
    for place, text in links:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(text)
    return newest


def _require_inside(archive: Path, path: PurePosixPath, link: PurePosixPath | None = None) -> PurePosixPath:
    """`path`, if it is below the archive's top folder; with `link` if the link's target is."""
    depth = len(path.parts)
    for part in link.parts if link else ():
        depth += -1 if part == ".." else 1
        if depth < 1:
            raise FetchError(f"{archive.name} holds a link that leads out: {str(link)!r}")
    if path.is_absolute() or ".." in path.parts or (link is not None and link.is_absolute()):
        raise FetchError(f"{archive.name} holds something that is not a plain file: {str(path)!r}")
    return path


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise FetchError(f"Cannot read {member.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as sink:
        shutil.copyfileobj(source, sink)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _find_url(archive: Archive, environ: Mapping[str, str]) -> str:
    if archive.source == "debian":
        return f"{debian_mirror(environ)}/{archive.file}"
    if archive.source == "npm":
        return f"{npm_registry()}/{archive.name}/-/{archive.file}"
    page = f"{pypi_index(environ)}/{archive.name}/"
    content = b"".join(_download(page, accept=f"{_SIMPLE_JSON}, text/html;q=0.1"))
    # One pattern for the JSON (PEP 691) and the HTML (PEP 503) form: the pinned hash, not the page, is what we trust.
    pattern = rf'"(?:url"\s*:\s*")?([^"\s]+/{re.escape(archive.file)})(?:#[^"]*)?"'
    match = re.search(pattern, content.decode(errors="replace"))
    if match is None:
        raise FetchError(f"The package index does not list {archive.file}")
    return urljoin(page, str(match[1]))


def _download(url: str, accept: str = "*/*") -> Iterator[bytes]:
    """Blocks of the body. Proxies and CA files come from the environment, as requests reads it."""
    stop = time.monotonic() + DEADLINE_S
    size = 0
    shown = re.sub(r"//[^/@]*@", "//", url)  # an index URL may carry a password
    try:
        with requests.get(url, headers={"Accept": accept}, timeout=_TIMEOUTS_S, stream=True) as answer:
            answer.raise_for_status()
            for block in answer.iter_content(64 * 1024):
                size += len(block)
                if size > MAX_BYTES or time.monotonic() > stop:
                    raise FetchError(f"{shown}: more than {MAX_BYTES} bytes or {DEADLINE_S:.0f} s")
                yield block
    except requests.RequestException as error:
        raise FetchError(f"Cannot download {shown}: {type(error).__name__}") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as source:
        return str(hashlib.file_digest(source, "sha256").hexdigest())
