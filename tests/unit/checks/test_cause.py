"""Why a check did not pass: by what it printed (captured in tests/data/causes), and where nothing may be said."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from devtools.host_speed import slowness
from sandbox.checks.cause import EXIT_STATUS_ONLY, FILE_FAILED, HELPER, find_cause
from sandbox.checks.crash import find_crash
from sandbox.checks.debian_packages import find_library_package
from sandbox.checks.declared import DeclaredPackages
from sandbox.models import Cause, CauseKind, Check, CheckRun, Report, TestFailure, Verdict
from sandbox.store.home import GIT_MASK
from tests.unit.cli.test_run_explanations import run

DATA = Path(__file__).parents[2] / "data" / "causes"
CODE, ENVIRONMENT, GUEST, UNKNOWN = (
    CauseKind.CODE,
    CauseKind.ENVIRONMENT,
    CauseKind.GUEST_INFRASTRUCTURE,
    CauseKind.UNKNOWN,
)
CHECK = Check(id="test", label="test", argv=("make", "test"))


def why(found: CheckRun, *argv: str, declared: tuple[str, ...] = ()) -> Cause:
    check = CHECK.model_copy(update={"argv": argv}) if argv else CHECK
    cause = find_cause(check, found, lambda module: module in declared)
    assert cause is not None
    return cause


def failed(exit_code: int | None = 1, *, out: str = "", err: str = "", **more: Any) -> CheckRun:
    return run(Verdict.FAILED, exit_code, stdout_tail=out, stderr_tail=err, **more)


# --- what tools say

SAID: dict[str, tuple[int, CauseKind, str]] = {
    "make-command": (2, ENVIRONMENT, "'no-such-tool'"),
    "make-shell-command": (2, ENVIRONMENT, "'no-such-tool'"),
    "make-own-script": (2, UNKNOWN, "'./missing-script'"),
    "bash-command": (127, ENVIRONMENT, "'no-such-tool'"),
    "dash-command": (127, ENVIRONMENT, "'no-such-tool'"),
    "npm-command": (127, ENVIRONMENT, "'mocha'"),
    "gcc-header": (1, ENVIRONMENT, "'zlibx.h'"),
    "gcc-own-header": (1, UNKNOWN, "'own.h'"),
    "gcc-error": (1, CODE, "compiler"),
    "ld-library": (1, ENVIRONMENT, "'nosuch'"),
    "cmake-package": (1, ENVIRONMENT, "'Qt6'"),
    "cmake-module": (1, ENVIRONMENT, "'ZLIB'"),
    "cmake-pkgconfig": (1, ENVIRONMENT, "'nosuchlib'"),
    "pkg-config": (1, ENVIRONMENT, "'nosuchlib'"),
    "git-network": (128, ENVIRONMENT, "network"),
    "npm-network": (1, ENVIRONMENT, "network"),
    "cargo-network": (101, ENVIRONMENT, "network"),
    "cargo-offline": (101, ENVIRONMENT, "crates"),
    "cargo-offline-1.96": (101, ENVIRONMENT, "crates"),
    "cargo-older-rustc": (101, ENVIRONMENT, "newer Rust"),
    "cargo-edition": (101, ENVIRONMENT, "newer Rust"),
    "cargo-lock-version": (101, ENVIRONMENT, "newer Rust"),
    "go-offline": (1, ENVIRONMENT, "modules"),
    "go-mod-version": (1, ENVIRONMENT, "newer Go"),
    "go-newer": (2, ENVIRONMENT, "newer Go"),
    "uv-newer-python": (1, ENVIRONMENT, "newer Python"),
    "meson-dependency": (1, ENVIRONMENT, "'nosuchdep'"),
    "meson-program": (1, ENVIRONMENT, "'nosuchprog'"),
    "meson-subproject": (1, ENVIRONMENT, "subproject"),
    "vitest-own-folder": (1, ENVIRONMENT, "into its own folder"),
    "maven-offline": (1, ENVIRONMENT, "the image lacks 'junit:junit:jar:4.12'"),
    "npm-offline": (1, ENVIRONMENT, "packages"),
    "cargo-error": (101, CODE, "compiler"),
    "pip-offline": (1, ENVIRONMENT, "'nosuchpkg'"),
    "pip-network": (1, ENVIRONMENT, "'nosuchpkg'"),
    "uv-offline": (1, ENVIRONMENT, "network"),
    "no-space": (1, GUEST, "limits.tmp_bytes"),
    "pytest-network-and-space": (1, ENVIRONMENT, "network"),
    "node-own-module": (1, UNKNOWN, EXIT_STATUS_ONLY),
    "automake-directory": (1, UNKNOWN, "autoreconf"),
    "make-crash": (2, CODE, "SIGSEGV"),
    "pytest-plugin": (4, ENVIRONMENT, "pytest-cov"),
    "pytest-unknown-argument": (4, UNKNOWN, "'--no-such-plugin'"),
    "pytest-no-tests": (5, CODE, "found no test"),
    "node-not-defined": (1, CODE, "'junk'"),
}


@pytest.mark.parametrize("stream", ["out", "err"])
@pytest.mark.parametrize(("name", "expected"), SAID.items(), ids=SAID)
def test_what_a_tool_says_is_put_down_to(name: str, expected: tuple[int, CauseKind, str], stream: str) -> None:
    exit_code, kind, words = expected
    found = why(failed(exit_code, **{stream: (DATA / f"{name}.txt").read_text()}))
    assert found.kind is kind
    assert words in found.sentence


def test_every_capture_is_read() -> None:
    used = {*SAID, *SILENT, *IMPORTS}
    assert {path.stem for path in DATA.glob("*.txt")} == used


IMPORTS = {
    "pytest-collection": "yaml",
    "pytest-conftest": "yaml",
    "pytest-import-in-test": "yaml",
    "python-import": "no_such",
    "node-module": "left-pad",
    "perl-module": "No::Such",
}


@pytest.mark.parametrize(("name", "module"), IMPORTS.items(), ids=IMPORTS)
def test_a_missing_module_is_the_environments_only_where_the_project_declares_it(name: str, module: str) -> None:
    said = failed(2, out=(DATA / f"{name}.txt").read_text())
    found = why(said, declared=(module,))
    assert (found.kind, f"'{module}'" in found.sentence) == (ENVIRONMENT, True)
    found = why(said)
    assert (found.kind, f"'{module}'" in found.sentence) == (UNKNOWN, True)


def test_no_package_is_named_that_the_next_debian_lacks() -> None:
    """PCRE 1 left Debian with 13, to which a tool that is too old sends."""
    assert (find_library_package("pcre.h"), find_library_package("libpcre")) == ("", "")
    assert find_library_package("pcre2.h") == "libpcre2-dev"


def test_missing_perl_modules_are_named_with_the_debian_packages_that_may_have_them() -> None:
    names = ("Moose::Role", "Moose::Role", "Path::Tiny", "LWP::UserAgent")
    line = "Can't locate {0}.pm in @INC (you may need to install the {0} module) (@INC contains: /a) at t/a.t line 2."
    said = failed(2, out="\n".join(line.format(name) for name in names))
    assert "'Moose::Role'" in why(said, declared=("Moose::Role",)).sentence
    assert (
        "add libmoose-perl, libpath-tiny-perl, libwww-perl to `packages` of the repository ("
        in why(said, declared=("Moose::Role",)).sentence
    )
    assert "the project does not declare it: add it to the cpanfile, to TEST_REQUIRES of" in why(said).sentence
    assert "the cpanfile" not in why(said, declared=("Moose::Role",)).sentence


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ("a.c:1:10: fatal error: <SDL2/SDL.h>: No such file or directory", "add libsdl2-dev to `packages`"),
        (
            "a.c:1:10: fatal error: <google/protobuf/a.h>: No such file or directory",
            "add libprotobuf-dev to `packages`",
        ),
        ("/usr/bin/ld: cannot find -lusb-1.0", "add libusb-1.0-0-dev to `packages`"),
        ("No package 'gtk+-3.0' found", "add libgtk-3-dev to `packages`"),
        ('meson.build:3:0: ERROR: Dependency "systemd" not found, tried pkgconfig', "add systemd to `packages`"),
        ("No package 'libsystemd' found", "add libsystemd-dev to `packages`"),
        (
            '  Could not find a package configuration file provided by "Qt6" with any of',
            "add qt6-base-dev to `packages`",
        ),
        ("  Could NOT find PCAP (missing: PCAP_LIBRARY)", "add libpcap-dev to `packages`"),
        ("meson.build:3:0: ERROR: Program 'valac' not found or not executable", "add valac to `packages`"),
        ("a.c:1:10: fatal error: 'lmdb.h' file not found", "Debian has it in liblmdb-dev"),
        ("a.c:1:10: fatal error: <ours/private.h>: No such file or directory", "add a Debian package that has it"),
        (
            '  add_subdirectory given source "third_party/benchmark" which is not an',
            "`sandbox repo set REPOSITORY --submodules`",
        ),
        ('  add_subdirectory given source "/workspace/test/gtest-1.10.0" which is not', "if .gitmodules names it"),
        ("  CMake 3.28 or higher is required.  You are", "`sandbox repo set REPOSITORY --image build13`"),
    ],
)
def test_what_is_missing_is_named_with_the_package_of_debian_that_has_it(said: str, way: str) -> None:
    said = said.replace("<", "").replace(">", "")  # gcc shows them in the line after
    assert way in why(failed(1, err=f"{said}\n    1 | #include <x.h>")).sentence


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("CMake Error: File /workspace/cmake/config.h.in does not exist.", "no file 'cmake/config.h.in'"),
        ("meson.build:2:0: ERROR: File src/no.c does not exist.", "no file 'src/no.c'"),
        ("make[1]: *** No rule to make target 'src/no.c', needed by 'x.o'.  Stop.", "no file 'src/no.c'"),
        ("ninja: error: 'src/no.c', needed by 'x', missing and no known rule to make it", ".gitignore"),
        (
            "CMake Error at src/CMakeLists.txt:31 (message):\n  Cannot determine it\n",
            "CMake stops in src/CMakeLists.txt",
        ),
        ("src/meson.build:3:0: ERROR: File /workspace/list/x.dat does not exist.", "Meson stops in src/meson.build"),
        ("configure: error: cannot guess\n", "configure stops"),
        ("Fail:               0   \nTimeout:            2   \n", "2 tests did not end within the time"),
    ],
)
def test_a_tool_that_says_it_stopped_is_named_where_no_symptom_is_known(said: str, words: str) -> None:
    assert words in why(failed(1, out=said)).sentence
    found = why(failed(1, out=f"{said}\n  Could NOT find PCAP (missing: PCAP_LIBRARY)"))
    assert "PCAP" in found.sentence, "the reason is in the lines below"
    assert why(failed(1, out="Timeout:            0   \n")).sentence == EXIT_STATUS_ONLY


@pytest.mark.parametrize("options", ["FOO_BUILD_TESTS", "-Dtests=true -Dunit-tests=enabled"])
def test_tests_that_the_build_left_out_are_the_projects_own(options: str) -> None:
    found = why(failed(1, err=f"Tests were left out: the build with {options} failed, see the output of build\n"))
    assert (found.kind, "`build` left them out" in found.sentence) == (CODE, True)


@pytest.mark.parametrize(
    "said",
    [
        "go: gopkg.in/check.v1@v0.0.0-20161208181325-20d25e280405: missing go.sum entry; to add it:",
        "a_test.go:4:2: missing go.sum entry for module providing package gopkg.in/check.v1; to add:",
    ],
)
def test_a_go_sum_that_lacks_a_module_is_the_projects_own(said: str) -> None:
    found = why(failed(1, err=said))
    assert (found.kind, "`go mod tidy` writes it" in found.sentence) == (CODE, True)


@pytest.mark.parametrize(
    "said",
    [
        "a_test.go:4:2: no required module provides package github.com/x/y/v2; to add it:\n\tgo get github.com/x/y/v2",
        "go: no required module provides package github.com/x/y/v2",
        "WARN invalid TestEvent: a/b.go:4:2: no required module provides package github.com/x/y/v2; to add it:",
    ],
)
def test_a_package_that_go_mod_lacks_is_the_projects_own(said: str) -> None:
    found = why(failed(1, err=said))
    assert (found.kind, "'github.com/x/y/v2': `go get`" in found.sentence) == (CODE, True)


def test_a_server_whose_address_stands_above_the_error_is_named_as_missing() -> None:
    """As hiredis prints it. Control: another port, and an address further above."""
    said = "Testing against TCP connection ({}):\n{}Connection error: Connection refused\n"
    for address in ("127.0.0.1:6379", "localhost:5432"):
        assert "docs/services.md" in why(failed(1, out=said.format(address, ""))).sentence
    for address, between in (("127.0.0.1:8080", ""), ("127.0.0.1:63790", ""), ("127.0.0.1:6379", "x\n" * 9)):
        assert why(failed(1, out=said.format(address, between))).sentence == EXIT_STATUS_ONLY


def test_a_project_that_needs_a_preset_of_cmake_has_a_cause() -> None:
    """Control: what is known of the error comes first."""
    said = "CMakePresets.json: no preset of the project is used here\n"
    assert (
        "without a preset"
        in why(failed(1, err=f"CMake Error at CMakeLists.txt:3 (message):\n  Use one\n{said}")).sentence
    )
    assert "PCAP" in why(failed(1, err=f"  Could NOT find PCAP (missing: PCAP_LIBRARY)\n{said}")).sentence


def test_tests_that_go_does_not_build_or_its_vet_refuses_are_named() -> None:
    said = "# a/b\n./b_test.go:12:3: fmt.Println arg list ends with redundant newline\n"
    found = why(failed(1, err=f"{said}WARN invalid TestEvent: FAIL\ta/b [build failed]\n"))
    assert (found.kind, "the tests of 'a/b'" in found.sentence) == (CODE, True)


def test_a_missing_program_is_named_with_the_package_of_debian_that_has_it() -> None:
    assert "add help2man to `packages`" in why(failed(127, err="sh: 1: help2man: not found")).sentence


def test_no_tests_is_a_cause_only_with_the_exit_status_of_pytest() -> None:
    assert why(failed(1, out=(DATA / "pytest-no-tests.txt").read_text())).sentence == EXIT_STATUS_ONLY


@pytest.mark.parametrize(
    ("said", "words"), [("no script `test`", "no script"), ("only npm's placeholder as its script `test`", "npm's")]
)
def test_a_package_without_tests_and_one_with_the_placeholder_of_npm_are_told_apart(said: str, words: str) -> None:
    found = failed(65, err=f"sandbox-node-check: package.json has {said}\n")
    assert words in why(found, "sandbox-node-check", "test").sentence
    assert why(found, "make").sentence == EXIT_STATUS_ONLY


@pytest.mark.parametrize(("out", "words"), [((DATA / "node-not-defined.txt").read_text(), "'junk'"), ("", "its test")])
def test_a_file_that_node_could_not_load_is_explained_by_the_output(out: str, words: str) -> None:
    told = TestFailure(name="test::/w/a.test.js", message=FILE_FAILED)
    report = Report(tests=1, failures=1, errors=0, skipped=0, failed=(told,))
    found = why(failed(1, out=out, report=report))
    assert (found.kind, words in found.sentence) == (CODE, True)


# --- and where it is silent

SILENT = {
    "make-shell-prints-not-found": 2,  # a step's own doing, which make does not say of it
    "make-crash-handled": 2,
    "pytest-words-in-an-assertion": 1,
    "perl-optional-module": 1,  # the test looked for it
    "pytest-segfault": 1,  # of a process below one that went on
}


@pytest.mark.parametrize(("name", "exit_code"), SILENT.items(), ids=SILENT)
def test_words_in_the_output_of_something_else_are_no_cause(name: str, exit_code: int) -> None:
    found = why(failed(exit_code, out=(DATA / f"{name}.txt").read_text()))
    assert (found.kind, found.sentence) == (UNKNOWN, EXIT_STATUS_ONLY)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.txt")), ids=lambda path: path.stem)
def test_what_passed_has_no_cause_whatever_it_printed(path: Path) -> None:
    found = run(Verdict.PASSED, 0, stdout_tail=path.read_text(), stderr_tail=path.read_text())
    assert find_cause(CHECK, found, lambda _: True) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fatal: not a git repository (or any of the parent directories): .git", "no git data"),
        ("LookupError: setuptools-scm was unable to detect version for /workspace.", "no git data"),
        (GIT_MASK.decode().replace("gitdir:", "fatal: not a git repository:"), "no git data"),
        ("E   subprocess.CalledProcessError: Command '['git', 'tag']' returned non-zero exit status 128.", "is masked"),
        (
            "failed on setup with \"subprocess.CalledProcessError: Command '['git', 'config', '-l']' returned non-zero "
            'exit status 128."',
            "is masked",
        ),
        ('color.go:11:2: cannot find package "github.com/a/b" in any of:', "no module is fetched without a go.mod"),
        ('Can\'t exec "kyua": No such file or directory at /usr/share/autoconf/A.pm line 293.', "no command 'kyua'"),
        (
            'E   psycopg2.OperationalError: connection to server at "db" (::1), port 5432 failed: Connection refused',
            "database",
        ),
        (
            'psql: error: connection to server at "localhost" (127.0.0.1), port 5432 failed: Connection refused',
            "database",
        ),
        ("redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.", "database"),
        ("E   pymysql.err.OperationalError: (2003, \"Can't connect to MySQL server on 'db'\")", "database"),
        ("Error: connect ECONNREFUSED 127.0.0.1:5432", "database"),
        ("dial tcp 127.0.0.1:6379: connect: connection refused", "database"),
        ("  CMake 3.30 or higher is required.  You are running version 3.25.1", "--image build13"),
        ("t.cpp:1:10: fatal error: catch2/catch_test_macros.hpp: No such file or directory", "newer Catch2"),
        ("t.cpp:1:10: fatal error: catch2/matchers/catch_matchers.hpp: No such file or directory", "newer Catch2"),
        ('  Could not find a configuration file for package "Catch2" that is compatible', "newer Catch2"),
        ("meson.build:1:0: ERROR: Meson version is 1.0.1 but project requires >= 1.3", "newer Meson"),
        ("configure.ac:5: error: Autoconf version 2.72 or higher is required", "newer autoconf"),
        ("Specio version 0.5 required--this is only version 0.48 at lib/A.pm line 11.", "older 'Specio'"),
        ("FetchContent cannot download here: Catch2 fmt", "download Catch2 fmt, and a check has no network"),
        ("ld.lld: error: unable to find library -lfoo", "'foo'"),
        ("mold: fatal: library not found: foo", "'foo'"),
        ("./app: error while loading shared libraries: libfoo.so.1: cannot open shared object file", "'libfoo.so.1'"),
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "'libGL.so.1'"),
        ("npm error request to https://r.example/x failed, reason: getaddrinfo EAI_AGAIN r.example", "network"),
        ('error An unexpected error occurred: "https://r.example/x: getaddrinfo ENOTFOUND r.example".', "network"),
        ("warning: spurious network error (3 tries remaining): [6] Could not resolve host", "network"),
        ("error: could not download file from 'https://static.example/x' to '/x'", "network"),
        ("WARNING: Retrying (Retry(total=4, connect=None, read=None)) after connection broken by", "network"),
        ("[ERROR] Failed: Could not transfer artifact a:b:pom:1 from/to central (https://r.example)", "network"),
        ("   > Could not GET 'https://r.example/x.pom'.", "network"),
        ("E       locale.Error: unsupported locale setting", "locales-all"),
    ],
)
def test_a_thing_of_the_environment_that_is_not_there_is_named(line: str, words: str) -> None:
    found = why(failed(1, err=line))
    assert (found.kind, words in found.sentence) == (ENVIRONMENT, True)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("TypeError: object.split(...).toReversed is not a function", "'toReversed' came with Node.js 20"),
        ("TypeError: Object.groupBy is not a function", "'Object.groupBy' came with Node.js 22"),
        ("TypeError: x.toSorted is not a function", "'toSorted' came with Node.js 20"),
    ],
)
def test_a_method_that_an_older_node_lacks_is_named_with_the_version(line: str, words: str) -> None:
    """Control: a method of the project's own."""
    found = why(failed(1, err=line))
    assert (found.kind, words in found.sentence) == (UNKNOWN, True)
    assert why(failed(1, err="TypeError: x.own is not a function")).sentence == EXIT_STATUS_ONLY


