"""Receipts of verdicts that a real engine gave: exported here, verified and repeated elsewhere. Real engine."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devtools.guests import remove_guests_of
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.forges.body import compose
from sandbox.models import ReceiptQuestion, Verdict
from sandbox.workbench import Workbench
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.delivery.description import gather_facts
from sandbox.workbench.delivery.request_receipts import describe, push_receipt, sign_receipt
from tests.docker.test_verify import CHAIN, Bench
from tests.unit.conftest import refused
from tests.unit.receipt_samples import Signer, statement_of


@pytest.fixture
def bench(tmp_path: Path, base_image: str) -> Iterator[Bench]:
    found = Bench(tmp_path, CHAIN)
    yield found
    found.workbench.close_task(found.task_id)
    found.close()
    unmount_below(found.home)


def test_a_verdict_is_shown_to_somebody_who_has_only_the_public_key(bench: Bench, tmp_path: Path) -> None:
    with refused(ErrorCode.GATE_CLOSED):  # nothing was verified yet
        bench.workbench.export_receipt(bench.task_id)
    bench.verify()
    bench.verify()  # answered from the cache: the receipt is about the same runs

    made = bench.workbench.export_receipt(bench.task_id)
    key = tmp_path / "key.pem"
    key.write_text(bench.workbench.receipt_keys()[-1].public_key)

    with Workbench(tmp_path / "elsewhere", environ=dict(os.environ), allow_file=True) as other:
        question = ReceiptQuestion(keys=(key,), repository=str(bench.upstream.root), checks=("build", "test"))
        found = other.verify_receipt(made.envelope.encode(), question)
        assert (found, found.passed) == (made.receipt, True)
        assert [(c.id, c.verdict.value, c.runtime) for c in found.checks] == [
            ("build", "passed", "runc"),
            ("test", "passed", "runc"),
        ]
        bench.upstream.write("source", b"other\n")
        bench.upstream.commit()
        with refused(ErrorCode.RECEIPT_REFUSED) as caught:  # an old receipt for a new tree
            other.verify_receipt(made.envelope.encode(), question.model_copy(update={"ref": "main"}))
        assert caught.value.reason == "wrong_tree"


def test_a_commit_that_was_never_pushed_is_none_of_the_remote(bench: Bench) -> None:
    """The home that made it has it in the clone of that remote."""
    bench.workbench.write_file(bench.task_id, "new", "x\n", None)
    bench.workbench.commit(bench.task_id, "Add a file")
    bench.verify()
    made = bench.workbench.export_receipt(bench.task_id).envelope.encode()
    assert bench.workbench.verify_receipt(made, ReceiptQuestion()).passed
    with refused(ErrorCode.RECEIPT_REFUSED) as caught:
        bench.workbench.verify_receipt(made, ReceiptQuestion(repository=str(bench.upstream.root)))
    assert caught.value.reason == "wrong_commit"


def test_a_replay_asks_the_same_question_again_and_says_what_differs(bench: Bench) -> None:
    bench.verify()
    made = bench.workbench.export_receipt(bench.task_id).envelope.encode()
    question = ReceiptQuestion(repository=str(bench.upstream.root))

    same = bench.workbench.replay_receipt(made, question)
    bench.again({**CHAIN, "test": ("false", ["build"])})
    other = bench.workbench.replay_receipt(made, question)

    assert (same.agrees, [check.same_question for check in same.checks]) == (True, [True, True])
    build, test = other.checks
    assert (other.agrees, build.now, test.now) == (False, Verdict.PASSED, Verdict.FAILED)
    assert (build.differences, test.differences) == ((), ("definition",))


def test_any_verdict_of_a_clean_room_has_a_receipt_and_a_run_in_a_task_has_none(bench: Bench, tmp_path: Path) -> None:
    bench.again({"hungry": ("tail /dev/zero", [])})
    (hungry,) = bench.verify().runs
    (own,) = bench.workbench.run_checks(bench.task_id, ["hungry"])
    signer = Signer()
    (tmp_path / "private.pem").write_bytes(signer.pem)

    made = bench.workbench.export_receipt(hungry.run_id, signing_key=tmp_path / "private.pem")

    assert statement_of(made.envelope.encode())["predicate"]["failedTests"] == ["hungry"]
    assert (made.receipt.checks[0].verdict, made.receipt.keyid) == (Verdict.OOM_KILLED, signer.trusted.keyid)
    with refused(ErrorCode.INVALID_INPUT):
        bench.workbench.export_receipt(own.run_id)


def test_what_a_verdict_was_bound_to_outlives_the_record_of_its_run(bench: Bench) -> None:
    """The verdict cache has it too."""
    summary = bench.workbench.run(str(bench.upstream.root))
    logs = bench.home / "repositories" / "logs" / bench.repo_id
    for path in logs.iterdir():
        path.unlink()
    made = bench.workbench.export_receipt(summary)
    assert json.loads(made.envelope)["signatures"][0]["keyid"] == made.receipt.keyid
    assert made.receipt.commit == summary.commit


def test_a_pull_request_names_its_receipt_which_is_signed_and_pushed_once(bench: Bench) -> None:
    services = build_services(bench.home, os.environ, {"receipts": {"pull_requests": True}}, allow_file=True)
    task = bench.workbench.task(bench.task_id)
    assert sign_receipt(TreeGate(services, task)) is None  # nothing is verified
    bench.verify()
    assert (
        sign_receipt(TreeGate(build_services(bench.home, os.environ, allow_file=True), task)) is None
    )  # not asked for

    first, again = (sign_receipt(TreeGate(services, task)) for _ in range(2))
    assert first is not None
    assert first == again
    facts = replace(gather_facts(services, task), receipt=describe(services, task, first))
    push_receipt(services, bench.repo_id, first)

    text = compose(facts)
    assert first.receipt.digest in text
    assert f"--ref {task.head_commit} --key PUBLIC-KEY" in text
    found = bench.workbench.fetch_receipts(str(bench.upstream.root), task.head_commit)
    assert ([receipt.digest for receipt in found.receipts], found.refused) == ([first.receipt.digest], ())


def test_jobs_of_a_ci_share_what_passed(bench: Bench, tmp_path: Path) -> None:
    """Two homes, as two jobs have, and one key. Control: a home without the key runs everything."""
    signer = Signer()
    (tmp_path / "private.pem").write_bytes(signer.pem)
    (tmp_path / "public.pem").write_bytes(signer.public_pem)
    receipts = {"signing_key": str(tmp_path / "private.pem"), "trusted_keys": [str(tmp_path / "public.pem")]}
    cache = {"url": str(tmp_path / "shared")}

    def run_in(home: str, settings: dict[str, object]) -> list[bool]:
        root = tmp_path / home
        shutil.copytree(bench.home / "profiles", root / "profiles")
        with Workbench(root, environ=dict(os.environ), settings=settings, allow_file=True) as job:
            summary = job.run(str(bench.upstream.root))
            assert summary.verified
            remove_guests_of(root)
        return [run.cached for run in summary.runs]

    assert run_in("first", {"receipts": receipts, "cache": cache}) == [False, False]
    assert run_in("second", {"receipts": receipts, "cache": cache}) == [True, True]
    assert run_in("stranger", {"cache": {**cache, "write": False}}) == [False, False]
