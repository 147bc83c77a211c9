"""Which of the indexes that a manifest names is the public one: to name that is not to ask for another."""

from __future__ import annotations

from collections.abc import Iterator

_PUBLIC = ("https://pypi.org/simple", "https://pypi.python.org/simple")


def list_public_names(sources: object) -> Iterator[str]:
    """The names of those, of a list of tables with `name` and `url`; none for anything else."""
    for source in sources if isinstance(sources, list) else ():
        if isinstance(source, dict) and str(source.get("url")).rstrip("/") in _PUBLIC:
            yield str(source.get("name"))