def test_the_header_of_an_old_catch2_asks_for_no_newer_one() -> None:
    assert (
        "newer"
        not in why(failed(1, err="t.cpp:1:10: fatal error: catch2/catch.hpp: No such file or directory")).sentence
    )


@pytest.mark.parametrize(
    "line",
    [
        "E       AssertionError: 'connection to server at \"db\" failed: Connection refused'",
        "Error: connect ECONNREFUSED 127.0.0.1:34567",
        "AssertionError: 'bash: foo: command not found' != ''",
        "E       AssertionError: assert 'ModuleNotFoundError: No module named x' in ''",
        "  expected: fatal: unable to access 'https://x/': Could not resolve host: x",
        "# npm error code EAI_AGAIN is what npm says",
        "ok 3 - says No space left on device when the disk is full",
        "test_no_space_left_on_device ... ok",
        "not ok 4 - ld: cannot find -lfoo",
        "warning: a.c:1:10: fatal error is what gcc calls it",
    ],
)
def test_a_line_about_such_words_is_no_cause(line: str) -> None:
    for exit_code in (1, 2, 127):
        assert why(failed(exit_code, out=line)).kind is (ENVIRONMENT if exit_code == 127 else UNKNOWN)


def test_a_name_from_the_output_is_short_and_of_plain_characters() -> None:
    for name in ("x" * 500, "\x1b[31m", "a\u202eb", "{0.__class__}"):
        found = why(failed(1, err=f"/usr/bin/ld: cannot find -l{name}"))
        assert len(found.sentence) < 300
        assert found.sentence.isprintable()


