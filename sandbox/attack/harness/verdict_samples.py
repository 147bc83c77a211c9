"""Runs, what they were bound to, and receipts of them, as an attacker has seen them; and keys to sign and to forge."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from sandbox.models import Check, CheckRun, Limits, Usage, Verdict
from sandbox.models.receipts import Receipt, ReceiptKey, Statement
from sandbox.receipts import keys
from sandbox.receipts.dsse_envelope import sign_payload
from sandbox.receipts.statement import describe_check, write_statement
from sandbox.store.verdicts import Binding

TREE, COMMIT = "a" * 40, "c" * 40
AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


@dataclass(frozen=True)
class SigningKey:
    """A fresh key. `signer` has its private half, `public` is what others trust."""

    pem: bytes = field(default_factory=keys.generate_private_key)

    @cached_property
    def public(self) -> ReceiptKey:
        return keys.describe_key(keys.load_signer(self.pem, "of an attack"))

    def sign(self, statement: bytes | Receipt) -> bytes:
        """An envelope of a statement's bytes, or of a receipt."""
        payload = write_statement(statement) if isinstance(statement, Receipt) else statement
        return sign_payload(payload, keys.load_signer(self.pem, "of an attack")).encode()


def make_run(verdict: Verdict = Verdict.PASSED) -> CheckRun:
    """A run of the check `test` in a clean room."""
    return CheckRun(
        run_id=f"run-{'0' * 32}",
        check_id="test",
        task_id=None,
        verdict=verdict,
        exit_code=0 if verdict is Verdict.PASSED else 1,
        signal=None,
        started_at=AT,
        wall_time_s=1.5,
        usage=Usage(limits=Limits()),
        stdout_tail="",
        stderr_tail="",
        stdout_bytes=0,
        stderr_bytes=0,
        truncated=False,
        tree=TREE,
        clean_room=True,
        cached=False,
        image_digest="sha256:1",
        runtime="runc",
        report=None,
    )


def make_binding(runtime: str = "runc") -> Binding:
    """What that run was bound to; with another runtime, another question."""
    check = Check(id="test", label="test", argv=("make", "test"))
    return Binding(
        tree=TREE,
        image_digest="sha256:1",
        check=check,
        policy="sha256:2",
        runtime=runtime,
        platform="linux/x86_64",
        user=None,
    )


def make_receipt(verdict: Verdict = Verdict.PASSED, **others: Any) -> Receipt:
    """A receipt of that run."""
    fields: dict[str, Any] = {
        "tree": TREE,
        "commit": COMMIT,
        "source": "https://forge.invalid/owner/name",
        "checks": (describe_check(make_binding(), make_run(verdict)),),
        "product_version": "1",
        "signed_at": AT,
    }
    return Receipt(**fields | others)


def read_carelessly(envelope: bytes) -> Statement:
    """The statement as a careless reader takes it: no signature is verified."""
    found: Statement = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    return found


def change_statement(envelope: bytes, change: Callable[[Statement], None]) -> bytes:
    """The envelope with a changed statement under the same signature."""
    statement = read_carelessly(envelope)
    change(statement)
    payload = base64.b64encode(json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()).decode()
    return json.dumps({**json.loads(envelope), "payload": payload}).encode()
