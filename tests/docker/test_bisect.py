"""Which commit broke a check, and what is known of the last commits. Real engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.models import BisectQuery
from sandbox.workbench import VerifyOptions, Workbench
from tests.docker.test_differential import PROFILE, RUN
from tests.unit.conftest import initialised, refused

STATES = ["a ok\nb ok", "a ok\nb ok\n#", "a ok\nb bad", "a ok\nb bad\n#", "a bad\nb bad", "a bad\nb bad\n#"]


class Bench:
    """A repository of six commits: test `b` breaks at the third, test `a` at the fifth."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        (self.home / "profiles").mkdir(parents=True)
        (self.home / "profiles" / "bench.toml").write_text(
            PROFILE.replace("timeout_s", "deterministic = true\ntimeout_s", 1)
        )
        upstream = initialised(root / "upstream")
        upstream.write(
            "run.sh", RUN.replace("; do\n    [ -z", "; do\n    [ $name != '#' ] || continue\n    [ -z", 1).encode()
        )
        self.commits = []
        for state in STATES:
            upstream.write("tests.txt", f"{state}\n".encode())
            upstream.commit()
            self.commits.append(upstream.git("rev-parse", "HEAD").decode().strip())
        self.workbench = Workbench(self.home, environ=dict(os.environ), allow_file=True)
        self.repo_id = self.workbench.clone(str(upstream.root)).repository.id


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    root = tmp_path_factory.mktemp("bisect")
    made = Bench(root)
    yield made
    made.workbench.__exit__(None, None, None)
    unmount_below(root)


def test_the_first_bad_commit_is_found_and_known_verdicts_are_used(bench: Bench) -> None:
    query = BisectQuery(good=bench.commits[0], check_id="test")
    found = bench.workbench.bisect(bench.repo_id, query, None, VerifyOptions(jobs=2))
    assert found.first_bad is not None
    assert (found.first_bad.commit, found.between) == (bench.commits[2], 5)
    assert all(one.subject for one in found.judged), "also that of the commit that is called good"
    one_test = query.model_copy(update={"test": "a"})
    again = bench.workbench.bisect(bench.repo_id, one_test, None, VerifyOptions(jobs=2))
    assert again.first_bad is not None
    assert again.first_bad.commit == bench.commits[4]
    assert any(one.cached for one in again.judged), "passed trees are known"
    with refused(ErrorCode.INVALID_INPUT):
        bench.workbench.bisect(bench.repo_id, query.model_copy(update={"good": bench.commits[3]}))
    with refused(ErrorCode.INVALID_INPUT) as caught:
        bench.workbench.bisect(bench.repo_id, query.model_copy(update={"good": "HEAD", "bad": bench.commits[0]}))
    assert "not before" in caught.value.brief

    sandbox = Command(bench.home)
    shown = sandbox("bisect", bench.repo_id, "--good", bench.commits[1], "--check", "test", "--test", "b")
    assert shown.code == 0
    assert f"first bad: {bench.commits[2]}" in shown.stdout

    history = sandbox.ok("history", bench.repo_id, "--limit", "4")
    assert [one["commit"] for one in history["commits"]] == bench.commits[:1:-1]
    assert history["commits"][0]["runs"][0]["verdict"] == "failed"
    assert history["commits"][0]["runs"][0]["failed"] == 2
    text = sandbox("history", bench.repo_id).stdout
    assert "verdict ✓" in text
    assert "✗" in text
