"""Small projects of the corpus, as their authors published them, are verified with no option given.

Those that need no packages but their image's: no registry is asked for any. The archives are cached. Other profiles are
tried in test_shipped_profiles.py, and all projects by `make corpus`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.corpus.entries import load_entries
from benchmarks.corpus.repository import commit_archive
from devtools.published import FetchError
from devtools.requirement import unavailable
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench import Workbench

CACHE = Path(__file__).parents[2] / ".tool_cache" / "published"
NEVER = {"layers": {"fetch": "never"}}
SMALL = (
    "cachetools",
    "bzip2",
    *(pytest.param(name, marks=pytest.mark.thorough) for name in ("golang-github-google-uuid", "libtry-tiny-perl")),
)
"""Profiles of the last two are those of projects in test_shipped_profiles.py, which `make test` verifies."""


@pytest.mark.parametrize("name", SMALL)
def test_a_published_project_is_verified(name: str, tmp_path: Path) -> None:
    (entry,) = load_entries([name])
    try:
        commit_archive(entry, CACHE, tmp_path / "source")
    except FetchError as error:
        pytest.skip(str(error))  # a mirror drops archives of older releases: that says nothing about us
    with Workbench(tmp_path / "home", environ=os.environ, settings=NEVER, allow_file=True) as workbench:
        try:
            found = workbench.run(str(tmp_path / "source"))
        except SandboxError as error:
            if error.code is not ErrorCode.IMAGE_MISSING:
                raise
            unavailable(f"{error.brief}: {error.hint}")
    assert (found.profile, found.verified) == (entry.profile, True), found.runs
    reports = [run.report.tests for run in found.runs if run.report]
    assert all(reports), "a report without tests verifies nothing"
