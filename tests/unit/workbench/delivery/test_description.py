"""What a pull request says of a real task, and that no secret leaves with it."""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from sandbox import __version__
from sandbox.credentials import Credential
from sandbox.errors import ErrorCode
from sandbox.forges.body import BodyFacts, compose, compose_title
from sandbox.gate import DeliveryStep
from sandbox.git.objects import tree_of
from sandbox.models import Report, TestFailure, Verdict
from sandbox.store.records import find_task
from sandbox.store.verdicts import find_last_run, save_verdict
from sandbox.workbench import Workbench
from sandbox.workbench.checks import check_order, gate, tree_bindings
from sandbox.workbench.checks.chains import split_into_chains
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.verdict_keys import build_bindings
from sandbox.workbench.controller.services import Services, build_services
from sandbox.workbench.delivery import description, secret_scan
from sandbox.workbench.repositories import profile_checks
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk
from tests.unit.store.test_verdicts import made as run_made

TOKEN = "ghp_Zk3mQ9xW7vB1nR5tY8uE2pL6"
PROFILE = """
label = "two checks"
image = "base"
priority = 99
[[detect.any]]
file = "f"
[[check]]
id = "build"
label = "build"
argv = ["make"]
[[check]]
id = "test"
label = "test"
argv = ["make", "test"]
"""


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    home = tmp_path / "home"
    (home / "profiles").mkdir(parents=True)
    home.chmod(0o700)
    (home / "profiles" / "two.toml").write_text(PROFILE)
    (home / "config.toml").write_text(
        f'[engine]\nhost = "unix://{tmp_path}/nobody.sock"\n[gate]\nrequire = "pr-ready"\n'
    )
    made = Desk(upstream, home)
    made.write("f", b"one\ntwo\nthree\n")
    made.workbench.commit(made.task.id, "first: do it\n\nwhy")
    made.write("Makefile", b"all:\n")
    made.workbench.commit(made.task.id, "second " + "x" * 500)
    yield made
    made.workbench.__exit__(None, None, None)


@pytest.fixture
def services(desk: Desk) -> Iterator[Services]:
    made = build_services(desk.home, {}, allow_file=True)
    yield made
    made.close()


def told(services: Services, desk: Desk, **others: object) -> BodyFacts:
    return description.gather_facts(services, find_task(services.home, desk.task.id), **others)  # type: ignore[arg-type]  # any of its


def engine_says(monkeypatch: pytest.MonkeyPatch) -> GuestSetup:
    """What an engine would say of image and runtime."""
    made = GuestSetup("sha256:1", "runc")
    monkeypatch.setattr(tree_bindings, "resolve_guest_setup", lambda *_: made)
    return made


def kept(services: Services, desk: Desk, made: GuestSetup, **verdicts: tuple[Verdict, int]) -> None:
    """Clean rooms have said this of the task's last commit, each after what they said before."""
    task = find_task(services.home, desk.task.id)
    tree = tree_of(services.repositories.open(task.repo_id)[1], task.head_commit)
    profile = profile_checks.load_task_profile(services, task)
    policy = services.policies.container.container
    for chain in split_into_chains(check_order.order_checks(profile, [c.id for c in profile.checks], policy)):
        for name, binding in build_bindings(services.policies, made, tree, chain).items():
            if name in verdicts:
                verdict, code = verdicts[name]
                last = find_last_run(services.home, binding)
                began = run_made().started_at if last is None else last.started_at + timedelta(hours=1)
                run = run_made(verdict, code, check_id=name, tree=tree, clean_room=True, started_at=began)
                save_verdict(services.home, binding, run)


def test_commits_files_and_risks_are_those_since_the_base(desk: Desk, services: Services) -> None:
    found = told(services, desk)
    assert [subject[:13] for _, subject in found.commits] == ["first: do it", "second xxxxxx"]
    assert found.commits[1][1] == "second " + "x" * 500
    assert found.commits[-1][0] == found.head == find_task(services.home, desk.task.id).head_commit
    assert [(f.path, f.additions) for f in found.files] == [("Makefile", 1), ("f", 1)]
    assert [path for path, _ in found.risks] == ["Makefile"]
    assert compose_title(None, found.commits[0][1], found.prompt) == "first: do it"


def test_o10_a_risk_that_a_later_commit_takes_back_is_told(desk: Desk, services: Services) -> None:
    passing = desk.write("CMakeLists.txt", b"project(x)\n")
    desk.workbench.commit(desk.task.id, "for a while")
    passing.unlink()
    desk.workbench.commit(desk.task.id, "and gone")
    found = told(services, desk)
    assert [(path, flags[-1]) for path, flags in found.risks][1:] == [("CMakeLists.txt", "in an earlier commit")]
    assert "in an earlier commit" in compose(found)


