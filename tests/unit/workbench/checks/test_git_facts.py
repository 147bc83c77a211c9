"""Facts of a commit reach the checks that ask for them, and no other verdict depends on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.models import Check
from sandbox.workbench import Workbench
from sandbox.workbench.checks import verify
from sandbox.workbench.checks.clean_rooms import VerifyRequest
from sandbox.workbench.controller.services import Services
from tests.unit.conftest import Upstream

PLAIN = b"[project]\nname = 'one'\nversion = '1'\n"
ASKS = b"[build-system]\nrequires = ['hatchling', 'hatch-vcs']\n[project]\nname = 'one'\n"


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Workbench]:
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as found:
        yield found


def checks_of_run(workbench: Workbench, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> tuple[Check, ...]:
    """The checks that `run` would run in clean rooms."""
    seen: list[VerifyRequest] = []

    def run_in_rooms(*args: object) -> tuple[()]:
        seen.extend(arg for arg in args if isinstance(arg, VerifyRequest))
        return ()

    monkeypatch.setattr(verify, "run_in_rooms", run_in_rooms)
    monkeypatch.setattr(Services, "engine_facts", {})
    workbench.run(str(upstream.root), "HEAD")
    return seen[0].checks


def test_a_project_that_asks_git_for_its_version_is_given_it(
    workbench: Workbench, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.write("pyproject.toml", ASKS)
    commit = upstream.commit()
    upstream.git("tag", "v2.5")
    for check in checks_of_run(workbench, upstream, monkeypatch):
        assert check.env["SANDBOX_COMMIT"] == commit
        assert check.env["SANDBOX_DESCRIBE"] == f"v2.5-0-g{commit[:9]}"
        assert check.env["SETUPTOOLS_SCM_PRETEND_VERSION"] == "2.5"
        assert check.env["SOURCE_DATE_EPOCH"] == upstream.git("show", "-s", "--format=%ct").decode().strip()


def test_checks_of_other_projects_are_the_same_for_every_commit_with_this_tree(
    workbench: Workbench, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.write("pyproject.toml", PLAIN)
    upstream.commit()
    before = checks_of_run(workbench, upstream, monkeypatch)
    upstream.commit("the same tree")
    assert checks_of_run(workbench, upstream, monkeypatch) == before

    repo_id = workbench.repositories()[0].id
    workbench.set_repository(repo_id, {"git_facts": "always"})
    always = checks_of_run(workbench, upstream, monkeypatch)
    upstream.commit("again")
    assert checks_of_run(workbench, upstream, monkeypatch) != always != before


def test_the_operator_goes_before_the_tree_and_a_set_variable_before_ours(
    workbench: Workbench, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.write("Makefile", b"test:\n\techo $$SANDBOX_COMMIT\n")
    upstream.commit()
    assert "SANDBOX_COMMIT" in checks_of_run(workbench, upstream, monkeypatch)[-1].env  # the Makefile names it
    repo_id = workbench.repositories()[0].id
    workbench.set_repository(repo_id, {"env": {"SANDBOX_DESCRIBE": "mine", "PBR_VERSION": "2.5"}})
    given = checks_of_run(workbench, upstream, monkeypatch)[-1].env
    assert given["SANDBOX_DESCRIBE"] == "mine"
    assert given["SANDBOX_VERSION_VARIABLES"].split(",")[:2] == [
        "SETUPTOOLS_SCM_PRETEND_VERSION",
        "PDM_BUILD_SCM_VERSION",
    ]
    workbench.set_repository(repo_id, {"git_facts": "never"})
    assert "SANDBOX_COMMIT" not in checks_of_run(workbench, upstream, monkeypatch)[-1].env
