"""Limits, deadlines and jobs of single checks of one repository, and how many jobs build tools are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from devtools.command import Command
from sandbox.checks.jobs import JOB_BYTES, automatic_jobs, with_jobs
from sandbox.cli.app import main
from sandbox.config import find_resources, load_settings
from sandbox.errors import ErrorCode
from sandbox.models import Check, Limits
from sandbox.policy.container import ContainerPolicy
from sandbox.profiles import load_profiles
from sandbox.workbench import Workbench
from sandbox.workbench.checks import check_order
from sandbox.workbench.repositories.check_overrides import apply_overrides
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

GIB = 1024**3


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    upstream.write("Makefile", b"build:\n\ttrue\ntest:\n\ttrue\n")
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def configured(desk: Desk, text: str) -> Workbench:
    """Another controller of the same home, with these settings of the repository."""
    (desk.home / "config.toml").write_text(text.replace("REPO", desk.repo_id))
    return Workbench(desk.home, environ={})


def by_id(checks: tuple[Check, ...]) -> dict[str, Check]:
    return {check.id: check for check in checks}


TEST = """[repositories."REPO".checks.test]
timeout_s = 1800
jobs = 3
limits.memory_bytes = 8589934592
limits.cpus = 1.5
"""


def test_one_check_of_one_repository_has_other_limits(desk: Desk) -> None:
    before = by_id(desk.workbench.checks(desk.repo_id))
    with configured(desk, TEST) as workbench:
        for owner in (desk.repo_id, desk.task.id):
            found = by_id(workbench.checks(owner))
            assert found["build"] == before["build"]
            limits = before["test"].limits.model_copy(update={"memory_bytes": 8 * GIB, "cpus": 1.5})
            changed = {"timeout_s": 1800.0, "jobs": 3, "limits": limits}
            assert found["test"] == before["test"].model_copy(update=changed)


def test_another_repository_has_what_its_profile_says(desk: Desk) -> None:
    before = desk.workbench.checks(desk.repo_id)
    with configured(desk, TEST.replace("REPO", "forge.example-other")) as workbench:
        assert workbench.checks(desk.repo_id) == before


def test_a_check_that_is_not_there_is_an_error_with_those_that_are(desk: Desk) -> None:
    with (
        configured(desk, '[repositories."REPO".checks.tset]\ntimeout_s = 1\n') as workbench,
        refused(ErrorCode.INVALID_INPUT) as caught,
    ):
        workbench.checks(desk.repo_id)
    assert f"'repositories.{desk.repo_id}.checks.tset'" in caught.value.brief
    assert "build, test" in caught.value.details


def test_check_list_shows_them(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    configured(desk, TEST)
    assert main(["--home", str(desk.home), "check", "list", desk.repo_id]) == 0
    text = capsys.readouterr().out
    (line,) = (line for line in text.splitlines() if line.strip().startswith("test "))
    for words in ("1800 s", "memory_bytes=8 GiB", "cpus=1.5", "jobs=3"):
        assert words in line
    found = Command(desk.home).ok("check", "list", desk.repo_id)["checks"]
    assert {check["id"]: check["jobs"] for check in found} == {"build": "auto", "test": 3}


def settings_of(text: str, tmp_path: Path) -> Any:
    (tmp_path / "config.toml").write_text(text)
    return load_settings(tmp_path, {})


WRONG = {
    "unknown key": ('[repositories."r".checks.test]\ntimeout = 3', "repositories.r.checks.test.timeout"),
    "unknown section": ('[repositories."r"]\nprofile = "x"', "repositories.r.profile"),
    "unknown limit": ('[repositories."r".checks.test.limits]\nmemory = 3', "repositories.r.checks.test.limits"),
    "zero": ('[repositories."r".checks.test.limits]\npids = 0', "repositories.r.checks.test.limits"),
    "text": ('[repositories."r".checks.test.limits]\npids = "many"', "repositories.r.checks.test.limits.pids"),
    "no deadline": ('[repositories."r".checks.test]\ntimeout_s = 0', "repositories.r.checks.test.timeout_s"),
    "no jobs": ('[repositories."r".checks.test]\njobs = 0', "repositories.r.checks.test.jobs"),
}


@pytest.mark.parametrize(("text", "key"), WRONG.values(), ids=WRONG)
def test_a_mistake_names_its_key(text: str, key: str, tmp_path: Path) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        settings_of(text, tmp_path)
    assert f"'{key}" in caught.value.brief


def test_variables_say_where_it_is_set_instead() -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_settings(Path("/nowhere"), {"SANDBOX_REPOSITORIES_X_TIMEOUT_S": "3"})
    assert "config.toml" in caught.value.details


def test_a_profile_that_was_asked_for_by_name_takes_what_fits_it(tmp_path: Path) -> None:
    settings = settings_of(
        '[repositories."r".checks.e2e]\njobs = 1\n[repositories."r".checks.test]\njobs = 2', tmp_path
    )
    profile = load_profiles([find_resources("policies") / "profiles"], Path("/workspace"))["make"]  # type: ignore[arg-type]
    assert by_id(apply_overrides(settings, "r", profile, strict=False).checks)["test"].jobs == 2
    with refused(ErrorCode.INVALID_INPUT):
        apply_overrides(settings, "r", profile)
    assert apply_overrides(settings, "another", profile) is profile


# --- jobs


@pytest.mark.parametrize(
    ("cpus", "memory_bytes", "count"),
    [(2.0, 4 * GIB, 2), (1.5, 4 * GIB, 2), (0.5, 4 * GIB, 1), (8.0, 2 * GIB, 4), (4.0, 1, 1), (16.0, JOB_BYTES * 3, 3)],
)
def test_as_many_jobs_as_cpus_and_memory_allow(cpus: float, memory_bytes: int, count: int) -> None:
    assert automatic_jobs(Limits(cpus=cpus, memory_bytes=memory_bytes)) == count


def check(**changes: Any) -> Check:
    return Check(id="c", label="c", argv=("make",), **changes)


def test_build_tools_are_told_by_their_variables() -> None:
    assert with_jobs(check(jobs=5)).env == {
        "MAKEFLAGS": "-j5",
        "CMAKE_BUILD_PARALLEL_LEVEL": "5",
        "CTEST_PARALLEL_LEVEL": "5",
        "CARGO_BUILD_JOBS": "5",
    }
    assert with_jobs(check(jobs="auto")).env["MAKEFLAGS"] == "-j2"
    assert with_jobs(check()).env == {}
    assert with_jobs(check(jobs=5, env={"MAKEFLAGS": "-k", "X": "1"})).env["MAKEFLAGS"] == "-k"


def test_shipped_builds_use_the_cores_and_tests_run_as_they_were_written() -> None:
    profiles = load_profiles([find_resources("policies") / "profiles"], Path("/workspace"))  # type: ignore[arg-type]
    jobs = {name: {c.id: c.jobs for c in profile.checks} for name, profile in profiles.items()}
    for name in ("make", "cmake", "space"):
        assert jobs[name].pop("build") == "auto"
        assert set(jobs[name].values()) == {None}
    for check_id in ("test", "build"):
        ordered = check_order.order_checks(profiles["make"], [check_id], ContainerPolicy())
        assert ordered[0].env["MAKEFLAGS"].startswith("-j")


def test_limits_above_what_the_host_can_give_are_lowered() -> None:
    wide = check(jobs="auto", limits=Limits(cpus=8.0, memory_bytes=8 * GIB))
    fitted = check_order.fit_to_host(wide, 4, 2 * GIB)
    assert (fitted.limits.cpus, fitted.limits.memory_bytes, fitted.env["MAKEFLAGS"]) == (4, 2 * GIB, "-j4")
    assert check_order.fit_to_host(wide, 16, 9 * GIB).limits == wide.limits


def test_a_factor_extends_the_deadlines_of_its_profile_only(desk: Desk) -> None:
    with configured(desk, "[profiles.make]\ntimeout_factor = 2.5\n" + TEST) as workbench:
        checks = by_id(workbench.checks(desk.repo_id))
    with configured(desk, "[profiles.cmake]\ntimeout_factor = 2.5\n") as workbench:
        plain = by_id(workbench.checks(desk.repo_id))
    assert checks["build"].timeout_s == plain["build"].timeout_s * 2.5
    assert (plain["test"].timeout_s, checks["test"].timeout_s) == (1800.0, 1800.0)  # the second is of the repository
    environ = {"SANDBOX_PROFILES_MAKE_TIMEOUT_FACTOR": "3"}
    assert load_settings(desk.home, environ).profiles["make"].timeout_factor == 3.0
    for wrong in ("0", "-1", "101", "nan"):
        with refused(ErrorCode.INVALID_INPUT):
            load_settings(desk.home, environ | {"SANDBOX_PROFILES_MAKE_TIMEOUT_FACTOR": wrong})


def test_a_factor_is_that_of_each_project(desk: Desk) -> None:
    shipped = load_profiles([find_resources("policies") / "profiles"], PurePosixPath("/workspace"))
    check = shipped["make"].checks[0]
    part = shipped["cmake"].model_copy(update={"project_name": "api"})
    both = (check, check.model_copy(update={"id": "api.build"}))
    profile = shipped["make"].model_copy(update={"checks": both, "project_parts": (part,)})
    settings = load_settings(desk.home, {"SANDBOX_PROFILES_CMAKE_TIMEOUT_FACTOR": "2"})
    found = by_id(apply_overrides(settings, "any", profile).checks)
    assert {name: one.timeout_s / check.timeout_s for name, one in found.items()} == {"build": 1.0, "api.build": 2.0}
