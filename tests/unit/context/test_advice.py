"""What a stranger is told about a commit: pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.context.advice import SeenFacts, asks_git_for_version, find_advice, no_checks_error
from sandbox.errors import ErrorCode
from sandbox.models import RemarkKind

PLAIN = SeenFacts("forge-one", "make", has_checks=True, manifests=("Makefile",))
NOTHING = SeenFacts("forge-one", "generic", has_checks=False, remote_url="file:///src/x")


def test_a_build_file_that_cannot_be_parsed_is_why_no_profile_fits() -> None:
    facts = replace(NOTHING, manifests=("Cargo.toml",), unreadable={"Cargo.toml": "no ] (at line 1, column 9)"})
    (remark,) = find_advice(facts)
    assert remark.seen.endswith("No profile fits. Cargo.toml cannot be parsed: no ] (at line 1, column 9)")
    assert remark.remedy == "Correct Cargo.toml and commit it"


def test_other_languages_whose_tests_do_not_run_are_one_remark() -> None:
    """With the commands that add a profile, and that keep the one in use; a language that no profile knows is named."""
    others, foreign = {"node": 'package.json: "test": "', "make": "Makefile: test:"}, {"Ruby": ["Gemfile", "x.gemspec"]}
    facts = replace(PLAIN, profile="python", others=others, foreign=foreign)
    (remark,) = find_advice(facts)
    assert remark.kind is RemarkKind.UNCHECKED
    assert remark.seen == (
        'Only the tests of python run. node (package.json: "test": "), make (Makefile: test:) match, too; '
        "no profile is for Ruby (Gemfile, x.gemspec)"
    )
    assert remark.remedy == (
        "`sandbox repo set forge-one --project node=.:node --project make=.:make` adds them, "
        "`sandbox repo set forge-one --profile python` keeps this choice; a profile of yours runs Ruby "
        "(docs/other-languages.md)"
    )
    (remark,) = find_advice(replace(PLAIN, foreign=foreign))
    assert remark.seen == "Only the tests of make run. No profile is for Ruby (Gemfile, x.gemspec)"
    assert find_advice(replace(facts, others={}, foreign={})) == ()


def test_a_folder_that_is_no_plain_word_is_in_no_command_that_adds_a_profile() -> None:
    facts = replace(PLAIN, others={"node": "package.json"}, folder="my api")
    assert "--project" not in find_advice(facts)[0].remedy
    assert "--project node=web:node" in find_advice(replace(facts, folder="web"))[0].remedy


def test_a_commit_whose_checks_run_needs_no_remark() -> None:
    assert find_advice(replace(PLAIN, below={"api": "python"})) == ()


@pytest.mark.parametrize(
    ("facts", "kind", "seen", "remedy"),
    [
        pytest.param(NOTHING, RemarkKind.NO_CHECKS, "No build file", "--profile NAME`", id="nothing"),
        pytest.param(
            replace(NOTHING, manifests=("web/package.json",)),
            RemarkKind.NO_CHECKS,
            "web/package.json",
            "NAME",
            id="node",
        ),
        pytest.param(
            replace(NOTHING, manifests=("a/b/c/pom.xml", "a/b/d/pom.xml"), deep_folder="a/b/c"),
            RemarkKind.NO_CHECKS,
            "a/b/c/pom.xml",
            "`sandbox run /src/x --subpath a/b/c` looks in that folder",
            id="far below",
        ),
        pytest.param(
            replace(NOTHING, manifests=("a b/`x`/c/pom.xml",), deep_folder="a b/`x`/c"),
            RemarkKind.NO_CHECKS,
            "pom.xml",
            "`sandbox run /src/x --subpath FOLDER` looks in that folder",
            id="far below, hostile",
        ),
        pytest.param(
            replace(NOTHING, manifests=("Gemfile",)),
            RemarkKind.NO_CHECKS,
            "Gemfile. No profile fits",
            "docs/other-languages.md has a recipe for a profile of your own",
            id="another language",
        ),
        pytest.param(
            replace(NOTHING, manifests=("Makefile",), near=("make",)),
            RemarkKind.NO_CHECKS,
            "profile make looks for more",
            "`sandbox repo set forge-one --profile make`",
            id="no-test-target",
        ),
        pytest.param(
            replace(NOTHING, below={"my api": "python", "lib": "make"}),
            RemarkKind.BELOW,
            "my api (python), lib (make)",
            "run /src/x --project lib=lib`; the operator keeps that with "
            "`sandbox repo set forge-one --project lib=lib`",
            id="below",
        ),
        pytest.param(
            replace(NOTHING, below={"services/api": "python", "libs/api": "make", "Web": "node"}),
            RemarkKind.BELOW,
            "services/api (python), libs/api (make), Web (node)",
            "run /src/x --project api=services/api --project libs-api=libs/api --project web=Web`",
            id="several",
        ),
        pytest.param(
            replace(NOTHING, below={"app": "python"}, remote_url="https://forge.example/o/n"),
            RemarkKind.BELOW,
            "A project in a folder: app (python)",
            "To check it now: `sandbox run https://forge.example/o/n --project app=app`; the operator keeps that with "
            "`sandbox repo set forge-one --subpath app`",
            id="one",
        ),
        pytest.param(
            replace(NOTHING, below={"`x`; rm -rf ~": "make"}),
            RemarkKind.BELOW,
            "rm -rf",
            "--project NAME=FOLDER`",
            id="hostile",
        ),
        pytest.param(
            replace(PLAIN, suggestion="sha256:1"),
            RemarkKind.SUGGESTION,
            "not used",
            "`sandbox trust forge-one`",
            id="trust",
        ),
        pytest.param(
            replace(PLAIN, packages={".github/workflows/ci.yml": ("libpng-dev",), "debian/control": ("libpng-dev",)}),
            RemarkKind.PACKAGES,
            ".github/workflows/ci.yml, debian/control asks for Debian packages, which checks may lack: libpng-dev",
            "`sandbox trust forge-one`",
            id="packages",
        ),
        pytest.param(replace(PLAIN, submodules=("deps/x",)), RemarkKind.SUBMODULES, "deps/x", "", id="submodules"),
        pytest.param(replace(PLAIN, uses_lfs=True), RemarkKind.LFS, "pointer", "forge-one --lfs", id="lfs"),
        pytest.param(replace(PLAIN, lacks_version=True), RemarkKind.GIT_DATA, "no .git", "--env", id="git"),
        pytest.param(
            replace(PLAIN, lacks_version=True, no_variable=True),
            RemarkKind.GIT_DATA,
            "no .git",
            "no variable; what to do is in docs/profiles.md",
            id="git without a variable",
        ),
        pytest.param(
            replace(PLAIN, requires_version=">=3.12", image="newer", versions={"old": "3.11", "newer": "3.13"}),
            RemarkKind.IMAGE,
            ">=3.12: checks run in the image newer, with Python 3.13",
            "forge-one --image NAME",
            id="newer Python",
        ),
        pytest.param(
            replace(PLAIN, requires_version=">=3.99", versions={"old": "3.11", "newer": "3.13"}),
            RemarkKind.IMAGE,
            "no image has: 3.11 (old), 3.13 (newer)",
            "--image",
            id="no Python",
        ),
        pytest.param(replace(PLAIN, local_changes=3), RemarkKind.LOCAL_CHANGES, "(3)", "Commit", id="local"),
    ],
)
def test_each_fact_has_its_remark_and_a_command(facts: SeenFacts, kind: RemarkKind, seen: str, remedy: str) -> None:
    remark = next(remark for remark in find_advice(facts) if remark.kind is kind)
    assert seen in remark.seen
    assert remedy in remark.remedy


def test_a_long_list_of_names_is_cut() -> None:
    said = find_advice(replace(PLAIN, submodules=tuple(f"s{n}" for n in range(20))))[0].seen
    assert said.endswith("s7 and 12 more")


def test_the_error_has_what_was_seen_and_one_hint() -> None:
    error = no_checks_error("generic", find_advice(replace(NOTHING, below={"lib": "make"}, suggestion="sha256:1")))
    assert error.code is ErrorCode.INVALID_INPUT
    assert len(error.details.splitlines()) == 3
    assert error.hint.count("`sandbox ") == 3


def test_an_error_without_remedies_has_no_hint() -> None:
    assert no_checks_error("generic", ()).hint == ""


@pytest.mark.parametrize(
    ("files", "asks"),
    [({"pyproject.toml": b'requires = ["setuptools-scm>=8"]'}, True), ({"setup.py": b"import os"}, False), ({}, False)],
)
def test_a_version_from_git_is_seen(files: dict[str, bytes], asks: bool) -> None:
    assert asks_git_for_version(files.get) is asks
