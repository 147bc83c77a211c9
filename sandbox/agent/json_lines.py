"""JSON in which every text is neutralised: safe to show, and to write into a log or a stream of events."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from sandbox.text import neutralise


def neutralise_values(value: Any) -> Any:
    """Neutralise every text in a JSON value."""
    if isinstance(value, dict):
        return {neutralise(key): neutralise_values(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [neutralise_values(entry) for entry in value]
    return neutralise(value) if isinstance(value, str) else value


def write_line(model: BaseModel) -> str:
    """One line of ASCII JSON, with every text neutralised: it cannot begin another line of what it is written into."""
    return json.dumps(neutralise_values(model.model_dump(mode="json")), ensure_ascii=True)
