"""`sandbox run DIR`: the commit is verified, and what the directory holds beside it is named. Real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from sandbox.files.mount_points import unmount_below
from tests.docker.test_verify import Bench, Scripts

PASSES: Scripts = {"test": ("cat source", [])}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, PASSES)
    made.close()
    yield made
    unmount_below(tmp_path)


def test_uncommitted_changes_are_named_and_change_no_verdict(bench: Bench) -> None:
    sandbox, root = Command(bench.home), bench.upstream.root
    clean = sandbox("run", str(root))
    assert clean.code == 0, clean.stderr
    assert "uncommitted" not in clean.stdout + clean.stderr
    bench.upstream.write("source", b"bad\n")
    bench.upstream.write("new file", b"")

    text, document = sandbox("run", str(root)), sandbox.ok("run", str(root))

    assert text.code == 0
    assert "verified" in text.stdout
    assert "2 uncommitted changes" in text.stderr
    assert "modified     source\n" in text.stderr
    assert "added        new file\n" in text.stderr
    assert document["uncommitted"] == {
        "count": 2,
        "changes": [{"path": "source", "kind": "modified"}, {"path": "new file", "kind": "added"}],
        "complete": True,
        "included": False,
        "left_out": [],
    }


def test_of_another_commit_it_says_nothing(bench: Bench) -> None:
    first = bench.upstream.oid("HEAD")
    bench.upstream.write("source", b"better\n")
    bench.upstream.commit()
    bench.upstream.write("source", b"bad\n")

    assert Command(bench.home).ok("run", str(bench.upstream.root), "--ref", first)["uncommitted"] is None


def test_changes_can_be_included_and_once_committed_are_verified_already(bench: Bench) -> None:
    sandbox, root = Command(bench.home), bench.upstream.root
    bench.upstream.write("source", b"worse\n")
    bench.upstream.write("script", b"x", executable=True)

    text = sandbox("run", str(root), "--include-changes")

    assert text.code == 0, text.stderr
    assert "and 2 uncommitted changes  tree " in text.stdout
    assert "this tree is on no branch" in text.stderr
    (run,) = sandbox.ok("run", str(root), "--include-changes")["runs"]
    assert (run["stdout_tail"], run["cached"]) == ("worse\n", True)
    bench.upstream.commit()
    (run,) = sandbox.ok("run", str(root))["runs"]
    assert (run["stdout_tail"], run["cached"]) == ("worse\n", True)