def test_hostile_output_takes_no_time() -> None:
    lines = ("a" * 8000, "make: *** [" * 700, ": " * 4000, "E " * 4000, "-" * 8000, "dial tcp: lookup x: " * 400)
    started = time.monotonic()
    for line in lines:
        why(failed(1, out=line, err=line))
    assert time.monotonic() - started < 5.0 * slowness()


# --- facts

FACTS: dict[str, tuple[CheckRun, CauseKind, str]] = {
    "memory": (run(Verdict.OOM_KILLED, 137), GUEST, "limits.memory_bytes"),
    "disk": (run(Verdict.DISK_LIMIT, None), GUEST, "disk limit"),
    "output": (run(Verdict.OUTPUT_LIMIT, None), GUEST, "limits.output_total_bytes"),
    "deadline": (run(Verdict.TIMED_OUT, None), UNKNOWN, "timeout_s"),
    "stopped": (run(Verdict.KILLED, 137), ENVIRONMENT, "on request"),
    "stopped before": (run(Verdict.KILLED, None, wall_time_s=0.0), ENVIRONMENT, "on request"),
    "memory of all guests": (run(Verdict.KILLED, 137, usage={"host_out_of_memory": True}), GUEST, "all_memory_bytes"),
    "lost": (run(Verdict.KILLED, None), GUEST, "without a report"),
    "forks refused": (failed(1, usage={"forks_refused": 3}), GUEST, "limits.pids"),
    "by whom": (failed(1, usage={"forks_refused": 3, "own_pids_limit": False}), GUEST, "all_pids"),
    "all processes": (failed(1, usage={"pids_peak": 32}), GUEST, "limits.pids"),
    "signal": (failed(139, signal=11), CODE, "it was ended by SIGSEGV"),
    "abort": (failed(134, signal=6), CODE, "SIGABRT"),
    "killed itself": (failed(137, signal=9), UNKNOWN, "SIGKILL"),
    "a file too large": (failed(153, signal=25), GUEST, "limits.file_bytes"),
    "a forbidden call": (failed(159, signal=31), ENVIRONMENT, "system call"),
    "a shell's child": (failed(139), CODE, "a program that it ran was ended by SIGSEGV"),
    "not a signal": (failed(200), UNKNOWN, EXIT_STATUS_ONLY),
    "nothing there": (failed(127, err="sandbox: cannot run 'nope' in /workspace: No such file or directory"),
                      ENVIRONMENT, "no command 'nope'"),
    "nothing named": (failed(127), ENVIRONMENT, "a command that it needs"),
    "not executable": (failed(126), UNKNOWN, "cannot be executed"),
    "plain": (failed(3), UNKNOWN, EXIT_STATUS_ONLY),
}  # fmt: skip


