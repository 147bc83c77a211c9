"""Use-cases: send a receipt to the remote as a git note, and read the receipts that a remote has for a commit."""

from __future__ import annotations

from datetime import UTC, datetime

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import objects
from sandbox.git.notes import NOTES_REF, add_to_note, fetch_notes, read_note
from sandbox.git.push.send import push_notes
from sandbox.git.transport import RemoteAccess
from sandbox.models.receipts import (
    FoundReceipts,
    PushedReceipt,
    Receipt,
    ReceiptQuestion,
    ReceiptRefusal,
    SignedReceipt,
)
from sandbox.receipts.dsse_envelope import write_one_line
from sandbox.receipts.receipt_refusals import refusal_error
from sandbox.receipts.verification import Expectation, verify_receipt
from sandbox.workbench.controller.commit_identity import choose_identity
from sandbox.workbench.controller.services import Services
from sandbox.workbench.controller.signing import load_trusted
from sandbox.workbench.repositories import clone


def push_receipt(services: Services, repo_id: str, content: bytes, question: ReceiptQuestion) -> PushedReceipt:
    """Add a receipt to the remote's notes of its commit, as one line. Only a receipt that holds is sent.

    Raises: `receipt_refused`; `not_found` if the commit is not in the cache clone; as `push`.
    """
    line = write_one_line(content)
    receipt = verify_receipt(line, load_trusted(services, question.keys), Expectation())
    return push_signed(services, repo_id, SignedReceipt(receipt=receipt, envelope=line.decode()))


def push_signed(services: Services, repo_id: str, signed: SignedReceipt) -> PushedReceipt:
    """As `push_receipt`, for a receipt that was verified or signed here. Raises: as `push_receipt`."""
    receipt = signed.receipt
    repository, git = services.repositories.open(repo_id)
    if receipt.commit is None or objects.peel(git, receipt.commit, "commit") != receipt.commit:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"The repository has no commit of this receipt: {receipt.commit or 'it names none'}",
            hint=f"`sandbox repo update {repo_id}` fetches what is new.",
        )
    if objects.tree_of(git, receipt.commit) != receipt.tree:
        raise refusal_error(ReceiptRefusal.WRONG_TREE, f"{receipt.commit} has another tree")
    commit, line = receipt.commit, signed.envelope.encode()
    identity = choose_identity(services.settings, services.git_operator).as_environment(datetime.now(UTC))

    def send(access: RemoteAccess) -> str:
        before = fetch_notes(git, access)
        after = add_to_note(git, commit, line, identity)
        if after != before:
            push_notes(git, access, after, before)
        return after

    remote = services.remotes.parse(repository.remote_url)
    with services.home.locked(f"repository-{repo_id}"):
        notes_commit = clone.run_transfer(services, remote, send)
    return PushedReceipt(ref=NOTES_REF, notes_commit=notes_commit, receipt=receipt)


def fetch_receipts(services: Services, url: str, ref: str, question: ReceiptQuestion) -> FoundReceipts:
    """The receipts that a remote has for a ref's commit. Each is verified; one that does not hold is only named.

    Raises: as `clone`; `not_found` for an unknown ref; `unsafe_repository` for notes that cannot be used.
    """
    updated = clone.update_cache(services, url)
    git, commit = updated.git, clone.fetch_commit(services, updated, ref)
    with services.home.locked(f"repository-{updated.repository.id}"):
        clone.run_transfer(services, services.remotes.parse(url), lambda access: fetch_notes(git, access))
        lines = read_note(git, commit)
    tree = objects.tree_of(git, commit)
    trusted = load_trusted(services, question.keys)
    expected = Expectation(tree, None, question.checks)
    held, refused = list[tuple[Receipt, str]](), list[str]()
    for line in lines:
        try:
            held.append((verify_receipt(line, trusted, expected), line.decode()))
        except SandboxError as error:
            if error.code is not ErrorCode.RECEIPT_REFUSED:
                raise
            refused.append(error.reason or error.brief)
    held.sort(key=lambda each: each[0].signed_at, reverse=True)
    return FoundReceipts(
        commit=commit,
        tree=tree,
        receipts=tuple(receipt for receipt, _ in held),
        refused=tuple(refused),
        envelope=held[0][1] if held else "",
    )
