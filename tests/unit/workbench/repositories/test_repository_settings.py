"""`repo set`: what the operator chose for one repository, and everything that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from devtools.command import Command
from sandbox.agent.tools import TOOLS
from sandbox.config import find_resources
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ChosenProject, ChosenSettings, RemarkKind, TaskOptions
from sandbox.policy.approvals import ALWAYS_ASKED_WITH
from sandbox.profiles import Profile, load_profiles
from sandbox.store.home import Home
from sandbox.store.records import save_settings
from sandbox.workbench.repositories.repository_settings import apply_settings
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

MAKEFILE = b"build:\n\ttrue\ntest:\n\ttrue\n"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    upstream.write("services/api/Makefile", MAKEFILE)
    upstream.write("lib/Makefile", MAKEFILE)
    upstream.write("web/composer.json", b"{}")
    upstream.write("GNUmakefile", b"all:\n\ttrue\n")
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


@pytest.fixture
def sandbox(desk: Desk) -> Command:
    return Command(desk.home)


@pytest.fixture
def shipped() -> dict[str, Profile]:
    return load_profiles([find_resources("policies") / "profiles"], PurePosixPath("/workspace"))


def test_a_folder_chosen_has_its_own_profile_and_its_checks_run_there(desk: Desk) -> None:
    assert desk.workbench.checks(desk.task.id) == ()
    found = desk.workbench.set_repository(desk.repo_id, {"subpath": "services/api/"})
    assert (found.profile, found.settings.subpath) == ("make", "services/api")
    for owner in (desk.repo_id, desk.task.id):
        assert [check.cwd for check in desk.workbench.checks(owner)] == ["services/api", "services/api"]


def test_limits_and_variables_are_those_of_every_check_and_merged_by_name(desk: Desk) -> None:
    desk.workbench.set_repository(desk.repo_id, {"subpath": "lib", "limits": {"pids": 99}, "env": {"A": "1"}})
    desk.workbench.set_repository(desk.repo_id, {"limits": {"tmp_bytes": 2**30}, "env": {"B": "2"}})
    for check in desk.workbench.checks(desk.repo_id):
        chosen = {name: value for name, value in check.env.items() if name != "GTEST_OUTPUT"}  # the profile's own
        assert (check.limits.pids, check.limits.tmp_bytes, chosen) == (99, 2**30, {"A": "1", "B": "2"})
    left = desk.workbench.set_repository(desk.repo_id, unset=["limits.pids", "env"]).settings
    assert left == ChosenSettings(subpath="lib", limits={"tmp_bytes": 2**30})


def test_a_chosen_profile_is_used_and_a_task_may_have_its_own(desk: Desk) -> None:
    desk.workbench.set_repository(desk.repo_id, {"profile": "make"})
    assert [check.id for check in desk.workbench.checks(desk.task.id)] == ["build", "test"]
    own = desk.workbench.create_task(desk.repo_id, options=TaskOptions(profile="generic"))
    assert (own.profile, desk.workbench.checks(own.id)) == ("generic", ())
    assert desk.workbench.fork_task(own.id).profile == "generic"


def test_settings_outlive_a_fetch_and_do_not_outlive_the_repository(desk: Desk) -> None:
    desk.workbench.set_repository(desk.repo_id, {"profile": "make"})
    again = desk.workbench.clone(str(desk.upstream.root)).repository
    assert (again.profile, again.settings.profile) == ("make", "make")
    desk.workbench.close_task(desk.task.id, delete_worktree=True)
    desk.workbench.remove_repository(desk.repo_id)
    assert desk.workbench.clone(str(desk.upstream.root)).repository.settings == ChosenSettings()


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"env": {"LD_PRELOAD": "x"}}, ErrorCode.POLICY_VIOLATION),
        ({"env": {"GIT_DIR": "x"}}, ErrorCode.POLICY_VIOLATION),
        ({"env": {"A": "\0"}}, ErrorCode.POLICY_VIOLATION),
        ({"env": {"A B": "1"}}, ErrorCode.POLICY_VIOLATION),
        ({"limits": {"tmp_bytes": 2**50}}, ErrorCode.POLICY_VIOLATION),
        ({"limits": {"pids": 0}}, ErrorCode.INVALID_INPUT),
        ({"limits": {"network": 1}}, ErrorCode.INVALID_INPUT),
        ({"privileged": "true"}, ErrorCode.INVALID_INPUT),
        ({"subpath": "../x"}, ErrorCode.UNSAFE_PATH),
        ({"subpath": "lib/../.git"}, ErrorCode.UNSAFE_PATH),
        ({"subpath": "f"}, ErrorCode.NOT_FOUND),
        ({"profile": "mak"}, ErrorCode.NOT_FOUND),
    ],
    ids=str,
)
def test_nothing_is_widened_and_a_refused_setting_changes_nothing(
    desk: Desk, values: dict[str, object], code: ErrorCode
) -> None:
    with refused(code):
        desk.workbench.set_repository(desk.repo_id, values)
    assert desk.workbench.repository(desk.repo_id).settings == ChosenSettings()


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"env": {"A": "\ud83d"}}, "variable A cannot be set: it has half of a character"),
        ({"env": {"A": "x" * (128 * 1024 - 2)}}, "variable A cannot be set: it takes 131,072 bytes; at most 131,071"),
        ({"projects": {"lib": {"env": {"A": "\ud83d"}}}}, "variable A"),
        ({"limits": {"memory_bytes": 1}}, "memory_bytes must be at least 6,291,456"),
        ({"limits": {"cpus": 0.001}}, "cpus must be at least 0.01"),
        ({"projects": {"lib": {"limits": {"memory_bytes": 1}}}}, "memory_bytes"),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_a_setting_that_no_guest_starts_with_is_refused_by_its_name(
    desk: Desk, values: dict[str, object], named: str
) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        desk.workbench.set_repository(desk.repo_id, values)
    assert named in f"{caught.value.brief} {caught.value.details}"
    assert desk.workbench.repository(desk.repo_id).settings == ChosenSettings()


def test_the_bounds_themselves_may_be_set(desk: Desk) -> None:
    """Also bytes that are no UTF-8, which a shell passes on."""
    smallest = {"memory_bytes": 6 * 1024**2, "cpus": 0.01, "open_files": 12, "disk_bytes": 500_000}
    env = {"A": "x" * (128 * 1024 - 3), "B": "\udcff"}
    found = desk.workbench.set_repository(desk.repo_id, {"limits": smallest, "env": env}).settings
    assert (found.limits, found.env) == (smallest, env)


def test_a_small_limit_that_is_stored_is_in_the_way_of_no_other_setting(desk: Desk) -> None:
    """An earlier version stored it. It can be taken back, or be raised; another one cannot be added."""
    project = ChosenProject(subpath="lib", limits={"cpus": 0.001})
    stored = ChosenSettings(limits={"memory_bytes": 1}, projects={"lib": project})
    save_settings(Home(desk.home), desk.repo_id, stored, "make", "")
    assert desk.workbench.set_repository(desk.repo_id, {"env": {"A": "b"}}).settings.limits == {"memory_bytes": 1}
    for values in ({"limits": {"cpus": 0.001}}, {"projects": {"lib": {"limits": {"memory_bytes": 1}}}}):
        with refused(ErrorCode.INVALID_INPUT):
            desk.workbench.set_repository(desk.repo_id, values)
    found = desk.workbench.set_repository(desk.repo_id, unset=["limits.memory_bytes", "projects.lib.limits.cpus"])
    assert (found.settings.limits, found.settings.projects["lib"].limits) == ({}, {})


@pytest.mark.parametrize("name", ["network", "limits.pids", "profile.x", "env.A"])
def test_a_setting_that_is_not_there_cannot_be_taken_back(desk: Desk, name: str) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        desk.workbench.set_repository(desk.repo_id, unset=[name])


def test_agents_see_settings_and_have_no_tool_that_changes_them() -> None:
    """A new task may have another profile, if a person approves that call (docs/adr/0156)."""
    assert not [tool.name for tool in TOOLS.values() if tool.command == "repo set"]
    fields = {(tool.name, field) for tool in TOOLS.values() for field in tool.input_model.model_fields}
    settings = {(tool, field) for tool, field in fields if field in {"profile", "image", "env", "limits"}}
    assert settings == {("space_repo_create_task", "profile")}
    assert settings <= set(ALWAYS_ASKED_WITH.items())


def test_a_folder_moves_rules_and_layers_and_leaves_what_matches_anywhere(shipped: dict[str, Profile]) -> None:
    moved = apply_settings(shipped["python"], ChosenSettings(subpath="a b/c", image="own:1"))
    assert {"/a\\ b/c/build/", "__pycache__/"} <= set(moved.artifacts)
    assert [rule.folder for rule in moved.layers] == ["a b/c"]
    assert moved.repository_image == "own:1"


def test_a_profile_without_settings_is_unchanged(shipped: dict[str, Profile]) -> None:
    """Otherwise every verdict that is known would have another key."""
    for profile in shipped.values():
        assert apply_settings(profile, ChosenSettings()).checks == profile.checks


def test_the_command_line_sets_shows_and_takes_back(desk: Desk, sandbox: Command) -> None:
    shown = sandbox("repo", "set", desk.repo_id, "--subpath", "lib", "--limit", "tmp_bytes=1.5G", "--env", "A=b=c")
    for line in ("profile  make", "subpath  lib", "limit    tmp_bytes=1.5 GiB", "env      A=b=c"):
        assert line in shown.stdout
    assert sandbox.ok("repo", "show", desk.repo_id)["repository"]["settings"]["env"] == {"A": "b=c"}
    assert sandbox.ok("repo", "set", desk.repo_id, "--unset", "env.A")["repository"]["settings"]["env"] == {}
    for wrong in (("--limit", "tmp_bytes=much"), ("--env", "A"), ()):
        assert sandbox("repo", "set", desk.repo_id, *wrong).code == 2


def test_a_stranger_is_told_what_is_there(desk: Desk) -> None:
    """A Makefile without a test target, a PHP folder without a profile, and projects one folder below."""
    said = {remark.kind: remark for remark in desk.workbench.advice(desk.repo_id)}
    assert "GNUmakefile, lib/Makefile, web/composer.json" in said[RemarkKind.NO_CHECKS].seen
    assert f"sandbox repo set {desk.repo_id} --profile make" in said[RemarkKind.NO_CHECKS].remedy
    assert said[RemarkKind.BELOW].seen == "Projects in folders: lib (make), services/api (make)"
    with pytest.raises(SandboxError) as caught:
        desk.workbench.run_checks(desk.task.id, ["test"])
    assert said[RemarkKind.NO_CHECKS].seen in caught.value.details
    assert "`run` has --profile" not in caught.value.hint


def test_suggested_checks_submodules_and_lfs_are_named_once_they_matter(desk: Desk) -> None:
    desk.upstream.write(".sandbox/checks.toml", b'[[check]]\nid = "x"\nlabel = "x"\nargv = ["true"]\n')
    desk.upstream.write("assets/.gitattributes", b"*.bin filter=lfs diff=lfs merge=lfs -text\n")
    desk.upstream.commit()
    kinds = {remark.kind for remark in desk.workbench.clone(str(desk.upstream.root)).advice}
    assert {RemarkKind.SUGGESTION, RemarkKind.LFS} <= kinds
    sha256 = desk.workbench.suggestion(desk.repo_id).sha256
    assert sha256 is not None
    desk.workbench.trust(desk.repo_id, sha256, by="me")
    assert RemarkKind.SUGGESTION not in {remark.kind for remark in desk.workbench.advice(desk.repo_id)}


@pytest.mark.parametrize("repo_id", ["x/../../../../out", "x" * 300, "a\0b", "\ud800"], ids=ascii)
def test_s247_an_unknown_id_makes_no_lock_file(desk: Desk, repo_id: str) -> None:
    """`repo set 'x/../../../../out'` answered `not_found`, and made `out.lock` outside of the home."""
    locks = {path.name for path in Home(desk.home).lock_path("x").parent.iterdir()}
    with refused(ErrorCode.NOT_FOUND, ErrorCode.INVALID_INPUT):
        desk.workbench.set_repository(repo_id, {"profile": "make"})
    assert {path.name for path in Home(desk.home).lock_path("x").parent.iterdir()} == locks
    assert not list(desk.home.parent.rglob("out.lock"))
