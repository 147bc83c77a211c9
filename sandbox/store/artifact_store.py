"""Artifacts of runs: a list beside each run's logs, and the contents by their hash, once for the whole home."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.artifact_lists import Artifact, ArtifactList
from sandbox.store.home import Home, read_record, write_json
from sandbox.store.lockfile import create_locked

SUFFIX = ".artifacts"
_HEX_DIGITS = frozenset("0123456789abcdef")
_UNUSED_S = 3600.0  # a content without a list may be of a run that is about to write its list


def store_content(home: Home, chunks: Iterable[bytes]) -> tuple[str, int]:
    """Store a content; returns its hash and size. As logs it is not synced. Raises: OSError; what `chunks` raises."""
    folder = home.artifacts
    folder.mkdir(mode=0o700, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    fd, beside = create_locked(folder / "content", 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                file.write(chunk)
            file.flush()
            beside.replace(folder / digest.hexdigest())
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    return f"sha256:{digest.hexdigest()}", size


def save_list(home: Home, owner_id: str, found: ArtifactList) -> None:
    """Write the list of a run, after its contents. Raises: OSError."""
    path = home.logs(owner_id) / f"{found.run_id}{SUFFIX}"
    write_json(path, found.model_dump(mode="json"), synced=False)


def read_list(home: Home, owner_id: str, run_id: str) -> ArtifactList | None:
    """The list of a run that `find_owner` found; None if it has none. Raises: `internal` for a damaged file."""
    return read_record(home.logs(owner_id) / f"{run_id}{SUFFIX}", ArtifactList)


def stream_content(home: Home, artifact: Artifact) -> Iterator[bytes]:
    """The content of an artifact, verified: the last chunk comes only if all of it has the hash of the list.

    Raises: `not_found` if it is no longer kept; `internal` if it was changed.
    """
    digest, held = hashlib.sha256(), b""
    try:
        with _path_of(home, artifact.sha256).open("rb") as file:
            while chunk := file.read(1024**2):
                digest.update(chunk)
                if held:
                    yield held
                held = chunk
    except FileNotFoundError as error:
        raise SandboxError(
            ErrorCode.NOT_FOUND, f"The artifact {artifact.path} is no longer kept", details=artifact.sha256
        ) from error
    if f"sha256:{digest.hexdigest()}" != artifact.sha256:
        raise SandboxError(ErrorCode.INTERNAL, f"The stored artifact {artifact.path} was changed")
    yield held


def find_unused(home: Home, without: Collection[Path] = ()) -> list[Path]:
    """Contents that no list names, except those of `without`, and that are not new.

    Raises: `internal` or OSError if a list cannot be read: it may name any of them.
    """
    used = {name for path in list_all(home) if path not in without for name in list_names(path)}
    return [path for path in _list_entries(home.artifacts) if _is_content(path, used) and _age_s(path) > _UNUSED_S]


def remove_unused(found: Iterable[Path]) -> None:
    """Remove what `find_unused` found, unless a run has stored it again since."""
    for path in found:
        if _age_s(path) > _UNUSED_S:
            path.unlink(missing_ok=True)


def list_all(home: Home) -> list[Path]:
    """The lists of all runs. Raises: OSError if a folder cannot be read, which `glob` may take for an empty one."""
    paths = (path for folder in _list_entries(home.logs("any").parent) for path in _list_entries(folder))
    return [path for path in paths if path.name.startswith("run-") and path.suffix == SUFFIX]


def list_names(path: Path) -> dict[str, int]:
    """The hashes that a list names, with the sizes of the contents; none if it was removed.

    Raises: `internal` if it cannot be read or is damaged.
    """
    found = read_record(path, ArtifactList)
    return {} if found is None else {each.sha256.removeprefix("sha256:"): each.size for each in found.artifacts}


def find_old_lists(folder: Path, days: float) -> list[Path]:
    """The lists of one folder of logs that are older than this."""
    return [path for path in folder.glob(f"run-*{SUFFIX}") if _age_s(path) > days * 86400.0]


def _list_entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):  # it was removed meanwhile, or is a file
        return []


def _is_content(path: Path, used: Collection[str]) -> bool:
    return path.name[0] in _HEX_DIGITS and path.name not in used


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _path_of(home: Home, sha256: str) -> Path:
    return home.artifacts / sha256.removeprefix("sha256:")
