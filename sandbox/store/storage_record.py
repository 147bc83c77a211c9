"""What the home held when it was measured last. It can be measured again at any time."""

from __future__ import annotations

from sandbox.models.storage import MeasuredStorage
from sandbox.store.home import Home, read_cached_record, write_json

_NAME = "storage.json"


def save_measured(home: Home, measured: MeasuredStorage) -> None:
    """Remember it. Raises: OSError."""
    write_json(home.repositories / _NAME, measured.model_dump(mode="json"), synced=False)


def read_measured(home: Home) -> MeasuredStorage | None:
    """The last measurement; None before the first, or if the file is damaged."""
    return read_cached_record(home.repositories / _NAME, MeasuredStorage)
