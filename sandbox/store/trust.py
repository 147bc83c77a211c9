"""Which files of suggested checks the operator trusts, by repository and hash."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime

from sandbox.models import Sha256
from sandbox.store.home import Home, write_json


def is_trusted(home: Home, repo_id: str, sha256: Sha256) -> bool:
    """Whether exactly this content is trusted in this repository. One look at a directory entry."""
    return (home.trusted(repo_id) / _name(sha256)).is_file()


def trust(home: Home, repo_id: str, sha256: Sha256, by: str) -> None:
    """Trust this content from now on; kept with when and by whom."""
    folder = home.trusted(repo_id)
    folder.mkdir(mode=0o700, exist_ok=True)
    write_json(folder / _name(sha256), {"sha256": sha256, "at": datetime.now(UTC).isoformat(), "by": by})


def distrust(home: Home, repo_id: str) -> None:
    """Trust nothing that this repository suggests."""
    shutil.rmtree(home.trusted(repo_id), ignore_errors=True)


def _name(sha256: Sha256) -> str:
    return f"{sha256.removeprefix('sha256:')}.json"
