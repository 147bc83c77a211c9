"""All entries, and the selection by section or id. To add a section, add a module and a row here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.suites import (
    compiled_files,
    container_escapes,
    forged_receipts,
    guests_together,
    host_disk,
    hostile_archives,
    hostile_arguments,
    hostile_artifacts,
    hostile_images,
    hostile_paths,
    kept_verdicts,
    local_server,
    metadata,
    misleading_reports,
    misleading_text,
    nested,
    package_contents,
    package_fetches,
    patches,
    pointer,
    races,
    remote,
    resource_limits,
    shared_resources,
    sinks,
    start,
)
from sandbox.errors import ErrorCode, SandboxError

_FOUND: tuple[AttackEntry, ...] = (
    *pointer.ENTRIES,
    *sinks.ENTRIES,
    *nested.ENTRIES,
    *hostile_paths.ENTRIES,
    *races.ENTRIES,
    *patches.ENTRIES,
    *metadata.ENTRIES,
    *hostile_arguments.ENTRIES,
    *remote.ENTRIES,
    *container_escapes.ENTRIES,
    *resource_limits.ENTRIES,
    *hostile_images.ENTRIES,
    *start.ENTRIES,
    *misleading_text.ENTRIES,
    *misleading_reports.ENTRIES,
    *forged_receipts.ENTRIES,
    *hostile_artifacts.ENTRIES,
    *package_fetches.ENTRIES,
    *package_contents.ENTRIES,
    *shared_resources.ENTRIES,
    *guests_together.ENTRIES,
    *kept_verdicts.ENTRIES,
    *host_disk.ENTRIES,
    *hostile_archives.ENTRIES,
    *local_server.ENTRIES,
    *compiled_files.ENTRIES,
)  # fmt: skip
ENTRIES = tuple(sorted(_FOUND, key=lambda entry: entry.id))


def select(only: Sequence[str] = ()) -> tuple[AttackEntry, ...]:
    """All entries, or those of the given sections (`A`) and ids (`A01`): any case, one or several with commas.

    Raises: `invalid_input` for a name that is neither.
    """
    chosen = choose([entry.id for entry in ENTRIES], only)
    return tuple(entry for entry in ENTRIES if entry.id in chosen)


def choose(ids: Collection[str], only: Sequence[str]) -> set[str]:
    """The selected ids; all if no name is given. Pure. Raises: `invalid_input` for an unknown name."""
    names = {name.strip().upper() for words in only for name in words.split(",")}
    sections = {name[0] for name in ids}
    if unknown := sorted(names - sections - set(ids)):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"There is no attack '{unknown[0]}'",
            details=f"Sections: {', '.join(sorted(sections))}",
            hint="`sandbox doctor --attack --explain` lists all; a section is one letter, as in `--only K`.",
        )
    return {name for name in ids if not names or name[0] in names or name in names}


def needs_engine(entries: Iterable[AttackEntry]) -> bool:
    """Whether any entry runs a container."""
    return any(e.scene == "guests" or e.needs_engine for e in entries)
