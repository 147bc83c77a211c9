"""The in-toto Statement of a receipt, written and read.

https://github.com/in-toto/attestation, predicate test-result v0.1. What the predicate has no field for is in the
annotations of its configuration, one resource descriptor for each check, so that any reader of in-toto accepts it.
A receipt with artifacts is their SLSA provenance instead (provenance.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from sandbox.models import CheckRun, Verdict
from sandbox.models.receipts import CheckDefinition, Receipt, ReceiptCheck, ReceiptRefusal, Statement
from sandbox.receipts.dsse_envelope import parse_strict_json
from sandbox.receipts.provenance import PROVENANCE_TYPE, read_provenance, write_provenance
from sandbox.receipts.receipt_refusals import refusal_error
from sandbox.store.verdicts import Binding
from sandbox.version import __version__

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
PRODUCT, PRODUCT_VERSION = "space-sandbox", __version__


_PUBLIC = ("https://", "http://", "ssh://", "git@")


def is_public(url: str) -> bool:
    """Whether a receipt names this remote. It names no path of the host."""
    return url.startswith(_PUBLIC)


def describe_check(binding: Binding, run: CheckRun) -> ReceiptCheck:
    """What a receipt says about a run and what it was bound to. Output, paths and values of variables are left out."""
    check, report = binding.check, None if run.results_lost else run.report  # a receipt cannot say "at least"
    return ReceiptCheck(
        id=check.id,
        key=binding.key,
        after=binding.after,
        key_version=binding.version,
        definition=CheckDefinition(
            argv=check.argv,
            cwd=check.cwd,
            env=tuple(sorted(check.env)),
            timeout_s=check.timeout_s,
            limits=check.limits,
            requires=check.requires,
            workspace=check.workspace,
            arguments=check.arguments,
            shuffle_seed=check.shuffle_seed,
        ),
        image_digest=binding.image_digest,
        layers=binding.layers,
        policy=binding.policy,
        runtime=binding.runtime,
        platform=binding.platform,
        services=run.services,
        submodules=binding.submodules,
        lfs=binding.lfs,
        submodules_with_lfs=tuple(url for url in binding.submodules_with_lfs if is_public(url)),
        compiler_cache=binding.compiler_cache,
        guest_user=run.guest_user,
        packages_missing=bool(run.missing_packages),
        run_id=run.run_id,
        verdict=run.verdict,
        exit_code=run.exit_code,
        signal=run.signal,
        started_at=run.started_at.astimezone(UTC),
        wall_time_s=run.wall_time_s,
        usage=run.usage,
        tests=None if report is None else report.tests,
        test_failures=None if report is None else report.failures + report.errors,
    )


def write_statement(receipt: Receipt) -> bytes:
    """The statement as canonical JSON: same content, same bytes."""
    said = write_provenance(receipt) if receipt.artifacts else _write_test_result(receipt)
    statement: Statement = {"_type": STATEMENT_TYPE, **said}
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _write_test_result(receipt: Receipt) -> Statement:
    subject = [{"name": "tree", "digest": {"gitTree": receipt.tree}}]
    if receipt.commit is not None:
        subject.append({"name": "commit", "digest": {"gitCommit": receipt.commit}})
    return {
        "subject": subject,
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "result": "PASSED" if receipt.passed else "FAILED",
            "configuration": [_describe_product(receipt), *map(_describe_configuration, receipt.checks)],
            **_list_tests(receipt.checks),
        },
    }


def _describe_product(receipt: Receipt) -> dict[str, Any]:
    fields = {"version", "source", "left_out", "product_version", "signed_at"}
    return {"name": PRODUCT, "annotations": receipt.model_dump(mode="json", include=fields)}


def _describe_configuration(check: ReceiptCheck) -> dict[str, Any]:
    annotations = check.model_dump(mode="json", exclude={"id", "key"})
    return {"name": check.id, "digest": {"sha256": check.key}, "annotations": annotations}


def _list_tests(checks: Sequence[ReceiptCheck]) -> dict[str, list[str]]:
    passed = [check.id for check in checks if check.verdict is Verdict.PASSED]
    failed = [check.id for check in checks if check.verdict is not Verdict.PASSED]
    return {"passedTests": passed, "warnedTests": [], "failedTests": failed}


def read_statement(payload: bytes) -> Receipt:
    """Read a payload with a verified signature.

    Raises: `receipt_refused`: `downgraded` for other types and versions, `inconsistent` if writing it again gives
    another statement.
    """
    document = parse_strict_json(payload)
    if not isinstance(document, dict) or document.get("_type") != STATEMENT_TYPE:
        raise refusal_error(ReceiptRefusal.DOWNGRADED, "not a Statement of version 1")
    read = _READERS.get(str(document.get("predicateType")))
    if read is None:
        raise refusal_error(ReceiptRefusal.DOWNGRADED, "no test result of version 0.1, no provenance of version 1")
    try:
        receipt = read(document)
    except (LookupError, TypeError, ValueError, AttributeError, ValidationError) as error:
        raise refusal_error(ReceiptRefusal.INCONSISTENT, f"not the statement of a receipt: {error}") from error
    _require_consistent(receipt, payload)
    return receipt


def _read_test_result(document: Statement) -> Receipt:
    product, *checks = document["predicate"]["configuration"]
    version = product["annotations"]["version"]
    if product["name"] != PRODUCT or version != 1:
        raise refusal_error(ReceiptRefusal.DOWNGRADED, "not a receipt of version 1")
    digests = {name: each["digest"][name] for each in document["subject"] for name in each["digest"]}
    return Receipt(
        **product["annotations"],
        tree=digests["gitTree"],
        commit=digests.get("gitCommit"),
        checks=tuple(_read_check(check) for check in checks),
        artifacts=(),
    )


_READERS = {PREDICATE_TYPE: _read_test_result, PROVENANCE_TYPE: read_provenance}


def _read_check(descriptor: Any) -> ReceiptCheck:
    return ReceiptCheck(id=descriptor["name"], key=descriptor["digest"]["sha256"], **descriptor["annotations"])


def _require_consistent(receipt: Receipt, payload: bytes) -> None:
    """The result and the lists of tests follow from the checks, and no check is before the one that it follows."""
    try:
        same = write_statement(receipt) == payload
    except OverflowError:  # a time that no date has
        same = False
    if not same:
        raise refusal_error(ReceiptRefusal.INCONSISTENT, "its parts do not give this statement")
    if receipt.artifacts and not receipt.passed:
        raise refusal_error(ReceiptRefusal.INCONSISTENT, "the check that built the artifacts did not pass")
    ids, keys = [check.id for check in receipt.checks], [check.key for check in receipt.checks]
    if len(set(ids)) != len(ids):
        raise refusal_error(ReceiptRefusal.INCONSISTENT, "a check is there twice")
    for place, check in enumerate(receipt.checks):
        if check.after in keys[place:]:
            raise refusal_error(ReceiptRefusal.INCONSISTENT, f"{check.id} is before the check that it follows")


def now() -> datetime:
    """The present time, in whole seconds of UTC."""
    return datetime.now(UTC).replace(microsecond=0)
