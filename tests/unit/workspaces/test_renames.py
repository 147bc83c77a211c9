"""Exact renames: what was deleted and added with the same content."""

from __future__ import annotations

import time

from devtools.host_speed import slowness
from sandbox.git.entries import Content, TreeChange
from sandbox.models import Change, ChangeKind
from sandbox.workspaces.renames import pair_up


def test_s188_many_renames_are_paired_in_linear_time() -> None:
    """A guest that moves 30,000 files had a set of them built for each: minutes of the controller."""
    count = 30_000
    gone = {b"old%d" % number: (False, f"{number:040x}") for number in range(count)}
    new = [
        TreeChange(b"new%d" % number, "100644", Content(f"{number:040x}", 1, lambda: iter(())))
        for number in range(count)
    ]
    deleted = [Change(path=f"old{n}", kind=ChangeKind.DELETED, sha256=None) for n in range(count)]
    added = [Change(path=f"new{n}", kind=ChangeKind.ADDED, sha256=f"sha256:{'0' * 64}") for n in range(count)]
    kept = Change(path="kept", kind=ChangeKind.DELETED, sha256=None)
    started = time.process_time()
    first, *found, last = pair_up([kept, *deleted, *added, kept], new, gone)
    assert time.process_time() - started < 10 * slowness()
    assert first == last == kept
    assert {(c.kind, c.path.removeprefix("new")) for c in found} == {
        (ChangeKind.RENAMED, (c.old_path or "").removeprefix("old")) for c in found
    }
    assert len(found) == count
