"""Jobs at once, on the real engine: two targets that wait for each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox import Workbench
from sandbox.models import Verdict
from tests.docker.conftest import make_remote

MAKEFILE = """build: a b
a b:
	touch $@.begun; for i in $$(seq 50); do [ -e a.begun ] && [ -e b.begun ] && exit 0; sleep 0.1; done; exit 1
test: build
	echo $(MAKEFLAGS)
"""


@pytest.fixture
def remote(tmp_path: Path) -> str:
    return make_remote(tmp_path / "remote", "Makefile", MAKEFILE)


@pytest.mark.usefixtures("build_image")
@pytest.mark.parametrize(("jobs", "verdict"), [("2", Verdict.PASSED), ("1", Verdict.FAILED)], ids=["two", "one"])
def test_make_runs_as_many_jobs_as_the_repository_is_set_to(
    tmp_path: Path, remote: str, jobs: str, verdict: Verdict
) -> None:
    home = tmp_path / "home"
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SANDBOX_")}
    with Workbench(home, environ=environ, allow_file=True) as workbench:
        repository = workbench.clone(remote).repository.id
    (home / "config.toml").write_text(f'[repositories."{repository}".checks.build]\njobs = {jobs}\n')
    with Workbench(home, environ=environ, allow_file=True) as workbench:
        first = workbench.run(remote, check_ids=["build"]).runs[0]
        assert first.verdict is verdict, first
        if verdict is Verdict.FAILED:  # kept when it has failed twice
            assert not workbench.run(remote, check_ids=["build"]).runs[0].cached
        assert workbench.run(remote, check_ids=["build"]).runs[0].cached, "the same question"
    (home / "config.toml").write_text(f'[repositories."{repository}".checks.build]\njobs = 3\n')
    with Workbench(home, environ=environ, allow_file=True) as workbench:
        other = workbench.run(remote, check_ids=["build"]).runs[0]
        assert (other.cached, other.verdict) == (False, Verdict.PASSED), "another question"
