"""Random trees and patches, with git as the oracle: what git diffs and applies exactly is the same files here."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from sandbox.edits.hash_gate import HashGate
from sandbox.edits.patch import apply_patch
from sandbox.edits.publish import publish_edit
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import WorktreeFiles, sha256_of
from sandbox.models import PatchResult
from tests.unit.conftest import Upstream, initialised, run

Tree = Mapping[str, tuple[bytes, bool]]
"""Path to content and execute bit."""

# Few different lines, so that context repeats and a hunk fits at several places.
LINES = st.lists(
    st.sampled_from([b"a", b"b", b"", b" x", b"-- ", b"--- a/f", b"+++ b/f", b"@@ -1 +1 @@", b"\xff", b"c\r"])
)
TEXT = st.tuples(LINES, st.sampled_from([b"\n", b"\r\n"]), st.booleans()).map(
    lambda t: t[1].join(t[0]) + (t[1] if t[2] else b"")
)
CONTENT = st.one_of(TEXT, st.binary(max_size=300), st.sampled_from([bytes(range(256)) * 5, b"\0" * 3000]))
PATHS = st.sampled_from(["f", "g", "d/f", "d/e/g", "a/f", "b/f", "a b", "-n", "\u00e9"])
TREES = st.dictionaries(PATHS, st.tuples(CONTENT, st.booleans()), max_size=4)


@dataclass
class Bench:
    """A repository to make diffs in, and a place for worktrees."""

    source: Upstream
    place: Path
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def tree(self, files: Tree) -> str:
        for path in self.source.root.iterdir():
            if path.name != ".git":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        lay_out(self.source.root, files)
        self.source.git("add", "-A", "--force", ".")
        return self.source.git("write-tree").decode().strip()

    def diff(self, before: Tree, after: Tree, *options: str) -> tuple[bytes, dict[str, str | None]]:
        """git's patch, and the gates it needs."""
        trees = self.tree(before), self.tree(after)
        raw = self.source.git("diff-tree", "-r", "--raw", "-z", "-M", *trees).decode().split("\0")
        gates: dict[str, str | None] = {}
        fields = iter(raw[:-1])
        for head in fields:
            names = [next(fields) for _ in range(2 if head.split()[4].startswith("R") else 1)]
            gates |= {n: sha256_of(before[n][0]) if n in before else None for n in names}
        return self.source.git("diff-tree", "-r", "-p", "--binary", "-M", *options, *trees), gates

    def worktree(self, files: Tree) -> Path:
        root = self.place / str(next(self.numbers))
        root.mkdir()
        lay_out(root, files)
        return root


def lay_out(root: Path, files: Tree) -> None:
    for name, (content, executable) in files.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o755 if executable else 0o644)


def on_disk(root: Path) -> Tree:
    found = [p for p in root.rglob("*") if p.is_file()]
    return {str(p.relative_to(root)): (p.read_bytes(), os.access(p, os.X_OK)) for p in found}


def ours(root: Path, patch: bytes, gates: Mapping[str, str | None]) -> PatchResult:
    with WorktreeFiles(root) as files:
        return publish_edit(files, apply_patch(HashGate(files), patch, gates), None)


def gits(root: Path, patch: bytes) -> bool:
    """Plain `git apply` outside of any repository; whether it took the patch exactly, without an offset."""
    argv = ["sh", "-c", "git apply --whitespace=nowarn -v - 2>&1 || echo refused"]
    told = run(argv, cwd=root, stdin=patch, env={"GIT_CEILING_DIRECTORIES": str(root.parent)})
    words = (b"refused\n", b"error:", b"offset", b"fuzz")  # an error may come with exit code 0, and files written
    misread = (root / "dev" / "null").exists()  # `+++ /dev/null` without `deleted file mode` is a name to git 2.39
    return not misread and not any(word in told for word in words)


def no_directory_is_a_file(*trees: Tree) -> bool:
    names = {name for tree in trees for name in tree}
    return not any(other.startswith(f"{name}/") for name in names for other in names)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    top = tmp_path_factory.mktemp("property")
    (top / "worktrees").mkdir()
    source = initialised(top / "source")
    source.git("config", "core.autocrlf", "false")
    return Bench(source, top / "worktrees")


@settings(max_examples=25)
@given(before=TREES, after=TREES, context=st.sampled_from(["-U1", "-U3", "-U10"]))
@example(before={"f": (b"a\nb\n", False)}, after={"g": (b"a\nb\n", True)}, context="-U3")
@example(before={"f": (b"a\nb", False)}, after={"f": (b"a\nb\n", False)}, context="-U3")
@example(before={"f": (b"a\r\nb\r\n", False)}, after={"f": (b"a\nb\n", False)}, context="-U1")
@example(before={"f": (bytes(range(256)) * 5, False)}, after={"f": (bytes(range(256)) * 4, False)}, context="-U3")
def test_a_diff_applied_gives_the_tree_it_was_made_of(bench: Bench, before: Tree, after: Tree, context: str) -> None:
    patch, gates = bench.diff(before, after, context)
    root = bench.worktree(before)
    if not gates:
        return
    result = ours(root, patch, gates)
    assert on_disk(root) == after
    assert result.adjusted == ()
    assert {f.path: f.sha256_after for f in result.files} == {
        name: sha256_of(after[name][0]) if name in after else None
        for name in gates.keys() - {f.old_path for f in result.files}
    }


