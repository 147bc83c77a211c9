"""What a receipt says, who can read it, and which keys are accepted."""

from __future__ import annotations

import base64
import json
from datetime import UTC, timedelta

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

from sandbox.checks.shuffle import shuffle_check
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Check, Report, Verdict
from sandbox.models.receipts import ReceiptKey
from sandbox.receipts import keys
from sandbox.receipts.statement import PREDICATE_TYPE, describe_check, write_statement
from sandbox.receipts.verification import Expectation, verify_receipt
from tests.unit.receipt_samples import (
    ARTIFACTS,
    COMMIT,
    PRODUCT,
    SIGNED_AT,
    TREE,
    Signer,
    made_binding,
    made_provenance,
    made_receipt,
    made_run,
    pae,
    signed,
    statement_of,
)

ANYTHING = Expectation()


def refusal_of(envelope: bytes, *trusted: ReceiptKey, expected: Expectation = ANYTHING) -> str:
    with pytest.raises(SandboxError) as caught:
        verify_receipt(envelope, trusted, expected)
    assert caught.value.code is ErrorCode.RECEIPT_REFUSED
    return caught.value.reason or ""


@pytest.mark.parametrize("verdict", [Verdict.PASSED, Verdict.FAILED, Verdict.OOM_KILLED])
def test_what_was_signed_is_what_is_read(verdict: Verdict) -> None:
    signer, receipt = Signer(), made_receipt(verdict)

    found = verify_receipt(signed(signer, receipt), [signer.trusted], ANYTHING)

    assert found.model_copy(update={"digest": "", "keyid": ""}) == receipt
    assert (found.passed, found.keyid) == (verdict is Verdict.PASSED, signer.trusted.keyid)


def test_a_receipt_says_that_a_compiler_cache_was_read() -> None:
    checks = [describe_check(made_binding("test", compiler_cache=read), made_run("test")) for read in (False, True)]
    assert [check.compiler_cache for check in checks] == [False, True]
    assert b'"compiler_cache":true' in write_statement(made_receipt(checks=(checks[1],)))


def test_a_receipt_counts_no_tests_of_a_run_that_lost_results() -> None:
    report = Report(tests=3, failures=1, errors=0, skipped=0, failed=())
    runs = [made_run("test", report=report, results_lost=lost) for lost in (False, True)]
    checks = [describe_check(made_binding("test"), run) for run in runs]
    assert [(check.tests, check.test_failures) for check in checks] == [(3, 1), (None, None)]


def test_a_receipt_names_the_submodules_that_had_their_files_of_lfs() -> None:
    urls = ("https://h/a/b", "/srv/private", "git@h:a/c")
    check = describe_check(made_binding("test", submodules=True, submodules_with_lfs=urls), made_run("test"))
    assert check.submodules_with_lfs == ("https://h/a/b", "git@h:a/c"), "no path of the host"
    signer = Signer()
    for receipt in (made_receipt(checks=(check,)), made_provenance(signer, checks=(check,))):
        assert verify_receipt(signed(signer, receipt), [signer.trusted], ANYTHING).checks == (check,)


def test_a_receipt_says_that_packages_were_missing() -> None:
    check = describe_check(made_binding("test"), made_run("test", missing_packages=("left out: ms",)))
    assert check.packages_missing
    signer = Signer()
    for receipt in (made_receipt(checks=(check,)), made_provenance(signer, checks=(check,))):
        assert verify_receipt(signed(signer, receipt), [signer.trusted], ANYTHING).checks == (check,)


def test_a_receipt_that_was_signed_before_it_named_submodules_still_holds() -> None:
    signer = Signer()
    for receipt in (made_receipt(), made_provenance(signer)):
        assert b"submodules_with_lfs" not in write_statement(receipt)
        assert b"packages_missing" not in write_statement(receipt)
        verify_receipt(signed(signer, receipt), [signer.trusted], ANYTHING)


@pytest.mark.parametrize(
    ("env", "seed"),
    [
        ({"ORDER": "seed=7,7", "SHUFFLE": "1"}, 7),
        ({"ORDER": "seed=7,7"}, None),
        ({}, None),
        ({"ORDER": "seed=7,8"}, None),
        ({"ORDER": "seed=x,x"}, None),
    ],
)
def test_a_receipt_names_the_seed_of_the_order(env: dict[str, str], seed: int | None) -> None:
    check = Check(
        id="test",
        label="test",
        argv=("make",),
        env=env,
        shuffle={"ORDER": "seed=<seed>,<seed>", "SHUFFLE": "1"},
    )
    assert describe_check(made_binding("test", check=check), made_run("test")).definition.shuffle_seed == seed
    if seed is not None:
        assert shuffle_check(check, seed).shuffle_seed == seed


