"""S31: a receipt of eight checks is made (written, signed) and verified. Floor: one Ed25519 signature and its check.

No engine: the runs are made up, the keys and the code are the product's.
"""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks._harness import compare
from sandbox.models import Check, CheckRun, Limits, Receipt, Usage, Verdict
from sandbox.receipts import keys
from sandbox.receipts.dsse_envelope import sign_payload
from sandbox.receipts.statement import describe_check, write_statement
from sandbox.receipts.verification import Expectation, verify_receipt
from sandbox.store.verdicts import Binding

CHECKS = 8
TREE = "a" * 40


def make_receipt() -> Receipt:
    started = datetime(2026, 1, 1, tzinfo=UTC)
    checks = []
    for number in range(CHECKS):
        check = Check(id=f"check{number}", label="a check", argv=("make", "test"))
        binding = Binding(
            tree=TREE, image_digest="sha256:1", check=check, policy="", runtime="runc", platform="linux", user=None
        )
        run = CheckRun(
            run_id="run-1", check_id=check.id, task_id=None, verdict=Verdict.PASSED, exit_code=0, signal=None,
            started_at=started, wall_time_s=1.0, usage=Usage(limits=Limits()), stdout_tail="", stderr_tail="",
            stdout_bytes=0, stderr_bytes=0, truncated=False, tree=TREE, clean_room=True, cached=False,
            image_digest="sha256:1", runtime="runc", report=None,
        )  # fmt: skip
        checks.append(describe_check(binding, run))
    return Receipt(tree=TREE, commit=None, checks=tuple(checks), product_version="1", signed_at=started)


def main() -> None:
    signer = keys.load_signer(keys.generate_private_key(), "the benchmark's")
    trusted = [keys.describe_key(signer)]
    plain = Ed25519PrivateKey.generate()

    def product() -> None:
        envelope = sign_payload(write_statement(make_receipt()), signer).encode()
        assert verify_receipt(envelope, trusted, Expectation(TREE)).passed

    def floor() -> None:
        plain.public_key().verify(plain.sign(b"x" * 10_000), b"x" * 10_000)

    name = "S31 receipt made and verified"
    compare(name, product, floor, floor_name="one Ed25519 signature and its check", target="50 ms")


if __name__ == "__main__":
    main()
