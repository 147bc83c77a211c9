"""A patch is judged by what it does. The table of THREATS section J, with plain `git apply` as the control."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.edits import patch as module
from sandbox.edits.hash_gate import HashGate
from sandbox.edits.patch import apply_patch
from sandbox.edits.publish import publish_edit
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import WorktreeFiles
from sandbox.git.process import Git
from sandbox.models import ChangeKind, PatchResult
from sandbox.policy.paths import RepoPath
from tests.unit.conftest import Upstream, initialised, refused, run

F, G, SECRET = b"one\ntwo\nthree\n", b"g1\ng2\n", b"TOKEN=1\n"
REFUSED = (ErrorCode.PATCH_REJECTED, ErrorCode.UNSAFE_PATH, ErrorCode.STALE_HASH)


def sha(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


GATE: dict[str, str | None] = {"f.txt": sha(F)}
ZERO = "0" * 40


def edit(name: str = "f.txt", *, header: str = "@@ -1,3 +1,4 @@") -> bytes:
    return f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n{header}\n one\n+INJ\n two\n three\n".encode()


G_HUNK = b"@@ -1,2 +1,3 @@\n g1\n+INJ\n g2\n"
EDIT = edit()
EDITED = b"one\nINJ\ntwo\nthree\n"


def create(name: str, mode: str = "100644", content: str = "x", *, quoted: bool = False) -> bytes:
    shown = f'"b/{name}"' if quoted else f"b/{name}"
    old = shown.replace("b/", "a/", 1)
    return (
        f"diff --git {old} {shown}\nnew file mode {mode}\n--- /dev/null\n+++ {shown}\n@@ -0,0 +1 @@\n+{content}\n"
    ).encode()


def link(name: str, target: str) -> bytes:
    return create(name, "120000", f"{target}\n\\ No newline at end of file")


@dataclass(frozen=True)
class Bench:
    """The base fixture of section J, twice: a plain repository for the control, a worktree of ours."""

    plain: Upstream
    git: Git
    root: Path

    def apply(self, text: bytes, expected: Mapping[str, str | None]) -> PatchResult:
        with WorktreeFiles(self.root) as files:
            return publish_edit(files, apply_patch(HashGate(files), text, expected), None)

    def state(self) -> dict[str, object]:
        return {
            str(p.relative_to(self.root)): p.readlink() if p.is_symlink() else (p.read_bytes(), p.stat().st_mode)
            for p in self.root.parent.rglob("*")
            if p.is_relative_to(self.root) and not p.is_dir()
        } | {"out": sorted(x.name for x in (self.root.parent / "out").iterdir())}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A committed repository, a bare one and a worktree; copied for each test."""
    top = tmp_path_factory.mktemp("template")
    source = initialised(top / "plain")
    (top / "ours").mkdir()
    (top / "ours" / "worktree").mkdir()
    for side in (source, Upstream(top / "ours" / "worktree")):
        side.write("f.txt", F)
        side.write("g.txt", G)
        side.write("secret.env", SECRET)
        side.write("d/x", b"x\n")
        (side.root.parent / "out").mkdir()
        (side.root / "outlink").symlink_to("../out")
        (side.root / "inlink").symlink_to("f.txt")
    source.commit()
    run(["git", "init", "--quiet", "--bare", str(top / "cache")])
    return top


@pytest.fixture
def bench(template: Path, tmp_path: Path) -> Bench:
    shutil.copytree(template, tmp_path / "bench", symlinks=True)
    top = tmp_path / "bench"
    return Bench(Upstream(top / "plain"), Git(top / "cache"), top / "ours" / "worktree")


@dataclass(frozen=True)
class Case:
    """A hostile patch. `plain`: git apply takes it, which is why we must not rely on git's refusal."""

    text: bytes
    plain: bool
    codes: tuple[ErrorCode, ...] = REFUSED


RENAME = b"diff --git a/f.txt b/f.txt\nsimilarity index 100%\nrename from secret.env\nrename to public.txt\n"
COPY = b"diff --git a/secret.env b/public.txt\nsimilarity index 100%\ncopy from secret.env\ncopy to public.txt\n"
SUBMODULE = create("sub", "160000", "Subproject commit " + "1" * 40)
DELETE_G = (
    b"diff --git a/g.txt b/g.txt\ndeleted file mode 100644\n--- a/g.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-g1\n-g2\n"
)
DELETE_F = DELETE_G.replace(b"g.txt", b"f.txt").replace(b"-1,2", b"-1,3").replace(b"-g1\n-g2", b"-one\n-two\n-three")
REJECTED = (ErrorCode.PATCH_REJECTED,)
UNSAFE = (ErrorCode.UNSAFE_PATH, ErrorCode.PATCH_REJECTED)