def test_a_receipt_has_no_output_and_no_value_of_a_variable() -> None:
    text = write_statement(made_receipt()).decode()
    assert "TOKEN" in text
    assert "private value" not in text
    assert '"out"' not in text


def test_an_independent_implementation_accepts_the_statement_and_the_signature() -> None:
    """The models are in-toto's own, the signature is verified by `cryptography` alone."""
    signer = Signer()
    envelope = json.loads(signed(signer, made_receipt(Verdict.TIMED_OUT)))
    payload = base64.b64decode(envelope["payload"], validate=True)

    signer.private.public_key().verify(base64.b64decode(envelope["signatures"][0]["sig"]), pae(payload))
    parsed = json_format.Parse(payload, statement_pb2.Statement())  # refuses unknown fields
    Statement.copy_from_pb(parsed).validate()
    result = json_format.Parse(json.dumps(json.loads(payload)["predicate"]), test_result_pb2.TestResult())

    assert parsed.predicate_type == PREDICATE_TYPE
    assert [dict(subject.digest) for subject in parsed.subject] == [{"gitTree": TREE}, {"gitCommit": COMMIT}]
    assert (result.result, list(result.passed_tests), list(result.failed_tests)) == ("FAILED", ["build"], ["test"])
    assert [each.name for each in result.configuration] == ["space-sandbox", "build", "test"]


def test_provenance_is_read_as_it_was_signed_and_needs_no_second_command() -> None:
    signer = Signer()
    made = made_provenance(signer)
    found = verify_receipt(signed(signer, made), [signer.trusted], Expectation(TREE, COMMIT, ("build",)))
    assert found.model_copy(update={"digest": ""}) == made
    hashes = tuple(artifact.sha256 for artifact in ARTIFACTS)
    assert verify_receipt(signed(signer, made), [signer.trusted], Expectation(artifacts=hashes)).passed
    other = Expectation(artifacts=(hashes[0], f"sha256:{'3' * 64}"))
    assert refusal_of(signed(signer, made), signer.trusted, expected=other) == "wrong_artifact"
    assert refusal_of(signed(signer), signer.trusted, expected=Expectation(artifacts=hashes)) == "wrong_artifact"


def test_an_independent_implementation_accepts_the_provenance() -> None:
    """The models are those of in-toto for SLSA, which refuse unknown fields."""
    signer = Signer()
    envelope = json.loads(signed(signer, made_provenance(signer)))
    payload = base64.b64decode(envelope["payload"], validate=True)

    signer.private.public_key().verify(base64.b64decode(envelope["signatures"][0]["sig"]), pae(payload))
    parsed = json_format.Parse(payload, statement_pb2.Statement())
    Statement.copy_from_pb(parsed).validate()
    found = json_format.Parse(json.dumps(json.loads(payload)["predicate"]), provenance_pb2.Provenance())

    assert parsed.predicate_type == "https://slsa.dev/provenance/v1"
    assert {each.name: dict(each.digest) for each in parsed.subject} == {
        each.path: {"sha256": each.sha256.removeprefix("sha256:")} for each in ARTIFACTS
    }
    source, image = found.build_definition.resolved_dependencies
    assert (source.uri, dict(source.digest)) == (
        "git+https://example.com/owner/name",
        {"gitTree": TREE, "gitCommit": COMMIT},
    )
    assert dict(image.digest) == {"sha256": "1"}
    assert found.build_definition.build_type.startswith("urn:")
    assert found.run_details.builder.id.endswith(signer.trusted.keyid)
    assert found.run_details.metadata.started_on.ToDatetime(UTC) == SIGNED_AT
    assert found.run_details.metadata.finished_on.ToDatetime(UTC) == SIGNED_AT + timedelta(seconds=1.5)
    assert dict(found.build_definition.external_parameters)["check"] == "build"


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        (Expectation(tree="b" * 40), "wrong_tree"),
        (Expectation(commit="b" * 40), "wrong_commit"),
        (Expectation(checks=("lint",)), "wrong_checks"),
    ],
)
def test_a_receipt_about_something_else_is_refused(expected: Expectation, reason: str) -> None:
    signer = Signer()
    verify_receipt(signed(signer), [signer.trusted], Expectation(TREE, COMMIT, ("test",)))
    assert refusal_of(signed(signer), signer.trusted, expected=expected) == reason


