"""The keys of a home: made at first use, replaced, revoked."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.receipts.dsse_envelope import sign_payload
from sandbox.receipts.statement import write_statement
from sandbox.receipts.verification import Expectation, verify_receipt
from sandbox.workbench.controller import signing
from sandbox.workbench.controller.services import Services, build_services
from tests.unit.conftest import refused
from tests.unit.receipt_samples import Signer, made_receipt


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return build_services(tmp_path / "home", {"PATH": os.environ["PATH"]}, allow_file=True)


def sign(services: Services, *, at: object = None) -> bytes:
    receipt = made_receipt() if at is None else made_receipt(signed_at=at)
    return sign_payload(write_statement(receipt), signing.find_signer(services, None)).encode()


def reason_of(services: Services, envelope: bytes) -> str:
    try:
        verify_receipt(envelope, signing.load_trusted(services, ()), Expectation())
    except SandboxError as error:
        return error.reason or ""
    return "holds"


def test_the_first_use_makes_a_private_key_that_only_we_can_read(services: Services) -> None:
    assert signing.list_keys(services.home) == signing.list_keys(services.home)
    (path,) = services.home.signing_keys.glob("*.pem")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert reason_of(services, sign(services)) == "holds"


def test_a_replaced_key_signs_nothing_more_and_what_it_signed_holds(services: Services) -> None:
    before = sign(services)
    (old,) = services.home.signing_keys.glob("*.pem")

    new = signing.rotate(services.home)

    assert not old.exists()
    assert [key.retired_at is None for key in signing.list_keys(services.home)] == [False, True]
    assert (reason_of(services, before), reason_of(services, sign(services))) == ("holds", "holds")
    assert signing.find_signer(services, None).public_key.keyid == new.keyid


def test_a_revoked_key_signs_nothing_more_and_nothing_of_it_holds(services: Services) -> None:
    before = sign(services)
    (key,) = signing.list_keys(services.home)

    signing.revoke(services.home, key.keyid[:12], "stolen")

    assert not list(services.home.signing_keys.glob("*.pem"))
    assert reason_of(services, before) == "revoked_key"
    assert reason_of(services, sign(services)) == "holds", "the next use makes another key"
    for unknown in ("0" * 12, key.keyid[:4]):
        with refused(ErrorCode.NOT_FOUND):
            signing.revoke(services.home, unknown, "")


def test_the_settings_name_keys_of_the_operator(tmp_path: Path) -> None:
    signer = Signer()
    (tmp_path / "private.pem").write_bytes(signer.pem)
    (tmp_path / "public.pem").write_bytes(signer.public_pem)
    flags = {"signing_key": str(tmp_path / "private.pem"), "trusted_keys": [str(tmp_path / "public.pem")]}
    services = build_services(tmp_path / "home", {}, {"receipts": flags}, allow_file=True)

    assert reason_of(services, sign(services)) == "holds"
    assert not services.home.signing_keys.exists()
    with refused(ErrorCode.INVALID_INPUT):
        signing.load_trusted(services, [tmp_path / "missing.pem"])