HOSTILE = {
    "j01-dot-dot": Case(EDIT + create("../out/n"), plain=False, codes=UNSAFE),
    "j01-dot-dot-inside": Case(EDIT + create("d/../../out/n"), plain=False, codes=UNSAFE),
    "j01-absolute": Case(EDIT + create("/etc/n"), plain=False, codes=UNSAFE),
    "j02-dotgit": Case(EDIT + create(".git/hooks/x"), plain=False, codes=UNSAFE),
    "j02-dotgit-case": Case(EDIT + create(".GIT/x"), plain=False, codes=UNSAFE),
    "j02-dotgit-ntfs": Case(EDIT + create("git~1/x"), plain=False, codes=UNSAFE),
    "j02-dotgit-nested": Case(EDIT + create("sub/.git/config"), plain=False, codes=UNSAFE),
    "j03-dotgit-hfs": Case(EDIT + create(".g\u200cit/x"), plain=True, codes=UNSAFE),
    "j04-quoted-dotgit": Case(EDIT + create("\\056git/hooks/z", quoted=True), plain=False, codes=UNSAFE),
    "j04-quoted-dot-dot": Case(EDIT + create("\\056\\056/out/n", quoted=True), plain=False, codes=UNSAFE),
    "j06-quoted-newline": Case(EDIT + create("x\\ny", quoted=True), plain=True, codes=UNSAFE),
    "j07-headers-disagree": Case(b"diff --git a/f.txt b/f.txt\n--- a/g.txt\n+++ b/g.txt\n" + G_HUNK, plain=True),
    "j08-hidden-rename": Case(RENAME, plain=True),
    "j09-hidden-copy": Case(EDIT + COPY, plain=True),
    "j11-traditional": Case(b"--- a/f.txt\n+++ b/g.txt\n" + G_HUNK, plain=True),
    "j12-second-file-without-header": Case(EDIT + b"--- a/g.txt\n+++ b/g.txt\n" + G_HUNK, plain=True),
    "j13-garbage-between": Case(
        b"From: x\n\nhello\n" + EDIT + b"-- \n2.39\n\ndiff --git a/g.txt b/g.txt\n--- a/g.txt\n+++ b/g.txt\n" + G_HUNK,
        plain=True,
    ),
    "j15-link": Case(EDIT + link("l", "/etc/passwd"), plain=True, codes=UNSAFE),
    "j15-link-inside": Case(EDIT + link("l", "f.txt"), plain=True, codes=UNSAFE),
    "j16-below-a-new-link": Case(EDIT + link("l", "../out") + create("l/n"), plain=False, codes=UNSAFE),
    "j16-below-a-link": Case(EDIT + create("outlink/n"), plain=False, codes=UNSAFE),
    "j18-file-to-link": Case(DELETE_F + link("f.txt", "/etc/passwd"), plain=True, codes=UNSAFE),
    "j20-submodule": Case(EDIT + SUBMODULE, plain=True, codes=UNSAFE),
    "j25-create-existing": Case(EDIT + create("g.txt"), plain=False, codes=REJECTED),
    "j25-delete-ungated": Case(EDIT + DELETE_G, plain=True, codes=REJECTED),
    "j27-mixed-ends": Case(EDIT.replace(b"two\n", b"two\r\n"), plain=False, codes=REJECTED),
    "j28-huge-count": Case(edit(header="@@ -1,99999999999999999999 +1,4 @@"), plain=False, codes=REJECTED),
    "j28-negative": Case(edit(header="@@ -1,-3 +1,4 @@"), plain=False, codes=REJECTED),
    "j28-text-only": Case(b"please apply this\n", plain=False, codes=REJECTED),
    "j28-empty": Case(b"", plain=False, codes=REJECTED),
    "j28-blank": Case(b" \n\n", plain=False, codes=REJECTED),
    "j28-cut": Case(EDIT[:-8], plain=False, codes=REJECTED),
    "j29-directory-and-file": Case(EDIT + create("f2/x") + create("f2"), plain=False, codes=REJECTED),
    "other-content": Case(EDIT.replace(b" two", b" TWO"), plain=False, codes=REJECTED),
    "missing-file": Case(EDIT + edit("none.txt"), plain=False, codes=REJECTED),
    "through-a-link": Case(EDIT + edit("inlink"), plain=False, codes=REJECTED),
    "mode-of-an-ungated-file": Case(
        EDIT + b"diff --git a/g.txt b/g.txt\nold mode 100644\nnew mode 100755\n", plain=True, codes=REJECTED
    ),
}