def test_a_part_of_a_check_is_not_taken_for_the_check() -> None:
    """Control: the whole check is found by its name."""
    signer = Signer()
    check = Check(id="test", label="test", argv=("pytest", "test_a.py"), arguments=("test_a.py",))
    receipt = made_receipt(checks=(describe_check(made_binding("test", check=check), made_run("test")),))
    envelope = signer.sign(write_statement(receipt))
    assert verify_receipt(envelope, [signer.trusted], Expectation(TREE)).checks[0].definition.arguments
    assert refusal_of(envelope, signer.trusted, expected=Expectation(checks=("test",))) == "wrong_checks"
    verify_receipt(signed(signer), [signer.trusted], Expectation(checks=("test",)))


def test_a_retired_key_is_good_for_what_it_signed_before() -> None:
    signer = Signer()
    retired = signer.trusted.model_copy(update={"retired_at": SIGNED_AT})
    later = made_receipt(signed_at=SIGNED_AT + timedelta(seconds=1))

    assert verify_receipt(signed(signer), [retired], ANYTHING).passed
    assert refusal_of(signed(signer, later), retired) == "retired_key"


def test_a_revoked_key_is_good_for_nothing_also_when_it_is_trusted_elsewhere() -> None:
    signer = Signer()
    revoked = signer.trusted.model_copy(update={"revoked_at": SIGNED_AT + timedelta(days=9), "reason": "stolen"})
    assert refusal_of(signed(signer), revoked) == "revoked_key"
    assert refusal_of(signed(signer), signer.trusted, revoked) == "revoked_key"


def test_one_of_several_trusted_keys_is_enough() -> None:
    ours, theirs = Signer(), Signer()
    assert verify_receipt(signed(ours), [theirs.trusted, ours.trusted], ANYTHING).keyid == ours.trusted.keyid


def test_only_ed25519_keys_are_keys() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    public = other.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for load, content in (
        (keys.load_signer, other.private_bytes(*PRODUCT)),
        (keys.load_signer, b"no key"),
        (keys.parse_trusted_keys, public),
        (keys.parse_trusted_keys, b"no key"),
        (keys.parse_trusted_keys, b'{"keys": [{"keyid": "x"}]}'),
    ):
        with pytest.raises(SandboxError) as caught:
            load(content, "theirs")
        assert caught.value.code is ErrorCode.INVALID_INPUT


def make_public_key(algorithm: str, parameters: str = "") -> bytes:
    """In DER, with an uncompressed point of a curve as its bytes."""

    def wrap(tag: int, content: bytes) -> bytes:
        return bytes([tag, len(content)]) + content

    named = wrap(0x30, wrap(6, bytes.fromhex(algorithm)) + bytes.fromhex(parameters))
    return wrap(0x30, named + wrap(3, b"\0" + b"\4" * 65))


UNKNOWN_KEYS = {
    "an unknown algorithm": make_public_key("2a030405"),
    "an unknown curve": make_public_key("2a8648ce3d0201", "060a2b24030302080101010b"),
}


@pytest.mark.parametrize("name", UNKNOWN_KEYS)
def test_a_key_of_a_kind_that_the_library_does_not_know_is_refused_as_others(name: str) -> None:
    der = base64.b64encode(UNKNOWN_KEYS[name]).decode()
    pem = f"-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n"
    with pytest.raises(UnsupportedAlgorithm):  # else the test is void
        serialization.load_pem_public_key(pem.encode())
    listed = [ReceiptKey(keyid="a" * 64, public_key=pem)]
    for load in (lambda: keys.parse_trusted_keys(pem.encode(), "it"), lambda: keys.load_trusted_keys(listed)):
        with pytest.raises(SandboxError, match="cannot be used") as caught:
            load()
        assert caught.value.code is ErrorCode.INVALID_INPUT
        assert caught.value.hint


def test_a_key_whose_id_is_another_keys_is_refused() -> None:
    ours, theirs = Signer(), Signer()
    renamed = theirs.trusted.model_copy(update={"keyid": ours.trusted.keyid})
    with pytest.raises(SandboxError, match="its id is not that"):
        verify_receipt(signed(ours), [renamed], ANYTHING)


def test_keys_that_a_home_lists_are_trusted_elsewhere() -> None:
    signer = Signer()
    listed = json.dumps({"keys": [signer.trusted.model_dump(mode="json")]}).encode()
    assert verify_receipt(signed(signer), keys.parse_trusted_keys(listed, "theirs"), ANYTHING).passed


def test_the_same_content_is_the_same_statement() -> None:
    assert statement_of(signed(Signer())) == statement_of(signed(Signer()))