def test_without_an_engine_the_verdicts_are_unknown_and_it_says_so(desk: Desk, services: Services) -> None:
    found = told(services, desk)
    assert (found.verified, found.unknown_reason, found.runs) == (None, "engine_unavailable", ())
    assert "**Unknown**" in compose(found)
    assert "ready: unknown." in compose(found)


@pytest.mark.parametrize(
    ("verdicts", "verified", "missing"),
    [
        ({}, False, ("build", "test")),
        ({"build": (Verdict.PASSED, 0)}, False, ("test",)),
        ({"build": (Verdict.PASSED, 0), "test": (Verdict.FAILED, 1)}, False, ()),
        ({"build": (Verdict.PASSED, 0), "test": (Verdict.PASSED, 0)}, True, ()),
    ],
    ids=["nothing ran", "one is missing", "one failed", "all passed"],
)
def test_verdicts_of_exactly_this_tree_are_told(
    desk: Desk,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    verdicts: dict[str, tuple[Verdict, int]],
    verified: bool,
    missing: tuple[str, ...],
) -> None:
    kept(services, desk, engine_says(monkeypatch), **verdicts)
    found = told(services, desk)
    assert (found.verified, found.missing, {r.check_id for r in found.runs}) == (verified, missing, set(verdicts))
    assert ("**Verified**" in compose(found)) is verified
    assert f"ready: {'satisfied' if verified else 'not satisfied'}." in compose(found)


