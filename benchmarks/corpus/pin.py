"""`python -m benchmarks.corpus.pin SOURCE PROFILE NAME[==VERSION]...`: print entries for `benchmarks/corpus.toml`.

SOURCE: pypi (the newest source distribution), npm, or debian (upstream's archive, from the source index of bookworm).
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import sys
from collections.abc import Iterator

import requests

from devtools.published import debian_mirror, npm_registry, pypi_index

_TIMEOUTS_S = (10, 60)
_LINK = re.compile(r"/([\w.-]+-((?:\d+\.)*\d+)\.tar\.gz)#sha256=([0-9a-f]{64})")
_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"


def main(source: str, profile: str, names: list[str]) -> int:
    """Print an entry for each name."""
    find = {"pypi": _find_in_pypi, "npm": _find_in_npm, "debian": _find_in_debian}[source]
    for wanted in names:
        name, _, version = wanted.partition("==")
        found_version, file, sha256 = find(name, version)
        print(
            f'[[project]]\nname = "{name}"\nversion = "{found_version}"\nsource = "{source}"\nfile = "{file}"\n'
            f'sha256 = "{sha256}"\nprofile = "{profile}"\n'
        )
    return 0


def _get(url: str, accept: str = "*/*") -> requests.Response:
    answer = requests.get(url, headers={"Accept": accept}, timeout=_TIMEOUTS_S)
    answer.raise_for_status()
    return answer


def _find_in_pypi(name: str, version: str) -> tuple[str, str, str]:
    page = _get(f"{pypi_index(os.environ)}/{name}/", _SIMPLE_JSON).text
    listed = _list_json_files(page) if page.startswith("{") else [(m[2], m[1], m[3]) for m in _LINK.finditer(page)]
    found = [row for row in listed if version in {"", row[0]}]
    return max(found, key=lambda row: tuple(map(int, row[0].split("."))))


def _list_json_files(page: str) -> Iterator[tuple[str, str, str]]:
    for file in json.loads(page)["files"]:
        match = re.fullmatch(r"[\w.-]+-((?:\d+\.)*\d+)\.tar\.gz", file["filename"])
        if match and not file.get("yanked"):
            yield match[1], file["filename"], file["hashes"]["sha256"]


def _find_in_npm(name: str, version: str) -> tuple[str, str, str]:
    document = _get(f"{npm_registry()}/{name}").json()
    version = version or document["dist-tags"]["latest"]
    file = document["versions"][version]["dist"]["tarball"].rpartition("/")[2]
    return version, file, hashlib.sha256(_get(f"{npm_registry()}/{name}/-/{file}").content).hexdigest()


def _find_in_debian(name: str, version: str) -> tuple[str, str, str]:
    if not _sources:
        index = _get(f"{debian_mirror(os.environ)}/dists/bookworm/main/source/Sources.xz").content
        _sources.append(lzma.decompress(index).decode())
    stanzas = [s for s in _sources[0].split("\n\n") if s.startswith(f"Package: {name}\n")]
    stanza = max(stanzas, key=len)
    folder = re.search(r"^Directory: (.+)$", stanza, re.MULTILINE)
    archive = re.search(r"^ ([0-9a-f]{64}) \d+ (\S+?_([^_]+)\.orig\.tar\.(?:gz|xz|bz2))$", stanza, re.MULTILINE)
    if folder is None or archive is None or version not in {"", archive[3]}:
        raise SystemExit(f"{name}: no upstream archive")
    return archive[3], f"{folder[1]}/{archive[2]}", archive[1]


_sources: list[str] = []

if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
