"""Choose the packages of a layer, in the folder of a fetch: `choose_packages.py DATE`. Python requirements only.

Reads `required.in`, `tests.in`, `development.in`, `build.in` and `locked.txt`. Writes archives into `wheels/`, those
that are left for pip into `resolved.txt` (wheels, with hashes), and `selection.txt`: one line on what was chosen. What
it left out is in `absent.txt` if the registry has no version of it that fits, else in `unfit.txt`, one line for each.

It has a network, so it runs no code of a package: uv is given `--only-binary :all:`. A release without a wheel is
offered to uv as a wheel that holds metadata only, written here from what its source distribution says as data.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from lzma import LZMAError
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version
from source_releases import Index, Release, open_url, read_metadata, write_stub

STUBS = Path("stubs")
SOURCES = Path("sources")
WHEELS = Path("wheels")
COMPILE = (
    "uv pip compile -q --python /usr/bin/python3 --only-binary :all: --generate-hashes --no-header --no-annotate "
    "--find-links stubs -o resolved.txt trial.in"
)
SOURCE_BYTES = 256 * 1024**2
MAX_SOURCES = 30
UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError)
"""What reading an archive of strangers raises. RuntimeError: one with a password, of an unknown method, or with
metadata of brackets within brackets.
"""
WITHOUT_WHEELS = re.compile(r"(?:all versions of |\b)([A-Za-z0-9][A-Za-z0-9._-]*)\S* ha(?:s|ve) no (?:usable )?wheels")
WHEELS_REQUIRED = re.compile(r"Wheels are required for `([^`\s]+)`")

FIRST_FIXES = {(3, 11): "2022-12-06T00:00:00Z", (3, 13): "2024-12-03T00:00:00Z"}
"""When the second release of each Python appeared. What is older than it seldom runs with it, or has a wheel for it:
pytest 6.2.4 of 2021 fails with Python 3.10 and newer.
"""


class Unreachable(Exception):
    """No registry answers: fewer requirements would not help."""


class Chooser:
    """Finds solutions. `offered`: source distributions that uv sees as wheels, by name."""

    def __init__(self, index: Index, date: str) -> None:
        self.index, self.date = index, date
        self.offered: dict[str, Release] = {}
        self.tried: set[str] = set()

    def solve(self, lines: list[str], options: list[str]) -> str:
        """Write `resolved.txt`; returns '' or what uv said. Offers source distributions where wheels are lacking."""
        while error := self.compile(lines, options):
            lacking = {*WHEELS_REQUIRED.findall(error), *WITHOUT_WHEELS.findall(error)}
            if not self.offer({canonicalize_name(name) for name in lacking}, lines, options):
                return error
        with ThreadPoolExecutor(8) as pool:  # pages of all chosen packages, at once
            list(pool.map(self.index.page, [name for name, _ in read_resolved()]))
        newer = {name for name, version in read_resolved() if self.find_newer_source(name, version, lines, options)}
        before = Path("resolved.txt").read_bytes()
        if self.offer(newer, lines, options) and self.compile(lines, options):
            Path("resolved.txt").write_bytes(before)
        return ""

    def compile(self, lines: list[str], options: list[str]) -> str:
        """Run uv once."""
        Path("trial.in").write_text("".join(f"{line}\n" for line in dict.fromkeys(lines)))
        Path("resolved.txt").unlink(missing_ok=True)
        argv = [*COMPILE.split(), *options]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603 -- ours, and a date
        if "error sending request" in done.stderr:
            raise Unreachable(done.stderr)
        return done.stderr or "failed" if done.returncode else ""

    def find_source(self, name: str, lines: list[str], options: list[str]) -> Release | None:
        """The newest source distribution that is asked for, of the day if `options` name one."""
        wanted = [r.specifier for r in read_requirements(lines) if canonicalize_name(r.name) == name]
        found = [
            release
            for release in self.index.page(name).sources()
            if release.is_usable
            and not release.version.is_prerelease
            and all(specifier.contains(release.version) for specifier in wanted)
            and ("--exclude-newer" not in options or "" < release.uploaded <= self.date[:19])
        ]
        return max(found, key=lambda release: release.version, default=None)

    def find_newer_source(self, name: str, version: Version, lines: list[str], options: list[str]) -> Release | None:
        """A newer release of a chosen package that has no wheel for any system: uv passed it over."""
        found = self.find_source(name, lines, options)
        if found is None or found.version <= version:
            return None
        return None if self.index.page(name).wheels(found.version) else found

    def offer(self, names: Iterable[str], lines: list[str], options: list[str]) -> bool:
        """Whether at least one more source distribution is offered."""
        some = False
        for name in sorted(names):
            key = f"{name} {'--exclude-newer' in options}"
            if key in self.tried or len(self.offered) >= MAX_SOURCES:
                continue
            self.tried.add(key)
            release = self.find_source(name, lines, options)
            requirements = self.describe(release) if release and release != self.offered.get(name) else None
            if release and requirements is not None:
                write_stub(STUBS, name, release, requirements)
                self.offered[name] = release
                some = True
        return some

    def describe(self, release: Release) -> list[str] | None:
        """Download a source distribution and read its requirements, and those of its build; None if it is unusable."""
        path = SOURCES / release.file
        digest = hashlib.sha256()
        try:
            with open_url(release.url) as answer, path.open("wb") as copy:
                while block := answer.read(1 << 20):
                    digest.update(block)
                    copy.write(block)
                    if copy.tell() > SOURCE_BYTES:
                        return None
            if release.sha256 and digest.hexdigest() != release.sha256:
                return None
            return read_metadata(path)
        except UNREADABLE:
            return None

    def choose(self) -> str:
        """Find a solution of all requirements, or of as many as possible; returns what was chosen. Raises: SystemExit
        with what uv said, if the project's own requirements have none.
        """
        tiers = [read_lines(f"{name}.in") for name in ("required", "tests", "development", "build")]
        ways = {f"as of {self.date}": ["--exclude-newer", self.date], "": []}
        if read_lines("locked.txt"):
            ways = {
                "as locked": [*ways[f"as of {self.date}"], "-c", "locked.txt"],
                "locked": ["-c", "locked.txt"],
            } | ways
        everything = [line for tier in tiers for line in tier]
        for name, options in ways.items():
            if not self.solve(everything, options):
                return join_words("all", name)
        errors = []
        for name, options in ways.items():
            error = self.solve(tiers[0], options)
            if not error:
                return self.choose_parts(tiers, join_words(name), options)
            errors.append(error)
        raise SystemExit(errors[-1])

    def choose_parts(self, tiers: list[list[str]], name: str, options: list[str]) -> str:
        """The project's own requirements, and as many of the others as have a solution with them."""
        chosen, dropped = list(tiers[0]), dict[str, str]()

        def add(lines: list[str]) -> None:
            if not lines:
                return
            error = self.solve([*chosen, *lines], options)
            if not error:
                chosen.extend(lines)
            elif len(lines) == 1:
                dropped[lines[0].partition(" ;")[0]] = error
            else:
                add(lines[: len(lines) // 2])
                add(lines[len(lines) // 2 :])

        for tier in tiers[1:]:
            add(tier)
        if error := self.solve(chosen, options):
            raise SystemExit(error)
        absent = {text for text, error in dropped.items() if is_absent(text, error)}
        write_lines("absent.txt", absent)
        write_lines("unfit.txt", dropped.keys() - absent)
        return join_words(f"all but {', '.join(dropped)}", name)


def join_words(*words: str) -> str:
    """What was chosen, and how."""
    return ", ".join(word for word in words if word)


def is_absent(text: str, error: str) -> bool:
    """Whether uv says of a requirement that the registry has no version that fits, whatever the others."""
    name = re.escape(Requirement(text).name)
    said = " ".join(error.split())
    required = rf"and you require {name}(?:\[\S+\])?(?![\w.-])"
    lacking = rf"there (?:is|are) no versions? of {name}\b|{name} was not found in|only {name}\S* is available"
    several = rf"only the following versions of {name}\S* are available"
    return re.search(rf"Because (?:{lacking}|{several}).{{0,2000}}? {required}", said, re.IGNORECASE) is not None


def write_lines(path: str, lines: Iterable[str]) -> None:
    """One line for each, in order."""
    Path(path).write_text("".join(f"{line}\n" for line in sorted(lines)))


def read_lines(path: str) -> list[str]:
    """The lines of a file of ours."""
    return [line for line in Path(path).read_text().splitlines() if line]


def read_requirements(lines: Iterable[str]) -> Iterator[Requirement]:
    """The parsed ones that hold here."""
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def read_resolved() -> list[tuple[str, Version]]:
    """Names and versions of the solution."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", Path("resolved.txt").read_text(), re.MULTILINE)
    return [(canonicalize_name(name), Version(version)) for name, version in found]


def download_wheels(index: Index) -> None:
    """Download the chosen wheels, several at once, and take their lines out of `resolved.txt`. What no page of the
    registry says, or what fails, is left there: pip, which asks for one after the other, tries it again.
    """
    ranks = {tag: rank for rank, tag in enumerate(sys_tags())}
    blocks = [block for block in re.split(r"^(?=\S)", Path("resolved.txt").read_text(), flags=re.MULTILINE) if block]
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda block: download_wheel(find_wheel(index, block, ranks)), blocks))
    left = (block for block, is_there in zip(blocks, done, strict=True) if not is_there)
    Path("resolved.txt").write_text("".join(left))


def find_wheel(index: Index, block: str, ranks: dict[Tag, int]) -> Release | None:
    """The best wheel for this interpreter, of those that a requirement's hashes allow."""
    found = re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)", block)
    hashes = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", block))
    if found is None or not hashes:
        return None
    fitting = {
        min(fit): release
        for release in index.page(canonicalize_name(found[1])).wheels(Version(found[2]))
        if release.sha256 in hashes
        if (fit := [ranks[tag] for tag in parse_wheel_filename(release.file)[3] if tag in ranks])
    }
    return fitting[min(fitting)] if fitting else None


def download_wheel(release: Release | None) -> bool:
    """Whether the wheel is there, with the hash that was asked for."""
    if release is None:
        return False
    path, digest = WHEELS / release.file, hashlib.sha256()
    try:
        with open_url(release.url) as answer, path.open("wb") as copy:
            while block := answer.read(1 << 20):
                digest.update(block)
                copy.write(block)
    except (OSError, ValueError):
        path.unlink(missing_ok=True)
        return False
    if digest.hexdigest() != release.sha256:
        path.unlink()
    return path.exists()


def separate_sources(offered: dict[str, Release]) -> None:
    """Move the chosen source distributions to the archives, and take their lines out of `resolved.txt`."""
    blocks = re.split(r"^(?=\S)", Path("resolved.txt").read_text(), flags=re.MULTILINE)
    chosen = [(name, version) for name, version in read_resolved() if name in offered]
    sources = {name: offered[name] for name, version in chosen if offered[name].version == version}
    for release in sources.values():
        shutil.move(SOURCES / release.file, WHEELS / release.file)
    kept = [block for block in blocks if canonicalize_name(block.partition("==")[0].strip() or "-") not in sources]
    Path("resolved.txt").write_text("".join(kept))


def choose_date(date: str, python: tuple[int, int]) -> str:
    """That of the commit, but none before the interpreter."""
    return max(date, FIRST_FIXES.get(python, ""))


def main(date: str) -> int:
    """Exit status: 65 without a solution, 69 without a registry."""
    for folder in (STUBS, SOURCES, WHEELS):
        folder.mkdir()
    chooser = Chooser(Index(dict(os.environ)), choose_date(date, sys.version_info[:2]))
    try:
        selection = chooser.choose()
    except Unreachable as error:
        sys.stderr.write(f"{error}\n")
        return 69
    except SystemExit as error:
        sys.stderr.write(f"{error.code}\n")
        return 65
    separate_sources(chooser.offered)
    download_wheels(chooser.index)
    Path("selection.txt").write_text(f"{selection}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