@settings(max_examples=12)
@given(before=TREES, after=TREES, dropped=st.data())
def test_one_gate_less_or_another_hash_refuses_all_of_it(
    bench: Bench, before: Tree, after: Tree, dropped: st.DataObject
) -> None:
    patch, gates = bench.diff(before, after)
    existing = sorted(name for name, sha256 in gates.items() if sha256 is not None)
    if not existing:
        return
    name = dropped.draw(st.sampled_from(existing))
    root = bench.worktree(before)
    for wrong in ({n: h for n, h in gates.items() if n != name}, {**gates, name: sha256_of(b"other")}):
        with pytest.raises(SandboxError):
            ours(root, patch, wrong)
        assert on_disk(root) == before
    ours(root, patch, gates)
    assert on_disk(root) == after, "the control did not fire: this proves nothing"


Mutation = tuple[str, int, int, bytes]
INSERTED = [b"", b" ", b"+x", b"-a", b"@@", b"--- a/f", b"+++ b/f", b"rename from g", b"diff --git a/f b/f", b"```",
            b"\\ No newline", b"new file mode 120000", b"deleted file mode 100644", b"\x00"]  # fmt: skip
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["drop", "repeat", "exchange", "insert", "digit", "byte", "cut"]),
        st.integers(0, 10_000),
        st.integers(0, 10_000),
        st.sampled_from(INSERTED),
    ),
    min_size=1,
    max_size=3,
)  # fmt: skip


def mutated(patch: bytes, mutations: list[Mutation]) -> bytes:
    for kind, one, two, text in mutations:
        lines = patch.split(b"\n")
        at, other = one % len(lines), two % len(lines)
        if kind == "drop":
            del lines[at]
        elif kind == "repeat":
            lines.insert(other, lines[at])
        elif kind == "exchange":
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "insert":
            lines.insert(at, text)
        elif kind == "digit":
            lines = [b"".join(bytes([c ^ 1]) if chr(c).isdigit() and n == at else bytes([c]) for c in line)
                     for n, line in enumerate(lines)]  # fmt: skip
        elif kind == "byte" and patch:
            place = one % len(patch)
            lines = (patch[:place] + bytes([two % 256]) + patch[place + 1 :]).split(b"\n")
        elif kind == "cut":
            lines = patch[: one % (len(patch) + 1)].split(b"\n")
        patch = b"\n".join(lines)
    return patch


@settings(max_examples=60)
@given(before=TREES, after=TREES, mutations=MUTATIONS)
def test_a_damaged_patch_is_refused_whole_or_does_what_git_does(
    bench: Bench, before: Tree, after: Tree, mutations: list[Mutation]
) -> None:
    patch, gates = bench.diff(before, after)
    patch = mutated(patch, mutations)
    root = bench.worktree(before)
    try:
        result = ours(root, patch, gates)
    except SandboxError as error:
        event(f"refused: {error.code}")
        assert (on_disk(root), error.code is ErrorCode.INTERNAL) == (before, False)  # noqa: PT017 - either way
        return
    changed = {name for name in before.keys() | on_disk(root).keys() if before.get(name) != on_disk(root).get(name)}
    assert changed == {f.path for f in result.files} | {f.old_path for f in result.files if f.kind == "renamed"}
    plain = bench.worktree(before)
    if result.adjusted == () and gits(plain, patch):
        event("taken as git takes it")
        assert on_disk(root) == on_disk(plain)
    else:
        event("taken, git differs")
        assert changed <= gates.keys() | {n for n in on_disk(root) if n not in before}


@settings(max_examples=60)
@given(before=TEXT, after=TEXT, shift=st.integers(-5, 30), numbers=st.booleans())
def test_wrong_numbers_give_the_same_file_or_a_refusal_that_names_lines(
    bench: Bench, before: bytes, after: bytes, shift: int, numbers: bool
) -> None:
    """Numbers carry no content: with wrong ones the result is the right one, told, or none. Exact ones always work."""
    if before == after or not before or not after:
        return
    patch, gates = bench.diff({"f": (before, False)}, {"f": (after, False)})
    lines = [wrong(line, shift, numbers=numbers) for line in patch.split(b"\n")] if b"GIT binary" not in patch else []
    root = bench.worktree({"f": (before, False)})
    try:
        result = ours(root, b"\n".join(lines), gates)
    except SandboxError as error:
        event(f"refused: {error.brief[:30]}")
        assert on_disk(root) == {"f": (before, False)}
        return
    event(f"taken: {bool(result.adjusted)}")
    if result.adjusted and len(result.adjusted) == b"\n".join(lines).count(b"\n@@"):
        assert on_disk(root) == {"f": (after, False)}


def wrong(line: bytes, shift: int, *, numbers: bool) -> bytes:
    if not line.startswith(b"@@ -") or not line.endswith(b" @@"):
        return line
    start, _, count = line.split()[1][1:].partition(b",")
    if not numbers:
        return b"@@ @@"
    return b"@@ -%d%s %s @@" % (max(0, int(start) + shift), b"," + count if count else b"", line.split()[2])
