"""`sandbox run DIR`: the commit is verified, and what the directory holds beside it is named. Real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.mounts import unmount_below
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
    }


def test_of_another_commit_it_says_nothing(bench: Bench) -> None:
    first = bench.upstream.oid("HEAD")
    bench.upstream.write("source", b"better\n")
    bench.upstream.commit()
    bench.upstream.write("source", b"bad\n")

    assert Command(bench.home).ok("run", str(bench.upstream.root), "--ref", first)["uncommitted"] is None
