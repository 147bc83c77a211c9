"""Whether this host has the shared libraries that a release names. Directories are read; no library is loaded."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from sandbox.checks.elf_needs import BadProgramError, read_needs
from sandbox.models.releases import ReleaseManifest

_DEFAULT_FOLDERS = ("lib", "usr/lib", "lib64", "usr/lib64", "usr/local/lib")
_MAX_INCLUDES = 100


def find_missing(manifest: ReleaseManifest, root: Path = Path("/")) -> tuple[str, ...]:
    """The libraries and dynamic linkers of a release that the host lacks for its architecture."""
    folders = list_folders(root)
    machines = set(manifest.machines)
    missing = [name for name in manifest.libraries if not _has_library(name, folders, machines)]
    return (*missing, *(path for path in manifest.interpreters if not _exists(root / path.lstrip("/"))))


def _exists(path: Path) -> bool:
    """Also for a name that no file can have: a program says what it likes."""
    try:
        return path.exists()
    except OSError:
        return False


def list_folders(root: Path) -> tuple[Path, ...]:
    """Where the dynamic linker looks: the directories of `/etc/ld.so.conf`, and its own (ld.so(8), ldconfig(8))."""
    named = _read_configuration(root, root / "etc/ld.so.conf")
    return tuple(dict.fromkeys([*named, *(root / name for name in _DEFAULT_FOLDERS)]))


def _read_configuration(root: Path, path: Path, left: int = _MAX_INCLUDES) -> list[Path]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        word, _, rest = line.partition("#")[0].strip().partition(" ")
        if word == "include" and left > 0:
            pattern = str(root / rest.strip().lstrip("/")) if rest.strip().startswith("/") else str(path.parent / rest)
            for name in sorted(glob.glob(pattern)):  # noqa: PTH207 - the pattern is absolute
                found += _read_configuration(root, Path(name), left - 1)
        elif word.startswith("/"):
            found.append(root / word.lstrip("/"))
    return found


def _has_library(name: str, folders: Iterable[Path], machines: set[tuple[int, int, int]]) -> bool:
    if "/" in name:
        return False  # a path of the guest
    return any(_fits(folder / name, machines) for folder in folders)


def _fits(path: Path, machines: set[tuple[int, int, int]]) -> bool:
    try:
        with path.open("rb") as file:
            needs = read_needs(file)
    except (OSError, BadProgramError):
        return False
    return needs is not None and needs.machine in machines
