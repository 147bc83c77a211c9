"""The shape of `benchmarks/corpus.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from devtools.published import Archive

FILE = Path(__file__).parents[1] / "corpus.toml"


class Entry(Archive):
    """A published project. `profile`: the one that fits it. `released`: when, if the archive's files do not say it.

    `control`: how its authors run its tests, if not as is usual for its profile; only the control reads it.
    `upstream`: why its own checks fail in any environment, seen in an ordinary container. `open`: what we lack, so that
    it is not verified yet. Both empty: it has to be verified with no option given. `says`: what its
    checks print when all tests passed, where they write no report of tests: without either it is not verified.
    """

    profile: str
    released: datetime | None = None
    control: str = ""
    upstream: str = ""
    open: str = ""
    says: str = ""


class _Corpus(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    project: tuple[Entry, ...]


def load_entries(wanted: Sequence[str] = ()) -> tuple[Entry, ...]:
    """All entries, or those whose name or profile is in `wanted`. Raises: `KeyError` for a name that is neither."""
    found = _Corpus.model_validate(tomllib.loads(FILE.read_text(encoding="utf-8"))).project
    known = {entry.name for entry in found} | {entry.profile for entry in found}
    for name in wanted:
        if name not in known:
            raise KeyError(name)
    return tuple(entry for entry in found if not wanted or {entry.name, entry.profile} & set(wanted))
