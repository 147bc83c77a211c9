"""THREATS S139: Sigstore bundles that are forged, of others, or shown for another receipt.

The control of each: a careless reader, who reads in the bundle who signed and what the log has, believes it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Verdict
from sandbox.models.receipts import BundleSigner
from sandbox.receipts.sigstore_bundle import sign_bundle, verify_bundle
from tests.unit.receipt_samples import Signer, made_receipt, signed
from tests.unit.sigstore_server import ISSUER, PrivateSigstore, serve_sigstore

pytestmark = [pytest.mark.must, pytest.mark.one_git, pytest.mark.xdist_group("receipt-bundles")]

US, THEM = "https://forge.example/us/ci.yml@refs/heads/main", "https://forge.example/them/ci.yml@refs/heads/main"
WHO = BundleSigner(identity=US, issuer=ISSUER)
PASSED, FAILED = signed(Signer()), signed(Signer(), made_receipt(Verdict.FAILED))


@dataclass(frozen=True)
class Arena:
    """The instance that is trusted, one of the attacker, and files for what a job has."""

    ours: PrivateSigstore
    theirs: PrivateSigstore
    root: Path

    def trust(self, instance: PrivateSigstore) -> Path:
        path = self.root / "trust.json"
        path.write_text(instance.trust_config)
        return path

    def sign(self, content: bytes, identity: str = US, issuer: str = ISSUER, *, by_theirs: bool = False) -> bytes:
        instance, token = self.theirs if by_theirs else self.ours, self.root / "token"
        token.write_text(instance.token(identity, issuer))
        return sign_bundle(content, token, self.trust(instance)).bundle.encode()

    def verify(self, content: bytes, bundle: bytes, signer: BundleSigner = WHO) -> None:
        verify_bundle(content, bundle, signer, self.trust(self.ours))

    def refusal_of(self, content: bytes, bundle: bytes) -> str:
        with pytest.raises(SandboxError) as caught:
            self.verify(content, bundle)
        assert caught.value.code is ErrorCode.RECEIPT_REFUSED
        return caught.value.reason or ""


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with serve_sigstore() as ours, serve_sigstore() as theirs:
        yield Arena(ours, theirs, tmp_path_factory.mktemp("bundles"))


def says(bundle: bytes) -> str:
    """Who a careless reader takes for the signer."""
    certificate = x509.load_der_x509_certificate(
        base64.b64decode(json.loads(bundle)["verificationMaterial"]["certificate"]["rawBytes"])
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return str(names.get_values_for_type(x509.UniformResourceIdentifier)[0])


def test_s139_a_bundle_of_the_trusted_instance_holds(arena: Arena) -> None:
    bundle = arena.sign(PASSED)
    assert says(bundle) == US
    arena.verify(PASSED, bundle)


def test_s139_another_identity_or_issuer_is_refused_by_name(arena: Arena) -> None:
    for bundle, signer in (
        (arena.sign(PASSED, THEM), BundleSigner(identity=THEM, issuer=ISSUER)),
        (arena.sign(PASSED, US, "https://other.example"), BundleSigner(identity=US, issuer="https://other.example")),
        (arena.sign(PASSED, f"{US}x"), BundleSigner(identity=f"{US}x", issuer=ISSUER)),
        (arena.sign(PASSED, US.upper()), BundleSigner(identity=US.upper(), issuer=ISSUER)),
    ):
        arena.verify(PASSED, bundle, signer)  # control: it is a good bundle of somebody else
        assert arena.refusal_of(PASSED, bundle) == "wrong_identity"


def test_s139_the_bundle_of_another_receipt_is_refused_by_name(arena: Arena) -> None:
    bundle = arena.sign(PASSED)
    arena.verify(PASSED, bundle)
    for other in (FAILED, PASSED + b"\n", PASSED[:-1], b""):
        assert arena.refusal_of(other, bundle) == "wrong_bundle"


def test_s139_an_instance_that_the_attacker_runs_is_refused_by_name(arena: Arena) -> None:
    bundle = arena.sign(PASSED, by_theirs=True)
    assert says(bundle) == US, "void"
    verify_bundle(PASSED, bundle, WHO, arena.trust(arena.theirs))  # control: who trusts that instance believes it
    assert arena.refusal_of(PASSED, bundle) == "wrong_bundle"


def mix(bundle: dict[str, Any], other: dict[str, Any], *names: str) -> None:
    """Put a part of another bundle in its place."""
    *above, last = names
    for name in above:
        bundle, other = bundle[name], other[name]
    bundle[last] = other[last]


PARTS = {
    "the certificate": ("verificationMaterial", "certificate"),
    "the entry of the log": ("verificationMaterial", "tlogEntries"),
    "the signature": ("messageSignature",),
}


@pytest.mark.parametrize("names", PARTS.values(), ids=PARTS)
def test_s139_parts_of_two_bundles_make_none(arena: Arena, names: tuple[str, ...]) -> None:
    mine, other = json.loads(arena.sign(PASSED)), json.loads(arena.sign(FAILED))
    mix(mine, other, *names)
    bundle = json.dumps(mine).encode()
    assert says(bundle) == US, "void"
    assert arena.refusal_of(PASSED, bundle) == "wrong_bundle"


def test_s139_a_certificate_of_the_attackers_instance_in_our_log_is_refused(arena: Arena) -> None:
    mine, theirs = json.loads(arena.sign(PASSED)), json.loads(arena.sign(PASSED, by_theirs=True))
    for names in (("verificationMaterial", "certificate"), ("messageSignature",)):
        mix(mine, theirs, *names)
    assert arena.refusal_of(PASSED, json.dumps(mine).encode()) == "wrong_bundle"


def entry_of(bundle: dict[str, Any]) -> dict[str, Any]:
    (entry,) = bundle["verificationMaterial"]["tlogEntries"]
    assert isinstance(entry, dict)
    return entry


def later(bundle: dict[str, Any]) -> None:
    """Signed when the certificate had long expired: somebody found the key."""
    entry_of(bundle)["integratedTime"] = str(int(entry_of(bundle)["integratedTime"]) + 3600)


def without_promise(bundle: dict[str, Any]) -> None:
    del entry_of(bundle)["inclusionPromise"]


def without_proof(bundle: dict[str, Any]) -> None:
    del entry_of(bundle)["inclusionProof"]


def without_entry(bundle: dict[str, Any]) -> None:
    bundle["verificationMaterial"]["tlogEntries"] = []


def another_root(bundle: dict[str, Any]) -> None:
    entry_of(bundle)["inclusionProof"]["rootHash"] = base64.b64encode(b"r" * 32).decode()


def another_checkpoint(bundle: dict[str, Any]) -> None:
    checkpoint = entry_of(bundle)["inclusionProof"]["checkpoint"]
    checkpoint["envelope"] = checkpoint["envelope"].replace("tests - 1\n1\n", "tests - 1\n2\n")


def no_certificate(bundle: dict[str, Any]) -> None:
    bundle["verificationMaterial"]["certificate"] = {"rawBytes": "AAAA"}


CHANGES = (later, without_promise, without_proof, without_entry, another_root, another_checkpoint, no_certificate)


@pytest.mark.parametrize("change", CHANGES)
def test_s139_a_changed_bundle_is_refused_by_name(arena: Arena, change: Callable[[dict[str, Any]], None]) -> None:
    bundle = json.loads(arena.sign(PASSED))
    arena.verify(PASSED, json.dumps(bundle).encode())  # control
    change(bundle)
    assert arena.refusal_of(PASSED, json.dumps(bundle).encode()) in {"wrong_bundle", "malformed"}


NONE: dict[str, Callable[[bytes], bytes]] = {
    "the last byte": lambda text: text[:-1],
    "nothing": lambda _: b"",
    "a list": lambda _: b"[]",
    "an empty object": lambda _: b"{}",
    "a name twice": lambda text: text[:-1] + b',"mediaType":"x"}',
    "deep": lambda _: b"[" * 100_000,
    "large": lambda text: text + b" " * 1024**2,
    "no text": lambda _: b"\xff\xfe",
}


@pytest.mark.parametrize("cut", NONE.values(), ids=NONE)
def test_s139_what_is_no_bundle_is_refused_by_name(arena: Arena, cut: Callable[[bytes], bytes]) -> None:
    assert arena.refusal_of(PASSED, cut(arena.sign(PASSED))) == "malformed"
