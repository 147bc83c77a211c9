"""The results of each test of a run, beside its logs: a line of JSON for each, after one about all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.test_results import ResultSource, TestResult
from sandbox.store.home import Home

SUFFIX = ".tests"


@dataclass(frozen=True)
class ResultFile:
    """An opened file of results. `complete`: as in `TestResults`. `lines`: of the results, not parsed yet. `compared`:
    whether names are those of the same tests in another run.
    """

    source: ResultSource
    complete: bool
    lines: Iterator[str]
    compared: bool = True


def save_test_results(
    logs: Path,
    run_id: str,
    source: ResultSource,
    results: Sequence[TestResult],
    *,
    complete: bool,
    compared: bool = True,
) -> None:
    """Write the results of a run, as a `ResultFile` has them. As its logs they are not synced: a power failure can lose
    them.

    Raises: OSError.
    """
    head = {"schema_version": 1, "source": source, "complete": complete, "compared": compared}
    with (logs / f"{run_id}{SUFFIX}").open("w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)  # whatever the umask
        file.write(json.dumps(head) + "\n")
        file.writelines(json.dumps(result.model_dump(mode="json")) + "\n" for result in results)


@contextmanager
def open_test_results(home: Home, owner_id: str, run_id: str) -> Iterator[ResultFile | None]:
    """The results of a run that `find_owner` found; None if it wrote none. Raises: `internal` for a damaged file."""
    path = home.logs(owner_id) / f"{run_id}{SUFFIX}"
    try:
        file = path.open(encoding="utf-8")
    except FileNotFoundError:
        yield None
        return
    with file:
        try:
            head = json.loads(next(file))
            opened = ResultFile(head["source"], head["complete"], file, head.get("compared", True))
        except (ValueError, KeyError, TypeError, StopIteration, RecursionError) as error:
            raise _damaged_error(path) from error
        yield opened


def parse_result(line: str) -> TestResult:
    """Raises: `internal` for a damaged line."""
    try:
        return TestResult.model_validate_json(line)
    except ValidationError as error:
        raise _damaged_error(None) from error


def _damaged_error(path: Path | None) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL,
        "The test results of this run are damaged",
        details=str(path or ""),
        hint="Run the check again. Its verdict and its log do not depend on them.",
    )
