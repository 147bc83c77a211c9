"""The README as a package index shows it, where relative links lead nowhere: a hook of the build.

A link to a page becomes the path of that page, which the source distribution holds; `sandbox docs` shows those for
users. Once the repository has a public address, such links can lead there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_IMAGE = re.compile(r"!\[[^\]]*\]\((?!https?://)[^)\s]+\)\n*")
_LINK = re.compile(r"\[[^\]]+\]\((?!https?://|#)([^)\s]+)\)")
_ONLY_LINKS = re.compile(r"(?ms)^## Documentation\n.*?(?=^MIT licence|^## |\Z)")


def without_relative_links(text: str) -> str:
    """The path in place of each relative link; relative images and a section of only such links are left out. Pure."""
    return _LINK.sub(r"`\1`", _IMAGE.sub("", _ONLY_LINKS.sub("", text)))


class IndexPage(MetadataHookInterface):
    """Sets `readme`, which pyproject.toml names as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_relative_links(text)}
