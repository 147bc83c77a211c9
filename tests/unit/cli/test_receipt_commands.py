"""`sandbox receipt` as a command: what it needs, and what it says to who names the wrong file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.cli import main
from sandbox.models import Check
from sandbox.receipts.statement import describe_check, write_statement
from tests.unit.conftest import Upstream
from tests.unit.receipt_samples import TREE, Signer, made_binding, made_receipt, made_run, signed


class Shelf:
    """A receipt and the keys of who signed it, in files, and the place of a home that does not exist."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.signer = root, root / "no-home", Signer()
        self.receipt, self.private, self.public = (root / name for name in ("receipt.json", "key.pem", "key.pub"))
        self.receipt.write_bytes(signed(self.signer))
        self.private.write_bytes(self.signer.pem)
        self.public.write_bytes(self.signer.public_pem)

    def verify(self, key: Path, *more: str) -> int:
        return main(["--home", str(self.home), "receipt", "verify", str(self.receipt), "--key", str(key), *more])


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_a_key_and_a_receipt_are_enough_and_no_home_is_made(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    assert shelf.verify(shelf.public, "--tree", TREE) == 0
    said = capsys.readouterr().out
    assert f"verified: tree {TREE}" in said
    assert "test ran: make test\n" in said
    assert shelf.verify(shelf.public, "--tree", "b" * 40) == 3
    assert "wrong_tree" in capsys.readouterr().err
    assert not shelf.home.exists()


def test_a_receipt_shows_that_only_a_part_ran(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    check = Check(id="test", label="test", argv=("pytest", "a b.py"), arguments=("a b.py",))
    receipt = made_receipt(checks=(describe_check(made_binding("test", check=check), made_run("test")),))
    shelf.receipt.write_bytes(shelf.signer.sign(write_statement(receipt)))
    assert shelf.verify(shelf.public) == 0
    assert "test ran, only a part of the check: pytest 'a b.py'\n" in capsys.readouterr().out
    assert shelf.verify(shelf.public, "--check", "test") == 3


def test_a_receipt_shows_which_key_says_that_a_check_ran_elsewhere(
    shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    check = describe_check(made_binding("test"), made_run("test")).model_copy(update={"shared_by": "ab" * 32})
    shelf.receipt.write_bytes(shelf.signer.sign(write_statement(made_receipt(checks=(check,)))))
    assert shelf.verify(shelf.public) == 0
    assert "test ran, elsewhere, says the key abababababababab: make test\n" in capsys.readouterr().out


def test_a_receipt_shows_that_packages_were_missing(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    run = made_run("test", missing_packages=("left out: ms",))
    receipt = made_receipt(checks=(describe_check(made_binding("test"), run),))
    shelf.receipt.write_bytes(shelf.signer.sign(write_statement(receipt)))
    assert shelf.verify(shelf.public) == 0
    assert "verified, without packages that the project asks for: tree " in capsys.readouterr().out


def test_a_private_key_is_not_taken_for_a_public_one(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    assert shelf.verify(shelf.private) == 2
    said = capsys.readouterr().err
    assert "it is a private key" in said
    assert f"openssl pkey -in {shelf.private} -pubout" in said


def test_a_missing_key_is_named_with_what_to_ask_for(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    assert shelf.verify(shelf.root / "absent") == 2
    said = capsys.readouterr().err
    assert "absent cannot be read: No such file" in said
    assert "receipt keys --pem" in said


def test_the_key_in_use_is_printed_alone_also_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def print_key(*options: str) -> str:
        assert main(["--home", str(tmp_path / "home"), "receipt", "keys", "--pem", *options]) == 0
        return capsys.readouterr().out

    pem = print_key()
    assert pem.startswith("-----BEGIN PUBLIC KEY-----\n")
    assert [key["public_key"] for key in json.loads(print_key("--json"))["keys"]] == [pem]


def test_a_remote_without_notes_has_no_receipt(
    shelf: Shelf, upstream: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.write("f", b"x")
    upstream.commit()
    code = main(["--home", str(shelf.home), "receipt", "fetch", str(upstream.root), "--key", str(shelf.public)])
    said = capsys.readouterr()
    assert code == 3
    assert "the remote has no receipt of commit" in said.out
    assert "receipt push" in said.err


def test_s227_a_ref_without_its_repository_is_refused(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    assert shelf.verify(shelf.public) == 0  # the control
    assert shelf.verify(shelf.public, "--ref", "nosuchref") == 2
    assert "--repo" in capsys.readouterr().err
