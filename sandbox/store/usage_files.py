"""The usage of a run over time, beside its logs: one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from sandbox.models import UsageSample, UsageSeries
from sandbox.models.checks import Check
from sandbox.store.home import SCHEMA_VERSION, Home, damaged_file_error, parse_json, read_content, write_atomically

SUFFIX = ".usage"
_VERSIONED = '{"schema_version":'


def save_usage(logs: Path, run_id: str, check: Check, samples: Sequence[UsageSample]) -> None:
    """Write the samples of a run. As its logs they are not synced: a power failure can lose them.

    Raises: OSError.
    """
    series = UsageSeries(run_id=run_id, check_id=check.id, limits=check.limits, samples=tuple(samples))
    text = f"{_VERSIONED}{SCHEMA_VERSION},{series.model_dump_json().removeprefix('{')}"
    write_atomically(logs / f"{run_id}{SUFFIX}", text.encode(), synced=False)


def find_usage(home: Home, owner_id: str, run_id: str) -> UsageSeries | None:
    """The samples of a run that `find_owner` found; None if it has none. Raises: `internal` for a damaged file."""
    path = home.logs(owner_id) / f"{run_id}{SUFFIX}"
    content = read_content(path)
    if content is None:
        return None
    try:
        if content.startswith(_VERSIONED.encode()):
            return UsageSeries.model_validate(parse_json(content, path))
        return UsageSeries.model_validate_json(content)  # of an older version of the program
    except ValidationError as error:
        raise damaged_file_error(path, str(error)[:200]) from error
