"""Three-way merges of trees: what plain git decides is decided, what it cannot decide is named with all sides."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.git.contents import content_of
from sandbox.git.merge import merge_trees, resolve_conflicts
from sandbox.git.objects import list_tree
from sandbox.git.process import Git
from tests.unit.conftest import Upstream

LINES = b"".join(b"line %d\n" % number for number in range(20))


def test_renames_modes_and_double_renames_are_merged_as_git_does(
    upstream: Upstream, cached: Callable[[Upstream], Git]
) -> None:
    for name in ("moved", "twice", "mode"):
        upstream.write(name, name.encode() + LINES)
    base = upstream.commit()
    upstream.git("mv", "moved", "here")
    upstream.git("mv", "twice", "ours")
    upstream.write("mode", b"mode" + LINES, executable=True)
    ours = upstream.commit()
    upstream.git("checkout", "-q", "-b", "side", base)
    upstream.write("moved", b"changed\nmoved" + LINES)
    upstream.git("mv", "twice", "theirs")
    upstream.write("mode", b"mode" + LINES + b"more\n")
    theirs = upstream.commit()
    git = cached(upstream)
    merged = merge_trees(git, base, ours, theirs)
    assert [c.path for c in merged.conflicts] == [b"ours", b"theirs", b"twice"]
    first, second, old = merged.conflicts
    assert (first.theirs, second.ours, old.ours, old.theirs) == (None, None, None, None)
    assert first.ours is not None
    choice = content_of(b"other\n")
    tree = resolve_conflicts(git, merged, [(b"ours", first.ours), (b"theirs", choice), (b"twice", None)])
    found = {entry.path: (entry.mode, entry.oid, entry.size) for entry in list_tree(git, tree)}
    assert found.keys() == {b"here", b"mode", b"ours", b"theirs"}
    assert found[b"mode"][::2] == ("100755", len(b"mode" + LINES + b"more\n"))
    assert found[b"here"][2] == len(b"changed\nmoved" + LINES)
    assert found[b"ours"][1] == first.ours.oid
    assert found[b"theirs"][1:] == (choice.oid, choice.size)