@pytest.mark.parametrize(("found", "kind", "words"), FACTS.values(), ids=FACTS)
def test_facts_decide_first(found: CheckRun, kind: CauseKind, words: str) -> None:
    network = (DATA / "npm-network.txt").read_text()
    assert why(found).kind is kind
    assert words in why(found).sentence
    if kind is not UNKNOWN:
        assert why(found.model_copy(update={"stdout_tail": network})) == why(found)


def test_a_missing_command_of_a_declared_package_is_no_matter_of_debian() -> None:
    for name, declared, words in (
        ("evalmd", ("evalmd",), "`sandbox layers show`"),
        ("evalmd", (), "Debian package"),
        ("jq", ("jq",), "add jq to `packages`"),
    ):
        found = why(failed(127, err=f"sh: 1: {name}: not found\n"), declared=declared)
        assert (found.kind, f"no command '{name}'" in found.sentence, words in found.sentence) == (
            ENVIRONMENT,
            True,
            True,
        )


def test_our_own_helper_says_what_is_lacking() -> None:
    said = f"{HELPER}: requests>=2,<3 (from sample) is not in the wheel-house of this image (/wheels). Add it:\n"
    for code, words in ((69, "'requests>=2,<3', a declared dependency,"), (72, "needed to build the project")):
        found = why(failed(code, err=said), HELPER, "test")
        assert (found.kind, words in found.sentence) == (ENVIRONMENT, True)
        assert why(failed(code), HELPER, "test").kind is ENVIRONMENT
        assert why(failed(code, err=said), "make", "test").kind is UNKNOWN, "another program's exit status is its own"


