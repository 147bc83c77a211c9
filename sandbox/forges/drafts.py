"""GitLab has no field for drafts: a merge request is one by the first words of its title. Pure."""

from __future__ import annotations

import re

# What GitLab takes for a draft, today and in old versions (`WIP`); it may be there more than once.
_DRAFT = re.compile(
    r"^\s*(?:\[(?:draft|wip)\]|\((?:draft|wip)\)|(?:draft|wip)\s*:|draft\s+-(?:\s|$)|wip(?:\s|$))\s*", re.IGNORECASE
)
_MOST_CHARS = 255  # of a title on GitLab


def as_draft(title: str) -> str:
    """The title of a draft."""
    return f"Draft: {without_draft(title)}"[:_MOST_CHARS]


def without_draft(title: str) -> str:
    """The title without the words that make it a draft."""
    while (rest := _DRAFT.sub("", title)) != title:
        title = rest
    return title
