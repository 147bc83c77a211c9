"""The verdict cache that several homes share: entries are receipts of one passed check, named by the verdict's key.

An entry is used only if a trusted key signed it, and it is about exactly this question. Only passed verdicts are
shared: a failure is worth its own run, with its output. What comes from there is not copied into the home's own cache,
so that a revoked key ends it at once.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.models import CheckRun, Verdict
from sandbox.store.verdicts import Binding, is_bound, is_conclusive

if TYPE_CHECKING:
    from sandbox.models import receipts as models
    from sandbox.models.receipts import Receipt, ReceiptCheck, ReceiptKey
    from sandbox.receipts import dsse_envelope, receipt_refusals, statement, verification
    from sandbox.receipts.verification import Expectation
    from sandbox.store import shared_store
    from sandbox.store.shared_store import SharedStore
    from sandbox.workbench.controller import signing
    from sandbox.workbench.controller.services import Services
else:  # loaded if the settings name a shared cache (docs/adr/0080)
    models = LazyModule("sandbox.models.receipts")
    dsse_envelope = LazyModule("sandbox.receipts.dsse_envelope")
    receipt_refusals = LazyModule("sandbox.receipts.receipt_refusals")
    statement = LazyModule("sandbox.receipts.statement")
    verification = LazyModule("sandbox.receipts.verification")
    shared_store = LazyModule("sandbox.store.shared_store")
    signing = LazyModule("sandbox.workbench.controller.signing")

ENTRY = "an entry of a verdict cache"
"""The `source` of entries: a receipt of one run, which anyone may have read, is none."""

_UNNAMED = ("some, which the entry of the shared verdict cache does not name",)
_log = logging.getLogger(__name__)


def open_shared_cache(services: Services) -> SharedCache | None:
    """The cache that the settings name, or None. Raises: `invalid_input` for a URL, or a key to sign with, that cannot
    be used: before a check runs.
    """
    if not services.has_settings or not services.settings.cache.url:
        return None
    if services.settings.cache.write:
        signing.find_signer(services, None)
    return SharedCache(services, shared_store.open_store(services.settings.cache.url))


@dataclass(frozen=True)
class SharedCache:
    """Reads and adds verdicts. A store that does not answer is a miss, with a warning: the check runs."""

    services: Services
    store: SharedStore

    def find(self, binding: Binding) -> CheckRun | None:
        """The passed run of this question, marked as cached; None if there is none that can be trusted.

        Raises: `invalid_input` for a trusted key that cannot be used.
        """
        trusted = signing.load_trusted(self.services, ())
        try:
            content = self.store.read(_name(binding), dsse_envelope.MOST_BYTES)
            return None if content is None else read_entry(content, binding, trusted)
        except OSError as error:
            _log.warning("the shared verdict cache does not answer: %s", str(error)[:200])
        except SandboxError as error:
            if error.reason is None:
                raise
            _log.warning("refused an entry of the shared verdict cache (%s): %s", error.reason, error.details[:200])
        return None

    def add(self, binding: Binding, run: CheckRun) -> None:
        """Add a passed verdict, if this home writes. An entry that says as much stays: receipts may rest on it.

        Raises: `invalid_input` for a key that cannot be used.
        """
        if not self.services.settings.cache.write or run.verdict is not Verdict.PASSED or not is_conclusive(run):
            return
        signer = signing.find_signer(self.services, None)
        kept = self.find(binding)
        if kept is not None and bool(kept.missing_packages) == bool(run.missing_packages):
            return
        receipt = models.Receipt(
            tree=binding.tree,
            commit=None,
            source=ENTRY,
            checks=(statement.describe_check(binding, run),),
            product_version=statement.PRODUCT_VERSION,
            signed_at=statement.now(),
        )
        entry = dsse_envelope.sign_payload(statement.write_statement(receipt), signer)
        try:
            self.store.write(_name(binding), entry.encode())
        except OSError as error:
            _log.warning("a verdict was not added to the shared cache: %s", str(error)[:200])


def _name(binding: Binding) -> str:
    return f"{binding.key}.json"


def describe_shared_run(services: Services, run: CheckRun) -> ReceiptCheck:
    """What a receipt says about a verdict of the shared cache: what its entry says, and the key that signed the entry.

    The entry is read and verified again. Raises: `not_found` if it cannot be read; `receipt_refused` if it does not
    hold any more, or is not about this run; `invalid_input` for a key that cannot be used.
    """
    cache, content = open_shared_cache(services), None
    if cache is not None:
        with suppress(OSError):
            content = cache.store.read(f"{run.shared_key}.json", dsse_envelope.MOST_BYTES)
    if content is None:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"The verdict of '{run.check_id}' is from a shared cache, and its entry there cannot be read any more",
            hint="Run the checks again with --no-cache.",
        )
    trusted = signing.load_trusted(services, ())
    receipt = _open_entry(content, run.shared_key, verification.Expectation(run.tree, None, (run.check_id,)), trusted)
    (check,) = receipt.checks
    if (check.run_id, check.verdict) != (run.run_id, run.verdict):
        raise receipt_refusals.refusal_error(models.ReceiptRefusal.INCONSISTENT, "the entry is about another run now")
    return check.model_copy(update={"shared_by": receipt.keyid})


def read_entry(content: bytes, binding: Binding, trusted: tuple[ReceiptKey, ...]) -> CheckRun:
    """The run of an entry that is signed and about exactly this binding.

    Raises: `receipt_refused`; `invalid_input` for a trusted key that cannot be used.
    """
    expected = verification.Expectation(binding.tree, None, (binding.check.id,))
    (check,) = _open_entry(content, binding.key, expected, trusted).checks
    run = _rebuild(check, binding)
    if not (run.verdict is Verdict.PASSED and is_conclusive(run) and is_bound(run, binding)):
        raise receipt_refusals.refusal_error(
            models.ReceiptRefusal.INCONSISTENT, "it is no passed verdict of this question"
        )
    return run


def _open_entry(content: bytes, key: str, expected: Expectation, trusted: tuple[ReceiptKey, ...]) -> Receipt:
    """The receipt in an entry that a trusted key signed, and that is about one check: that of this verdict's key."""
    receipt = verification.verify_receipt(content, trusted, expected)
    (check, *others) = receipt.checks
    if others or check.key != key or receipt.source != ENTRY or check.shared_by:
        raise receipt_refusals.refusal_error(models.ReceiptRefusal.WRONG_CHECKS, "it is about another question")
    return receipt


def _rebuild(check: ReceiptCheck, binding: Binding) -> CheckRun:
    """The run as far as a receipt says it: without output and report."""
    return CheckRun(
        run_id=check.run_id,
        check_id=check.id,
        task_id=None,
        verdict=check.verdict,
        exit_code=check.exit_code,
        signal=check.signal,
        started_at=check.started_at,
        wall_time_s=check.wall_time_s,
        timeout_s=binding.check.timeout_s,
        usage=check.usage,
        stdout_tail="",
        stderr_tail="",
        stdout_bytes=0,
        stderr_bytes=0,
        truncated=True,
        tree=binding.tree,
        clean_room=True,
        guest_user="own" if check.guest_user == "own" else "shared",
        cached=True,
        image_digest=check.image_digest,
        runtime=check.runtime,
        layers=check.layers,
        compiler_cache="read" if check.compiler_cache else None,
        services=check.services,
        report=None,
        missing_packages=_UNNAMED if check.packages_missing else (),
        shared_key=check.key,
    )