def test_our_own_helper_says_that_there_is_nothing_to_build() -> None:
    assert "no build is possible" in why(failed(65), HELPER, "build").sentence
    unknown = f"Error: Please install the development packages.\n{HELPER}: the wheel cannot be built\n"
    assert "its package cannot be built" in why(failed(1, err=unknown), HELPER, "build").sentence
    known = f"x.c:1:10: fatal error: ffi.h: No such file or directory\n    1 | #include <ffi.h>\n{unknown}"
    assert "libffi-dev" in why(failed(1, err=known), HELPER, "build").sentence
    assert why(failed(65), "make").sentence == EXIT_STATUS_ONLY


WITHOUT = "the packages that the project asks for could not be fetched (egress_refused: index.test:443)"


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("ModuleNotFoundError: No module named 'requests'", "no module 'requests'"),
        ("ERROR: No matching distribution found for requests", "'requests' is not there"),
        ("As a reminder, you're using offline mode (--offline)", "cargo lacks crates"),
        ("x.go:1:2: module lookup disabled by GOPROXY=off", "go lacks modules"),
        (f"{HELPER}: requests is not in the wheel-house", "'requests', a declared dependency, is not there"),
    ],
    ids=["import", "pip", "cargo", "go", "helper"],
)
def test_a_missing_package_is_due_to_the_fetch_that_failed(out: str, words: str) -> None:
    check, found = CHECK.model_copy(update={"argv": (HELPER,)}), failed(69 if HELPER in out else 1, out=out)
    cause = find_cause(check, found, lambda _: False, WITHOUT)
    assert cause is not None
    assert (cause.kind, words in cause.sentence, cause.sentence.endswith(f": {WITHOUT}")) == (ENVIRONMENT, True, True)
    before = find_cause(check, found, lambda _: False)
    assert before is not None
    assert WITHOUT not in before.sentence


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    ("out", "way"),
    [
        ("ModuleNotFoundError: No module named 'msgspec'", "the extra or dependency group `test`"),
        ("Error: Cannot find module 'msgspec'", "devDependencies"),
        ("Can't locate msgspec.pm in @INC (you may need to install the msgspec module)", "libmsgspec-perl"),
    ],
    ids=["python", "node", "perl"],
)
def test_a_missing_module_comes_with_a_way_to_add_it(out: str, way: str, *, declared: bool) -> None:
    cause = find_cause(CHECK, failed(1, out=out), lambda _: declared)
    assert cause is not None
    assert ("'msgspec'" in cause.sentence, way in cause.sentence, "(docs/" in cause.sentence) == (True, True, True)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "sandbox-node-check: package.json: line 3, column 29: Unexpected token } in JSON at position 51",
            "package.json: line 3, column 29",
        ),
        ("sandbox-python-check: pyproject.toml: line 1, column 9: Expected ']'", "pyproject.toml: line 1, column 9"),
        ("  Caused by: TOML parse error at line 1, column 9", "a TOML file of the project has a syntax error: line 1"),
        ("  --> Cargo.toml:1:9", "there is an error in Cargo.toml:1:9"),
        ("/workspace/go.mod:6: syntax error (unterminated block started at /workspace/go.mod:4:1)", "in go.mod:6"),
    ],
    ids=["npm", "python", "uv", "cargo", "go"],
)
def test_a_manifest_that_cannot_be_parsed_is_the_cause(said: str, words: str) -> None:
    for code in (1, 66, 101):
        found = why(failed(code, err=f"first\n{said}\n"), "sandbox-node-check" if code == 66 else "make", "test")
        assert (found.kind, words in found.sentence) == (CODE, True), found.sentence


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("own_name", "left out, for the registry has no version that fits"),
        ("yaml", "left out, for it cannot be built"),
        ("requests", True),
    ],
    ids=["absent", "archive", "another"],
)
def test_a_declared_package_that_was_left_out_is_not_advised_to_be_declared(
    module: str, reason: str | bool, tmp_path: Path
) -> None:
    """Control: one that is declared where it is not fetched from, such as an extra `docs`."""
    (tmp_path / "requirements-test.txt").write_text("Own.Name>=1,<2\nPyYAML\nrequests\n")
    others = tuple(f"other{n}" for n in range(5))  # more than a sentence names
    left_out = {
        "left out, for the registry has no version that fits": (*others, "own-name[x]>=1,<2"),
        "left out, for it cannot be built": ("PyYAML-5.4.tar.gz",),
    }
    declared = DeclaredPackages(tmp_path, left_out)
    assert declared(module) == reason
    cause = find_cause(CHECK, failed(1, out=f"ModuleNotFoundError: No module named '{module}'"), declared)
    assert cause is not None
    assert ("add its package" in cause.sentence) is (reason is True)
    assert reason is True or cause.sentence == f"'{module}', which the project declares, is not there: {reason}"


