"""Which suggestions of a repository the operator trusts, by their hash."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Sha256
from sandbox.store.home import Home, sync_folder, write_json


def is_trusted(home: Home, repo_id: str, sha256: Sha256) -> bool:
    """Whether exactly this content is trusted in this repository. Costs one stat."""
    return (home.trust_folder(repo_id) / _file_name(sha256)).is_file()


def trusts_anything(home: Home, repo_id: str) -> bool:
    """Whether anything that this repository suggests was ever trusted. Costs one stat."""
    return home.trust_folder(repo_id).is_dir()


def trust_content(home: Home, repo_id: str, sha256: Sha256, by: str) -> None:
    """Trust this content from now on. Records the time and the user."""
    folder = home.trust_folder(repo_id)
    folder.mkdir(mode=0o700, exist_ok=True)
    write_json(folder / _file_name(sha256), {"sha256": sha256, "at": datetime.now(UTC).isoformat(), "by": by})


def revoke_trust(home: Home, repo_id: str) -> None:
    """Revoke trust in all suggestions of a repository. Raises: `internal` if some stay trusted."""
    folder = home.trust_folder(repo_id)
    try:
        with suppress(FileNotFoundError):
            for path in folder.iterdir():
                path.unlink()
            sync_folder(folder)
    except OSError as error:
        raise SandboxError(
            ErrorCode.INTERNAL,
            f"The trust in {repo_id} cannot be revoked",
            details=str(error),
            hint=f"Delete the files in {folder}: each is one trusted file of checks.",
        ) from error


def _file_name(sha256: Sha256) -> str:
    return f"{sha256.removeprefix('sha256:')}.json"
