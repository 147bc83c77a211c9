"""The artifacts of candidates: taken out of their room before the launch, kept if it passed.

repositories/candidates/REPO/<key>/files/, manifest.json
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from sandbox.document_errors import describe_errors
from sandbox.models.releases import ReleaseManifest
from sandbox.private_folders import make_private
from sandbox.store.home import Home, damaged_file_error, read_json, write_json

MAX_CANDIDATES = 3
"""How many a repository keeps, the newest."""

FILES = "files"
_STAGING, _MANIFEST = ".staging-", "manifest.json"


@contextmanager
def staged_candidate(home: Home, repo_id: str) -> Iterator[Path]:
    """A new directory with an empty `files` in it; removed at the end unless it was saved."""
    folder = home.candidates(repo_id)
    make_private(folder)
    staged = folder / f"{_STAGING}{secrets.token_hex(8)}"
    make_private(staged / FILES)
    try:
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def save_candidate(home: Home, staged: Path, manifest: ReleaseManifest) -> None:
    """Keep what was staged, instead of an earlier one with the same key, and forget the oldest ones."""
    write_json(staged / _MANIFEST, manifest.model_dump(mode="json"))
    folder = home.candidates(manifest.repo_id)
    with home.locked(f"candidates-{manifest.repo_id}"):
        target = folder / manifest.key
        shutil.rmtree(target, ignore_errors=True)
        staged.rename(target)
        kept = [path for path in folder.iterdir() if not path.name.startswith(_STAGING)]
        for old in sorted(kept, key=lambda path: path.stat().st_ctime_ns)[:-MAX_CANDIDATES]:
            shutil.rmtree(old, ignore_errors=True)


def forget_candidate(folder: Path) -> str:
    """Delete one, or what was staged; a kill leaves all of it, or what is no candidate. The caller holds the lock."""
    aside = folder.with_name(f"{_STAGING}{secrets.token_hex(8)}")
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    return ""


def find_candidate(home: Home, repo_id: str, key: str) -> tuple[Path, ReleaseManifest] | None:
    """The files of a candidate and their manifest; None when they are not kept."""
    folder = home.candidates(repo_id) / key
    document = read_json(folder / _MANIFEST)
    if document is None:
        return None
    try:
        return folder / FILES, ReleaseManifest.model_validate(document)
    except ValidationError as error:
        raise damaged_file_error(folder / _MANIFEST, describe_errors(error)) from error
