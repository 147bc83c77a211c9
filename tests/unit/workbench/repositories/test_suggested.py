"""What CI files, devcontainers and Debian suggest is used part by part, once the operator has trusted it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from sandbox.errors import ErrorCode
from sandbox.models import SuggestedPart, SuggestionKind
from sandbox.workbench import Workbench
from sandbox.workbench.repositories import detection
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

WORKFLOW = ".github/workflows/ci.yml"
CI = b"jobs: {a: {env: {A: b}, steps: [{run: apt-get install bc}, {run: make lint}]}}\n"
DEVCONTAINER = b'{"containerEnv": {"MODE": "dev", "A": "c"}}'


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detection asks whether the engine has the image."""
    monkeypatch.setattr(detection, "_find_missing_image", lambda *_: ("", ""))


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    upstream.write("Makefile", b"test:\n\ttrue\n")
    upstream.write(WORKFLOW, CI)
    upstream.write(".devcontainer.json", DEVCONTAINER)
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def packages_of(desk: Desk) -> tuple[str, ...]:
    return desk.workbench.detect_profiles(str(desk.upstream.root)).candidates[0].packages


def part(desk: Desk, kind: SuggestionKind) -> SuggestedPart:
    return next(part for part in desk.workbench.suggestion(desk.repo_id).parts if part.kind is kind)


def ids(desk: Desk, owner: str | None = None) -> list[str]:
    return [check.id for check in desk.workbench.checks(owner or desk.repo_id)]


def test_all_of_it_is_shown_and_nothing_used(desk: Desk) -> None:
    found = desk.workbench.suggestion(desk.repo_id)
    assert [(p.path, p.kind.value, p.trusted) for p in found.parts] == [
        (".devcontainer.json", "environment", False),
        (WORKFLOW, "packages", False),
        (WORKFLOW, "checks", False),
    ]
    assert ids(desk) == ids(desk, desk.task.id) == ["build", "test"]


def test_each_part_is_trusted_on_its_own(desk: Desk) -> None:
    desk.workbench.trust(desk.repo_id, part(desk, SuggestionKind.PACKAGES).sha256, by="a person")
    candidates = desk.workbench.detect_profiles(str(desk.upstream.root))
    assert candidates.candidates[0].packages == ("bc",)
    assert [p.trusted for p in candidates.suggested] == [False, True, False]
    assert ids(desk) == ["build", "test"]
    desk.workbench.trust(desk.repo_id, part(desk, SuggestionKind.CHECKS).sha256, by="a person")
    assert ids(desk) == ids(desk, desk.task.id) == ["build", "test", "ci-a-1"]
    desk.workbench.distrust(desk.repo_id)
    assert ids(desk) == ["build", "test"]


def test_variables_are_for_all_checks_and_never_replace_those_of_a_check(desk: Desk) -> None:
    for kind in (SuggestionKind.CHECKS, SuggestionKind.ENVIRONMENT):
        desk.workbench.trust(desk.repo_id, part(desk, kind).sha256, by="a person")
    env = {check.id: dict(check.env) for check in desk.workbench.checks(desk.repo_id)}
    for own in env.values():
        own.pop("GTEST_OUTPUT", None)  # the profile's own
    assert env == {
        "build": {"A": "c", "MODE": "dev"},
        "test": {"A": "c", "MODE": "dev"},
        "ci-a-1": {"A": "b", "MODE": "dev"},
    }


def test_a_change_that_suggests_the_same_keeps_the_trust_and_another_ends_it(desk: Desk) -> None:
    trusted = part(desk, SuggestionKind.CHECKS).sha256
    desk.workbench.trust(desk.repo_id, trusted, by="a person")
    for content, expected in [(b"# why\n" + CI, ["ci-a-1"]), (CI.replace(b"make lint", b"make evil"), [])]:
        desk.upstream.write(WORKFLOW, content)
        desk.upstream.commit()
        desk.workbench.clone(str(desk.upstream.root))
        assert ids(desk) == ["build", "test", *expected]
    with refused(ErrorCode.STALE_HASH):
        desk.workbench.trust(desk.repo_id, trusted, by="a person")
    assert ids(desk, desk.task.id) == ["build", "test", "ci-a-1"], "its base commit is the one that was looked at"


def test_the_file_of_checks_may_ask_for_packages_and_not_choose_the_image(desk: Desk) -> None:
    for content, allowed in [(b'[image]\npackages = ["bc"]\n', True), (b'[image]\nname = "evil"\n', False)]:
        desk.upstream.write(".sandbox/checks.toml", content)
        desk.upstream.commit()
        desk.workbench.clone(str(desk.upstream.root))
        if not allowed:
            with refused(ErrorCode.INVALID_INPUT):
                desk.workbench.suggestion(desk.repo_id)
            continue
        found = desk.workbench.suggestion(desk.repo_id)
        assert (found.packages, packages_of(desk)) == (("bc",), ())
        desk.workbench.trust(desk.repo_id, str(found.sha256), by="a person")
        assert packages_of(desk) == ("bc",)


def test_packages_of_the_operator_come_from_the_configuration(desk: Desk) -> None:
    settings = {
        "profiles": {"make": {"packages": ["tree"]}},
        "repositories": {desk.repo_id: {"packages": ["bc"]}},
    }
    with Workbench(desk.home, environ={"PATH": "/usr/bin:/bin"}, settings=settings, allow_file=True) as workbench:
        used = workbench.detect_profiles(str(desk.upstream.root)).candidates[0]
    assert (used.name, used.image, used.packages) == ("make", "build", ("bc", "tree"))


@pytest.mark.slow
def test_at_the_command_line_all_of_it_is_shown_with_its_file_and_several_parts_are_trusted(desk: Desk) -> None:
    sandbox = Command(desk.home)
    shown = sandbox("trust", desk.repo_id)
    for text in (f"{WORKFLOW}: suggests packages, not used", "packages  bc", "ci-a-1: make lint", "MODE=dev"):
        assert text in shown.stdout
    hashes = [part["sha256"] for part in sandbox.ok("trust", desk.repo_id)["suggestion"]["parts"]]
    trusted = sandbox.ok("trust", desk.repo_id, *(word for each in hashes for word in ("--hash", each)))
    assert [part["trusted"] for part in trusted["suggestion"]["parts"]] == [True, True, True]
