"""Facts of base commits as they are stored. They are only a cache of git's answers."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from sandbox.errors import SandboxError
from sandbox.store.home import Home, read_json
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.build_files import FOLDER_LEVELS


def read_stored_facts(home: Home, repo_id: str, commit: str, folders: Iterable[str]) -> BaseFacts | None:
    """None when no facts are stored, when they are damaged, of an older version, or lack one of the folders."""
    try:
        document = read_json(home.facts(repo_id, commit))
        facts = None if document is None else BaseFacts.model_validate(document)
    except (SandboxError, ValidationError):
        return None
    if facts is None or facts.folder_levels != FOLDER_LEVELS or not facts.below.keys() >= set(folders):
        return None
    return facts
