"""What agents and tools really send as a patch: each form is taken, and its twin that would be a guess is refused."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.edits import hunks, unified_diff
from sandbox.edits.hash_gate import HashGate
from sandbox.edits.patch import apply_patch
from sandbox.edits.publish import publish_edit
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import READ_CAP, WorktreeFiles
from sandbox.models import ChangeKind, PatchResult
from tests.unit.conftest import refused

TEXT = b"one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
EDITED = b"one\ntwo\nthree\nFOUR\nfive\nsix\nseven\n"
WINDOWS = TEXT.replace(b"\n", b"\r\n")
TWICE = b"a\nb\nc\n--\na\nb\nc\n"
BODY = " three\n-four\n+FOUR\n five\n"
HUNK = f"@@ -3,3 +3,3 @@\n{BODY}"
PLAIN = f"--- a/f.txt\n+++ b/f.txt\n{HUNK}"
GIT = f"diff --git a/f.txt b/f.txt\nindex 1111111..2222222 100644\n{PLAIN}"


def sha(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True)
class Desk:
    """A folder with files and a gate on all of them."""

    root: Path

    def apply(self, patch: str | bytes, before: Mapping[str, bytes | None], *, ungated: str = "") -> PatchResult:
        for name, content in before.items():
            if content is not None:
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                (self.root / name).write_bytes(content)
        expected = {n: None if c is None else sha(c) for n, c in before.items() if n != ungated}
        raw = patch if isinstance(patch, bytes) else patch.encode()
        with WorktreeFiles(self.root) as files:
            return publish_edit(files, apply_patch(HashGate(files), raw, expected), None)

    def files(self) -> dict[str, bytes]:
        return {str(p.relative_to(self.root)): p.read_bytes() for p in self.root.rglob("*") if p.is_file()}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "worktree").mkdir()
    return Desk(tmp_path / "worktree")


@dataclass(frozen=True)
class Taken:
    """A patch that is taken. `note`: a word of the remark it earns, none when it is exact."""

    patch: str | bytes
    after: Mapping[str, bytes] = field(default_factory=lambda: {"f.txt": EDITED})
    before: Mapping[str, bytes | None] = field(default_factory=lambda: {"f.txt": TEXT})
    note: str = ""


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


CREATED = "diff --git a/d/new b/d/new\nnew file mode 100755\n--- /dev/null\n+++ b/d/new\n@@ -0,0 +1,2 @@\n+x\n+y\n"
EPOCH = "1970-01-01 01:00:00.000000000 +0100"
NOW = "2024-05-06 07:08:09.123456789 +0200"
EMPTY_SHA = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"

TAKEN = {
    "git": Taken(GIT),
    "plain": Taken(PLAIN),
    "without-prefixes": Taken(PLAIN.replace("a/f", "f").replace("b/f", "f")),
    "git-without-prefixes": Taken(GIT.replace("a/f", "f").replace("b/f", "f")),
    "mnemonic-prefixes": Taken(GIT.replace("a/f", "i/f").replace("b/f", "w/f")),
    "same-prefix": Taken(PLAIN.replace("b/f", "a/f")),
    "directories-as-prefixes": Taken(PLAIN.replace("a/f", "old/f").replace("b/f", "new/f")),
    "below-a-directory-called-a": Taken(
        PLAIN.replace("b/f", "a/f"), before={"a/f.txt": TEXT}, after={"a/f.txt": EDITED}
    ),
    "plain-next-to-its-own-name": Taken(
        f"--- src/f.txt\n+++ src/f.txt\n{HUNK}--- f.txt\n+++ f.txt\n{HUNK}",
        before={"src/f.txt": TEXT, "f.txt": TEXT},
        after={"src/f.txt": EDITED, "f.txt": EDITED},
    ),
    "timestamps": Taken(f"--- f.txt\t{NOW}\n+++ f.txt\t{NOW}\n{HUNK}"),
    "timestamps-without-tabs": Taken(f"--- a/f.txt {NOW}\n+++ b/f.txt 2024-05-06T07:08Z\n{HUNK}"),
    "checkout-from-the-epoch": Taken(f"--- a/f.txt\t{EPOCH}\n+++ b/f.txt\t{EPOCH}\n{HUNK}"),
    "subversion": Taken(f"Index: f.txt\n{'=' * 67}\n--- f.txt\t(revision 1)\n+++ f.txt\t(working copy)\n{HUNK}"),
    "backup-name": Taken(f"--- f.txt.orig\t{NOW}\n+++ f.txt\t{NOW}\n{HUNK}"),
    "fence": Taken(f"Here it is:\n\n```diff\n{PLAIN}```\n\n- changes four\n"),
    "fence-only": Taken(f"```\n{GIT}```"),
    "mail": Taken(f"From 1 Mon\nSubject: x\n\n- an item\n---\n f.txt | 2 +-\n\n{GIT}-- \n2.39.5\n\n"),
    "no-newline-after-the-patch": Taken(PLAIN.removesuffix("\n")),
    "wrong-line": Taken(
        PLAIN.replace("@@ -3,3 +3,3 @@", "@@ -40,3 +40,3 @@"), note="line 40; the hunk matched at line 3"
    ),
    "line-0": Taken(PLAIN.replace("-3,3", "-0,3"), note="at line 3"),
    "no-numbers": Taken(PLAIN.replace("@@ -3,3 +3,3 @@", "@@"), note="at line 3"),
    "no-numbers-twice": Taken(PLAIN.replace("@@ -3,3 +3,3 @@", "@@ ... @@ def f():"), note="at line 3"),
    "wrong-counts": Taken(PLAIN.replace("-3,3 +3,3", "-3,9 +3,1"), note="counts 9 and 1 lines; the hunk has 3 and 3"),
    "counts-too-small": Taken(PLAIN.replace("-3,3 +3,3", "-3,1 +3,1"), note="counts 1 and 1"),
    "missing-counts": Taken(PLAIN.replace("-3,3 +3,3", "-3 +3"), note="counts 1 and 1"),
    "wrong-counts-then-another-file": Taken(
        PLAIN.replace("-3,3", "-3,8") + PLAIN.replace("f.txt", "g.txt"),
        before={"f.txt": TEXT, "g.txt": TEXT},
        after={"f.txt": EDITED, "g.txt": EDITED},
        note="counts",
    ),
    "wrong-counts-then-a-signature": Taken(PLAIN.replace("-3,3", "-3,8") + "-- \n2.39.5\n", note="counts"),
    "less-context-behind": Taken(PLAIN.replace(" five\n", "").replace("-3,3 +3,3", "-3,2 +3,2")),
    "no-context-at-all": Taken("--- f.txt\n+++ f.txt\n@@ -4 +4 @@\n-four\n+FOUR\n"),
    "one-place-of-two-by-its-line": Taken(
        "--- f.txt\n+++ f.txt\n@@ -5,3 +5,3 @@\n a\n-b\n+B\n c\n",
        {"f.txt": b"a\nb\nc\n--\na\nB\nc\n"},
        {"f.txt": TWICE},
    ),
    "hunks-out-of-order": Taken(
        "--- f.txt\n+++ f.txt\n@@ -7 +7 @@\n-seven\n+SEVEN\n@@ -1 +1 @@\n-one\n+ONE\n",
        {"f.txt": TEXT.replace(b"one", b"ONE").replace(b"seven", b"SEVEN")},
    ),
    "hunks-that-share-context": Taken(
        f"--- f.txt\n+++ f.txt\n{HUNK}@@ -5,3 +5,3 @@\n five\n-six\n+SIX\n seven\n",
        {"f.txt": EDITED.replace(b"six", b"SIX")},
    ),
    "blank-lines-stripped": Taken(
        "--- f.txt\n+++ f.txt\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n", {"f.txt": b"a\n\nc\n"}, {"f.txt": b"a\n\nb\n"}
    ),
    "header-lines-as-content": Taken(
        "--- f.txt\n+++ f.txt\n@@ -1,3 +1 @@\n---- a/x\n-+++ b/x\n-@@ -1 +1 @@\n+z\n",
        {"f.txt": b"z\n"},
        {"f.txt": b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n"},
    ),
    "windows-patch": Taken(crlf(GIT), note="changed to LF"),
    "windows-body-only": Taken(f"--- a/f.txt\n+++ b/f.txt\n@@ -3,3 +3,3 @@\n{crlf(BODY)}", note="changed to LF"),
    "windows-file": Taken(
        PLAIN, {"f.txt": crlf(EDITED.decode()).encode()}, {"f.txt": WINDOWS}, note="CRLF line endings were kept"
    ),
    "windows-both": Taken(crlf(PLAIN), {"f.txt": crlf(EDITED.decode()).encode()}, {"f.txt": WINDOWS}),
    "windows-file-as-git-shows-it": Taken(
        f"--- a/f.txt\n+++ b/f.txt\n@@ -3,3 +3,3 @@\n{crlf(BODY)}",
        {"f.txt": crlf(EDITED.decode()).encode()},
        {"f.txt": WINDOWS},
    ),
    "windows-new-file": Taken("--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\r\n", {"n": b"x\r\n"}, {"n": None}),
    "windows-patch-of-a-new-file": Taken(
        "--- /dev/null\r\n+++ b/n\r\n@@ -0,0 +1 @@\r\n+x\r\n", {"n": b"x\n"}, {"n": None}, note="changed to LF"
    ),
    "no-newline-forgotten": Taken(
        "--- f.txt\n+++ f.txt\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n",
        {"f.txt": b"a\nc"},
        {"f.txt": b"a\nb"},
        note="does not end with a newline",
    ),
    "no-newline-forgotten-and-lines-added": Taken(
        "--- f.txt\n+++ f.txt\n@@ -1 +1,2 @@\n a\n+b\n",
        {"f.txt": b"a\nb"},
        {"f.txt": b"a"},
        note="does not end with a newline",
    ),
    "no-newline-on-both-sides": Taken(
        "--- f.txt\n+++ f.txt\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n",
        {"f.txt": b"b"},
        {"f.txt": b"a"},
    ),
    "no-newline-in-another-language": Taken(
        "--- f.txt\n+++ f.txt\n@@ -1 +1 @@\n-a\n+b\n\\ Kein Zeilenumbruch am Dateiende.\n",
        {"f.txt": b"b"},
        {"f.txt": b"a\n"},
    ),
    "new": Taken(CREATED, {"d/new": b"x\ny\n"}, {"d/new": None}),
    "new-empty": Taken(
        f"diff --git a/e b/e\nnew file mode 100644\nindex 0000000..{EMPTY_SHA[:7]}\n", {"e": b""}, {"e": None}
    ),
    "new-by-epoch": Taken(f"--- n\t{EPOCH}\n+++ n\t{NOW}\n@@ -0,0 +1 @@\n+x\n", {"n": b"x\n"}, {"n": None}),
    "new-on-both-sides": Taken("--- a/n\n+++ b/n\n@@ -0,0 +1 @@\n+x\n", {"n": b"x\n"}, {"n": None}),
    "new-with-a-wrong-count": Taken(
        "--- /dev/null\n+++ b/n\n@@ -0,0 +1,9 @@\n+x\n", {"n": b"x\n"}, {"n": None}, "counts"
    ),
    "into-an-empty-file": Taken("--- a/n\n+++ b/n\n@@ -0,0 +1 @@\n+x\n", {"n": b"x\n"}, {"n": b""}),
    "deleted": Taken("--- a/f.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n", {}, {"f.txt": b"a\nb\n"}),
    "deleted-by-epoch": Taken(f"--- f.txt\t{NOW}\n+++ f.txt\t{EPOCH}\n@@ -1 +0,0 @@\n-a\n", {}, {"f.txt": b"a\n"}),
    "deleted-without-its-lines": Taken(
        "diff --git a/f.txt b/f.txt\ndeleted file mode 100644\nindex 1111111..0000000\n--- a/f.txt\n+++ /dev/null\n", {}
    ),
    "deleted-empty": Taken("diff --git a/e b/e\ndeleted file mode 100644\n", {}, {"e": b""}),
    "emptied": Taken("--- a/f.txt\n+++ b/f.txt\n@@ -1 +0,0 @@\n-a\n", {"f.txt": b""}, {"f.txt": b"a\n"}),
    "spaces": Taken(
        f"diff --git a/x y z b/x y z\n--- a/x y z\t\n+++ b/x y z\t\n{HUNK}", {"x y z": EDITED}, {"x y z": TEXT}
    ),
    "quoted": Taken(
        f'diff --git "a/\\303\\251" "b/\\303\\251"\n--- "a/\\303\\251"\n+++ "b/\\303\\251"\n{HUNK}',
        {"\u00e9": EDITED},
        {"\u00e9": TEXT},
    ),
    "unquoted-utf-8": Taken(PLAIN.replace("f.txt", "\u00e9"), {"\u00e9": EDITED}, {"\u00e9": TEXT}),
    "git-next-to-a-directory-called-a": Taken(
        "diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/a/f b/a/f\n--- a/a/f\n+++ b/a/f\n@@ -1 +1 @@\n-x\n+y\n",
        {"a/f": b"y\n"},
        {"f": b"x\n", "a/f": b"x\n"},
    ),
    "rename": Taken(
        "diff --git a/f.txt b/d/g\nsimilarity index 100%\nrename from f.txt\nrename to d/g\n",
        {"d/g": TEXT},
        {"f.txt": TEXT, "d/g": None},
    ),
    "rename-and-edit": Taken(
        f"diff --git a/f.txt b/g\nsimilarity index 80%\nrename from f.txt\nrename to g\n--- a/f.txt\n+++ b/g\n{HUNK}",
        {"g": EDITED},
        {"f.txt": TEXT, "g": None},
    ),
    "rename-quoted": Taken(
        'diff --git a/f.txt "b/\\303\\251"\nsimilarity index 100%\nrename from f.txt\nrename to "\\303\\251"\n',
        {"\u00e9": TEXT},
        {"f.txt": TEXT, "\u00e9": None},
    ),
    "exchange": Taken(
        "diff --git a/p b/q\nrename from p\nrename to q\ndiff --git a/q b/p\nrename from q\nrename to p\n",
        {"p": b"Q\n", "q": b"P\n"},
        {"p": b"P\n", "q": b"Q\n"},
    ),
    "copy": Taken(
        f"diff --git a/f.txt b/g\ncopy from f.txt\ncopy to g\n--- a/f.txt\n+++ b/g\n{HUNK}",
        {"f.txt": TEXT, "g": EDITED},
        {"f.txt": TEXT, "g": None},
    ),
    "copy-of-what-is-edited-too": Taken(
        GIT + "diff --git a/f.txt b/g\ncopy from f.txt\ncopy to g\n",
        {"f.txt": EDITED, "g": TEXT},
        {"f.txt": TEXT, "g": None},
    ),
    "file-becomes-a-directory": Taken(
        "--- /dev/null\n+++ b/d/x\n@@ -0,0 +1 @@\n+y\n--- a/d\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
        {"d/x": b"y\n"},
        {"d": b"x\n", "d/x": None},
    ),
}


@pytest.mark.parametrize("case", TAKEN.values(), ids=TAKEN)
def test_a_patch_as_it_is_really_sent_is_taken(case: Taken, desk: Desk) -> None:
    result = desk.apply(case.patch, case.before)
    assert desk.files() == case.after
    assert bool(result.adjusted) == bool(case.note)
    assert case.note in " ".join(result.adjusted)
    for changed in result.files:
        after = desk.files().get(changed.path)
        assert changed.sha256_after == (None if after is None else sha(after))


@dataclass(frozen=True)
class Refused:
    """A patch that would be a guess. `says`: words of the refusal."""

    patch: str | bytes
    says: str
    before: Mapping[str, bytes | None] = field(default_factory=lambda: {"f.txt": TEXT})
    ungated: str = ""


ONE_B = "@@ -40,3 +40,3 @@\n a\n-b\n+B\n c\n"
RENAME = "diff --git a/f.txt b/g\nrename from f.txt\nrename to g\n"
REFUSED = {
    "two-readings-of-a-name": Refused(
        PLAIN.replace("b/f", "a/f"), "f.txt and a/f.txt are both given a hash", {"f.txt": TEXT, "a/f.txt": TEXT}
    ),
    "headers-disagree": Refused(
        f"diff --git a/f.txt b/f.txt\n--- a/g\n+++ b/g\n{HUNK}", "different files", {"g": TEXT}
    ),
    "git-with-two-names": Refused(
        f"diff --git a/f.txt b/g\n--- a/f.txt\n+++ b/g\n{HUNK}", "names two files", {"f.txt": TEXT, "g": TEXT}
    ),
    "plain-with-two-gated-names": Refused(
        f"--- a/f.txt\n+++ b/g\n{HUNK}", "names two files", {"f.txt": TEXT, "g": TEXT}
    ),
    "plain-with-the-old-name-gated": Refused(f"--- f.txt\n+++ g\n{HUNK}", "names two files"),
    "rename-with-other-names": Refused(RENAME + "--- a/x\n+++ b/g\n", "different files", {"f.txt": TEXT, "g": None}),
    "rename-with-another-first-line": Refused(
        RENAME.replace("b/g", "b/h"), "different files", {"f.txt": TEXT, "g": None}
    ),
    "rename-without-the-new-gate": Refused(RENAME, "without an expected hash", {"f.txt": TEXT, "g": None}, "g"),
    "rename-without-the-old-gate": Refused(RENAME, "without an expected hash", {"f.txt": TEXT, "g": None}, "f.txt"),
    "rename-onto-a-file": Refused(RENAME, "already exists", {"f.txt": TEXT, "g": b"g\n"}),
    "rename-of-nothing": Refused(RENAME, "does not exist", {"f.txt": None, "g": None}),
    "rename-without-an-end": Refused("diff --git a/f.txt b/g\nrename from f.txt\n", "one source and one target"),
    "rename-and-copy": Refused(RENAME + "copy from f.txt\ncopy to g\n", "one source and one target"),
    "rename-of-an-edited-file": Refused(GIT + RENAME, "renames it in another", {"f.txt": TEXT, "g": None}),
    "copy-onto-a-file": Refused(RENAME.replace("rename", "copy"), "already exists", {"f.txt": TEXT, "g": b"g\n"}),
    "copy-without-the-old-gate": Refused(
        RENAME.replace("rename", "copy"), "without an expected hash", {"f.txt": TEXT, "g": None}, "f.txt"
    ),
    "header-twice": Refused("diff --git a/f.txt b/g\nrename from f.txt\nrename from g\n", "repeated"),
    "no-names": Refused("diff --git f.txt\nold mode 100644\nnew mode 100755\n", "cannot be separated"),
    "both-sides-missing": Refused(f"--- /dev/null\n+++ /dev/null\n{HUNK}", "names no file"),
    "new-and-there": Refused(f"diff --git a/f.txt b/f.txt\nnew file mode 100644\n{PLAIN}", "new or deleted"),
    "two-places": Refused("--- f.txt\n+++ f.txt\n" + ONE_B, "matches at lines 1, 5", {"f.txt": TWICE}),
    "two-places-no-numbers": Refused(
        "--- f.txt\n+++ f.txt\n" + ONE_B.replace(" -40,3 +40,3 @@", ""), "matches at lines 1, 5", {"f.txt": TWICE}
    ),
    "many-places": Refused(
        "--- f.txt\n+++ f.txt\n@@ -40 +40 @@\n-a\n+b\n", "8, 9, 10 and more", {"f.txt": b"a\n" * 12}
    ),
    "two-places-by-line-ends": Refused(
        "--- f.txt\n+++ f.txt\n" + ONE_B, "matches at lines 1, 5", {"f.txt": TWICE.replace(b"\n", b"\r\n")}
    ),
    "a-part-of-a-line": Refused("--- f.txt\n+++ f.txt\n@@ -1 +1 @@\n-wo\n+x\n", "matches no place"),
    "a-part-of-the-last-line": Refused(
        "--- f.txt\n+++ f.txt\n@@ -1 +1 @@\n-a\n\\ No newline\n+x\n", "matches no place", {"f.txt": b"b\na-a"}
    ),
    "other-white-space": Refused(PLAIN.replace(" three", " three "), "line 3 of the file is 'three'"),
    "tabs-for-blanks": Refused(PLAIN.replace(" three", " \tthree"), "matches no place", {"f.txt": b"  " + TEXT}),
    "mixed-line-ends-in-the-file": Refused(PLAIN, "matches no place", {"f.txt": TEXT.replace(b"four\n", b"four\r\n")}),
    "mixed-line-ends-in-the-patch": Refused(PLAIN.replace("-four\n", "-four\r\n"), "matches no place"),
    "a-newline-that-is-there": Refused(
        "--- f.txt\n+++ f.txt\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n",
        "matches no place",
        {"f.txt": b"a\n"},
    ),
    "insertion-without-context": Refused("--- f.txt\n+++ f.txt\n@@ -3,0 +4 @@\n+x\n", "no context"),
    "hunks-overlap": Refused(PLAIN + "@@ -4 +4 @@\n-four\n+4\n", "overlaps another hunk"),
    "the-same-hunk-twice": Refused(PLAIN + HUNK, "overlaps another hunk"),
    "the-same-insertion-twice": Refused(
        "--- f.txt\n+++ f.txt\n" + "@@ -1 +1,2 @@\n one\n+x\n" * 2, "overlaps another hunk"
    ),
    "context-without-its-blank": Refused(PLAIN.replace(" three\n-four", " three\nfour\n-four"), "outside every hunk"),
    "no-hunk-header": Refused(PLAIN.replace("@@ -3,3 +3,3 @@\n", ""), "outside every hunk"),
    "no-file-header": Refused(HUNK, "A hunk has no file"),
    "empty-hunk": Refused("--- f.txt\n+++ f.txt\n@@ -1 +1 @@\n", "has no lines"),
    "hunk-of-context": Refused("--- f.txt\n+++ f.txt\n@@ -1 +1 @@\n one\n", "does not touch"),
    "cut-in-a-hunk": Refused(PLAIN.removesuffix(" five\n") + " fi", "the hunk has 'fi'"),
    "cut-after-a-line": Refused(PLAIN.removesuffix("\n five\n"), "in the middle of a hunk"),
    "remark-without-a-line": Refused(
        "--- f.txt\n+++ f.txt\n@@ -1 +1 @@\n\\ No newline\n-one\n+x\n", "no line before it"
    ),
    "lines-after-the-last": Refused(
        "--- f.txt\n+++ f.txt\n@@ -1,2 +1 @@\n-one\n\\ No newline\n-two\n+x\n", "follows the one marked as the last"
    ),
    "another-tools-format": Refused(
        "*** Begin Patch\n*** Update File: f.txt\n@@\n-four\n+FOUR\n*** End Patch\n", "format of another tool"
    ),
    "context-diff": Refused("*** f.txt\n--- f.txt\n***************\n*** 1,2 ****\n", "context diff"),
    "combined-diff": Refused(
        "diff --cc f.txt\nindex 1,2..3\n--- a/f.txt\n+++ b/f.txt\n@@@ -1,1 -1,1 +1,1 @@@\n", "merge"
    ),
    "binary-without-content": Refused(
        "diff --git a/f.txt b/f.txt\nindex 1..2 100644\nBinary files a/f.txt and b/f.txt differ\n",
        "only that a binary file differs",
    ),
    "large-without-content": Refused(
        "diff --git a/n b/n\nnew file mode 100644\nindex 0..1\nFiles /dev/null and b/n, too large, differ\n",
        "only that a file differs",
        {"n": None},
    ),
    "delete-and-leave": Refused("--- a/f.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n", "do not remove all lines"),
    "delete-what-is-not-there": Refused("--- a/n\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "does not exist", {"n": None}),
    "change-what-is-not-there": Refused("--- a/n\n+++ b/n\n@@ -1 +1 @@\n-x\n+y\n", "does not exist", {"n": None}),
    "new-with-lines-removed": Refused("--- /dev/null\n+++ b/n\n@@ -1 +1 @@\n-x\n+y\n", "matches no place", {"n": None}),
    "new-twice": Refused(CREATED + CREATED, "already exists", {"d/new": None}),
    "new-over-one-without-a-gate": Refused(CREATED, "already exists", {"d/new": b"x"}, "d/new"),
    "edit-without-a-gate": Refused(PLAIN, "without an expected hash", {"f.txt": TEXT}, "f.txt"),
    "deletion-without-a-gate": Refused(
        "--- a/f.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "without an expected hash", {"f.txt": b"a\n"}, "f.txt"
    ),
    "nothing": Refused("just words\n", "no file header", {}),
    "link": Refused(CREATED.replace("100755", "120000"), "regular files", {"d/new": None}),
    "submodule": Refused(CREATED.replace("100755", "160000"), "regular files", {"d/new": None}),
    "link-by-mode": Refused("diff --git a/f.txt b/f.txt\nold mode 100644\nnew mode 120000\n", "regular files"),
    "link-by-index": Refused(GIT.replace("2222222 100644", "2222222 120000"), "regular files"),
    "setuid": Refused(CREATED.replace("100755", "104755"), "regular files", {"d/new": None}),
    "binary-of-no-file": Refused(
        f"{PLAIN}new file mode 100644\nGIT binary patch\nliteral 0\n", "without a file header"
    ),
    "deletion-with-two-readings": Refused(
        "--- a/f.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "both given a hash", {"f.txt": b"x\n", "a/f.txt": b"x\n"}
    ),
    "bad-quoting": Refused(f'--- "a/f.t\\qxt"\n+++ "b/f.t\\qxt"\n{HUNK}', "quoted name"),
    "open-quote": Refused('diff --git "a/f b/f\nold mode 100644\nnew mode 100755\n', "quoted name"),
    "unreadable-header": Refused(PLAIN.replace("@@ -3,3 +3,3 @@", "@@ -x +y @@"), "cannot be read"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_patch_that_would_be_a_guess_is_refused_and_changes_nothing(case: Refused, desk: Desk) -> None:
    with pytest.raises(SandboxError) as caught:
        desk.apply(case.patch, case.before, ungated=case.ungated)
    error = caught.value
    assert error.code is ErrorCode.PATCH_REJECTED, f"{error.code} {error.brief} {error.details}"
    assert case.says in f"{error.brief} {error.details}"
    assert error.hint
    assert desk.files() == {name: content for name, content in case.before.items() if content is not None}


def test_all_files_that_lack_a_hash_are_told_at_once(desk: Desk) -> None:
    patch = "".join(f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-x\n+y\n" for name in ("a.txt", "b.txt", "c.txt"))
    with refused(ErrorCode.PATCH_REJECTED) as caught:
        desk.apply(patch, {"b.txt": b"x\n"})
    assert caught.value.details.splitlines() == ["a.txt", "c.txt"]
    assert "sandbox file read" in caught.value.hint


def test_a_path_that_is_a_directory_is_no_new_file(desk: Desk) -> None:
    patch = "--- a/d/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n--- /dev/null\n+++ b/d\n@@ -0,0 +1 @@\n+y\n"
    with refused(ErrorCode.UNSAFE_PATH):
        desk.apply(patch, {"d/x": b"x\n", "d": None})
    with refused(ErrorCode.PATCH_REJECTED):
        desk.apply(patch, {"d/x": b"x\n"})
    assert desk.files() == {"d/x": b"x\n"}


def test_a_copy_is_told_with_its_source(desk: Desk) -> None:
    patch = "diff --git a/f.txt b/g\ncopy from f.txt\ncopy to g\n"
    (copied,) = desk.apply(patch, {"f.txt": TEXT, "g": None}).files
    assert (copied.path, copied.kind, copied.old_path) == ("g", ChangeKind.ADDED, "f.txt")


def test_modes_travel_with_a_rename_and_may_change_with_it(desk: Desk) -> None:
    desk.apply(CREATED, {"d/new": None})
    move = "diff --git a/d/new b/e\n{}rename from d/new\nrename to e\n"
    desk.apply(move.format(""), {"d/new": b"x\ny\n", "e": None})
    assert (desk.root / "e").stat().st_mode & 0o777 == 0o755
    back = "diff --git a/e b/d/new\nold mode 100755\nnew mode 100644\nrename from e\nrename to d/new\n"
    desk.apply(back, {"e": b"x\ny\n", "d/new": None})
    assert (desk.root / "d" / "new").stat().st_mode & 0o777 == 0o644


# --- binary


def binary(body: str, old: bytes, new: bytes) -> str:
    ids = [hashlib.sha1(b"blob %d\0" % len(c) + c, usedforsecurity=False).hexdigest() for c in (old, new)]
    return f"diff --git a/f.bin b/f.bin\nindex {ids[0]}..{ids[1]} 100644\nGIT binary patch\n{body}\n"


def base85(raw: bytes) -> str:
    pieces = [raw[i : i + 52] for i in range(0, len(raw), 52)]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return "".join(f"{letters[len(p) - 1]}{base64.b85encode(p, pad=True).decode()}\n" for p in pieces)


def block(kind: str, plain: bytes, size: int | None = None) -> str:
    return f"{kind} {len(plain) if size is None else size}\n{base85(zlib.compress(plain))}"


OLD, NEW = bytes(range(256)) * 4, bytes(range(255, -1, -1)) * 4


def delta(source: int, target: int, *parts: bytes) -> bytes:
    def number(value: int) -> bytes:
        return bytes([value & 0x7F | 0x80]) + number(value >> 7) if value > 0x7F else bytes([value])

    return number(source) + number(target) + b"".join(parts)


COPY_ALL = bytes([0xB0, 0x00, 0x04])  # offset 0, size 0x400: size bytes one and two
PREFIXED = b"\x00\x01" + OLD


def test_a_literal_and_a_delta_are_exact(desk: Desk) -> None:
    desk.apply(binary(block("literal", NEW), OLD, NEW), {"f.bin": OLD})
    assert desk.files() == {"f.bin": NEW}
    grown = delta(len(OLD), len(PREFIXED), b"\x02\x00\x01", COPY_ALL)
    desk.apply(binary(block("delta", grown), OLD, PREFIXED), {"f.bin": OLD})
    assert desk.files() == {"f.bin": PREFIXED}


DAMAGED = {
    "other-content": (binary(block("literal", NEW), NEW, NEW), "different content"),
    "other-result": (binary(block("literal", NEW), OLD, OLD), "damaged"),
    "delta-for-other-content": (block("delta", delta(5, 1024, COPY_ALL)), "different content"),
    "delta-past-the-source": (block("delta", delta(1024, 1024, bytes([0xB1, 1, 0, 4]))), "from beyond the old content"),
    "delta-too-short": (block("delta", delta(1024, 1030, COPY_ALL)), "size is not the announced one"),
    "delta-too-long": (block("delta", delta(1024, 1030, COPY_ALL, COPY_ALL)), "does not match its content"),
    "delta-cut": (block("delta", delta(1024, 1024, bytes([0xB0, 0]))), "is incomplete"),
    "delta-cut-in-a-literal": (block("delta", delta(1024, 1024, b"\x09abc")), "does not match its content"),
    "delta-of-nothing": (block("delta", delta(1024, 1024, b"\x00")), "does not match its content"),
    "delta-empty": (block("delta", b""), "is incomplete"),
    "longer-than-it-says": (block("literal", NEW, 10), "damaged"),
    "shorter-than-it-says": (block("literal", NEW, len(NEW) + 1), "damaged"),
    "no-deflate": (f"literal 3\n{base85(b'abc')}", "damaged"),
    "no-base-85": ("literal 3\nC~~~ ~\n", "cannot be read"),
    "length-too-large": ("literal 3\nz00000\n", "cannot be read"),
    "no-kind": ("something 3\n", "cannot be read"),
    "nothing": ("", "cannot be read"),
    "no-ids": (f"diff --git a/f.bin b/f.bin\nGIT binary patch\n{block('literal', NEW)}\n", "index line"),
}


@pytest.mark.parametrize(("body", "says"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_binary_patch_is_refused(body: str, says: str, desk: Desk) -> None:
    patch = body if body.startswith("diff") else binary(body, OLD, NEW)
    with refused(ErrorCode.PATCH_REJECTED) as caught:
        desk.apply(patch, {"f.bin": OLD})
    assert says in f"{caught.value.brief} {caught.value.details}"
    assert desk.files() == {"f.bin": OLD}


# --- what would take too much: each would take minutes or gigabytes without its limit


def test_a_small_patch_does_not_unpack_to_a_large_file(desk: Desk) -> None:
    patch = binary("", OLD, NEW).removesuffix("\n")
    with refused(ErrorCode.QUOTA_EXCEEDED):
        desk.apply(patch + block("literal", bytes(READ_CAP + 1)), {"f.bin": OLD})
    with refused(ErrorCode.PATCH_REJECTED):  # nor one that lies about it
        desk.apply(patch + block("literal", bytes(READ_CAP + 1), 10), {"f.bin": OLD})
    copies = delta(1024, READ_CAP + 1024, COPY_ALL * (READ_CAP // 1024 + 1))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        desk.apply(patch + block("delta", copies), {"f.bin": OLD})


def test_s188_a_small_patch_does_not_have_millions_of_instructions(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copies one byte: 3 KB of text would take seconds, and a patch has many such sections. Control: fewer.

    An eighth of them, and of the budget.
    """
    monkeypatch.setattr(hunks.SearchBudget.__init__, "__defaults__", (hunks.SEARCH_BUDGET_BYTES // 8,))
    for count, is_refused in ((100_000 // 8, False), (READ_CAP // 32, True)):
        copies = delta(len(OLD), count, b"\x90\x01" * count)
        patch = binary(block("delta", copies), OLD, OLD[:1] * count)
        with refused(ErrorCode.QUOTA_EXCEEDED) if is_refused else nullcontext():
            desk.apply(patch, {"f.bin": OLD})


def test_s188_the_instructions_of_all_sections_count_together(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a larger budget is enough."""
    one = binary(block("delta", delta(len(OLD), 1000, b"\x90\x01" * 1000)), OLD, OLD[:1] * 1000)
    names = [f"f{number}.bin" for number in range(5)]
    patch = "".join(one.replace("f.bin", name) for name in names)
    for most, is_refused in ((4000, True), (6000, False)):
        monkeypatch.setattr(hunks.SearchBudget.__init__, "__defaults__", (1024 * most,))
        with refused(ErrorCode.QUOTA_EXCEEDED) if is_refused else nullcontext():
            desk.apply(patch, dict.fromkeys(names, OLD))


def test_copies_do_not_multiply_without_end(desk: Desk) -> None:
    names: dict[str, bytes | None] = {f"copy{i}": None for i in range(30)}
    patch = "".join(f"diff --git a/f.bin b/{n}\ncopy from f.bin\ncopy to {n}\n" for n in names)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        desk.apply(patch, {"f.bin": bytes(READ_CAP), **names})
    assert set(desk.files()) == {"f.bin"}


def test_searching_for_many_hunks_ends(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"".join(b"%d\n" % i for i in range(2000))
    patch = "--- f\n+++ f\n" + "".join(f"@@ -1 +1 @@\n-{i}\n+x{i}\n" for i in range(1000, 2000))
    desk.apply(patch, {"f": content})
    monkeypatch.setattr(hunks.SearchBudget.__init__, "__defaults__", (100 * len(content),))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        desk.apply(patch, {"f": content})


def test_s188_the_lines_of_a_file_count_for_each_section(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of ten million empty lines took a second for each of 25 sections. Control: two of them are applied.

    An eighth of them, and of the budget.
    """
    monkeypatch.setattr(hunks.SearchBudget.__init__, "__defaults__", (hunks.SEARCH_BUDGET_BYTES // 8,))
    content, section = b"\n" * 1024**2, "--- f\n+++ f\n@@ -{0},2 +{0},2 @@\n \n-\n+x\n"
    desk.apply("".join(section.format(line) for line in (1, 10)), {"f": content})
    with refused(ErrorCode.QUOTA_EXCEEDED):
        desk.apply("".join(section.format(line) for line in range(1, 100, 10)), {"f": content})


def test_a_patch_has_a_limited_number_of_hunks_and_lines(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    two = "--- f.txt\n+++ f.txt\n@@ -1 +1 @@\n-one\n+1\n@@ -2 +2 @@\n-two\n+2\n"
    for name in ("MAX_HUNKS", "MAX_LINES"):
        desk.apply(two, {"f.txt": TEXT})
        with monkeypatch.context() as patched, refused(ErrorCode.PATCH_REJECTED):
            patched.setattr(unified_diff, name, 1)
            desk.apply(two, {"f.txt": TEXT})


@pytest.mark.timeout(90)
@pytest.mark.slow
@pytest.mark.parametrize(
    "patch",
    [
        b"@@" + b" " * 1_000_000 + b"x",
        b"--- " + b" " * 1_000_000 + b"x\n+++ " + b" " * 1_000_000 + b"x\n@@ -1 +1 @@\n-a\n+b\n",
        b"diff --git " + b'"\\' * 500_000,
        b"diff --git " + b" " * 1_000_000 + b"\nrename from " + b'"a' * 100_000 + b"\nrename to b\n",
        b"--- f\n+++ f\n" + b"@@ -1,999999999 +1,999999999 @@\n-a\n" * 15_000,
        b"--- f\n+++ f\n@@ -9,9 +1 @@\n" + b" a\n" * 400_000 + b"+x\n",
        b"\n" * 490_000 + b"x",
    ],
    ids=["hunk-header", "names", "quotes", "git-names", "counts", "context", "blank"],
)
def test_no_text_takes_long_to_read(patch: bytes, desk: Desk) -> None:
    with refused(ErrorCode.PATCH_REJECTED, ErrorCode.UNSAFE_PATH):
        desk.apply(patch, {"f": b"a\n" * 1000})
