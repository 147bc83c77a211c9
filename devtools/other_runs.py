"""Tell what another run of pytest has on this machine from what this run has."""

from __future__ import annotations

from pathlib import Path


def is_of_another_run(place: str, base: Path) -> bool:
    """Whether a path is in the directory of another run. `base`: that of this run, `.../pytest-of-USER/pytest-N`.

    pytest keeps the directories of all runs of a user side by side, and renames old ones to `garbage-...` before it
    deletes them. A run with `--basetemp` has no such neighbours.
    """
    runs, path = base.resolve().parent, Path(place)
    return (
        runs.name.startswith("pytest-of-")
        and path.is_relative_to(runs)
        and path != runs
        and not path.is_relative_to(base.resolve())
    )
