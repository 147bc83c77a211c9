"""Which entries there are, and which of them were asked for. Adding a section is a module and a row here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.attack import (
    arguments,
    container,
    image,
    metadata,
    nested,
    patches,
    paths,
    pointer,
    races,
    remote,
    resources,
    sinks,
    start,
)
from sandbox.attack.entry import Entry
from sandbox.errors import ErrorCode, SandboxError

_FOUND: tuple[Entry, ...] = (
    *pointer.ENTRIES,
    *sinks.ENTRIES,
    *nested.ENTRIES,
    *paths.ENTRIES,
    *races.ENTRIES,
    *patches.ENTRIES,
    *metadata.ENTRIES,
    *arguments.ENTRIES,
    *remote.ENTRIES,
    *container.ENTRIES,
    *resources.ENTRIES,
    *image.ENTRIES,
    *start.ENTRIES,
)  # fmt: skip
ENTRIES = tuple(sorted(_FOUND, key=lambda entry: entry.id))


def select(only: Sequence[str] = ()) -> tuple[Entry, ...]:
    """All entries, or those of the sections (`A`) and ids (`A01`) named, any case, one or several with commas.

    Raises: `invalid_input` for a name that is neither.
    """
    wanted = {name.strip().upper() for words in only for name in words.split(",")}
    known = {e.section for e in ENTRIES} | {e.id for e in ENTRIES}
    if unknown := sorted(wanted - known):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"There is no attack '{unknown[0]}'",
            details=f"Sections: {', '.join(sorted({e.section for e in ENTRIES}))}",
            hint="docs/threats.md names all of them; a section is one letter, as in `--only K`.",
        )
    return tuple(e for e in ENTRIES if not wanted or e.section in wanted or e.id in wanted)


def needs_engine(entries: Iterable[Entry]) -> bool:
    """Whether any of them runs a container."""
    return any(e.scene == "guests" or e.needs_engine for e in entries)