def test_a_missing_command_of_a_script_is_due_to_the_fetch_that_failed() -> None:
    """Control: that of another check is not."""
    found = failed(127, err="sh: 1: jest: not found")
    for argv, words in (("sandbox-node-check", WITHOUT), ("make", "add a Debian package")):
        cause = find_cause(CHECK.model_copy(update={"argv": (argv,)}), found, lambda _: False, WITHOUT)
        assert cause is not None
        assert words in cause.sentence


def test_what_a_script_that_ran_once_more_said_the_first_time_is_no_cause() -> None:
    """Controls: what it says the second time, or if it ran once, is; and what another check says, if it prints that."""
    helper = ("sandbox-node-check", "test")
    refused = "Error: EROFS: read-only file system, open '/sandbox-layers/node/node_modules/a/b'\n"
    again = "sandbox-node-check: a package writes into its own folder: the packages are copied\n"
    linked = "Error: EROFS: read-only file system, open '/workspace/node_modules/a/b'\n"
    found = failed(out=f"{refused}{linked}", err=f"{refused}{again}ReferenceError: x is not defined")
    assert why(found, *helper).kind is CODE
    assert "into its own folder" in why(found, "make", "test").sentence
    assert "into its own folder" in why(failed(out=refused), *helper).sentence
    assert "into its own folder" in why(failed(err=f"{again}{refused}"), *helper).sentence


def test_other_causes_are_not_put_down_to_a_fetch_that_failed() -> None:
    said = "a.c:1:10: fatal error: <zlib.h>: No such file or directory"
    found = failed(err=said)
    assert find_cause(CHECK, found, lambda _: False, WITHOUT) == find_cause(CHECK, found, lambda _: False)


# --- reports of tests


