"""`python -m benchmarks.corpus [NAME|PROFILE]...`: run published projects as a stranger would, and count the verified.

Each archive is fetched by its pinned hash, committed to a fresh git repository, and given to `sandbox run` with no
option. Exit code 1 if a project that has to be verified is not, if one is verified that the file calls open, or if one
passed without a counted test and did not print what the file says.

With CONTROL=1 in the environment, a project that is not verified is run in an ordinary container too (`control.py`).
Outcomes are recorded as they come; RESUME=1 leaves out the projects that have one on this commit. The last document of
each project is kept in `documents/`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.corpus.control import run_control
from benchmarks.corpus.entries import Entry, load_entries
from benchmarks.corpus.outcome import ABSENT, Outcome, format_line, format_table, judge
from benchmarks.corpus.recorded import find_commit, read_recorded, record
from benchmarks.corpus.repository import commit_archive
from devtools.command import SANDBOX
from devtools.published import FetchError, npm_registry, pypi_index

FOLDER = Path(".tool_cache") / "corpus"
RECORD = FOLDER / "outcomes.jsonl"
DEADLINE_S = 5400  # more than two checks may take


def main(wanted: list[str]) -> int:
    """Run the projects one after another, and print a line for each and a table at the end."""
    try:
        entries = load_entries(wanted)
    except KeyError as error:
        print(f"No project and no profile of the corpus is called {error}", file=sys.stderr)
        return 2
    _write_configuration()
    commit = find_commit()
    known = read_recorded(RECORD, commit, entries) if os.environ.get("RESUME") == "1" else {}
    outcomes = []
    for entry in entries:
        outcome = known.get(f"{entry.name} {entry.version}") or _try(entry)
        if outcome not in known.values():
            record(RECORD, commit, outcome)
        outcomes.append(outcome)
        print(format_line(outcome), flush=True)
    print(f"\n{format_table(outcomes)}")
    _tell("gc")
    surprises = [o for o in outcomes if o.state in {"lost", "uncounted"} or (o.state == "verified" and o.entry.open)]
    for outcome in surprises:
        print(f"{outcome.entry.name}: {outcome.state}, the file says: {outcome.entry.open or 'verified'}")
    return 1 if surprises else 0


def _write_configuration() -> None:
    """Name the package index of this host, as an operator would: it may be a mirror with a private address."""
    home = FOLDER / "home"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    registries = {"python": pypi_index(os.environ), "node": npm_registry()}
    lines = (f"{ecosystem} = [{json.dumps(url)}]\n" for ecosystem, url in registries.items())
    (home / "config.toml").write_text("[registries]\n" + "".join(lines))


def _try(entry: Entry) -> Outcome:
    started = time.monotonic()
    root = (FOLDER / "projects" / entry.name.replace("/", "-")).absolute()
    try:
        commit_archive(entry, FOLDER / "archives", root)
    except FetchError as error:
        return judge(entry, {"error": {"code": ABSENT, "brief": str(error)}}, 0.0)
    control = None
    try:
        document = _tell("run", str(root), "--json", "--keep-going")
        wall_time_s = time.monotonic() - started
        _keep_document(entry, document)
        if os.environ.get("CONTROL") == "1":
            control = run_control(entry, root, FOLDER / "home", document, FOLDER / f"control-{os.getpid()}")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return judge(entry, document, wall_time_s, control)


def _keep_document(entry: Entry, document: dict[str, Any]) -> None:
    folder = FOLDER / "documents"
    folder.mkdir(exist_ok=True)
    (folder / f"{entry.name.replace('/', '-')}-{entry.version}.json").write_text(json.dumps(document, indent=1))


def _tell(*words: str) -> dict[str, Any]:
    """The JSON document of a command; an error document if it did not end in time."""
    command = [*SANDBOX, "--home", str((FOLDER / "home").absolute()), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        return dict(json.loads(done.stdout)) if "--json" in words else {}
    except subprocess.TimeoutExpired:
        return {"error": {"code": "timeout", "brief": f"no answer within {DEADLINE_S} s"}}
    except ValueError:
        return {"error": {"code": "no answer", "brief": done.stderr[-300:]}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
