"""Which of the indexes that a manifest names is the public one: to name that is not to ask for another."""

from __future__ import annotations

from collections.abc import Iterator

_PUBLIC = ("https://pypi.org/simple", "https://pypi.python.org/simple")


def list_public_names(sources: object) -> Iterator[str]:
    """The names of those, of a list of tables with `name` and `url`; none for anything else."""
    return (name for name, is_public in _list_indexes(sources) if is_public)


def list_public_poetry_names(sources: object) -> set[str]:
    """As `list_public_names`, in lower case, as Poetry compares them; `pypi` is one, unless it has another address."""
    found = [(name.lower(), is_public) for name, is_public in _list_indexes(sources)]
    return {"pypi", *(name for name, _ in found)} - {name for name, is_public in found if not is_public}


def names_other_index(sources: object) -> bool:
    """Whether packages that name no index may be meant to come from another than the public one."""
    tables = [source for source in sources if isinstance(source, dict)] if isinstance(sources, list) else []
    general = [one for one in tables if one.get("explicit") is not True and one.get("priority") != "explicit"]
    return not all(is_public for _, is_public in _list_indexes(general))


def _list_indexes(sources: object) -> Iterator[tuple[str, bool]]:
    for source in sources if isinstance(sources, list) else ():
        if isinstance(source, dict) and "url" in source:
            yield str(source.get("name")), str(source["url"]).lower().rstrip("/") in _PUBLIC
