"""Draft titles: GitLab has no draft field; the first words of the title make a merge request a draft. Pure."""

from __future__ import annotations

import re

# Prefixes that GitLab reads as draft, today and in old versions (`WIP`), as often as they are repeated. A title is as
# long as the server likes: one match takes them all, where to cut off one after the other took quadratic time.
_DRAFT = re.compile(
    r"^\s*(?>(?:\[(?:draft|wip)\]|\((?:draft|wip)\)|(?:draft|wip)\s*:|draft\s+-(?:\s|$)|wip(?:\s|$))\s*)+",
    re.IGNORECASE,
)
_MOST_CHARS = 255  # of a title on GitLab


def as_draft(title: str) -> str:
    """The title, marked as a draft."""
    return f"Draft: {without_draft(title)}"[:_MOST_CHARS]


def without_draft(title: str) -> str:
    """The title without draft prefixes."""
    found = _DRAFT.match(title)
    return title[found.end() :] if found else title
