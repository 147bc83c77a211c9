"""Receipts that tests make, sign and forge, and a reader of them that knows nothing of the product."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sandbox.models import Check, CheckRun, Limits, Usage, Verdict
from sandbox.models.receipts import Receipt, ReceiptArtifact, ReceiptKey
from sandbox.receipts import keys
from sandbox.receipts.dsse_envelope import PAYLOAD_TYPE, sign_payload
from sandbox.receipts.statement import describe_check, write_statement
from sandbox.store.verdicts import Binding

TREE, COMMIT = "a" * 40, "c" * 40
SIGNED_AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
PRODUCT = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


@dataclass(frozen=True)
class Signer:
    """A key that `cryptography` made, as an operator would with openssl."""

    private: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def pem(self) -> bytes:
        return self.private.private_bytes(*PRODUCT)

    @property
    def public_pem(self) -> bytes:
        return self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    @cached_property
    def trusted(self) -> ReceiptKey:
        (key,) = keys.parse_trusted_keys(self.public_pem, "a test's")
        return key

    def sign(self, payload: bytes) -> bytes:
        return sign_payload(payload, keys.load_signer(self.pem, "a test's")).encode()


def made_run(check_id: str, verdict: Verdict = Verdict.PASSED, **others: Any) -> CheckRun:
    fields: dict[str, Any] = {
        "run_id": f"run-{check_id}",
        "check_id": check_id,
        "task_id": None,
        "verdict": verdict,
        "exit_code": 0 if verdict is Verdict.PASSED else 1,
        "signal": None,
        "started_at": SIGNED_AT,
        "wall_time_s": 1.5,
        "usage": Usage(limits=Limits()),
        "stdout_tail": "out",
        "stderr_tail": "",
        "stdout_bytes": 3,
        "stderr_bytes": 0,
        "truncated": False,
        "tree": TREE,
        "clean_room": True,
        "cached": False,
        "image_digest": "sha256:1",
        "runtime": "runc",
        "report": None,
    }
    return CheckRun(**fields | others)


def made_binding(check_id: str, after: str = "", **others: Any) -> Binding:
    check = Check(id=check_id, label=check_id, argv=("make", check_id), env={"TOKEN": "a private value"})
    fields: dict[str, Any] = {
        "tree": TREE,
        "image_digest": "sha256:1",
        "check": check,
        "policy": "sha256:2",
        "runtime": "runc",
        "platform": "linux/x86_64",
        "user": None,
        "after": after,
    }
    return Binding(**fields | others)


def made_receipt(verdict: Verdict = Verdict.PASSED, **others: Any) -> Receipt:
    """Of a build, and a test that follows it."""
    build = made_binding("build")
    checks = (
        describe_check(build, made_run("build")),
        describe_check(made_binding("test", build.key), made_run("test", verdict)),
    )
    fields: dict[str, Any] = {
        "tree": TREE,
        "commit": COMMIT,
        "source": "https://example.com/owner/name",
        "checks": checks,
        "product_version": "1.2.3",
        "signed_at": SIGNED_AT,
    }
    return Receipt(**fields | others)


ARTIFACTS = (
    ReceiptArtifact(path="dist/app", sha256=f"sha256:{'1' * 64}"),
    ReceiptArtifact(path="dist/\u202eppa", sha256=f"sha256:{'2' * 64}"),
)


def made_provenance(signer: Signer, **others: Any) -> Receipt:
    """Of two files that a build left."""
    fields: dict[str, Any] = {
        "checks": (describe_check(made_binding("build"), made_run("build")),),
        "artifacts": ARTIFACTS,
        "keyid": signer.trusted.keyid,
    }
    return made_receipt(**fields | others)


def statement_of(envelope: bytes) -> dict[str, Any]:
    """The statement as a careless reader takes it: the signature is not looked at."""
    found: dict[str, Any] = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    return found


def with_payload(envelope: bytes, payload: bytes) -> bytes:
    """The envelope with other content under the same signature."""
    return json.dumps({**json.loads(envelope), "payload": base64.b64encode(payload).decode()}).encode()


def with_statement(envelope: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    statement = statement_of(envelope)
    change(statement)
    return with_payload(envelope, json.dumps(statement, sort_keys=True, separators=(",", ":")).encode())


def pae(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding, written from its specification."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def signed(signer: Signer, receipt: Receipt | None = None) -> bytes:
    return signer.sign(write_statement(receipt or made_receipt()))
