"""A stranger's first minutes with a project that no profile fits: what is said leads to checks that run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.guests import remove_guests_of
from tests.unit.conftest import Upstream

MAKEFILE = b'all:\n\ttrue\ntest:\n\ttest "$$GREETING" = hello\n\ttest -f Makefile\n'


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    remove_guests_of(tmp_path / "home")


@pytest.fixture
def project(tmp_path: Path) -> Upstream:
    """C in a folder, PHP without a profile, and checks that the repository suggests."""
    root = tmp_path / "project"
    root.mkdir()
    found = Upstream(root)
    found.git("init", "--quiet", "--initial-branch=main")
    found.write("native/Makefile", MAKEFILE)
    found.write("web/composer.json", b"{}")
    found.write(".sandbox/checks.toml", b'[[check]]\nid = "own"\nlabel = "own"\nargv = ["true"]\n')
    found.commit()
    return found


def test_what_a_stranger_is_told_leads_to_a_verified_task(sandbox: Command, project: Upstream) -> None:
    (project.root / "draft.c").write_text("int x;\n")
    url = str(project.root)
    refused = sandbox("run", url)
    assert refused.code == 2
    for seen in ("native/Makefile, web/composer.json", "native (make)", "checks.toml", "uncommitted changes (1)"):
        assert seen in refused.stderr
    named = re.search(r"`sandbox (?:--home \S+ )?(repo set \S+ --subpath native)`", refused.stderr)
    assert named is not None, "the command that helps can be copied"

    # The command that was named, and what the project needs.
    repo_id = sandbox.ok(*named[1].split(), "--env", "GREETING=hello", "--limit", "tmp_bytes=64M")["repository"]["id"]
    summary = sandbox.ok("run", url)
    assert (summary["verified"], summary["profile"]) == (True, "make")
    assert [remark["kind"] for remark in summary["advice"]] == ["suggestion", "local-changes"]

    # A task begins at the newest commit, and its checks have the same settings.
    newest = project.commit("newer")
    task = sandbox.ok("task", "create", repo_id)["task"]
    assert task["base_commit"] == newest
    assert sandbox.ok("check", "run", task["id"], "test")["verdict"] == "passed"
    assert sandbox.ok("verify", task["id"])["verified"]

    # Another setting is another question: no verdict from before answers it.
    sandbox.ok("repo", "set", repo_id, "--env", "GREETING=bye")
    again = sandbox("verify", task["id"], "--json").json
    assert [(run["verdict"], run["cached"]) for run in again["runs"]] == [("passed", False), ("failed", False)]
    sandbox.ok("task", "close", task["id"], "--delete", "--discard")
