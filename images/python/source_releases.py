"""Source distributions of packages that have no wheel: find them in an index, and read them as data. For
`choose_packages.py`, in the guest of a fetch: it has a network, so nothing here runs code of a package.
"""

import json
import re
import ssl
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import Parser
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urldefrag, urljoin

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

JSON_PAGE = "application/vnd.pypi.simple.v1+json"
PAGE_BYTES = 64 * 1024**2
MEMBER_BYTES = 1024**2  # of a metadata file in an archive
MEMBERS = 50_000
UNPACKED_BYTES = 8 * 1024**3  # of the archive up to its metadata: a small archive may unpack to any size
PLAIN_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")


@dataclass(frozen=True)
class Release:
    """One file of an index page. `sha256`: '' if the index does not say; `uploaded`: likewise, as in `DATE`."""

    file: str
    url: str
    sha256: str
    uploaded: str
    version: Version
    is_usable: bool


@dataclass(frozen=True)
class Page:
    """What a registry says of a package. A page may have thousands of rows: what is asked for is parsed."""

    name: str
    url: str
    rows: list[dict[str, Any]]

    def sources(self) -> list[Release]:
        """The source distributions."""
        return self._parse(row for row in self.rows if not str(row["filename"]).endswith(".whl"))

    def wheels(self, version: Version) -> list[Release]:
        """The wheels of one version."""
        return self._parse(row for row in self.rows if read_wheel_version(str(row["filename"])) == version)

    def _parse(self, rows: Iterable[Mapping[str, Any]]) -> list[Release]:
        return [found for row in rows if (found := read_release(row, self.url, self.name))]


class Index:
    """Pages of the registries, each asked for once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.urls = [environ["UV_DEFAULT_INDEX"], *environ.get("UV_INDEX", "").split()]
        self.pages: dict[str, Page] = {}
        make_opener()  # before several threads need it

    def page(self, name: str) -> Page:
        """The page of the first registry that has files of the package; else one without rows."""
        if name not in self.pages:
            found = (self._read(url, name) for url in self.urls)
            self.pages[name] = next((page for page in found if page.rows), Page(name, "", []))
        return self.pages[name]

    def _read(self, url: str, name: str) -> Page:
        page = f"{url.rstrip('/')}/{name}/"
        try:
            with open_url(page, f"{JSON_PAGE}, text/html;q=0.1") as answer:
                text = answer.read(PAGE_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError):
            return Page(name, page, [])
        return Page(name, page, json.loads(text)["files"] if text.lstrip().startswith("{") else list(read_html(text)))


@cache
def read_wheel_version(file: str) -> Version | None:
    """The version in the name of a wheel; None for another file."""
    parts = file.split("-", 2)
    try:
        return Version(parts[1]) if file.endswith(".whl") and len(parts) > 2 else None
    except InvalidVersion:
        return None


@cache
def make_opener() -> urllib.request.OpenerDirector:
    """With one TLS context for all connections: to load the certificates takes longer than most answers."""
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=ssl.create_default_context()))


@cache
def allows_this_python(specifier: str) -> bool:
    """Whether a `requires-python` holds here. Raises: InvalidSpecifier."""
    return SpecifierSet(specifier).contains(".".join(map(str, sys.version_info[:3])))


def open_url(url: str, accept: str = "*/*") -> IO[bytes]:
    """Ask for a page or a file. Raises: ValueError for an address that is not http: or https:; OSError."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(url)
    request = urllib.request.Request(url, headers={"Accept": accept})  # noqa: S310 -- its scheme was looked at
    return make_opener().open(request, timeout=60)  # type: ignore[no-any-return]


