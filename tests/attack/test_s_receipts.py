"""THREATS S110, S111, S133: receipts that are forged, or shown for something else.

The control of each: a careless reader, who decodes the statement and reads its result, believes it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Verdict
from sandbox.receipts.statement import PREDICATE_TYPE
from sandbox.receipts.verification import Expectation, verify_receipt
from tests.unit.receipt_samples import (
    Signer,
    made_provenance,
    made_receipt,
    signed,
    statement_of,
    with_payload,
    with_statement,
)

pytestmark = [pytest.mark.must, pytest.mark.one_git]

OURS, THEIRS = Signer(), Signer()
FAILED, PASSED = signed(OURS, made_receipt(Verdict.FAILED)), signed(OURS)


def refusal_of(envelope: bytes, expected: Expectation | None = None) -> str:
    with pytest.raises(SandboxError) as caught:
        verify_receipt(envelope, [OURS.trusted], expected or Expectation())
    assert caught.value.code is ErrorCode.RECEIPT_REFUSED
    return caught.value.reason or ""


def is_believed(envelope: bytes) -> bool:
    return bool(statement_of(envelope)["predicate"]["result"] == "PASSED")


def say_passed(statement: dict[str, Any]) -> None:
    predicate = statement["predicate"]
    predicate["result"], predicate["passedTests"], predicate["failedTests"] = "PASSED", ["build", "test"], []
    predicate["configuration"][2]["annotations"]["verdict"] = "passed"


def swap_checks(statement: dict[str, Any]) -> None:
    configuration = statement["predicate"]["configuration"]
    configuration[1], configuration[2] = configuration[2], configuration[1]


def other_tree(statement: dict[str, Any]) -> None:
    statement["subject"][0]["digest"]["gitTree"] = "b" * 40


def with_signature_of(signer: Signer, envelope: bytes, keyid: str) -> bytes:
    document = json.loads(envelope)
    made = json.loads(signer.sign(base64.b64decode(document["payload"])))
    return json.dumps({**document, "signatures": [{"keyid": keyid, "sig": made["signatures"][0]["sig"]}]}).encode()


def without_signature(envelope: bytes) -> bytes:
    return json.dumps({**json.loads(envelope), "signatures": []}).encode()


FORGED: dict[str, tuple[bytes, str]] = {
    "a failure becomes a success": (with_statement(FAILED, say_passed), "tampered"),
    "another tree": (with_statement(PASSED, other_tree), "tampered"),
    "checks in another order": (with_statement(PASSED, swap_checks), "tampered"),
    "the same content, other bytes": (with_payload(PASSED, json.dumps(statement_of(PASSED)).encode()), "tampered"),
    "a key of the attacker": (signed(THEIRS), "wrong_key"),
    "our key's id on the attacker's signature": (with_signature_of(THEIRS, PASSED, OURS.trusted.keyid), "tampered"),
    "our signature under the attacker's key id": (with_signature_of(OURS, PASSED, THEIRS.trusted.keyid), "wrong_key"),
    "no signature": (without_signature(PASSED), "malformed"),
}


@pytest.mark.parametrize(("forged", "reason"), FORGED.values(), ids=FORGED)
def test_s110_a_forged_receipt_is_refused_by_name(forged: bytes, reason: str) -> None:
    assert is_believed(forged), "void"
    assert verify_receipt(PASSED, [OURS.trusted], Expectation()).passed, "void"
    assert refusal_of(forged) == reason


CUT: dict[str, Callable[[bytes], bytes]] = {
    "the last byte": lambda text: text[:-1],
    "half": lambda text: text[: len(text) // 2],
    "nothing": lambda _: b"",
    "a name twice": lambda text: text[:-1] + b',"payloadType":"application/vnd.in-toto+json"}',
    "a second document": lambda text: text + text,
    "a field more": lambda text: json.dumps({**json.loads(text), "x": 1}).encode(),
    "not base64": lambda text: text.replace(b'"payload":"', b'"payload":"\\n'),
    "deep": lambda _: b"[" * 100_000,
    "large": lambda text: text + b" " * 1024**2,
}


@pytest.mark.parametrize("cut", CUT.values(), ids=CUT)
def test_s110_a_cut_or_ambiguous_receipt_is_refused_by_name(cut: Callable[[bytes], bytes]) -> None:
    assert refusal_of(cut(PASSED)) == "malformed"


def set_fields(**fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda statement: statement.update(fields)


def another_version(statement: dict[str, Any]) -> None:
    statement["predicate"]["configuration"][0]["annotations"]["version"] = 0


def result_that_contradicts(statement: dict[str, Any]) -> None:
    statement["predicate"]["result"] = "PASSED"


SIGNED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "an old statement": (set_fields(_type="https://in-toto.io/Statement/v0.1"), "downgraded"),
    "another predicate": (set_fields(predicateType="https://example.com/anything"), "downgraded"),
    "another version of receipts": (another_version, "downgraded"),
    "a result that its checks do not give": (result_that_contradicts, "inconsistent"),
    "checks before what they follow": (swap_checks, "inconsistent"),
    "no subject": (set_fields(subject=[]), "inconsistent"),
    "no predicate": (set_fields(predicate=None), "inconsistent"),
}


@pytest.mark.parametrize(("change", "reason"), SIGNED.values(), ids=SIGNED)
def test_s110_what_a_trusted_key_signed_for_another_purpose_is_refused_by_name(
    change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    """The key is the operator's own: it may sign other things, also for other programs."""
    statement = statement_of(FAILED)
    change(statement)
    envelope = OURS.sign(json.dumps(statement, sort_keys=True, separators=(",", ":")).encode())
    assert refusal_of(envelope) == reason


