"""Bundles of Sigstore, made with a private instance and verified by the library that users have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.cli import main
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.receipts import BundleSigner, ReceiptQuestion, SignedBundle
from sandbox.receipts import sigstore_bundle
from sandbox.receipts.sigstore_bundle import sign_bundle, verify_bundle
from sandbox.receipts.verification import verify_question
from tests.unit.receipt_samples import TREE, Signer, signed
from tests.unit.sigstore_server import ISSUER, PrivateSigstore, serve_sigstore

ME = "https://forge.example/owner/name/.ci/release.yml@refs/heads/main"
WHO = BundleSigner(identity=ME, issuer=ISSUER)


@pytest.fixture(scope="module")
def instance() -> Iterator[PrivateSigstore]:
    with serve_sigstore() as started:
        yield started


class Shelf:
    """Files that a job has: its receipt, its token, and what it knows of the instance."""

    def __init__(self, root: Path, instance: PrivateSigstore) -> None:
        self.root, self.home, self.instance = root, root / "home", instance
        self.receipt, self.bundle = root / "receipt.json", root / "receipt.json.sigstore.json"
        self.token, self.trust = root / "token", root / "trust.json"
        self.receipt.write_bytes(signed(Signer()) + b"\n")
        self.token.write_text(instance.token(ME) + "\n")
        self.trust.write_text(instance.trust_config)

    def sign(self) -> SignedBundle:
        return sign_bundle(self.receipt.read_bytes(), self.token, self.trust)

    def run(self, *words: str) -> int:
        return main(["--home", str(self.home), "receipt", *words])

    def verify(self, *more: str, identity: str = ME) -> int:
        what = ("--bundle", str(self.bundle), "--identity", identity, "--issuer", ISSUER)
        return self.run("verify", str(self.receipt), *what, *more)


@pytest.fixture
def shelf(tmp_path: Path, instance: PrivateSigstore, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    for name in ("SIGSTORE_ID_TOKEN", "GITHUB_ACTIONS", "GITLAB_CI", "CIRCLECI", "BUILDKITE"):
        monkeypatch.delenv(name, raising=False)
    return Shelf(tmp_path, instance)


def test_a_job_signs_with_its_identity_and_a_stranger_verifies_without_a_home(
    shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        shelf.run("sign", str(shelf.receipt), "--identity-token", str(shelf.token), "--trust-config", str(shelf.trust))
        == 0
    )
    assert f"--identity {ME} --issuer {ISSUER}" in capsys.readouterr().err
    shelf.home = shelf.root / "elsewhere"
    assert shelf.verify("--trust-config", str(shelf.trust), "--tree", TREE) == 0
    said = capsys.readouterr().out
    assert f"verified: tree {TREE}" in said
    assert f"vouched for by {ME}, issuer {ISSUER}" in said
    assert "(which was not verified)" in said
    assert not shelf.home.exists()
    assert shelf.verify("--trust-config", str(shelf.trust), "--tree", "b" * 40) == 3
    assert "wrong_tree" in capsys.readouterr().err


def test_the_settings_name_the_instance_and_the_journal_has_who_signed(
    shelf: Shelf, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_RECEIPTS_TRUST_CONFIG", str(shelf.trust))
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", shelf.instance.token(ME))
    assert shelf.run("sign", str(shelf.receipt), "-o", str(shelf.root / "b"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["signer"] == {"identity": ME, "issuer": ISSUER}
    (shelf.root / "b").rename(shelf.bundle)
    assert shelf.verify() == 0
    assert ME in (shelf.home / "repositories/journal/home.jsonl").read_text()


def test_keys_that_are_named_have_to_hold_as_well(shelf: Shelf) -> None:
    signer = Signer()
    shelf.receipt.write_bytes(signed(signer))
    shelf.bundle.write_text(shelf.sign().bundle)
    for name, key, code in (("ours", signer, 0), ("theirs", Signer(), 3)):
        (shelf.root / name).write_bytes(key.public_pem)
        assert shelf.verify("--trust-config", str(shelf.trust), "--key", str(shelf.root / name)) == code


def test_the_root_alone_is_enough_to_verify(shelf: Shelf) -> None:
    bundle = shelf.sign().bundle.encode()
    root = shelf.root / "trusted_root.json"
    root.write_text(json.dumps(json.loads(shelf.instance.trust_config)["trustedRoot"]))
    verify_bundle(shelf.receipt.read_bytes(), bundle, WHO, root)


def test_another_client_of_sigstore_accepts_the_bundle(shelf: Shelf) -> None:
    """That of the library's own command line, which knows nothing of receipts."""
    from sigstore._cli import main as client  # noqa: PLC0415 - slow

    shelf.bundle.write_text(shelf.sign().bundle)
    words = ["sigstore", "--trust-config", str(shelf.trust), "verify", "identity", "--bundle", str(shelf.bundle)]
    words += ["--cert-identity", ME, "--cert-oidc-issuer", ISSUER, str(shelf.receipt)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", words)
        client()


def test_a_bundle_without_a_name_for_its_signer_is_no_question(shelf: Shelf) -> None:
    shelf.bundle.write_text(shelf.sign().bundle)
    assert (
        shelf.run("verify", str(shelf.receipt), "--bundle", str(shelf.bundle), "--trust-config", str(shelf.trust)) == 2
    )
    assert shelf.run("verify", str(shelf.receipt), "--bundle", str(shelf.bundle), "--identity", ME) == 2


def error_of(call: Callable[[], object]) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        call()
    return caught.value


def test_what_is_no_receipt_is_not_signed(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    before = len(shelf.instance.entries)
    shelf.receipt.write_bytes(b"{}")
    assert (
        shelf.run("sign", str(shelf.receipt), "--identity-token", str(shelf.token), "--trust-config", str(shelf.trust))
        == 3
    )
    assert "malformed" in capsys.readouterr().err
    assert len(shelf.instance.entries) == before


def test_a_job_without_a_token_is_told_where_tokens_come_from(shelf: Shelf) -> None:
    error = error_of(lambda: sign_bundle(b"x", None, shelf.trust))
    assert (error.code, "id-token: write" in error.hint) == (ErrorCode.AUTH_FAILED, True)
    shelf.token.write_text("no token")
    assert error_of(shelf.sign).code is ErrorCode.AUTH_FAILED
    shelf.token.write_text(shelf.instance.token(ME, life_s=-60))
    assert error_of(shelf.sign).code is ErrorCode.AUTH_FAILED
    shelf.token.unlink()
    assert error_of(shelf.sign).code is ErrorCode.INVALID_INPUT


def test_servers_that_refuse_or_are_silent_are_named_in_time(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf.instance, "refuses", True)
    assert error_of(shelf.sign).code is ErrorCode.AUTH_FAILED
    monkeypatch.setattr(shelf.instance, "refuses", False)
    monkeypatch.setattr(shelf.instance, "answers_after_s", 1.0)
    with monkeypatch.context() as patched:
        patched.setattr(sigstore_bundle, "DEADLINE_S", 0.2)
        assert error_of(shelf.sign).code is ErrorCode.TIMEOUT
    config = json.loads(shelf.instance.trust_config)
    config["signingConfig"]["caUrls"][0]["url"] = "http://127.0.0.1:1"
    shelf.trust.write_text(json.dumps(config))
    error = error_of(shelf.sign)
    assert (error.code, "127.0.0.1" in error.details) == (ErrorCode.NETWORK_ERROR, True)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"mediaType": "x"}'], ids=repr)
def test_a_file_of_trust_that_is_none_is_named(shelf: Shelf, content: bytes) -> None:
    bundle = shelf.sign().bundle.encode()
    shelf.trust.write_bytes(content)
    assert error_of(shelf.sign).code is ErrorCode.INVALID_INPUT
    assert error_of(lambda: verify_bundle(b"x", bundle, WHO, shelf.trust)).code is ErrorCode.INVALID_INPUT


def test_without_the_extra_the_error_names_it(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    error = error_of(shelf.sign)
    assert (error.code, "space-sandbox[sigstore]" in error.hint) == (ErrorCode.INVALID_INPUT, True)


def test_a_question_without_bundle_needs_keys(shelf: Shelf) -> None:
    error = error_of(lambda: verify_question(shelf.receipt.read_bytes(), ReceiptQuestion(), ()))
    assert error.reason == "wrong_key"