def read_html(text: str) -> Iterator[dict[str, Any]]:
    """The files of a page in the older form, as in the newer one."""
    rows: list[dict[str, Any]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found = dict(attrs)
            if tag == "a" and found.get("href"):
                url, fragment = urldefrag(found["href"] or "")
                kind, _, value = fragment.partition("=")
                rows.append(
                    {
                        "filename": unquote(url.rpartition("/")[2]),
                        "url": url,
                        "hashes": {kind: value},
                        "requires-python": found.get("data-requires-python"),
                        "yanked": "data-yanked" in found,
                    }
                )

    Reader().feed(text)
    return iter(rows)


def read_release(row: Mapping[str, Any], page: str, name: str) -> Release | None:
    """A file that is an archive of this package, by a name that is no path."""
    file = str(row["filename"])
    if not PLAIN_FILE.fullmatch(file):
        return None
    try:
        found, version = parse_wheel_filename(file)[:2] if file.endswith(".whl") else parse_sdist_filename(file)
        usable = not row.get("yanked") and allows_this_python(row.get("requires-python") or "")
        url = urljoin(page, str(row["url"]))
    except ValueError:  # of each of them
        return None
    if found != name:
        return None
    sha256 = str(row.get("hashes", {}).get("sha256", ""))
    uploaded = str(row.get("upload-time") or "")[:19]
    return Release(file, url, sha256, uploaded, version, usable)


def read_metadata(path: Path) -> list[str] | None:
    """The requirements of a source distribution, and of its build, from files in it that are data. None without any.

    Raises: ValueError, also for tables that are none, and what readers of archives raise.
    """
    files = read_members(path)
    if "PKG-INFO" not in files:
        return None
    texts = Parser().parsestr(files["PKG-INFO"]).get_all("Requires-Dist") or read_requires_txt(files)
    system = tomllib.loads(files.get("pyproject.toml", "")).get("build-system", {})
    if not isinstance(system, dict):
        raise ValueError("build-system is no table")
    build = system.get("requires")
    texts += build if isinstance(build, list) else ["setuptools", "wheel"]
    return [text for text in map(str, texts) if is_plain(text)]


def read_members(path: Path) -> dict[str, str]:
    """The metadata files at the top of an archive. Nothing is extracted."""
    wanted: dict[str, str] = {}

    def take(name: str, size: int, opened: IO[bytes] | None) -> None:
        inner = name.partition("/")[2]
        key = "requires.txt" if re.fullmatch(r"(?:src/)?[^/]+\.egg-info/requires\.txt", inner) else inner
        if key in {"PKG-INFO", "pyproject.toml", "requires.txt"} and size <= MEMBER_BYTES and opened:
            wanted.setdefault(key, opened.read(MEMBER_BYTES).decode("utf-8", "replace"))

    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist()[:MEMBERS]:
                with archive.open(entry) as opened:
                    take(entry.filename, entry.file_size, opened)
        return wanted
    with tarfile.open(path, "r|*") as archive:
        unpacked = 0
        for count, member in enumerate(archive):
            unpacked += member.size
            if count >= MEMBERS or unpacked > UNPACKED_BYTES:
                break
            if member.isreg():
                take(member.name, member.size, archive.extractfile(member))
    return wanted


def read_requires_txt(files: dict[str, str]) -> list[str]:
    """The requirements that setuptools wrote before it wrote them into PKG-INFO; `[:marker]` sections have a marker."""
    marker, texts = "", []
    for line in files.get("requires.txt", "").splitlines():
        if section := re.fullmatch(r"\[(.*)\]", line.strip()):
            extra, _, condition = section[1].partition(":")
            marker = f"{condition}{' and ' if condition and extra else ''}" + (f"extra == '{extra}'" if extra else "")
        elif line.strip():
            texts.append(f"{line.strip()} ; {marker}" if marker else line.strip())
    return texts


def is_plain(text: str) -> bool:
    """Whether it is a requirement without an address."""
    try:
        return Requirement(text).url is None and "\n" not in text
    except InvalidRequirement:
        return False


def write_stub(folder: Path, name: str, release: Release, requirements: list[str]) -> None:
    """A wheel that holds metadata only: uv chooses by it, and it is never installed."""
    stem = f"{name.replace('-', '_')}-{release.version}"
    for older in folder.glob(f"{name.replace('-', '_')}-*.whl"):
        older.unlink()
    extras = {m for text in requirements for m in re.findall(r"extra == ['\"]([^'\"]+)['\"]", text)}
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {release.version}"]
    lines += [f"Provides-Extra: {extra}" for extra in sorted(extras)]
    lines += [f"Requires-Dist: {text}" for text in dict.fromkeys(requirements)]
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
