"""`profiles detect` names every profile that a commit matches, its evidence, and what would run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from devtools.command import Command
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import READ_BYTES
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench import Workbench
from sandbox.workbench.checks import wanted_packages
from tests.unit.conftest import Upstream, refused
from tests.unit.memory_engine import MemoryEngine

LINT = b'[[check]]\nid = "lint"\nlabel = "look at it"\nargv = ["true"]\n'


@pytest.fixture
def workbench(upstream: Upstream, tmp_path: Path) -> Iterator[Workbench]:
    upstream.write("go.mod", b"module x\n")
    upstream.write("Makefile", b"test:\n\tgo test ./...\n")
    upstream.commit()
    settings = {"profiles": {"go": {"image": "our-go"}}}
    environ = {"PATH": "/usr/bin:/bin", "DOCKER_HOST": f"unix://{tmp_path}/no-engine"}  # asked for the image
    with Workbench(tmp_path / "home", environ=environ, settings=settings, allow_file=True) as bench:
        yield bench


def test_candidates_come_with_evidence_and_the_one_in_use_first(workbench: Workbench, upstream: Upstream) -> None:
    found = workbench.detect_profiles(str(upstream.root))
    assert [(c.name, c.weight, c.why, c.image) for c in found.candidates] == [
        ("go", 50, ("go.mod",), "our-go"),
        ("make", 20, ("Makefile: test:",), "build"),
    ]
    assert found.commit == upstream.oid("HEAD")
    assert [check.id for check in found.candidates[0].checks] == ["build", "test"]
    assert workbench.repository(found.repo_id).profile == "go"


def test_an_image_that_no_check_builds_comes_with_what_to_do(workbench: Workbench, upstream: Upstream) -> None:
    """Control: of one with a recipe nothing is said but its name, because the first check builds it."""
    services = workbench._services
    vars(services)["engine"] = MemoryEngine(QuarantineNotes(services.home.quarantine))
    chosen = workbench.detect_profiles(str(upstream.root))
    assert (chosen.missing_image, "Load or pull it" in chosen.missing_image_hint) == ("our-go", True)
    upstream.git("rm", "-q", "go.mod")
    upstream.commit()
    built = workbench.detect_profiles(str(upstream.root))
    assert (built.missing_image, built.missing_image_hint) == ("build", "")
    upstream.write("pom.xml", b"<project/>\n")
    upstream.commit()
    own = workbench.detect_profiles(str(upstream.root))
    assert (own.missing_image, "the packages of the project in it" in own.missing_image_hint) == ("maven", True)


OWN = b"""label = "Ours"
image = "base"
priority = 99
[[detect.any]]
file = "go.mod"
[[check]]
id = "own"
label = "own"
argv = ["true"]
[launch]
argv = ["./app"]
"""


@pytest.mark.parametrize("is_chosen", [False, True], ids=["detected", "chosen"])
def test_no_other_checks_run_while_the_own_profile_has_a_syntax_error(
    upstream: Upstream, tmp_path: Path, is_chosen: bool
) -> None:
    """Neither of a task from before the mistake nor later. Control: before it, there is no engine to run its checks."""
    own = tmp_path / "home" / "profiles" / "ours.toml"
    own.parent.mkdir(parents=True)
    own.write_bytes(OWN + b'[launch.ready]\nfile = "up"\n')
    upstream.write("go.mod", b"module x\n")
    upstream.commit()
    environ = {"PATH": "/usr/bin:/bin", "DOCKER_HOST": f"unix://{tmp_path}/no-engine"}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as bench:
        repository = bench.clone(str(upstream.root)).repository
        assert repository.profile == "ours"
        if is_chosen:
            bench.set_repository(repository.id, {"profile": "ours"})
        task = bench.create_task(repository.id, "before")
        with refused(ErrorCode.ENGINE_UNAVAILABLE):
            bench.verify(task.id)
    own.write_bytes(OWN + b'[launch.ready]\nfile = up"\n')
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as bench:
        for work in (bench.verify, bench.candidate, bench.promote):
            with refused(ErrorCode.INVALID_INPUT) as caught:
                work(task.id)
            assert str(own) in caught.value.brief
            assert "line 13" in caught.value.details


def test_each_ref_is_judged_by_its_own_tree(workbench: Workbench, upstream: Upstream) -> None:
    upstream.git("checkout", "-q", "-b", "bare")
    upstream.git("rm", "-q", "go.mod", "Makefile")
    upstream.commit()
    upstream.git("checkout", "-q", "main")
    (only,) = workbench.detect_profiles(str(upstream.root), "bare").candidates
    assert (only.name, only.weight, only.why, only.checks) == ("generic", 0, (), ())
    with refused(ErrorCode.NOT_FOUND):
        workbench.detect_profiles(str(upstream.root), "no-such-branch")


def test_what_a_run_would_fetch_is_listed_with_the_hosts_and_without_a_network(
    workbench: Workbench, upstream: Upstream, tmp_path: Path
) -> None:
    """Controls: nothing where fetches are off; that a build is asked is said only where no file says it as data."""
    upstream.git("rm", "-q", "go.mod")
    upstream.write("Makefile.PL", b"WriteMakefile(PREREQ_PM => {A => 1}, TEST_REQUIRES => {map {$_ => 0} 'B'});\n")
    upstream.commit()
    (found,) = workbench.detect_profiles(str(upstream.root)).fetches
    assert (found.ecosystem, found.hosts, found.asks_build) == ("perl", ("cpan.metacpan.org:443",), True)
    assert found.packages == ("A >= 1",)
    upstream.write("cpanfile", b"requires 'C';\nrequires 'D', git => 'git://elsewhere.invalid/d';\n")
    upstream.commit()
    (found,) = workbench.detect_profiles(str(upstream.root)).fetches
    assert (found.packages, [entry.text for entry in found.refused]) == (
        ("C",),
        ["requires D git git://elsewhere.invalid/d"],
    )
    assert not found.asks_build
    environ = {"PATH": "/usr/bin:/bin", "DOCKER_HOST": f"unix://{tmp_path}/no-engine"}
    never = {"layers": {"fetch": "never"}}
    with Workbench(tmp_path / "other", environ=environ, settings=never, allow_file=True) as off:
        assert off.detect_profiles(str(upstream.root)).fetches == ()


def test_a_partial_clone_fetches_what_it_reads(workbench: Workbench, upstream: Upstream) -> None:
    upstream.git("config", "uploadpack.allowFilter", "true")
    upstream.git("checkout", "-q", "-b", "crate")
    upstream.git("rm", "-q", "go.mod")
    upstream.write("Cargo.toml", b"[package]\n")
    upstream.commit()
    upstream.git("checkout", "-q", "main")
    workbench.clone(str(upstream.root), partial=True)
    used, _ = workbench.detect_profiles(str(upstream.root), "crate").candidates
    assert used.name == "rust"


@pytest.mark.parametrize("partial", [True, False], ids=["partial", "control"])
def test_packages_that_a_partial_clone_would_fetch_are_listed(
    workbench: Workbench, upstream: Upstream, partial: bool
) -> None:
    upstream.git("config", "uploadpack.allowFilter", "true")
    upstream.git("checkout", "-q", "-b", "python")
    upstream.git("rm", "-q", "go.mod")
    upstream.write("pyproject.toml", b"[project]\nname = 'x'\n")
    upstream.write("requirements.txt", b"-r more/all.txt\n")
    upstream.write("more/all.txt", b"six==1.16.0\n")
    upstream.commit()
    upstream.git("checkout", "-q", "main")
    workbench.clone(str(upstream.root), partial=partial)
    (found,) = workbench.detect_profiles(str(upstream.root), "python").fetches
    assert (found.ecosystem, found.packages) == ("python", ("six==1.16.0",))


def test_an_included_file_that_is_too_large_is_refused_by_name(workbench: Workbench, upstream: Upstream) -> None:
    """It was read whole first, up to what ends a command."""
    upstream.git("rm", "-q", "go.mod")
    upstream.write("pyproject.toml", b"[project]\nname = 'x'\n")
    upstream.write("requirements.txt", b"six==1.16.0\n-r all.txt\n")
    upstream.write("all.txt", b"#" * (READ_BYTES + 1))
    upstream.commit()
    (found,) = workbench.detect_profiles(str(upstream.root)).fetches
    assert found.packages == ("six==1.16.0",)
    assert [(entry.origin, entry.reason.value) for entry in found.refused] == [("all.txt", "limit")]


def test_a_failure_to_read_manifests_is_no_empty_answer(
    workbench: Workbench, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.git("rm", "-q", "go.mod")
    upstream.write("Makefile.PL", b"WriteMakefile();\n")
    upstream.commit()
    for code in (ErrorCode.TIMEOUT, ErrorCode.NOT_FOUND):
        failing = Mock(side_effect=SandboxError(code, "git did not end, or the clone is damaged"))
        monkeypatch.setattr(wanted_packages, "plan_layer", failing)
        with refused(code):
            workbench.detect_profiles(str(upstream.root))


def test_uncommitted_files_are_no_evidence(workbench: Workbench, upstream: Upstream) -> None:
    upstream.write("Cargo.toml", b"[package]\n")
    assert {c.name for c in workbench.detect_profiles(str(upstream.root)).candidates} == {"go", "make"}


def test_trusted_suggestions_are_part_of_what_would_run(workbench: Workbench, upstream: Upstream) -> None:
    upstream.write(".sandbox/checks.toml", LINT)
    upstream.commit()
    found = workbench.detect_profiles(str(upstream.root))
    assert [check.id for check in found.candidates[0].checks] == ["build", "test"]
    suggestion = workbench.suggestion(found.repo_id)
    assert suggestion.sha256 is not None
    workbench.trust(found.repo_id, suggestion.sha256, by="a person")
    used, other = workbench.detect_profiles(str(upstream.root)).candidates
    assert [check.id for check in used.checks] == ["build", "test", "lint"]
    assert [check.id for check in other.checks] == ["build", "test"]


def test_a_broken_profile_is_named_with_its_problem(workbench: Workbench, upstream: Upstream) -> None:
    folder = workbench.home / "profiles"
    folder.mkdir()
    (folder / "ours.toml").write_text('priority = 99\nsurprise = 1\n[[detect.any]]\nfile = "extra"\n')
    upstream.git("checkout", "-q", "-b", "extra")
    upstream.write("extra", b"")
    upstream.commit()
    upstream.git("checkout", "-q", "main")
    with Workbench(workbench.home, environ={"PATH": "/usr/bin:/bin"}, allow_file=True) as again:
        used, *others = again.detect_profiles(str(upstream.root), "extra").candidates
    assert (used.name, bool(used.problem)) == ("ours", True)
    assert [c.name for c in others] == ["go", "make"]


def test_the_command_prints_what_would_run_and_why(upstream: Upstream, tmp_path: Path) -> None:
    upstream.write("CMakeLists.txt", b"project(x)\nenable_testing()\n")
    upstream.write("setup.py", b"ext_modules = []\n")
    upstream.commit()
    done = Command(tmp_path / "home")("profiles", "detect", str(upstream.root))
    assert done.stdout.splitlines()[1:6] == [
        "cmake: used, weight 34",
        "  found  CMakeLists.txt: project(",
        "  found  CMakeLists.txt: enable_testing",
        "  image  build",
        "  what   CMake project",
    ]
    assert "  check  build: sh -c '...'  (Configure and build with Ninja, timeout 1800 s)" in done.stdout.splitlines()
    assert "cmake -S ." in Command(tmp_path / "home")("profiles", "show", "cmake").stdout, "the whole script"
    assert "python: also matches, weight 25" in done.stdout