def test_s03_one_failure_after_a_pass_closes_the_gate(
    desk: Desk, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: before it the gate is open."""
    made = engine_says(monkeypatch)
    kept(services, desk, made, build=(Verdict.PASSED, 0), test=(Verdict.PASSED, 0))
    gates = [gate.TreeGate(services, find_task(services.home, desk.task.id)) for _ in range(2)]
    assert gates[0].find_state(DeliveryStep.READY_PR).verified
    kept(services, desk, made, test=(Verdict.FAILED, 1))
    assert gates[1].find_state(DeliveryStep.READY_PR).missing == ("test",)
    with refused(ErrorCode.GATE_CLOSED):
        gates[1].require_open(DeliveryStep.READY_PR)


def begin_at(desk: Desk, ref: str) -> None:
    """The desk's task is another one, with a commit of its own."""
    desk.workbench.clone(str(desk.upstream.root))
    desk.task = desk.workbench.create_task(desk.repo_id, "work", ref)
    desk.root = desk.worktree(desk.task)
    desk.write("f", b"of the other task\n")
    desk.workbench.commit(desk.task.id, "work")


def test_s23_a_body_says_that_only_the_base_does_not_count(
    desk: Desk, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the lines for people do, and the hint names a command that moves the base."""
    desk.upstream.git("checkout", "-q", "-b", "space-agent/12345678-words")
    desk.upstream.write("f", b"of another task\n")
    desk.upstream.commit()
    desk.upstream.git("checkout", "-q", "main")
    begin_at(desk, "space-agent/12345678-words")
    made = engine_says(monkeypatch)
    kept(services, desk, made, build=(Verdict.PASSED, 0), test=(Verdict.PASSED, 0))
    found, clause = told(services, desk), "is on no branch or tag of the remote but those of tasks"
    assert (found.verified, found.missing, found.base_refusal) == (False, (), clause)
    body = compose(found)
    assert "**Not verified**: every check of the profile `two` has passed on tree " in body
    assert f", but the commit that it is based on, which says what is checked, {clause}." in body
    tree_gate = gate.TreeGate(services, find_task(services.home, desk.task.id))
    assert tree_gate.verdicts.describe_missing() == f"the base {clause}"
    with refused(ErrorCode.GATE_CLOSED) as error:
        tree_gate.require_open(DeliveryStep.READY_PR)
    assert f"`sandbox task sync {desk.task.id} --onto main`" in error.value.hint
    kept(services, desk, made, test=(Verdict.FAILED, 1))
    assert "not every check of the profile `two` has passed" in compose(told(services, desk))
    assert desk.workbench.sync_task(desk.task.id, "main").base_commit == desk.upstream.oid("main")
    kept(services, desk, made, build=(Verdict.PASSED, 0), test=(Verdict.PASSED, 0))
    gate.TreeGate(services, find_task(services.home, desk.task.id)).require_open(DeliveryStep.READY_PR)


def test_s23_a_base_may_ask_for_more_than_its_goal_which_is_no_branch_of_a_task(
    desk: Desk, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: once the default branch asks for more, the base of neither task counts; the branch of a task, which an
    agent pushes, says of no check that it is enough.
    """
    more = PROFILE.replace('"two checks"', '"more"').replace("99", "100").replace('"f"', '"more"')
    third = '[[check]]\nid = "base"\nlabel = "base"\nargv = ["third"]\n'
    (desk.home / "profiles" / "more.toml").write_text(more + third)
    services = build_services(desk.home, {}, allow_file=True)
    engine_says(monkeypatch)
    desk.workbench = Workbench(desk.home, environ=dict(os.environ), allow_file=True)
    before = desk.upstream.oid("main")
    desk.upstream.git("branch", "space-agent/12345678-words")
    desk.upstream.write("more")
    strict = desk.upstream.commit()
    desk.upstream.git("rm", "-q", "more")
    desk.upstream.commit()

    def refusal() -> str:
        return gate.TreeGate(services, find_task(services.home, desk.task.id)).verdicts.base_refusal

    begin_at(desk, strict)
    assert refusal() == "", "it has all checks of the branch, and one more, whose name is no reason"
    assert set(told(services, desk).missing) == {"build", "test", "base"}
    begin_at(desk, "space-agent/12345678-words")
    assert desk.task.base_commit == before
    assert refusal() == ""
    desk.upstream.write("more")
    desk.upstream.commit()
    desk.workbench.clone(str(desk.upstream.root))
    assert refusal() == "lacks a check of the branch that it goes to, or has another one of that name"
    desk.workbench.__exit__(None, None, None)
    services.close()


def test_what_the_verdicts_are_bound_to_and_how_to_ask_again_is_told(
    desk: Desk, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(services, desk, engine_says(monkeypatch), build=(Verdict.PASSED, 0), test=(Verdict.PASSED, 0))
    found = told(services, desk)
    body = compose(found)
    task = find_task(services.home, desk.task.id)
    url = services.repositories.open(task.repo_id)[0].remote_url
    for line in (
        "- profile: `two`",
        "- image: `base` `sha256:1`",
        "- runtime: `runc`",
        f"- product: Space Sandbox `{__version__}`",
        f"`sandbox run {shlex.quote(url)} --ref {task.head_commit}`",
    ):
        assert line in body.splitlines()
    assert "wheel-house" not in body
    assert "| `build` | `passed` |  | 1.5 s | `run-1` |" in body


def test_a_runtime_and_a_profile_that_are_not_the_first_choice_are_named(
    desk: Desk, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task keeps the profile of its base; the commit alone would choose another one."""
    (desk.home / "profiles" / "later.toml").write_text(
        PROFILE.replace("two checks", "later").replace("99", "100").replace('"f"', '"later"')
    )
    desk.write("later", b"x\n")
    desk.workbench.commit(desk.task.id, "another kind of project")
    monkeypatch.setattr(tree_bindings, "resolve_guest_setup", lambda *_: GuestSetup("sha256:1", "runsc"))
    again = build_services(desk.home, {}, allow_file=True)
    assert told(again, desk).provenance.command[-4:] == ("--profile", "two", "--runtime", "runsc")
    again.close()


def test_without_an_engine_the_command_is_told_and_no_image(desk: Desk, services: Services) -> None:
    body = compose(told(services, desk))
    assert "`sandbox run " in body
    assert "- image:" not in body
    assert "- runtime:" not in body


@pytest.mark.parametrize(
    ("counts", "shown"),
    [((120, 0, 0, 0), "120"), ((3, 1, 1, 0), "3, 2 failed"), ((3, 0, 0, 2), "3, 2 skipped"), (None, "")],
)
def test_the_numbers_of_a_report_are_shown_and_nothing_else_of_it(
    desk: Desk,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    counts: tuple[int, int, int, int] | None,
    shown: str,
) -> None:
    failed = (TestFailure(name="of the guest", message="@octocat"),)
    names = ("tests", "failures", "errors", "skipped")
    said = None if counts is None else Report.model_validate(dict(zip(names, counts, strict=True)) | {"failed": failed})
    found = replace(told(services, desk), runs=(run_made(check_id="test", report=said),))
    assert f"| `test` | `passed` | {shown} | 1.5 s |" in compose(found)
    assert "octocat" not in compose(found)


@pytest.mark.parametrize("is_known", [True, False])
def test_tests_of_a_run_that_lost_results_are_not_called_all(desk: Desk, services: Services, *, is_known: bool) -> None:
    report = Report(tests=3, failures=1, errors=0, skipped=0, failed=()) if is_known else None
    found = replace(told(services, desk), runs=(run_made(check_id="test", report=report, results_lost=True),))
    shown = "3, 1 failed (not all are known)" if is_known else "not known"
    assert f"| `test` | `passed` | {shown} | 1.5 s |" in compose(found)


def test_verdicts_of_the_commit_before_are_not_told(
    desk: Desk, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(services, desk, engine_says(monkeypatch), build=(Verdict.PASSED, 0), test=(Verdict.PASSED, 0))
    desk.write("f", b"another\n")
    desk.workbench.commit(desk.task.id, "third")
    assert told(services, desk).missing == ("build", "test")


def test_a_closed_task_is_described_too(desk: Desk, services: Services) -> None:
    desk.workbench.close_task(desk.task.id)
    task = find_task(services.home, desk.task.id, allow_closed=True)
    assert len(description.gather_facts(services, task).commits) == 2


SPELLINGS = {
    "as it is": TOKEN,
    "within a word": f"x{TOKEN}y",
    "as Markdown of ours": TOKEN.replace("_", "\\_\u200b"),
    "over two lines": f"{TOKEN[:9]}\n> {TOKEN[9:]}",
    "base64": base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode(),
    "base64, another user": base64.b64encode(f"me:{TOKEN}".encode()).decode(),
    "base64, followed by more": base64.urlsafe_b64encode(f"a:{TOKEN} and more".encode()).decode(),
    "URL-encoded": quote(f"user:{TOKEN}", safe=""),
    "hex": TOKEN.encode().hex(),
    "upper case": TOKEN.upper(),
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_a_stored_secret_does_not_leave_in_any_spelling(desk: Desk, text: str) -> None:
    (desk.home / "credentials.toml").touch(mode=0o600)
    (desk.home / "credentials.toml").write_text(
        f'[[credential]]\nhost = "git.example.org"\nusername = "u"\nsecret = "{TOKEN}"\n'
    )
    services = build_services(desk.home, {}, allow_file=True)
    secret_scan.require_no_secret(services.credentials, "a title", "a body that holds " + TOKEN[:10])
    with refused(ErrorCode.POLICY_VIOLATION) as error:
        secret_scan.require_no_secret(services.credentials, "a title", f"a body that holds {text}, and more")
    assert "git.example.org" in error.value.brief
    assert TOKEN not in str(error.value.payload())


@pytest.mark.parametrize("name", ["GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "SOME_API_KEY", "npm_password"])
def test_secrets_of_the_environment_do_not_leave(desk: Desk, name: str) -> None:
    services = build_services(desk.home, {"GH_TOKEN": "another-token-0123", name: TOKEN}, allow_file=True)
    secret_scan.require_no_secret(services.credentials, "a title", "a body")
    with refused(ErrorCode.POLICY_VIOLATION):
        secret_scan.require_no_secret(services.credentials, f"title with {TOKEN}")


def test_a_secret_of_the_environment_may_be_no_text(desk: Desk) -> None:
    held = os.fsdecode(TOKEN.encode() + b"\xff")
    services = build_services(desk.home, {"SOME_TOKEN": held}, allow_file=True)
    secret_scan.require_no_secret(services.credentials, "a title")
    with refused(ErrorCode.POLICY_VIOLATION):
        secret_scan.require_no_secret(services.credentials, base64.b64encode(os.fsencode(held)).decode())


def test_a_private_key_does_not_leave(desk: Desk, tmp_path: Path) -> None:
    line = "Zk3mQ9xW7vB1nR5tY8uE2pL6" * 3
    (tmp_path / "key").write_text(f"-----BEGIN OPENSSH PRIVATE KEY-----\n{line}\n-----END OPENSSH PRIVATE KEY-----\n")
    with Workbench(desk.home, environ={}) as workbench:
        workbench.set_credential("git.example.org", ssh_key=tmp_path / "key")
    with refused(ErrorCode.POLICY_VIOLATION):
        secret_scan.require_no_secret(build_services(desk.home, {}, allow_file=True).credentials, f"see {line}")


def test_a_secret_in_use_that_is_not_stored_here_does_not_leave(services: Services) -> None:
    by_password = Credential(host="github.com", secret=SecretStr(TOKEN))
    by_name = Credential(host="github.com", username=TOKEN, secret=SecretStr("password"))
    secret_scan.require_no_secret(services.credentials, TOKEN)
    for used in (by_password, by_name):
        with refused(ErrorCode.POLICY_VIOLATION):
            secret_scan.require_no_secret(services.credentials, TOKEN, others=[used])


def test_a_secret_as_short_as_a_word_is_not_looked_for() -> None:
    assert not secret_scan.contains_secret("the main branch", "main")
    assert not secret_scan.contains_secret("a ! b", "!!!!!!!!!!")
    assert secret_scan.contains_secret("a !!!!!!!!!! b", "!!!!!!!!!!")