def report(*failed_tests: tuple[str, str], tests: int = 10) -> Report:
    cases = tuple(TestFailure(name=name, message=message) for name, message in failed_tests)
    return Report(tests=tests, failures=len(cases), errors=0, skipped=0, failed=cases)


NO_NETWORK = ("a::net", "socket.gaierror: [Errno -3] Temporary failure in name resolution")
ASSERTION = ("a::sum", "AssertionError: assert 3 == 4")


def test_failing_tests_are_the_codes_though_others_print_such_words() -> None:
    noise = (DATA / "pytest-network-and-space.txt").read_text()
    assert why(failed(1, out=noise, report=report(ASSERTION))).kind is CODE
    assert why(failed(1, report=report(ASSERTION, NO_NETWORK))) == Cause(kind=CODE, sentence="2 of 10 tests failed")
    assert why(failed(1, report=report(NO_NETWORK))).kind is ENVIRONMENT
    many = Report(tests=90, failures=80, errors=0, skipped=0, failed=report(NO_NETWORK).failed)
    assert why(failed(1, report=many)).kind is CODE, "the others are not known"


def test_a_cause_of_all_failures_that_are_known_is_said_of_these() -> None:
    """Control: not if one failed otherwise."""
    locale = ("a", 'failed on setup with "locale.Error: unsupported locale setting"')
    found = why(failed(1, report=report(locale, locale, tests=59).model_copy(update={"errors": 40})))
    assert found.sentence.startswith("42 of 59 tests failed, the first 2 because the image has no locale")
    found = why(failed(1, report=report(locale, ASSERTION, tests=59).model_copy(update={"errors": 40})))
    assert found.sentence == "42 of 59 tests failed"


def test_a_crash_of_python_is_said_to_be_where_the_project_was() -> None:
    said = (DATA / "pytest-segfault.txt").read_text()
    assert why(failed(139, signal=11, err=said)).sentence == "it was ended by SIGSEGV at t/test_a.py:2 (test_a)"
    other = said.replace("/workspace/", "/elsewhere/")
    assert why(failed(139, signal=11, err=other)).sentence == "it was ended by SIGSEGV"


def test_a_cause_of_most_failures_is_said_of_these() -> None:
    found = why(failed(1, report=report(ASSERTION, NO_NETWORK, NO_NETWORK)))
    assert (found.kind, found.sentence.partition(" it tried")[0]) == (CODE, "3 of 10 tests failed, 2 of 3 because")
    more = report(ASSERTION, NO_NETWORK, NO_NETWORK).model_copy(update={"failures": 9})
    assert "9 of 10 tests failed, 2 of the first 3 because it tried" in why(failed(1, report=more)).sentence


def test_a_collection_error_is_read_from_the_output() -> None:
    said = (DATA / "pytest-collection.txt").read_text()
    found = why(failed(2, out=said, report=report(("t", "collection failure"))), declared=("yaml",))
    assert found.kind is ENVIRONMENT


def test_modules_that_pytest_could_not_load_are_named() -> None:
    """Where the output says no known reason. Control: not if a test failed, too."""
    said, error = "E   ValueError: Not a file or directory: '/workspace/docs'\n", "collection failure"
    found = why(failed(2, out=said, report=report(("tests.test_docs", error))))
    assert (found.kind, found.sentence) == (UNKNOWN, "pytest could not load tests.test_docs; its output says why")
    assert "tests.a and 1 more" in why(failed(2, report=report(("tests.a", error), ("tests.b", error)))).sentence
    assert "could not load" not in why(failed(1, report=report(("tests.a", error), ASSERTION))).sentence


def test_a_crash_comes_before_the_report() -> None:
    for crashed in (
        failed(139, signal=11, report=report(ASSERTION)),
        failed(134, report=report(ASSERTION)),
        failed(2, err=(DATA / "make-crash.txt").read_text(), report=report(ASSERTION)),
    ):
        assert find_crash(crashed) is not None
        assert "was ended by SIG" in why(crashed).sentence
    assert find_crash(failed(1, report=report(ASSERTION))) is None


# --- what a project declares

PROJECTS: dict[str, dict[str, str]] = {
    "project": {"pyproject.toml": '[project]\ndependencies = ["PyYAML>=6"]'},
    "extra": {"pyproject.toml": '[project.optional-dependencies]\ntest = ["pyyaml"]'},
    "group": {"pyproject.toml": '[dependency-groups]\ntest = [{include-group = "x"}, "pyyaml"]'},
    "poetry": {"pyproject.toml": '[tool.poetry.group.dev.dependencies]\nPyYAML = "*"'},
    "requirements": {"requirements-dev.txt": "# x\n-r other.txt\n  PyYAML==6 # why\n"},
    "setup.cfg": {"setup.cfg": "[options]\ninstall_requires =\n  a\n  pyyaml>=5\n"},
    "extras of setup.cfg": {"setup.cfg": "[options.extras_require]\ntest =\n  pyyaml\n"},
    "by its own name": {"requirements.txt": "yaml\n"},
    "node": {"package.json": json.dumps({"devDependencies": {"yaml": "1"}})},
}
NOT_DECLARED: dict[str, dict[str, str]] = {
    "nothing": {},
    "another": {"pyproject.toml": '[project]\ndependencies = ["requests", "yamllint"]'},
    "broken": {"pyproject.toml": "[", "package.json": "{", "setup.cfg": "x"},
    "strange": {"pyproject.toml": "project = 3\ntool = []", "package.json": '[{"dependencies": 3}]'},
    "deep": {"package.json": "[" * 60_000, "pyproject.toml": "a = " + "[" * 60_000},
    "too large": {"requirements.txt": "pyyaml\n" + "#" * 70_000},
}


