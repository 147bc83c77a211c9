"""Values deep in a document of tables, such as a manifest in TOML or JSON of any shape. Pure."""

from __future__ import annotations


def get_nested(document: object, *keys: str) -> object:
    """What stands at the end of these keys of tables; None if one of them is missing."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document
