"""THREATS S21, S23 and S185: files of a repository that ask for more than checks may have, hide what they ask for, or
exhaust their reader; folders that decide what a gate asks.

The control of each: what an ordinary tool makes of the same file.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path, PurePosixPath

import pytest
import yaml

from devtools.command import Command
from devtools.host_speed import slowness
from sandbox.engine.create_options import is_protected_variable
from sandbox.errors import ErrorCode
from sandbox.models import Limits
from sandbox.profiles import Profile
from sandbox.profiles.suggested_checks import add_suggested_file, read_suggested_projects
from sandbox.suggestions import json_comments, untrusted_yaml
from sandbox.suggestions.draft import TIMEOUT_S
from sandbox.suggestions.reading import Suggestions, read_suggestions
from sandbox.text import one_line
from tests.unit.conftest import Upstream, initialised, refused
from tests.unit.desk import Desk

pytestmark = [pytest.mark.must]

SECONDS = 10.0  # for the largest files that are read, on a slow machine
LETTERS = "abcdefgh"


def bomb(first: str, each: Callable[[str], str], levels: int) -> str:
    """YAML in which each line repeats the line above nine times."""
    lines = [f"{LETTERS[0]}: &{LETTERS[0]} {first}"]
    for above, name in pairwise(LETTERS[:levels]):
        lines.append(f"{name}: &{name} {each(', '.join([f'*{above}'] * 9))}")
    return "\n".join(lines)


LISTS = bomb("[lol, lol, lol]", lambda nine: f"[{nine}]", 8)
MAPS = bomb("{x: lol}", lambda nine: f"{{<<: [{nine}], y: [{nine}]}}", 8)
TEXTS = "a: &a |\n" + "  make\n" * 6_000 + "b:\n" + "- script: [*a]\n" * 500


@pytest.mark.parametrize("text", [LISTS, MAPS, TEXTS], ids=["lists", "maps", "long texts"])
def test_s21_aliases_that_unfold_to_gigabytes_are_refused(text: str) -> None:
    small = yaml.safe_load(bomb("[lol, lol, lol]", lambda nine: f"[{nine}]", 5))
    assert len(json.dumps(small)) > 50 * len(LISTS), "an ordinary reader unfolds them"
    started = time.monotonic()
    with pytest.raises(ValueError, match="values"):
        untrusted_yaml.loads(text)
    assert read_suggestions({".gitlab-ci.yml": text.encode()}, is_protected_variable).parts == ()
    assert time.monotonic() - started < SECONDS * slowness()


def test_s21_a_tag_of_yaml_makes_no_object(tmp_path: Path) -> None:
    made = tmp_path / "made"
    text = f"jobs: !!python/object/apply:os.mkdir [{made}]"
    assert untrusted_yaml.loads(text) == {"jobs": untrusted_yaml.OPAQUE}
    assert not made.exists()
    yaml.load(text, Loader=yaml.UnsafeLoader)  # noqa: S506 - the control
    assert made.is_dir()


HEAVY = {
    "deep lists": (".gitlab-ci.yml", "[" * 65_000),
    "many keys": (".gitlab-ci.yml", "{" + "a, " * 21_000 + "}"),
    "a long script": (".gitlab-ci.yml", "j:\n  script: |\n" + "    make\n" * 7_000),
    "a long line": (".gitlab-ci.yml", "j:\n  script: |\n    " + "# " * 32_000 + "'"),
    "many jobs": (".gitlab-ci.yml", "".join(f"j{i}: {{script: [make {i}]}}\n" for i in range(2_000))),
    "open comments": (".devcontainer.json", "/*" * 32_000),
    "open quotes": (".devcontainer.json", '"' + '\\"' * 32_000),
    "deep JSON": (".devcontainer.json", "[" * 65_000),
    "dots": ("mise.toml", "a." * 32_000 + "b = 1"),
    "dependencies": ("debian/control", "Build-Depends: " + "a1," * 20_000),
    "spaces": ("debian/control", "Build-Depends: a1" + " " * 60_000 + "("),
    "build profiles": ("debian/control", "Build-Depends: a1 " + "<" * 64_000),
    "tools": (".tool-versions", "a 1\n" * 16_000),
}


@pytest.mark.parametrize(("path", "text"), HEAVY.values(), ids=HEAVY)
def test_s21_a_file_cannot_exhaust_its_reader(path: str, text: str) -> None:
    started = time.monotonic()
    found = read_suggestions({path: text.encode()}, is_protected_variable)
    assert time.monotonic() - started < SECONDS * slowness()
    assert len(found.notes) <= 60
    assert sum(len(part.packages) + len(part.checks) + len(part.env) for part in found.parts) <= 200


ASKS_FOR_MORE = {
    ".devcontainer/devcontainer.json": """{
        "image": "evil", "runArgs": ["--network=host", "--privileged"], "mounts": ["source=/,target=/host"],
        "capAdd": ["ALL"], "securityOpt": ["seccomp=unconfined"], "hostRequirements": {"memory": "999gb"},
        "initializeCommand": "touch MARK", "postCreateCommand": "touch MARK", "forwardPorts": [80],
        "features": {"./evil": {"packages": "evil"}, "host/evil/apt-packages:1": {"packages": "-o=Evil bc"}},
        "containerEnv": {"LD_PRELOAD": "x", "GIT_SSH_COMMAND": "x", "BASH_ENV": "x", "T": "${localEnv:HOME}"}
    }""",
    ".github/workflows/ci.yml": """
        permissions: write-all
        env: {LD_LIBRARY_PATH: /x, SECRET: "${{ secrets.X }}"}
        jobs:
          a:
            container: {image: evil, options: --privileged, volumes: ["/:/host"], env: {A: b}}
            timeout-minutes: 99999
            services: {db: {image: evil, ports: [80]}}
            steps:
              - run: touch MARK
              - {run: touch MARK, working-directory: /etc}
              - {run: touch MARK, working-directory: ../../..}
              - {run: LD_PRELOAD=x make}
              - run: sudo apt-get install -y --allow-unauthenticated -o Dpkg::Pre-Invoke::=evil ./evil.deb -- -y bc
        """,
    "mise.toml": "[env]\nGIT_DIR = 'x'\n_.source = 'evil'\n[tasks.a]\nrun = 'touch MARK'\ndir = '/etc'\n",
    "debian/control": "Source: x\nBuild-Depends: bc, -o=x, ../evil, evil-, $(evil)\n",
}


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return initialised(tmp_path / "upstream")


def suggest_all(desk: Desk, mark: Path) -> None:
    for path, text in ASKS_FOR_MORE.items():
        desk.upstream.write(path, text.replace("MARK", str(mark)).encode())
    desk.upstream.write("Makefile", b"test:\n\ttrue\n")
    desk.upstream.commit()
    desk.workbench.clone(str(desk.upstream.root))


def test_s21_nothing_of_a_file_is_used_or_run_before_it_is_trusted(upstream: Upstream, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        suggest_all(desk, mark)
        found = desk.workbench.suggestion(desk.repo_id)
        assert found.parts, "the control: there is something to use"
        used = desk.workbench.detect_profiles(str(upstream.root)).candidates[0]
        assert ([c.id for c in used.checks], used.packages, used.image) == (["build", "test"], (), "build")
        assert all(check.env.keys() <= {"GTEST_OUTPUT"} for check in used.checks), "what our profile sets"
        for other in ("sha256:" + "0" * 64, "sha256:x"):
            with refused(ErrorCode.STALE_HASH):
                desk.workbench.trust(desk.repo_id, other, by="an agent")
    assert not mark.exists()


def test_s21_what_is_trusted_gets_nothing_that_other_checks_lack(upstream: Upstream, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        suggest_all(desk, mark)
        own = {c.id: c.timeout_s for c in desk.workbench.detect_profiles(str(upstream.root)).candidates[0].checks}
        for part in desk.workbench.suggestion(desk.repo_id).parts:
            desk.workbench.trust(desk.repo_id, part.sha256, by="a person")
        used = desk.workbench.detect_profiles(str(upstream.root)).candidates[0]
        assert len(used.checks) > len(own), "the control: trusted commands are checks"
    assert (used.packages, used.image) == (("bc",), "build")
    for check in used.checks:
        assert check.limits == Limits()
        assert check.timeout_s <= own.get(check.id, TIMEOUT_S)
        assert not PurePosixPath(check.cwd).is_absolute()
        assert ".." not in PurePosixPath(check.cwd).parts
        assert not [name for name in check.env if is_protected_variable(name)]
        assert not [value for value in check.env.values() if "$" in value]
    assert not mark.exists()


def test_s21_a_guest_or_an_edit_suggests_nothing(upstream: Upstream, tmp_path: Path) -> None:
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        desk.write(".github/workflows/ci.yml", b"jobs: {a: {steps: [{run: make evil}]}}")
        desk.workbench.commit(desk.task.id, "m")
        assert desk.workbench.suggestion(desk.repo_id).parts == ()
        assert desk.workbench.checks(desk.task.id) == ()


def test_s21_a_text_of_a_file_cannot_hide_what_is_trusted() -> None:
    text = 'jobs: {a: {steps: [{run: "make \\u202e evil"}, {run: "make \\e[2K"}, {run: "make \\0"}, {run: make}]}}'
    found = read_suggestions({".github/workflows/a.yml": text.encode()}, is_protected_variable)
    assert _argvs(found) == [("make",)]
    assert json_comments.loads('{"a": "\\u202e"}') == {"a": "\u202e"}, "the control: the reader itself keeps it"


HIDDEN = """
[[check]]
id = "lint"
label = "Lint"
argv = ["sh", "-c", "make lint \\u001b]0;|| true #\\u0007"]
[[check]]
id = "unit"
label = "Unit tests"
argv = ["make", "<what>"]
timeout_s = 7
[check.env]
MAKEFLAGS = "-n"
[[check.parameter]]
name = "what"
pattern = ".*"
default = ["te\\u0455t"]
[[service]]
name = "db"
image = "redis"
ready = ["sh", "-c", "./anything\\u200b"]
port = 6379
env = { SEED = "\\u001b[8mseed" }
[[project]]
name = "own"
subpath = "own"
profile = "make"
env = { MODE = "\\u001b[8mfast" }
"""
WORKFLOW = 'jobs: {a: {steps: [{run: "make test\\ufe0f"}]}}'


@pytest.mark.slow
def test_s185_all_that_is_trusted_is_shown(upstream: Upstream, tmp_path: Path) -> None:
    """Words that a terminal hides, and what changes a check: variables, what stands for a parameter, time. Also of a
    service and a project, and of a workflow. The control: the way in which other texts are shown drops these words.
    """
    upstream.write("Makefile", b"test:\n\tfalse\n")
    upstream.write(".sandbox/checks.toml", HIDDEN.encode())
    upstream.write(".github/workflows/a.yml", WORKFLOW.encode())
    upstream.commit()
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        argv = desk.workbench.suggestion(desk.repo_id).checks[0].argv
    assert "true" not in one_line(shlex.join(argv)), "void: the words are not hidden"
    assert one_line("test\ufe0f") == "test", "void: the character is not hidden"
    shown = Command(desk.home)("trust", desk.repo_id).stdout
    for text in (
        "sh -c 'make lint \\u{1b}]0;|| true #\\u{7}'",
        "timeout_s = 7",
        'env = {"MAKEFLAGS": "-n"}',
        "te\u0455t",
        "[not all ASCII]",
        "./anything\\u{200b}",
        'env = {"SEED": "\\\\u001b[8mseed"}',
        "MODE=\\u{1b}[8mfast",
        "make 'test\\u{fe0f}'",
    ):
        assert text in shown, (text, shown)


def _argvs(found: Suggestions) -> list[tuple[str, ...]]:
    return [check.argv for part in found.parts for check in part.checks]


def test_s21_a_suggested_check_cannot_take_the_name_of_a_check_of_a_project(upstream: Upstream, tmp_path: Path) -> None:
    """`api.test` in a gate would be a command of the repository, not that of the profile."""
    upstream.write("api/Makefile", b"test:\n\tfalse\n")
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        desk.workbench.set_repository(desk.repo_id, {"projects": {"api": {"subpath": "api"}}})

        def use(check_id: str) -> dict[str, tuple[str, ...]]:
            text = f'[[check]]\nid = "{check_id}"\nlabel = "x"\nargv = ["true"]\n'
            upstream.write(".sandbox/checks.toml", text.encode())
            upstream.commit()
            desk.workbench.clone(str(upstream.root))
            sha256 = desk.workbench.suggestion(desk.repo_id).sha256
            desk.workbench.trust(desk.repo_id, sha256 or "", by="a person")
            return {check.id: check.argv for check in desk.workbench.checks(desk.repo_id)}

        assert use("api-test")["api-test"] == ("true",), "the control: with another name it is used"
        for name in ("api.test", "other.test"):
            with refused(ErrorCode.INVALID_INPUT):
                use(name)
        assert "true" not in use("lint")["api.test"]


@pytest.mark.parametrize(
    "text", ["timeout_s = inf\n", "timeout_s = 1e300\n", "[check.launch]\nready = { port = 80 }\n", ""]
)
def test_s21_a_suggested_check_that_never_ends_or_launches_an_application_is_refused(text: str) -> None:
    """`inf` ended the run with an error of ours. Control: without that it is used."""
    profile = Profile(name="p", label="p", image="base")
    content = f'[[check]]\nid = "x"\nlabel = "x"\nargv = ["true"]\n{text}'.encode()
    if not text:
        assert [check.id for check in add_suggested_file(profile, content, PurePosixPath("/w")).checks] == ["x"]
        return
    with refused(ErrorCode.INVALID_INPUT):
        add_suggested_file(profile, content, PurePosixPath("/w"))


PROJECT = '[[project]]\nname = "own"\nsubpath = "{}"\nprofile = "make"\n'


ASKS_TOO_MUCH = {
    "an image": PROJECT.format("deep/er/own") + 'image = "evil"\n',
    "a folder above": PROJECT.format("../own"),
    "the repository's data": PROJECT.format(".git"),
    "a name twice": PROJECT.format("deep/er/own") * 2,
    "another limit": PROJECT.format("deep/er/own") + "limits = { network = 1 }\n",
    "many": "".join(PROJECT.format("deep/er/own").replace("own", f"p{n}", 1) for n in range(33)),
}


def test_s23_a_suggested_project_counts_when_it_is_trusted_and_gets_no_more_than_others(
    upstream: Upstream, tmp_path: Path
) -> None:
    for text in ASKS_TOO_MUCH.values():
        with refused(ErrorCode.INVALID_INPUT):
            read_suggested_projects(text.encode())
    upstream.write("deep/er/own/Makefile", b"test:\n\ttrue\n")
    upstream.write(".sandbox/checks.toml", PROJECT.format("deep/er/own").encode())
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        assert desk.workbench.checks(desk.repo_id) == ()
        desk.workbench.trust(desk.repo_id, desk.workbench.suggestion(desk.repo_id).sha256 or "", by="a person")
        checks = desk.workbench.checks(desk.repo_id)
        assert {(check.cwd, check.limits) for check in checks} == {("deep/er/own", Limits())}, "the control"
        upstream.write(".sandbox/checks.toml", PROJECT.format("").encode())
        upstream.commit()
        desk.workbench.clone(str(upstream.root))
        assert desk.workbench.checks(desk.repo_id) == (), "other content is a new suggestion"


def test_s23_a_project_that_is_added_does_not_take_the_place_of_the_only_one(
    upstream: Upstream, tmp_path: Path
) -> None:
    """A verdict about the easy one of two would open the gate for both."""
    upstream.write("server/Makefile", b"test:\n\tfalse\n")
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        assert {check.cwd for check in desk.workbench.checks(desk.task.id)} == {"server"}, "the control"
        desk.write("easy/Makefile", b"test:\n\ttrue\n")
        (desk.root / "server" / "Makefile").unlink()
        desk.workbench.commit(desk.task.id, "moves what is checked")
        assert {check.cwd for check in desk.workbench.checks(desk.task.id)} == {"server"}, "as the base says"
        upstream.write("easy/Makefile", b"test:\n\ttrue\n")
        upstream.commit()
        desk.workbench.clone(str(upstream.root))
        assert desk.workbench.checks(desk.repo_id) == ()
        upstream.write("easy/Makefile", b"")
        upstream.write("server/Makefile", b"")
        upstream.write("other/package.json", b'{"scripts": {"test": "true"}}')
        upstream.commit()
        desk.workbench.clone(str(upstream.root))
        assert desk.workbench.checks(desk.repo_id) == (), "a build file without checks is a project, too"
