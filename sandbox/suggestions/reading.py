"""The files that are read, each by its reader; adding one is a module and a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import PurePosixPath

from sandbox.models.model import Model
from sandbox.models.suggestions import SuggestedPart, SuggestionNote
from sandbox.suggestions.debian_control import read_control
from sandbox.suggestions.devcontainer import read_devcontainer
from sandbox.suggestions.draft import MAX_SCRIPT_CHARS, IsProtected, SuggestionDraft
from sandbox.suggestions.github_workflows import read_workflow
from sandbox.suggestions.gitlab_ci import read_gitlab_ci
from sandbox.suggestions.suggesting_files import SUGGESTING_FILES, is_workflow
from sandbox.suggestions.tool_versions import read_mise, read_tool_versions

MAX_BYTES = 64 * 1024  # of one file
MAX_ALL_BYTES = 256 * 1024  # of all files that are read

_READERS: Mapping[str, tuple[str, Callable[[SuggestionDraft, str], None]]] = {
    "debian/control": ("debian", read_control),
    ".devcontainer/devcontainer.json": ("devcontainer", read_devcontainer),
    ".devcontainer.json": ("devcontainer", read_devcontainer),
    ".tool-versions": ("tools", read_tool_versions),
    "mise.toml": ("mise", read_mise),
    ".gitlab-ci.yml": ("gitlab", read_gitlab_ci),
}


class Suggestions(Model):
    """What the files of one tree suggest, and what they ask for that cannot be used. `lines`: of their scripts."""

    parts: tuple[SuggestedPart, ...] = ()
    notes: tuple[SuggestionNote, ...] = ()
    lines: tuple[str, ...] = ()


def read_suggestions(files: Mapping[str, bytes], is_protected: IsProtected) -> Suggestions:
    """Read the files by path; paths without a reader are ignored."""
    read, total, script_chars = [], 0, 0
    for path in sorted(path for path in files if path in SUGGESTING_FILES or is_workflow(path)):
        total += len(files[path])
        content = files[path] if total <= MAX_ALL_BYTES else None
        found, script_chars = _read_file(path, content, is_protected, min(script_chars, MAX_SCRIPT_CHARS + 1))
        read.append(found)
    return Suggestions(
        parts=tuple(part for each in read for part in each.parts),
        notes=tuple(note for each in read for note in each.notes),
        lines=tuple(dict.fromkeys(line for each in read for line in each.lines)),
    )


@lru_cache(maxsize=64)
def _read_file(
    path: str, content: bytes | None, is_protected: IsProtected, script_chars: int
) -> tuple[Suggestions, int]:
    """One file, and the characters of all scripts with it; `script_chars`: of those in the files before it. `content`
    is None if these were too large. Cached: each run of a check may need it.
    """
    prefix, read = _READERS.get(path) or (PurePosixPath(path).stem, read_workflow)
    draft = SuggestionDraft(path, prefix, is_protected, script_chars=script_chars)
    try:
        if content is None or len(content) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES} bytes, or than {MAX_ALL_BYTES} with the files before it")
        read(draft, content.decode("utf-8-sig").replace("\r\n", "\n"))
    except ValueError as error:  # UnicodeDecodeError is one
        draft = SuggestionDraft(path, prefix, is_protected, script_chars=draft.script_chars)
        draft.note(path, f"it cannot be read: {error}" if not isinstance(error, UnicodeError) else "it is not UTF-8")
    found = Suggestions(parts=tuple(draft.to_parts()), notes=tuple(draft.notes), lines=tuple(draft.lines))
    return found, draft.script_chars