@pytest.mark.parametrize("files", PROJECTS.values(), ids=PROJECTS)
def test_a_project_declares(files: dict[str, str], tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert DeclaredPackages(tmp_path)("yaml")
    assert DeclaredPackages(tmp_path)("yaml.nodes")
    assert not DeclaredPackages(tmp_path)("numpy")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cpanfile", "requires 'Try::Tiny' => '0.3';\n"),
        ("Makefile.PL", 'WriteMakefile(PREREQ_PM => { "Try::Tiny" => 0 });\n'),
        ("META.json", '{"prereqs": {"test": {"requires": {"Try::Tiny": "0"}}}}'),
    ],
)
def test_a_perl_distribution_declares_modules(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert DeclaredPackages(tmp_path)("Try::Tiny")
    assert not DeclaredPackages(tmp_path)("Try::Catch")


@pytest.mark.parametrize("files", NOT_DECLARED.values(), ids=NOT_DECLARED)
def test_a_project_declares_nothing(files: dict[str, str], tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert not DeclaredPackages(tmp_path)("yaml")


@pytest.mark.parametrize("folder", ["humanize", "src/humanize"])
@pytest.mark.parametrize("without", ["", WITHOUT])
def test_a_module_that_the_projects_own_package_lacks_is_not_to_be_declared(
    folder: str, without: str, tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    own = DeclaredPackages(tmp_path)
    cause = find_cause(CHECK, failed(1, out="ModuleNotFoundError: No module named 'humanize._version'"), own, without)
    assert cause is not None
    assert "'humanize._version' is a module of the project itself" in cause.sentence
    assert (cause.kind, "add its package" in cause.sentence) == (UNKNOWN, False)
    other = find_cause(CHECK, failed(1, out="ModuleNotFoundError: No module named 'google.cloud'"), own)
    assert other is not None
    assert "add its package" in other.sentence


def test_a_link_declares_nothing(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("pyyaml\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "requirements.txt").symlink_to(tmp_path / "outside")
    assert not DeclaredPackages(tmp_path / "tree")("yaml")
    assert not DeclaredPackages(tmp_path / "nowhere")("yaml")


def test_runs_recorded_before_there_were_causes_still_load() -> None:
    document = failed(1).model_dump(mode="json")
    assert document.pop("cause", "absent") is None
    loaded = CheckRun.model_validate(document)
    assert loaded.cause is None
    told = failed(1).model_copy(update={"cause": why(failed(1))})
    assert CheckRun.model_validate_json(told.model_dump_json()) == told


# Each took seconds to minutes and up to gigabytes in the controller, after the guest's own deadline.
COSTLY = {
    "dots of a key": ("pyproject.toml", ".".join(["a"] * 32_000) + "=1"),
    "dots of keys": ("pyproject.toml", "\n".join(f"{'.'.join(['a'] * 150)}.b{n}=1" for n in range(200))),
    "brackets": ("pyproject.toml", "a=" + "[" * 30_000),
    "spaces": ("setup.cfg", "[options]\na" + " " * 60_000 + "b\n"),
    "spaces of lines": ("setup.cfg", "[options]\n" + ("a" + " " * 250 + "b\n") * 240),
    "objects": ("package.json", '{"a":' * 10_000),
}


@pytest.mark.parametrize("case", COSTLY)
def test_what_a_guest_wrote_costs_the_controller_little(case: str, tmp_path: Path) -> None:
    name, text = COSTLY[case]
    (tmp_path / name).write_text(text)
    (tmp_path / "requirements.txt").write_text("pyyaml\n")
    program = (
        "import resource, sys; from pathlib import Path; from sandbox.checks.declared import DeclaredPackages\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (20, 20)); resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))\n"
        "sys.exit(not DeclaredPackages(Path(sys.argv[1]))('yaml'))"
    )
    ended = subprocess.run([sys.executable, "-I", "-c", program, str(tmp_path)], check=False, capture_output=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_control_the_plain_parsers_take_far_more(tmp_path: Path) -> None:
    program = (
        "import resource, tomllib\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (20, 20)); resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))\n"
        f"tomllib.loads({'.'.join(['a'] * 32_000) + '=1'!r})"
    )
    assert subprocess.run([sys.executable, "-I", "-c", program], check=False, capture_output=True).returncode != 0


def test_a_project_is_read_once_for_all_its_failures(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("pyyaml\n")
    declared = DeclaredPackages(tmp_path)
    assert declared("yaml")
    (tmp_path / "requirements.txt").unlink()
    assert declared("yaml")
    assert not declared("numpy")


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        ({"cpu_time_s": 0.5}, "it got 0.5 s of CPU in 12.3 s, of 2 CPU(s)"),
        ({"cpu_time_s": 3.0, "pressure": {"of": "guest", "cpu_s": 9.5}}, "and its tasks waited 9.5 s for one"),
        ({"cpu_time_s": 3.0, "pressure": {"of": "host", "cpu_s": 9.5}}, "and tasks of the host waited 9.5 s for one"),
        ({}, "(timeout_s)"),
    ],
    ids=["hangs", "starved", "busy host", "not measured"],
)
def test_a_deadline_says_how_much_cpu_it_got_and_how_busy_the_host_was(usage: dict[str, Any], said: str) -> None:
    found = why(run(Verdict.TIMED_OUT, None, usage=usage))
    assert found is not None
    assert found.sentence.endswith(said)