FROM_US = signed(OURS, made_provenance(OURS))


def other_file(statement: dict[str, Any]) -> None:
    statement["subject"][0]["digest"]["sha256"] = "3" * 64


def set_internal(**fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda statement: statement["predicate"]["buildDefinition"]["internalParameters"].update(fields)


def set_definition(**fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda statement: statement["predicate"]["buildDefinition"].update(fields)


def set_builder(keyid: str) -> Callable[[dict[str, Any]], None]:
    builder = {"id": f"urn:space-sandbox:home:{keyid}", "version": {"space-sandbox": "1.2.3"}}
    return lambda statement: statement["predicate"]["runDetails"].update(builder=builder)


@pytest.mark.parametrize("resigned", [False, True], ids=["the old signature", "signed by an attacker"])
def test_s133_the_provenance_of_another_file_is_refused_by_name(resigned: bool) -> None:
    forged = with_statement(FROM_US, other_file)
    theirs = THEIRS.sign(base64.b64decode(json.loads(forged)["payload"]))
    swapped, reason = (theirs, "wrong_key") if resigned else (forged, "tampered")
    assert statement_of(swapped)["subject"][0]["digest"]["sha256"] == "3" * 64, "void: a careless reader believes it"
    assert verify_receipt(FROM_US, [OURS.trusted], Expectation()).artifacts, "void"
    assert refusal_of(swapped) == reason


PROVENANCE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a check that failed": (set_internal(verdict="failed"), "inconsistent"),
    "another builder than who signed": (set_builder(THEIRS.trusted.keyid), "inconsistent"),
    "no builder": (set_builder(""), "inconsistent"),
    "another kind of build": (set_definition(buildType="https://example.com/anything"), "downgraded"),
    "no sources": (set_definition(resolvedDependencies=[]), "inconsistent"),
    "no artifacts": (set_fields(subject=[]), "inconsistent"),
    "a hash that is none": (set_fields(subject=[{"name": "x", "digest": {"sha256": "x"}}]), "inconsistent"),
    "a time that no date has": (set_internal(wall_time_s=1e300), "inconsistent"),
    "a test result in the form of provenance": (set_fields(predicateType=PREDICATE_TYPE), "inconsistent"),
    "artifacts twice": (set_internal(receipt={"version": 1, "artifacts": []}), "inconsistent"),
}


@pytest.mark.parametrize(("change", "reason"), PROVENANCE.values(), ids=PROVENANCE)
def test_s133_provenance_that_a_trusted_key_signed_for_another_purpose_is_refused_by_name(
    change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    statement = statement_of(FROM_US)
    change(statement)
    envelope = OURS.sign(json.dumps(statement, sort_keys=True, separators=(",", ":")).encode())
    assert refusal_of(envelope) == reason


def test_s133_a_test_result_does_not_pass_for_provenance() -> None:
    """Also not with the artifacts among its annotations."""
    statement = statement_of(PASSED)
    annotations = statement["predicate"]["configuration"][0]["annotations"]
    annotations["artifacts"] = [{"path": "dist/app", "sha256": f"sha256:{'1' * 64}"}]
    assert refusal_of(OURS.sign(json.dumps(statement, sort_keys=True).encode())) == "inconsistent"
    assert refusal_of(PASSED, Expectation(artifacts=(f"sha256:{'1' * 64}",))) == "wrong_artifact"


def test_s110_a_payload_of_another_type_is_refused_by_name() -> None:
    document = {**json.loads(PASSED), "payloadType": "application/json"}
    assert refusal_of(json.dumps(document).encode()) == "downgraded"


def test_s111_a_receipt_of_an_old_tree_is_none_of_a_new_one() -> None:
    """Control: without a tree to compare with, it is accepted: it is a true statement about the old tree."""
    assert verify_receipt(PASSED, [OURS.trusted], Expectation()).passed, "void"
    assert refusal_of(PASSED, Expectation(tree="b" * 40)) == "wrong_tree"
    assert refusal_of(PASSED, Expectation(commit="b" * 40)) == "wrong_commit"
