"""Outcomes in a file, a line for each project as soon as it is known: a run of hours may be cut off and continued."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.corpus.entries import Entry
from benchmarks.corpus.outcome import Outcome


def find_commit() -> str:
    """The commit of this checkout, with `+` if files differ from it."""
    words = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def record(file: Path, commit: str, outcome: Outcome) -> None:
    """Append what was seen on a commit."""
    values = asdict(outcome) | {"entry": _name(outcome.entry)}
    with file.open("a", encoding="utf-8") as sink:
        sink.write(json.dumps({"commit": commit, "outcome": values}) + "\n")


def read_recorded(file: Path, commit: str, entries: Sequence[Entry]) -> dict[str, Outcome]:
    """The last outcome of each project on a commit, by name and version."""
    known = {_name(entry): entry for entry in entries}
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.exists() else ()
    found = (row["outcome"] for row in rows if row["commit"] == commit and row["outcome"]["entry"] in known)
    return {values["entry"]: Outcome(**values | {"entry": known[values["entry"]]}) for values in found}


def _name(entry: Entry) -> str:
    return f"{entry.name} {entry.version}"
