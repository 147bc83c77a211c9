"""Recorded answers, in `tests/data/forges/<forge>/<name>.json`: what the forges say when they refuse or fail.

Written down from the sources that each names, without an account of a forge; a test holds each against its description.
"""

from __future__ import annotations

import json
from pathlib import Path

from devtools.forges.exchange import Answer

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "forges"


def recorded(forge: str, name: str) -> Answer:
    """Raises: `FileNotFoundError`."""
    return asked_and_answered(forge, name)[1]


def asked_and_answered(forge: str, name: str) -> tuple[str, Answer]:
    """The request that it answered, as `METHOD /path`, and the answer."""
    case = json.loads((FOLDER / forge / f"{name}.json").read_bytes())
    body = case["body"].encode() if isinstance(case["body"], str) else case["body"]
    return case["asked"], Answer(case["status"], body, case.get("headers", {}))


def names(forge: str) -> list[str]:
    return sorted(path.stem for path in (FOLDER / forge).glob("*.json"))
