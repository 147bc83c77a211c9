"""THREATS S112: the notes of a hostile remote. Anyone who may push there has written them.

Control: `git notes show` prints what the attacker wrote, and a careless reader takes the last line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import ReceiptQuestion, Verdict
from sandbox.models.receipts import Receipt
from sandbox.receipts.dsse_envelope import digest_of
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, initialised, refused
from tests.unit.receipt_samples import Signer, made_receipt, signed

pytestmark = [pytest.mark.must, pytest.mark.one_git]

OURS, THEIRS = Signer(), Signer()
NOTES = ("notes", "--ref=space-sandbox")


class Remote:
    """A remote with two commits, and a workbench that trusts one key."""

    def __init__(self, root: Path) -> None:
        self.upstream: Upstream = initialised(root / "upstream")
        self.upstream.write("a", b"one\n")
        self.old = self.upstream.commit()
        self.upstream.write("a", b"two\n")
        self.new = self.upstream.commit()
        self.workbench = Workbench(root / "home", environ={"PATH": os.environ["PATH"]}, allow_file=True)
        (root / "key.pem").write_bytes(OURS.public_pem)
        self.question = ReceiptQuestion(keys=(root / "key.pem",))

    def receipt(self, commit: str, verdict: Verdict = Verdict.PASSED) -> Receipt:
        return made_receipt(verdict, commit=commit, tree=self.upstream.oid(f"{commit}^{{tree}}"))

    def note(self, *lines: bytes) -> None:
        self.upstream.git(*NOTES, "add", "-f", "-F", "-", self.new, stdin=b"\n".join(lines))

    def shown(self) -> bytes:
        return self.upstream.git(*NOTES, "show", self.new)

    def fetch(self) -> tuple[list[bool], list[str]]:
        found = self.workbench.fetch_receipts(str(self.upstream.root), question=self.question)
        return [receipt.passed for receipt in found.receipts], sorted(found.refused)

    def make_note(self, mode: str, oid: str) -> None:
        tree = self.upstream.git("mktree", "--missing", stdin=f"{mode}\t{self.new}\n".replace("OID", oid).encode())
        self.point(self.upstream.git("commit-tree", tree.decode().strip(), "-m", "notes").decode().strip())

    def point(self, oid: str) -> None:
        self.upstream.git("update-ref", "refs/notes/space-sandbox", oid)


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    found = Remote(tmp_path)
    yield found
    found.workbench.__exit__(None, None, None)


def test_s112_lines_that_an_attacker_adds_to_a_note_are_refused_one_by_one(remote: Remote) -> None:
    failed = signed(OURS, remote.receipt(remote.new, Verdict.FAILED))
    forged = signed(THEIRS, remote.receipt(remote.new))
    of_old_commit = signed(OURS, remote.receipt(remote.old))
    remote.note(failed, b"garbage \x1b[2J", forged, of_old_commit)
    assert remote.shown().splitlines()[-1] == of_old_commit, "void"

    assert remote.fetch() == ([False], ["malformed", "wrong_key", "wrong_tree"])


def test_s112_a_note_that_is_no_regular_file_is_refused(remote: Remote) -> None:
    blob = remote.upstream.git("hash-object", "-w", "--stdin", stdin=signed(OURS)).decode().strip()
    tree = remote.upstream.oid("HEAD^{tree}")
    for mode in (f"120000 blob {blob}", f"100755 blob {blob}", f"160000 commit {remote.old}", f"040000 tree {tree}"):
        remote.make_note(mode, blob)
        with refused(ErrorCode.UNSAFE_REPOSITORY):
            remote.fetch()
    remote.make_note(f"100644 blob {blob}", blob)
    assert remote.fetch() == ([], ["wrong_tree"]), "the control: a regular file is read"


POINTS: dict[str, Callable[[Remote], str]] = {
    "a blob": lambda remote: remote.upstream.oid("HEAD:a"),
    "a tree": lambda remote: remote.upstream.oid("HEAD^{tree}"),
}


@pytest.mark.parametrize("target", POINTS.values(), ids=POINTS)
def test_s112_a_ref_of_notes_that_is_no_commit_is_refused(remote: Remote, target: Callable[[Remote], str]) -> None:
    remote.point(target(remote))
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        remote.fetch()


def test_s112_a_large_note_is_refused_and_many_lines_are_bounded(remote: Remote) -> None:
    remote.note(*[b"x" * 100_000] * 50)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        remote.fetch()
    remote.note(signed(OURS, remote.receipt(remote.new)), *(b"x %d" % number for number in range(100)))
    assert remote.fetch() == ([], ["malformed"] * 32)


def test_s112_our_receipt_is_added_to_their_notes_and_only_if_it_holds(remote: Remote) -> None:
    remote.note(b"theirs")
    repo_id = remote.workbench.clone(str(remote.upstream.root)).repository.id
    ours = signed(OURS, remote.receipt(remote.new))

    formatted = json.dumps(json.loads(ours), indent=2).encode()
    for content in (ours + b"\n", ours, formatted):  # after the first nothing is new
        pushed = remote.workbench.push_receipt(repo_id, content, remote.question)
        assert pushed.receipt.digest == digest_of(ours)

    assert remote.shown().splitlines() == [b"theirs", ours]
    assert remote.fetch() == ([True], ["malformed"])
    for bad in (signed(THEIRS, remote.receipt(remote.new)), signed(OURS)):
        with refused(ErrorCode.RECEIPT_REFUSED if bad != signed(OURS) else ErrorCode.NOT_FOUND):
            remote.workbench.push_receipt(repo_id, bad, remote.question)
    assert remote.shown().splitlines() == [b"theirs", ours]
