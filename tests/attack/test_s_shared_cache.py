"""THREATS S113: a shared verdict cache that somebody else writes into.

Control: a careless reader, who takes what is under the verdict's name, answers `passed`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import fsspec
import pytest

from sandbox.errors import ErrorCode
from sandbox.models import CheckRun, Report, Verdict
from sandbox.models.receipts import BundleSigner, Receipt, ReceiptQuestion
from sandbox.receipts import verification
from sandbox.receipts.statement import describe_check, write_statement
from sandbox.receipts.verification import Expectation, verify_receipt
from sandbox.store.verdicts import Binding, save_verdict
from sandbox.workbench.checks import clean_rooms
from sandbox.workbench.checks.shared_cache import ENTRY, SharedCache, open_shared_cache
from sandbox.workbench.checks.signed_receipts import describe_run, verify
from sandbox.workbench.checks.verify_options import VerifyOptions
from sandbox.workbench.controller.services import build_services
from tests.unit.conftest import refused
from tests.unit.receipt_samples import (
    SIGNED_AT,
    Signer,
    made_binding,
    made_receipt,
    made_run,
    signed,
    statement_of,
    with_statement,
)

pytestmark = [pytest.mark.must, pytest.mark.one_git, pytest.mark.xdist_group("s3")]

OURS, THEIRS = Signer(), Signer()
ASKED, OTHER = made_binding("test"), made_binding("test", runtime="runsc")
RUN = made_run("test")


def entry(signer: Signer, binding: Binding, run: CheckRun = RUN) -> bytes:
    receipt: Receipt = made_receipt(
        checks=(describe_check(binding, run),), commit=None, tree=binding.tree, source=ENTRY
    )
    return signer.sign(write_statement(receipt))


class Shared:
    """A home whose settings name a shared cache, and its own key as the only trusted one."""

    def __init__(self, root: Path, url: str) -> None:
        (root / "private.pem").write_bytes(OURS.pem)
        (root / "public.pem").write_bytes(OURS.public_pem)
        keys = {"signing_key": str(root / "private.pem"), "trusted_keys": [str(root / "public.pem")]}
        flags = {"receipts": keys, "cache": {"url": url}}
        found = open_shared_cache(build_services(root / "home", {"PATH": os.environ["PATH"]}, flags, allow_file=True))
        assert found is not None
        self.cache: SharedCache = found

    def put(self, content: bytes) -> None:
        self.cache.store.write(f"{ASKED.key}.json", content)


@pytest.fixture(params=["directory", "memory", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    if request.param == "directory":
        return Shared(tmp_path, str(tmp_path / "shared"))
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()
        return Shared(tmp_path, f"memory://{tmp_path.name}")
    bucket = request.getfixturevalue("bucket")
    return Shared(tmp_path, f"s3://{bucket}/{tmp_path.name}")


def test_s113_what_one_home_adds_another_home_uses(shared: Shared) -> None:
    """The control of all others: an entry that is right is used."""
    assert shared.cache.find(ASKED) is None
    shared.cache.add(ASKED, RUN)
    found = shared.cache.find(ASKED)
    assert found is not None
    assert (found.verdict, found.cached, found.stdout_tail) == (Verdict.PASSED, True, "")
    assert shared.cache.find(OTHER) is None


def test_s113_a_verdict_of_a_compiler_cache_answers_only_where_one_is_allowed(shared: Shared) -> None:
    asked, run = made_binding("test", compiler_cache=True), made_run("test", compiler_cache="read")
    shared.cache.add(asked, run)
    found = shared.cache.find(asked)
    assert found is not None
    assert found.compiler_cache == "read"
    shared.put(shared.cache.store.read(f"{asked.key}.json", 1024**2) or b"")
    assert shared.cache.find(ASKED) is None, "from scratch is another question"


def test_s113_what_failed_here_is_not_answered_from_elsewhere(shared: Shared) -> None:
    """Another home was lucky. Control: before it failed here, the entry is an answer."""
    services, unused = shared.cache.services, cast("Any", None)
    request = clean_rooms.VerifyRequest(unused, (), "")
    runner = clean_rooms._ChainRunner(services, unused, request, unused, VerifyOptions())
    shared.cache.add(ASKED, RUN)
    with_cache = ASKED.model_copy(update={"compiler_cache": True})
    ways = [{"test": ASKED}, {"test": with_cache}]
    assert runner._answer((ASKED.check,), ways, 0), "void"
    services.home.prepare()
    save_verdict(services.home, ASKED, FAILED)
    assert runner._answer((ASKED.check,), ways, 0) is None, "it has to run again"
    services.home.verdict(ASKED.key).unlink()
    assert runner._answer((ASKED.check,), ways, 0), "void"
    save_verdict(services.home, with_cache, FAILED.model_copy(update={"compiler_cache": "read"}))
    assert runner._answer((ASKED.check,), ways, 0) is None, "also after a failure with a compiler cache"


def say_passed(statement: dict[str, object]) -> None:
    predicate: dict[str, object] = statement["predicate"]  # type: ignore[assignment]  # JSON
    predicate.update(result="PASSED", passedTests=["test"], failedTests=[])


FAILED = made_run("test", Verdict.FAILED)
POISON: dict[str, Callable[[], tuple[bytes, str]]] = {
    "another key": lambda: (entry(THEIRS, ASKED), "wrong_key"),
    "another question under this name": lambda: (entry(OURS, OTHER), "wrong_checks"),
    "another tree under this name": lambda: (entry(OURS, made_binding("test", tree="b" * 40)), "wrong_tree"),
    "a failure that says passed": lambda: (with_statement(entry(OURS, ASKED, FAILED), say_passed), "tampered"),
    "an end by a signal that says passed": lambda: (
        entry(OURS, ASKED, made_run("test", exit_code=None, signal=9)),
        "inconsistent",
    ),
    "a receipt of a run, which was no evidence": lambda: (
        signed(OURS, made_receipt(checks=(describe_check(ASKED, RUN),), commit=None, source="")),
        "wrong_checks",
    ),
    "garbage": lambda: (b"\xff" * 100, "malformed"),
    "a large file": lambda: (entry(OURS, ASKED) + b" " * 2 * 1024**2, "malformed"),
}


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
def test_s113_a_poisoned_entry_is_refused_by_name(
    shared: Shared, poison: Callable[[], tuple[bytes, str]], caplog: pytest.LogCaptureFixture
) -> None:
    content, reason = poison()
    shared.put(content)
    if content.startswith(b"{"):
        assert statement_of(content)["predicate"]["result"] == "PASSED", "void"
    with caplog.at_level(logging.WARNING):
        assert shared.cache.find(ASKED) is None
    assert f"({reason})" in caplog.text


def test_s113_entries_that_are_no_regular_files_are_not_followed(tmp_path: Path) -> None:
    shared, folder = Shared(tmp_path, str(tmp_path / "shared")), tmp_path / "shared"
    shared.cache.add(ASKED, RUN)
    place, elsewhere = folder / f"{ASKED.key}.json", tmp_path / "elsewhere"
    place.rename(elsewhere)
    place.symlink_to(elsewhere)
    assert json.loads(place.read_bytes()), "void"
    assert shared.cache.find(ASKED) is None
    place.unlink()
    os.mkfifo(place)
    assert shared.cache.find(ASKED) is None  # and nobody waits for a writer
    place.unlink()
    place.mkdir()
    assert shared.cache.find(ASKED) is None
    shared.cache.add(ASKED, RUN)  # cannot be written: a warning


@pytest.mark.parametrize(
    "run", [FAILED, made_run("test", exit_code=None, signal=9)], ids=["a failure", "an end by a signal"]
)
def test_s113_only_passed_verdicts_are_shared(tmp_path: Path, run: CheckRun) -> None:
    shared = Shared(tmp_path, str(tmp_path / "shared"))
    shared.cache.add(ASKED, run)
    assert not (tmp_path / "shared").exists()


def test_s223_a_receipt_of_a_shared_verdict_says_what_its_entry_says_and_who_signed_that(tmp_path: Path) -> None:
    """Control: the entry is used, and a run of this home names no such key."""
    shared = Shared(tmp_path, str(tmp_path / "shared"))
    report = Report(tests=7, failures=0, errors=0, skipped=0, failed=())
    run = made_run("test", missing_packages=("left out: ms",), report=report)
    shared.put(entry(OURS, ASKED, run))
    found = shared.cache.find(ASKED)
    assert found is not None
    assert found.missing_packages, "what passed without packages says so, also from elsewhere"
    said = describe_run(shared.cache.services, found)
    expected = describe_check(ASKED, run)
    assert said == expected.model_copy(update={"shared_by": OURS.trusted.keyid})
    assert (said.tests, said.packages_missing, expected.shared_by) == (7, True, "")


def replaced(run_id: str) -> bytes:
    return entry(OURS, ASKED, RUN.model_copy(update={"run_id": run_id}))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (entry(THEIRS, ASKED), "wrong_key"),
        (entry(OURS, OTHER), "wrong_checks"),
        (replaced("run-other"), "inconsistent"),
        (replaced(RUN.run_id), None),
    ],
    ids=["another key", "another question", "another run", "control: the same"],
)
def test_s223_an_entry_that_was_exchanged_since_gives_no_receipt(
    tmp_path: Path, content: bytes, reason: str | None
) -> None:
    shared = Shared(tmp_path, str(tmp_path / "shared"))
    shared.put(entry(OURS, ASKED))
    found = shared.cache.find(ASKED)
    assert found is not None, "void"
    shared.put(content)
    if reason is None:
        assert describe_run(shared.cache.services, found).run_id == RUN.run_id
        return
    with refused(ErrorCode.RECEIPT_REFUSED) as caught:
        describe_run(shared.cache.services, found)
    assert caught.value.reason == reason


def test_s223_a_second_writer_keeps_the_entry_that_a_receipt_rests_on(shared: Shared) -> None:
    """Control: an entry that cannot be trusted, or says less than the new one, is replaced."""
    other = RUN.model_copy(update={"run_id": "run-other"})
    shared.put(entry(THEIRS, ASKED))
    shared.cache.add(ASKED, RUN.model_copy(update={"missing_packages": ("left out: ms",)}))
    shared.cache.add(ASKED, RUN)
    found = shared.cache.find(ASKED)
    assert found is not None
    assert (found.run_id, found.missing_packages) == (RUN.run_id, ()), "void"
    shared.cache.add(ASKED, other)
    assert describe_run(shared.cache.services, found).run_id == RUN.run_id


def test_s223_an_entry_that_is_gone_gives_no_receipt(tmp_path: Path) -> None:
    shared = Shared(tmp_path, str(tmp_path / "shared"))
    shared.put(entry(OURS, ASKED))
    found = shared.cache.find(ASKED)
    assert found is not None, "void"
    (tmp_path / "shared" / f"{ASKED.key}.json").unlink()
    with refused(ErrorCode.NOT_FOUND) as caught:
        describe_run(shared.cache.services, found)
    assert "--no-cache" in caught.value.hint


def test_s223_a_revoked_key_ends_receipts_of_other_keys_that_rest_on_its_entries() -> None:
    check = describe_check(ASKED, RUN).model_copy(update={"shared_by": THEIRS.trusted.keyid})
    content = signed(OURS, made_receipt(checks=(check,)))
    assert verify_receipt(content, (OURS.trusted, THEIRS.trusted), Expectation()).passed, "void"
    revoked = THEIRS.trusted.model_copy(update={"revoked_at": SIGNED_AT})
    with refused(ErrorCode.RECEIPT_REFUSED) as caught:
        verify_receipt(content, (OURS.trusted, revoked), Expectation())
    assert caught.value.reason == "revoked_key"


def test_s223_a_bundle_does_not_hide_that_the_key_of_an_entry_was_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundle stands for the key of the receipt; the keys that this home trusts say what was revoked."""
    services, bundle = Shared(tmp_path, str(tmp_path / "shared")).cache.services, tmp_path / "bundle.json"
    bundle.write_text("{}")
    monkeypatch.setattr(verification, "verify_bundle", lambda *_: None)
    check = describe_check(ASKED, RUN).model_copy(update={"shared_by": THEIRS.trusted.keyid})
    content = signed(Signer(), made_receipt(checks=(check,)))
    question = ReceiptQuestion(bundle=bundle, vouched_by=BundleSigner(identity="ci", issuer="https://issuer"))
    assert verify(services, content, question).passed, "void"
    revoked = THEIRS.trusted.model_copy(update={"revoked_at": SIGNED_AT})
    (tmp_path / "public.pem").write_text(json.dumps({"keys": [revoked.model_dump(mode="json")]}))
    with refused(ErrorCode.RECEIPT_REFUSED) as caught:
        verify(services, content, question)
    assert caught.value.reason == "revoked_key"


def test_a_key_that_cannot_sign_is_refused_before_a_check_runs(tmp_path: Path) -> None:
    shared = Shared(tmp_path, str(tmp_path / "shared"))
    (tmp_path / "private.pem").write_text("none")
    with refused(ErrorCode.INVALID_INPUT):
        open_shared_cache(shared.cache.services)
