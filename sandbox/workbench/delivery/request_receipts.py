"""The receipt of a pull request: signed once for a commit and its verdicts, kept with the task, pushed as a note."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.errors import SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models import Task
from sandbox.store.home import read_cached_record, write_json
from sandbox.store.records import find_repository
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.controller.services import Services

if TYPE_CHECKING:
    from sandbox.models import receipts as models
    from sandbox.models.receipts import SignedReceipt
    from sandbox.workbench.checks import signed_receipts
    from sandbox.workbench.delivery import receipt_notes
else:  # loaded if the settings ask for receipts (docs/adr/0080)
    models = LazyModule("sandbox.models.receipts")
    signed_receipts = LazyModule("sandbox.workbench.checks.signed_receipts")
    receipt_notes = LazyModule("sandbox.workbench.delivery.receipt_notes")


def sign_receipt(tree_gate: TreeGate) -> SignedReceipt | None:
    """The receipt of a verified tree, the same for the same verdicts; None if the settings ask for none, or the tree is
    not verified. Raises: as `receipts.export_task`.
    """
    services, task = tree_gate.services, tree_gate.task
    if not (services.has_settings and services.settings.receipts.pull_requests):
        return None
    if not tree_gate.try_verdicts().verified:
        return None
    new = signed_receipts.export_task(services, task.id, None)
    kept = _read_kept(services, task.id)
    if kept is not None and _is_same(kept, new):
        return kept
    folder = services.home.logs(task.id)
    folder.mkdir(mode=0o700, exist_ok=True)
    write_json(folder / "receipt.json", new.model_dump(mode="json"))
    return new


def _read_kept(services: Services, task_id: str) -> SignedReceipt | None:
    return read_cached_record(services.home.logs(task_id) / "receipt.json", models.SignedReceipt)


def _is_same(kept: SignedReceipt, new: SignedReceipt) -> bool:
    """Whether two receipts differ only in the time of signing."""
    ours = {"signed_at", "digest"}
    return kept.receipt.model_dump(exclude=ours) == new.receipt.model_dump(exclude=ours)


def describe(services: Services, task: Task, receipt: SignedReceipt) -> tuple[str, str, tuple[str, ...]]:
    """Its digest, the id of its key, and the command that checks it."""
    url = find_repository(services.home, task.repo_id).remote_url
    command = ("sandbox", "receipt", "fetch", url, "--ref", task.head_commit, "--key", "PUBLIC-KEY")
    return receipt.receipt.digest, receipt.receipt.keyid, command


def push_receipt(services: Services, repo_id: str, receipt: SignedReceipt) -> None:
    """Push it, unless the remote has it. Raises: as `receipt_notes.push_signed`."""
    try:
        receipt_notes.push_signed(services, repo_id, receipt)
    except SandboxError as error:
        raise error.with_hint(
            "The branch was pushed, its receipt was not, and no pull request was opened. Without receipts: set "
            f"receipts.pull_requests = false. {error.hint}".rstrip()
        ) from error
