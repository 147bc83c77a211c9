"""Make a repository of a published project."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks.corpus.entries import Entry
from devtools.published import fetch, unpack


def commit_archive(entry: Entry, cache: Path, root: Path) -> None:
    """One commit in `root` with all files of the archive, at the time of the release, else of the newest file.

    Raises: `FetchError` if the archive cannot be had, or is not what was pinned.
    """
    newest = unpack(fetch(entry, cache, os.environ), root, entry.leave_out)
    date = f"{int(entry.released.timestamp()) if entry.released else newest} +0000"
    person = {"NAME": "corpus", "EMAIL": "corpus@example.org", "DATE": date}
    variables = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in person.items()}
    environ = os.environ | variables | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    for words in (("init", "-q"), ("add", "-A", "-f"), ("commit", "-q", "-m", f"{entry.name} {entry.version}")):
        subprocess.run(["git", "-C", str(root), *words], check=True, env=environ)
