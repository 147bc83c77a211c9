"""Several projects in one repository: their checks, their names, and what a verdict of them is bound to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.command import Command
from sandbox.config import RepositorySettings, Settings
from sandbox.errors import ErrorCode
from sandbox.models import ChosenProject, ChosenSettings, RemarkKind
from sandbox.profiles import Profile
from sandbox.workbench import Workbench
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.verdict_keys import build_bindings
from sandbox.workbench.controller.profile_images import list_image_references
from sandbox.workbench.repositories.check_overrides import apply_overrides
from sandbox.workbench.repositories.commit_facts import load_facts
from sandbox.workbench.repositories.commit_settings import choose_named_folder
from sandbox.workbench.repositories.profile_checks import load_task_profile
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

MAKEFILE = b"build:\n\ttrue\ntest:\n\ttrue\n"
NODE = b'{"name": "web", "version": "1.0.0", "scripts": {"test": "node --test"}}'
BOTH = {"api": {"subpath": "./services/api/"}, "web": {"subpath": "web", "profile": "node"}}


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    upstream.write("services/api/Makefile", MAKEFILE)
    upstream.write("web/package.json", NODE)
    upstream.write("notes/text", b"no project\n")
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def load(desk: Desk, **values: Any) -> Profile:
    desk.workbench.set_repository(desk.repo_id, values)
    return load_task_profile(desk.workbench._services, desk.task)


def test_each_project_has_its_own_folder_profile_and_names(desk: Desk) -> None:
    profile = load(desk, projects=BOTH)
    places = {check.id: (check.cwd, check.requires) for check in profile.checks}
    assert places == {
        "api.build": ("services/api", ()),
        "api.test": ("services/api", ("api.build",)),
        "web.build": ("web", ()),
        "web.test": ("web", ("web.build",)),
    }
    assert [(part.project_name, part.name) for part in profile.parts] == [("api", "make"), ("web", "node")]
    assert [rule.folder for part in profile.parts for rule in part.layers] == ["web"]
    assert profile.full_name == "make (api), node (web)"
    assert [check.id for check in desk.workbench.checks(desk.task.id)] == list(places)


def test_a_project_takes_no_check_away_from_the_top(desk: Desk) -> None:
    """Neither those of its profile, nor those that the operator trusts: a gate cannot get weaker by a project."""
    desk.upstream.write("Makefile", MAKEFILE)
    desk.upstream.write(".sandbox/checks.toml", b'[[check]]\nid = "lint"\nlabel = "Lint"\nargv = ["true"]\n')
    desk.upstream.commit()
    desk.workbench.clone(str(desk.upstream.root))
    sha256 = desk.workbench.suggestion(desk.repo_id).sha256
    assert sha256 is not None
    desk.workbench.trust(desk.repo_id, sha256, by="me")
    desk.workbench.set_repository(desk.repo_id, {"projects": {"web": {"subpath": "web"}}})
    checks = {check.id: check.cwd for check in desk.workbench.checks(desk.repo_id)}
    assert checks == {"build": ".", "test": ".", "lint": ".", "web.build": "web", "web.test": "web"}


def test_limits_variables_image_and_packages_are_those_of_all_projects(desk: Desk) -> None:
    profile = load(desk, projects=BOTH, env={"A": "1"}, limits={"pids": 99}, image="own:1")
    assert all((check.env["A"], check.limits.pids) == ("1", 99) for check in profile.checks)
    assert {part.repository_image for part in profile.parts} == {"own:1"}
    settings = Settings(repositories={desk.repo_id: RepositorySettings(packages=("jq",))})
    assert all("jq" in part.packages for part in apply_overrides(settings, desk.repo_id, profile).parts)


def test_services_are_for_the_checks_of_their_own_project(desk: Desk) -> None:
    service = '[[service]]\nname = "db"\nimage = "redis"\nready = ["true"]\nport = 6379\nchecks = ["test"]\n'
    folder = desk.home / "profiles"
    folder.mkdir(exist_ok=True)
    (folder / "own.toml").write_text(f'extends = "make"\nlabel = "x"\n{service}')
    with_service = {"subpath": "services/api", "profile": "own"}
    with Workbench(desk.home, allow_file=True) as workbench:
        workbench.set_repository(desk.repo_id, {"projects": BOTH | {"api": with_service}})
        api, web = load_task_profile(workbench._services, desk.task).parts
    assert [rule.serves(name) for rule in api.services for name in ("api.test", "api.build")] == [True, False]
    assert not web.services


@pytest.mark.parametrize(
    "other",
    [{"subpath": "services/copy"}, {"subpath": "services/api", "profile": "make-check"}],
    ids=["folder", "profile"],
)
def test_a_verdict_is_bound_to_folder_and_profile(desk: Desk, other: dict[str, str]) -> None:
    desk.upstream.write("services/copy/Makefile", MAKEFILE)
    desk.upstream.commit()
    desk.workbench.clone(str(desk.upstream.root))

    def key(project: dict[str, str]) -> str:
        desk.workbench.set_repository(desk.repo_id, {"projects": {"api": project}})
        checks = desk.workbench.checks(desk.repo_id)
        policies, setup = desk.workbench._services.policies, GuestSetup("sha256:" + "1" * 64, "runc")
        return build_bindings(policies, setup, "2" * 40, checks[-1:])["api.test"].key

    assert key({"subpath": "services/api"}) == key({"subpath": "services/api", "profile": "make"})
    assert key({"subpath": "services/api"}) != key(other)


@pytest.mark.parametrize(
    ("project", "code"),
    [
        ({"subpath": "notes"}, ErrorCode.INVALID_INPUT),
        ({"subpath": "web", "profile": "generic"}, ErrorCode.INVALID_INPUT),
        ({"subpath": "gone"}, ErrorCode.NOT_FOUND),
        ({"subpath": "web", "profile": "nod"}, ErrorCode.NOT_FOUND),
        ({"subpath": "../web"}, ErrorCode.UNSAFE_PATH),
        ({"subpath": "web", "network": "yes"}, ErrorCode.INVALID_INPUT),
        ("web", ErrorCode.INVALID_INPUT),
    ],
    ids=str,
)
def test_a_project_that_cannot_be_checked_is_refused(desk: Desk, project: object, code: ErrorCode) -> None:
    with refused(code):
        desk.workbench.set_repository(desk.repo_id, {"projects": {"api": project}})
    assert desk.workbench.repository(desk.repo_id).settings == ChosenSettings()


def test_a_project_whose_folder_is_gone_is_an_error_and_not_less_to_check(desk: Desk) -> None:
    desk.workbench.set_repository(desk.repo_id, {"projects": BOTH})
    desk.upstream.git("rm", "-rq", "services")
    desk.upstream.commit()
    desk.workbench.update_repository(desk.repo_id)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        desk.workbench.checks(desk.repo_id)
    assert "'api' has no checks" in caught.value.brief
    assert len(desk.workbench.checks(desk.task.id)) == 4, "the base of a task still has it"
    left = desk.workbench.set_repository(desk.repo_id, unset=["projects.api"]).settings
    assert list(left.projects) == ["web"]


def test_the_command_line_declares_shows_and_takes_back(desk: Desk) -> None:
    sandbox = Command(desk.home)
    shown = sandbox("repo", "set", desk.repo_id, "--project", "services/api", "--project", "front=web:node").stdout
    assert "project  api: services/api/ (profile as detected)\n  project  front: web/ (node)" in shown
    assert "generic" not in shown
    assert sandbox.ok("repo", "set", desk.repo_id, "--no-project", "front")["repository"]["settings"]["projects"] == {
        "api": {"subpath": "services/api", "profile": "", "image": "", "limits": {}, "env": {}}
    }
    detected = sandbox("profiles", "detect", str(desk.upstream.root))
    assert "api: used, make in services/api/" in detected.stdout
    assert "web/: not used, node (build, test)" in detected.stdout
    assert f" repo set {desk.repo_id} --project web=web" in detected.stderr


def test_projects_that_nobody_declared_are_named_with_a_command(desk: Desk) -> None:
    said = {remark.kind: remark for remark in desk.workbench.advice(desk.repo_id)}[RemarkKind.BELOW]
    assert said.seen == "Projects in folders: services/api (make), web (node)"
    options = "--project api=services/api --project web=web"
    assert f"`sandbox run {desk.upstream.root} {options}`" in said.remedy
    assert f"`sandbox repo set {desk.repo_id} {options}`" in said.remedy


OWN = {"subpath": "web", "image": "own:2", "env": {"A": "2"}, "limits": {"pids": 77}}


def test_what_one_project_has_of_its_own_goes_before_what_is_of_all(desk: Desk) -> None:
    profile = load(desk, projects=BOTH | {"web": OWN}, env={"A": "1", "B": "1"}, limits={"pids": 99}, image="own:1")
    found = {c.id: (c.env["A"], c.env["B"], c.limits.pids) for c in profile.checks if c.id.endswith("test")}
    assert found == {"api.test": ("1", "1", 99), "web.test": ("2", "1", 77)}
    assert {part.project_name: part.repository_image for part in profile.parts} == {"api": "own:1", "web": "own:2"}
    services = desk.workbench._services
    used = list_image_references(services.settings, services.policies, services.home)
    assert {"own:1", "own:2"} <= used, "gc keeps them"


@pytest.mark.parametrize(
    ("own", "code"),
    [
        ({"limits": {"pidz": 1}}, ErrorCode.INVALID_INPUT),
        ({"limits": {"memory_bytes": 2**50}}, ErrorCode.POLICY_VIOLATION),
        ({"env": {"LD_PRELOAD": "x"}}, ErrorCode.POLICY_VIOLATION),
    ],
    ids=str,
)
def test_a_project_gets_no_more_than_the_repository_may_have(
    desk: Desk, own: dict[str, object], code: ErrorCode
) -> None:
    with refused(code):
        desk.workbench.set_repository(desk.repo_id, {"projects": {"web": own}})


def test_the_configuration_file_declares_projects_and_the_command_line_goes_first(desk: Desk) -> None:
    (desk.home / "config.toml").write_text(
        f'[[repositories.{desk.repo_id}.project]]\nname = "api"\nsubpath = "./services/api"\nlimits = {{ pids = 77 }}\n'
        f'[[repositories.{desk.repo_id}.project]]\nname = "front"\nsubpath = "web"\nimage = "own:3"\n'
    )
    with Workbench(desk.home, allow_file=True) as workbench:
        services = workbench._services
        profile = load_task_profile(services, desk.task)
        assert {check.id: check.limits.pids for check in profile.checks if check.id.endswith("test")} == {
            "api.test": 77,
            "front.test": 512,
        }
        assert "own:3" in list_image_references(services.settings, services.policies, services.home)
        shown = workbench.set_repository(desk.repo_id, {"projects": {"api": {"env": {"A": "1"}}}}).settings
        assert (shown.projects["api"].subpath, shown.projects["api"].limits) == ("services/api", {"pids": 77})
        assert [list(one.settings.projects) for one in workbench.repositories()] == [["api", "front"]]
        assert load_task_profile(services, desk.task).checks[0].env["A"] == "1"
        with refused(ErrorCode.INVALID_INPUT) as caught:
            workbench.set_repository(desk.repo_id, unset=["projects.front"])
        assert "config.toml" in caught.value.hint
        assert list(workbench.set_repository(desk.repo_id, unset=["projects.api"]).settings.projects) == [
            "api",
            "front",
        ], "it is that of the file again"


SUGGESTED = b'[[project]]\nname = "deep"\nsubpath = "a/b/c"\nprofile = "make"\nlimits = { pids = 66 }\n'


def test_projects_that_a_repository_suggests_count_when_they_are_trusted(desk: Desk) -> None:
    desk.upstream.write("a/b/c/Makefile", MAKEFILE)
    desk.upstream.write(".sandbox/checks.toml", SUGGESTED)
    desk.upstream.commit()
    desk.workbench.clone(str(desk.upstream.root))
    assert desk.workbench.checks(desk.repo_id) == ()
    found = desk.workbench.suggestion(desk.repo_id)
    assert found.projects == {"deep": ChosenProject(subpath="a/b/c", profile="make", limits={"pids": 66})}
    assert found.sha256 is not None
    assert "a/b/c" in Command(desk.home)("trust", desk.repo_id).stdout
    desk.workbench.trust(desk.repo_id, found.sha256, by="me")
    checks = desk.workbench.checks(desk.repo_id)
    assert {(check.id, check.cwd, check.limits.pids) for check in checks} == {
        ("deep.build", "a/b/c", 66),
        ("deep.test", "a/b/c", 66),
    }
    desk.workbench.set_repository(desk.repo_id, {"projects": {"deep": {"subpath": "web"}}})
    assert {check.cwd for check in desk.workbench.checks(desk.repo_id)} == {"web"}, "the operator's goes first"


def only(desk: Desk, *left: str) -> tuple[str, ...]:
    """The folders that checks run in, when the repository has these folders and files besides its own."""
    for folder in ("services", "web"):
        if folder not in left:
            desk.upstream.git("rm", "-rq", folder)
    for path in left:
        if "/" in path or "." in path:
            desk.upstream.write(path, NODE if path.endswith(".json") else MAKEFILE)
    desk.upstream.commit()
    desk.workbench.clone(str(desk.upstream.root))
    return tuple(sorted({check.cwd for check in desk.workbench.checks(desk.repo_id)}))


@pytest.mark.parametrize(
    ("left", "folders"),
    [
        (["web"], ("web",)),
        (["services"], ("services/api",)),
        (["web", "Dockerfile", "docs/package.json", "tests/data/Makefile", "vendor/x/package.json"], ("web",)),
        (["web", "services"], ()),
        (["web", "package.json"], (".",)),
        (["web", "mix.exs"], ()),
        (["web", "app/mix.exs"], ()),
        (["web", "app/src/pom.xml"], ()),
        (["web", ".sandbox/checks.toml"], ()),
    ],
    ids=str,
)
def test_the_only_project_is_run_in_its_folder_and_a_second_one_ends_that(
    desk: Desk, left: list[str], folders: tuple[str, ...]
) -> None:
    """Also a second one that no profile knows: a verdict about one of two would be read as one about both."""
    assert only(desk, *left) == folders


def test_that_only_a_folder_was_looked_at_is_said_and_settings_go_first(desk: Desk) -> None:
    assert only(desk, "web") == ("web",)
    repository = desk.workbench.repository(desk.repo_id)
    assert (repository.profile, repository.subpath, repository.settings.subpath) == ("node", "web", "")
    remark = {one.kind: one for one in desk.workbench.advice(desk.repo_id)}[RemarkKind.ONLY_FOLDER]
    assert remark.seen == "The only project is in web/ (node): its checks run there"
    assert f"`sandbox repo set {desk.repo_id} --subpath web`" in remark.remedy
    assert "subpath  web (the only project)" in Command(desk.home)("repo", "show", desk.repo_id).stdout
    for name, folder in (("make", "."), ("node", "web")):
        desk.workbench.set_repository(desk.repo_id, {"profile": name})
        assert {check.cwd for check in desk.workbench.checks(desk.repo_id)} == {folder}, "another is for the top"
    desk.workbench.set_repository(desk.repo_id, {"subpath": "web"}, unset=["profile"])
    assert RemarkKind.ONLY_FOLDER not in {one.kind for one in desk.workbench.advice(desk.repo_id)}


def test_with_one_project_on_the_command_line_other_options_are_of_it(desk: Desk) -> None:
    sandbox = Command(desk.home)
    sandbox("repo", "set", desk.repo_id, "--project", "services/api", "--project", "web")
    shown = sandbox("repo", "set", desk.repo_id, "--project", "web", "--env", "A=1", "--image", "own:1").stdout
    assert "project  web: web/ (profile as detected)\n    image    own:1\n    env      A=1\n" in shown
    assert "  image    own:1\n" not in shown.replace("    image", "")
    shown = sandbox("repo", "set", desk.repo_id, "--project", "web", "--unset", "env.A", "--unset", "image").stdout
    assert "own:1" not in shown
    assert "A=1" not in shown
    refused_words = sandbox(
        "repo", "set", desk.repo_id, "--project", "web", "--project", "services/api", "--env", "A=1"
    )
    assert (refused_words.code, "of which project" in refused_words.stderr) == (2, True)


def test_a_folder_that_a_person_names_chooses_among_several(desk: Desk) -> None:
    services, chosen = desk.workbench._services, ChosenSettings()
    _, git = services.repositories.open(desk.repo_id)
    facts = load_facts(services.home, services.policies, desk.repo_id, git, desk.task.base_commit)

    def choose(named: str, **settings: Any) -> str:
        return choose_named_folder(services.policies, facts, chosen.model_copy(update=settings), named).subpath

    assert [choose(named) for named in ("web", "services/api/src", "services", "webs", "")] == [
        "web",
        "services/api",
        "",
        "",
        "",
    ]
    assert choose("web", profile="make") == ""
    assert choose("web", subpath="services/api") == "services/api"