@pytest.mark.parametrize("case", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_patch_is_refused_and_nothing_is_written(case: Case, bench: Bench) -> None:
    before = bench.state()
    with refused(*case.codes):
        bench.apply(case.text, GATE)
    assert bench.state() == before


@pytest.mark.parametrize("case", HOSTILE.values(), ids=HOSTILE)
def test_plain_git_apply_takes_what_the_table_says(case: Case, bench: Bench) -> None:
    with nullcontext() if case.plain else pytest.raises(AssertionError):
        bench.plain.git("apply", "-", stdin=case.text)


# --- what a patch may do


def test_an_edit_with_its_hash_is_made_and_told(bench: Bench) -> None:
    result = bench.apply(EDIT, GATE)
    assert (bench.root / "f.txt").read_bytes() == EDITED
    (changed,) = result.files
    assert (changed.path, changed.kind, changed.sha256_before, changed.sha256_after) == (
        "f.txt",
        ChangeKind.MODIFIED,
        sha(F),
        sha(EDITED),
    )


def test_files_are_made_and_deleted_with_their_gates(bench: Bench) -> None:
    result = bench.apply(create("n/e/w") + DELETE_G + EDIT, {**GATE, "g.txt": sha(G), "n/e/w": None})
    assert {f.path: f.kind for f in result.files} == {
        "f.txt": ChangeKind.MODIFIED,
        "g.txt": ChangeKind.DELETED,
        "n/e/w": ChangeKind.ADDED,
    }
    assert (bench.root / "n" / "e" / "w").read_bytes() == b"x\n"
    assert not (bench.root / "g.txt").exists()


def test_a_new_file_may_go_without_a_gate_when_nothing_is_there(bench: Bench) -> None:
    assert [f.sha256_before for f in bench.apply(create("new"), {}).files] == [None]


def test_j10_a_rename_needs_both_gates_and_is_one_entry(bench: Bench) -> None:
    text = b"diff --git a/f.txt b/moved\nsimilarity index 100%\nrename from f.txt\nrename to moved\n"
    for gates in (GATE, {"moved": None}):
        with refused(ErrorCode.PATCH_REJECTED):
            bench.apply(text, gates)
    (moved,) = bench.apply(text, {**GATE, "moved": None}).files
    assert (moved.path, moved.kind, moved.old_path) == ("moved", ChangeKind.RENAMED, "f.txt")
    assert (moved.sha256_before, moved.sha256_after) == (sha(F), sha(F))
    assert (bench.root / "moved").read_bytes() == F
    assert not (bench.root / "f.txt").exists()


def test_j21_a_mode_change_of_a_gated_file_is_made(bench: Bench) -> None:
    bench.apply(b"diff --git a/f.txt b/f.txt\nold mode 100644\nnew mode 100755\n", GATE)
    assert os.access(bench.root / "f.txt", os.X_OK)
    assert (bench.root / "f.txt").read_bytes() == F


def test_an_executable_file_stays_one(bench: Bench) -> None:
    (bench.root / "f.txt").chmod(0o755)
    bench.apply(EDIT, GATE)
    assert (bench.root / "f.txt").stat().st_mode & 0o777 == 0o755


def test_j14_header_lines_inside_a_hunk_are_content(bench: Bench) -> None:
    text = (
        b"diff --git a/f.txt b/f.txt\n--- a/f.txt\n+++ b/f.txt\n@@ -1,3 +1,5 @@\n one\n"
        b"+--- a/g.txt\n++++ b/g.txt\n two\n three\n"
    )
    bench.apply(text, GATE)
    assert (bench.root / "f.txt").read_bytes() == b"one\n--- a/g.txt\n+++ b/g.txt\ntwo\nthree\n"
    assert (bench.root / "g.txt").read_bytes() == G


def test_j23_one_file_twice_is_one_result(bench: Bench) -> None:
    second = b"diff --git a/f.txt b/f.txt\n--- a/f.txt\n+++ b/f.txt\n@@ -1,4 +1,4 @@\n-one\n+ONE\n INJ\n two\n three\n"
    result = bench.apply(EDIT + second, GATE)
    assert [(f.path, f.sha256_after) for f in result.files] == [("f.txt", sha(b"ONE\nINJ\ntwo\nthree\n"))]


@pytest.mark.parametrize(
    ("before", "hunk", "after"),
    [
        (b"a\r\nb\r\n", b"@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n", b"a\r\nc\r\n"),
        (
            b"a\nb",
            b"@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n",
            b"a\nc",
        ),
        (b"a\nb", b"@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n", b"a\nb\n"),
        (b"a \t\n", b"@@ -1 +1 @@\n-a \t\n+b \t\n", b"b \t\n"),
        (b"\xff\n", b"@@ -1 +1 @@\n-\xff\n+\xfe\n", b"\xfe\n"),
        (b"a\x0cb\n", b"@@ -1 +1 @@\n-a\x0cb\n+a\x0cc\n", b"a\x0cc\n"),
    ],
    ids=["crlf", "no-newline", "newline-added", "trailing-space", "no-utf-8", "form-feed"],
)
def test_j27_bytes_are_never_mangled(before: bytes, hunk: bytes, after: bytes, bench: Bench) -> None:
    (bench.root / "f.txt").write_bytes(before)
    bench.apply(b"diff --git a/f.txt b/f.txt\n--- a/f.txt\n+++ b/f.txt\n" + hunk, {"f.txt": sha(before)})
    assert (bench.root / "f.txt").read_bytes() == after


def test_j26_a_binary_patch_is_exact(bench: Bench) -> None:
    content = bytes(range(256)) * 10
    (bench.plain.root / "f.txt").write_bytes(content)
    bench.apply(bench.plain.git("diff", "--binary", "--full-index"), GATE)
    assert (bench.root / "f.txt").read_bytes() == content


@pytest.mark.parametrize("name", ["-rf", "a b", "\u00e9", "x\u202egnp", "F.TXT"])
def test_j32_an_odd_name_is_just_a_name(name: str, bench: Bench) -> None:
    raw = "".join(f"\\{byte:03o}" for byte in name.encode())
    bench.apply(create(raw, quoted=True), {name: None})
    assert (bench.root / name).read_bytes() == b"x\n"
    assert (bench.root / "f.txt").read_bytes() == F


def test_j33_a_patch_past_its_size_is_refused_before_it_is_read(bench: Bench) -> None:
    with refused(ErrorCode.QUOTA_EXCEEDED):
        bench.apply(b"x" * (module.PATCH_BYTES + 1), {})


def test_j34_a_filter_of_attributes_is_not_run(bench: Bench, tmp_path: Path) -> None:
    (bench.git.git_dir / "info").mkdir(exist_ok=True)
    (bench.root / ".gitattributes").write_bytes(b"* filter=evil\n")
    marker = tmp_path / "marker"
    bench.plain.git("config", "filter.evil.clean", f"touch {marker}; cat")
    (bench.plain.root / ".gitattributes").write_bytes(b"* filter=evil\n")
    (bench.plain.root / "f.txt").touch()
    bench.plain.git("apply", "--check", "-", stdin=EDIT)
    assert marker.exists(), "the control did not fire: this proves nothing"
    marker.unlink()
    bench.apply(EDIT, GATE)
    assert not marker.exists()


# --- the gates


GATES: dict[str, tuple[dict[str, str | None], tuple[ErrorCode, ...]]] = {
    "missing": ({}, REJECTED),
    "of-other-content": ({"f.txt": sha(b"old")}, (ErrorCode.STALE_HASH,)),
    "absent-but-there": ({"f.txt": None}, (ErrorCode.STALE_HASH,)),
    "there-but-absent": ({**GATE, "none": sha(b"x")}, (ErrorCode.NOT_FOUND,)),
    "extra": ({**GATE, "g.txt": sha(G)}, REJECTED),
    "extra-absent": ({**GATE, "none": None}, REJECTED),
    "of-another-path": ({"g.txt": sha(F)}, (ErrorCode.STALE_HASH,)),
    "upper-case": ({"f.txt": sha(F).upper()}, (ErrorCode.INVALID_INPUT,)),
    "without-prefix": ({"f.txt": sha(F)[7:]}, (ErrorCode.INVALID_INPUT,)),
    "no-hash": ({"f.txt": "the newest"}, (ErrorCode.INVALID_INPUT,)),
    "of-normalised-text": ({"f.txt": sha(F.strip())}, (ErrorCode.STALE_HASH,)),
    "directory": ({**GATE, "d": sha(b"")}, (ErrorCode.UNSAFE_PATH,)),
    "link": ({**GATE, "inlink": sha(F)}, (ErrorCode.UNSAFE_PATH,)),
    "through-a-link": ({**GATE, "outlink/x": None}, (ErrorCode.UNSAFE_PATH,)),
    "traversal": ({**GATE, "../out/x": None}, (ErrorCode.UNSAFE_PATH,)),
    "dotgit": ({**GATE, ".git": None}, (ErrorCode.UNSAFE_PATH,)),
}


@pytest.mark.parametrize(("gates", "codes"), GATES.values(), ids=GATES)
def test_j36_a_wrong_gate_is_refused(gates: dict[str, str | None], codes: tuple[ErrorCode, ...], bench: Bench) -> None:
    before = bench.state()
    with refused(*codes):
        bench.apply(EDIT, gates)
    assert bench.state() == before


def test_a_stale_hash_tells_the_current_one(bench: Bench) -> None:
    with refused(ErrorCode.STALE_HASH) as caught:
        bench.apply(EDIT, {"f.txt": sha(b"old")})
    assert sha(F) in caught.value.details


def test_j35_a_file_that_changes_between_gate_and_write_is_kept(bench: Bench) -> None:
    with WorktreeFiles(bench.root) as files:
        edits = apply_patch(HashGate(files), EDIT + create("new"), GATE)
        (bench.root / "f.txt").write_bytes(b"changed meanwhile\n")
        with refused(ErrorCode.STALE_HASH):
            publish_edit(files, edits, None)
    assert (bench.root / "f.txt").read_bytes() == b"changed meanwhile\n"
    assert not (bench.root / "new").exists()


def test_a_file_swapped_for_a_link_between_gate_and_write_is_not_followed(bench: Bench) -> None:
    victim = bench.root.parent / "out" / "victim"
    victim.write_bytes(F)
    with WorktreeFiles(bench.root) as files:
        edits = apply_patch(HashGate(files), EDIT, GATE)
        (bench.root / "f.txt").unlink()
        (bench.root / "f.txt").symlink_to(victim)
        with refused(ErrorCode.UNSAFE_PATH):
            publish_edit(files, edits, None)
    assert victim.read_bytes() == F


# --- all or nothing


def _disk_full(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write to `path` fails, taking back included."""
    real = WorktreeFiles.write

    def write(self: WorktreeFiles, at: RepoPath, content: bytes, *, executable: bool, owner: object) -> None:
        if at == path:
            raise SandboxError(ErrorCode.INTERNAL, "No space left on device")
        real(self, at, content, executable=executable, owner=None)

    monkeypatch.setattr(WorktreeFiles, "write", write)


def _interrupted(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal right after `path` was written."""
    real = WorktreeFiles.write
    done: list[str] = []

    def write(self: WorktreeFiles, at: RepoPath, content: bytes, *, executable: bool, owner: object) -> None:
        real(self, at, content, executable=executable, owner=None)
        if at == path and not done:
            done.append(at)
            raise KeyboardInterrupt

    monkeypatch.setattr(WorktreeFiles, "write", write)


@pytest.mark.parametrize("failing", ["a-new", "f.txt", "g.txt", "z/new"])
@pytest.mark.parametrize("fail", [_disk_full, _interrupted], ids=["disk-full", "interrupted"])
def test_j29_when_one_write_fails_all_are_taken_back(
    fail: Callable[[str, pytest.MonkeyPatch], None], failing: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_g = b"diff --git a/g.txt b/g.txt\n--- a/g.txt\n+++ b/g.txt\n" + G_HUNK
    text = create("a-new") + EDIT + edit_g + create("z/new")
    before = bench.state()
    fail(failing, monkeypatch)
    with pytest.raises((SandboxError, KeyboardInterrupt)):
        bench.apply(text, {**GATE, "g.txt": sha(G)})
    monkeypatch.undo()
    assert bench.state() == before


def test_git_keeps_no_index_of_it(bench: Bench) -> None:
    bench.apply(EDIT, GATE)
    assert not (bench.git.git_dir / "index").exists()
