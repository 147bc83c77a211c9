"""A git newer than the machine's, for the attack suite: what is new in git is attacked here before users have it.

Debian's unstable suite has one. Its packages are fetched by apt, with sources, lists and cache of their own beside the
machine's, so that signatures and hashes are checked as for any package and nothing of the machine changes. They are
unpacked, not installed: a script in place of each program starts it with the C library it was built for.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MINIMUM = (2, 55)  # configured hooks came with 2.54, the file system monitor's daemon on Linux with 2.55
SUITE = "sid"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FOLDER = Path(__file__).parents[1] / ".tool_cache" / "newer-git"
DEADLINE_S = 120.0

_NOT_OFFERED = FOLDER.with_suffix(".absent")
_LIBRARIES = re.compile(r"^(?:git|zlib1g|lib(?!.*perl)[a-z0-9.+-]+)$", re.MULTILINE)  # its Perl parts are not used
_STARTER = """#!/bin/sh
here=${0%/*}
exec "$here/LOADER" --library-path "$here/LIBRARIES" --argv0 "$0" "$here/elf/NAME" "$@"
"""
_ENTRY = """#!/bin/sh
core=${0%/*}/../usr/lib/git-core
exec "$core/LOADER" --library-path "$core/LIBRARIES" --argv0 "$core/git" "$core/elf/git" --exec-path="$core" "$@"
"""


class NotOffered(Exception):
    """The machine's package sources have no git that is new enough: no failure, but the suite says so."""


@dataclass(frozen=True)
class Apt:
    """apt for one more suite of the archive that this machine uses; `folder` holds all it writes."""

    folder: Path

    def configure(self, archive: str) -> None:
        for name in ("sources", "lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "sources" / "newer.sources").write_text(
            f"Types: deb\nURIs: {archive}\nSuites: {SUITE}\nComponents: main\nSigned-By: {KEYRING}\n"
        )

    def run(self, *argv: str) -> str:
        """Raises: `CalledProcessError`."""
        options = {
            "Dir::Etc::SourceList": "/dev/null",
            "Dir::Etc::SourceParts": self.folder / "sources",
            "Dir::State::Lists": self.folder / "lists",
            "Dir::State::Status": "/dev/null",
            "Dir::Cache": self.folder / "cache",
            "APT::Update::Error-Mode": "any",
            "APT::Sandbox::User": "root",  # the folder may be closed to the user that apt would change to
            "Acquire::Retries": "3",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return _output([argv[0], *words, *argv[1:]], self.folder)


def find() -> Path:
    """The newer git's path. Raises: `NotOffered`, `FileNotFoundError` when nobody has fetched it."""
    chosen = Path(os.environ.get("NEWER_GIT") or FOLDER / "bin" / "git")
    if chosen.is_file():
        return chosen
    if _NOT_OFFERED.is_file():
        raise NotOffered(_NOT_OFFERED.read_text().strip())
    raise FileNotFoundError(f"No newer git at {chosen}: run `scripts/setup tools`")


def write_starter(place: Path, git: Path) -> None:
    """Make `place` a program that starts this git: in one step if we fetched it, as `bin/git` does."""
    text = f'#!/bin/sh\nexec {shlex.quote(str(git))} "$@"\n'
    if git == FOLDER / "bin" / "git":
        text = git.read_text().replace("${0%/*}", shlex.quote(str(git.parent)))
    _write_program(place, text)


def version_of(git: Path) -> tuple[int, int]:
    """Its first two numbers."""
    found = re.search(r"(\d+)\.(\d+)", _output([str(git), "version"], Path("/")))
    if found is None:
        raise ValueError(f"{git} does not say its version")
    return int(found[1]), int(found[2])


def fetch() -> Path:
    """Make it ready in `FOLDER`; at once when it is. Raises: `NotOffered`, `CalledProcessError`."""
    _NOT_OFFERED.unlink(missing_ok=True)
    if not (FOLDER / "bin" / "git").is_file():
        beside = FOLDER.with_suffix(f".{os.getpid()}")
        try:
            _make(beside)
            shutil.rmtree(FOLDER, ignore_errors=True)
            beside.rename(FOLDER)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return FOLDER / "bin" / "git"


def _make(folder: Path) -> None:
    apt = Apt(folder / "apt")
    apt.configure(_archive())
    try:
        apt.run("apt-get", "update", "-qq")
    except subprocess.CalledProcessError as error:
        if "does not have a Release file" in error.stderr:  # apt has no exit code for it
            raise NotOffered(f"The archive of this machine has no suite {SUITE}") from error
        raise
    _require_new(apt.run("apt-cache", "show", "--no-all-versions", "git"))
    wanted = ["--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"]
    names = _LIBRARIES.findall(apt.run("apt-cache", "depends", "--recurse", *wanted, "git"))
    apt.run("apt-get", "download", "-qq", *sorted(set(names)))
    for package in sorted(apt.folder.glob("*.deb")):
        _output(["dpkg-deb", "--extract", str(package), str(folder)], folder)
    shutil.rmtree(apt.folder)
    _make_startable(folder)
    if version_of(folder / "bin" / "git") < MINIMUM:
        raise NotOffered(f"The git of {SUITE} is older than it says")


def _archive() -> str:
    """The Debian archive that this machine's own sources name."""
    if not shutil.which("apt-get") or not KEYRING.is_file():
        raise NotOffered("This machine is not a Debian: name a git of your own with NEWER_GIT=/path")
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    listed = _output(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"],
        Path("/"),
    )
    for line in listed.splitlines():
        uri, *rest = line.split()
        if rest == [codename, "main"]:
            return uri
    raise NotOffered(f"No source of this machine has Debian's {codename or 'release'}")


def _require_new(record: str) -> None:
    found = re.search(r"^Version: (?:\d+:)?(\d+)\.(\d+)", record, re.MULTILINE)
    if found is None or (int(found[1]), int(found[2])) < MINIMUM:
        offered = f"{found[1]}.{found[2]}" if found else "no git"
        raise NotOffered(f"The newest git of this machine's archive is {offered}, not 2.55 or newer")


def _make_startable(folder: Path) -> None:
    core = folder / "usr" / "lib" / "git-core"
    (core / "elf").mkdir()
    loader = next(folder.glob("usr/lib/*/ld-linux*.so.*"))
    places = {"LOADER": os.path.relpath(loader, core), "LIBRARIES": os.path.relpath(loader.parent, core)}
    for program in [p for p in core.iterdir() if p.is_file() and not p.is_symlink() and _is_elf(p)]:
        program.rename(core / "elf" / program.name)
        _write_program(program, _fill(_STARTER, {**places, "NAME": program.name}))
    (folder / "bin").mkdir()
    _write_program(folder / "bin" / "git", _fill(_ENTRY, places))


def _fill(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def _is_elf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _output(argv: Sequence[str], cwd: Path) -> str:
    environ = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(  # noqa: S603 - fixed words and package names that apt printed
        argv, cwd=cwd, env=environ, capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    return done.stdout


def main() -> int:
    """For `scripts/setup`: 1 when it could not be found out, 0 when it is ready or nowhere offered."""
    try:
        git = fetch()
    except NotOffered as absent:
        _NOT_OFFERED.parent.mkdir(exist_ok=True)
        _NOT_OFFERED.write_text(f"{absent}\n")
        sys.stderr.write(f"newer git: none. {absent}\n")
        return 0
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"error: no newer git: {error}\n{getattr(error, 'stderr', None) or ''}")
        return 1
    sys.stderr.write(f"newer git: ready, {'.'.join(map(str, version_of(git)))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
