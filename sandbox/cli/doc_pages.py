"""The pages for users, which messages name as docs/NAME.md: where they are, and the commands that show them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sandbox.shipped_files import find_resources

_IN_TEXT = re.compile(r"(?<![\w/.-])docs/([\w-]+)\.md\b(?![\w/-])", re.ASCII)


def find_pages() -> dict[str, Path]:
    """By name, from a folder of ours: no part of a path is what a user typed."""
    return {path.stem: path for path in sorted(find_resources("docs").glob("*.md"))}


def name_commands(text: str) -> Iterator[str]:
    """The line, if any, with the commands that show the pages that a text names."""
    pages = find_pages()
    commands = [f"`sandbox docs {name}`" for name in dict.fromkeys(_IN_TEXT.findall(text)) if name in pages]
    if commands:
        yield f"{', '.join(commands)} {'shows that page' if len(commands) == 1 else 'show these pages'}"
