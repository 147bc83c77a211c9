"""A run as a job of a CI: the action's own script with the real command. Real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from defusedxml.ElementTree import parse

from devtools.guests import remove_guests_of
from sandbox.files.mount_points import unmount_below
from sandbox.remotes import parse_remote
from tests.unit import checkouts
from tests.unit.conftest import Upstream, initialised

ACTION = Path(__file__).parents[2] / "ci" / "github" / "action.yml"
MAKEFILE = b"test:\n\t@echo '::error::of a guest'\n\t@test -e good\n"


class Job:
    """A monorepo with two projects, checked out, and what GitHub gives a step."""

    def __init__(self, root: Path) -> None:
        self.root, self.upstream = root, initialised(root / "work")
        for name in ("api", "web"):
            self.upstream.write(f"{name}/Makefile", MAKEFILE)
            self.upstream.write(f"{name}/good")
        self.base = self.upstream.commit()
        (root / "files").mkdir()
        (root / "home").mkdir(mode=0o700)
        self.configure(self.upstream)

    def configure(self, checkout: Upstream) -> None:
        """Two projects of the repository."""
        repo_id = parse_remote(str(checkout.root), allow_file=True, allow_http=False).id
        config = "".join(
            f'[[repositories."{repo_id}".project]]\nname = "{name}"\nsubpath = "{name}"\nprofile = "make"\n'
            for name in ("api", "web")
        )
        (self.root / "home" / "config.toml").write_text(config)

    def run(self, **inputs: str) -> subprocess.CompletedProcess[str]:
        (step,) = [step for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"] if step.get("id") == "run"]
        names = dict.fromkeys(step["env"], "") | {
            "SOURCE": str(self.upstream.root),
            "REF": "HEAD",
            "REPORTS": str(self.root / "reports"),
            **inputs,
        }
        env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": os.environ["HOME"],
            "SANDBOX_HOME": str(self.root / "home"),
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(self.root / "files" / "output"),
            "GITHUB_STEP_SUMMARY": str(self.root / "files" / "summary"),
            **names,
        }
        argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(argv, cwd=self.root, env=env, capture_output=True, text=True, check=False, timeout=240)

    def outputs(self) -> dict[str, str]:
        lines = (self.root / "files" / "output").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def suites(self) -> list[str | None]:
        root = parse(self.root / "reports" / "junit.xml").getroot()
        assert root is not None
        return [suite.get("name") for suite in root]


@pytest.fixture
def job(tmp_path: Path, build_image: str) -> Iterator[Job]:
    found = Job(tmp_path)
    yield found
    remove_guests_of(found.root / "home")
    unmount_below(found.root / "home")


STATES = [
    (checkouts.github_pull_request, {}),
    (checkouts.github_push, {}),
    (checkouts.gitlab, {}),
    (checkouts.clone_two_deep, {}),
    (checkouts.github_pull_request_with_history, {"CHANGED_SINCE": "origin/main"}),
    (checkouts.gitlab_with_history, {"CHANGED_SINCE": "origin/main"}),
]
ENOUGH = (checkouts.github_pull_request, checkouts.clone_two_deep, checkouts.gitlab_with_history)
"""Of each kind one. All are verified in `tests/unit/workbench/repositories/test_ci_checkouts.py`, without guests."""


@pytest.mark.parametrize(
    ("state", "inputs"),
    [
        pytest.param(state, inputs, id=state.__name__, marks=() if state in ENOUGH else pytest.mark.thorough)
        for state, inputs in STATES
    ],
)
def test_what_a_runner_has_checked_out_is_verified(
    job: Job, state: Callable[[checkouts.Forge, Path], Upstream], inputs: dict[str, str]
) -> None:
    forge = checkouts.Forge(initialised(job.root / "forge"))
    checkout = state(forge, job.root / "checkout")
    job.configure(checkout)

    done = job.run(SOURCE=str(checkout.root), **inputs)

    assert done.returncode == 0, done.stderr
    api, web = ["api.build", "api.test"], ["web.build", "web.test"]
    assert job.suites() == (api if inputs else [*api, *web])
    assert job.outputs()["commit"] == checkout.oid("HEAD")
    assert job.outputs()["tree"] == checkout.oid("HEAD^{tree}")


def test_a_base_that_the_runner_did_not_fetch_is_asked_for(job: Job) -> None:
    forge = checkouts.Forge(initialised(job.root / "forge"))
    checkout = checkouts.github_pull_request(forge, job.root / "checkout")
    job.configure(checkout)

    done = job.run(SOURCE=str(checkout.root), CHANGED_SINCE="origin/main")

    assert done.returncode == 2
    assert "fetch-depth: 0" in done.stdout + done.stderr


def change(upstream: Upstream, path: str, content: bytes) -> None:
    upstream.write(path, content)
    upstream.commit()


def test_the_action_runs_what_changed_and_says_so_where_github_looks(job: Job) -> None:
    change(job.upstream, "api/new", b"x\n")
    passed = job.run(CHANGED_SINCE=job.base)
    assert passed.returncode == 0, passed.stderr
    assert job.suites() == ["api.build", "api.test"]
    assert job.outputs() | {"tree": "", "commit": ""} == {
        "verified": "false",  # web was not asked
        "passed": "true",
        "nothing_changed": "false",
        "tree": "",
        "commit": "",
        "packages_missing": "false",
        "failed": "",
    }
    envelope = json.loads((job.root / "reports" / "receipt.json").read_text())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"

    (job.upstream.root / "web" / "good").unlink()
    change(job.upstream, "web/other", b"x\n")
    failed = job.run()
    assert failed.returncode == 1
    assert (job.outputs()["failed"], job.outputs()["passed"]) == ("web.build", "false")
    lines = failed.stdout.splitlines()
    token = next(line for line in lines if line.startswith("::stop-commands::")).removeprefix("::stop-commands::")
    assert lines.count(f"::{token}::") > 0
    assert any(line.startswith("::error title=web.build") for line in lines)
    assert "web.build" in (job.root / "files" / "summary").read_text()
