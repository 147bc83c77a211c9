"""Archives of others are unpacked without running anything, and nothing leaves the folder."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus.control import (
    Control,
    _script,
    _start,
    contains_failures,
    find_first_error,
    judge_control,
    run_control,
)
from benchmarks.corpus.entries import Entry, load_entries
from benchmarks.corpus.outcome import format_table, judge
from devtools.published import FetchError, unpack
from sandbox.models import Report, TestFailure


def pack(folder: Path, *members: tuple[str, bytes | str, bytes]) -> Path:
    """An archive with members of (name, content or link target, tar type)."""
    with tarfile.open(folder / "a.tar.gz", "w:gz") as tar:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.mtime = kind, 1_500_000_000
            if isinstance(content, str):
                info.linkname = content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return folder / "a.tar.gz"


def test_files_and_inner_links_are_unpacked_without_the_top_folder(tmp_path: Path) -> None:
    archive = pack(
        tmp_path,
        ("p-1/d/f", b"x", tarfile.REGTYPE),
        ("p-1/hard", "p-1/d/f", tarfile.LNKTYPE),
        ("p-1/d/soft", "../hard", tarfile.SYMTYPE),
    )
    assert unpack(archive, tmp_path / "out") == 1_500_000_000
    assert (tmp_path / "out" / "hard").read_bytes() == b"x"
    assert (tmp_path / "out" / "d" / "soft").readlink() == Path("../hard")


@pytest.mark.parametrize(
    "member",
    [
        ("/etc/f", b"x", tarfile.REGTYPE),
        ("p-1/../../f", b"x", tarfile.REGTYPE),
        ("p-1/l", "/etc/passwd", tarfile.SYMTYPE),
        ("p-1/l", "../../f", tarfile.SYMTYPE),
        ("p-1/d/l", "../x/../../../f", tarfile.SYMTYPE),
        ("p-1/fifo", b"", tarfile.FIFOTYPE),
    ],
)
def test_what_leads_out_or_is_no_file_is_refused(member: tuple[str, bytes | str, bytes], tmp_path: Path) -> None:
    with pytest.raises(FetchError):
        unpack(pack(tmp_path, member), tmp_path / "out")


def test_entries_are_pinned_and_their_names_are_unique() -> None:
    entries = load_entries()
    assert len(entries) >= 40
    assert len({(entry.name, entry.version) for entry in entries}) == len(entries)
    assert all(len(entry.sha256) == 64 for entry in entries)
    assert load_entries([entries[0].name]) == entries[:1]
    with pytest.raises(KeyError):
        load_entries(["nobody-has-this"])


def test_a_project_is_lost_only_if_the_file_has_no_reason() -> None:
    entry = Entry(name="n", version="1", source="pypi", file="f", sha256="0" * 64, profile="python")
    failed = {"profile": "python", "runs": [{"check_id": "test", "verdict": "failed", "stdout_tail": "a\nb\n"}]}
    lost = judge(entry, failed, 1.0)
    assert (lost.state, lost.cause) == ("lost", "test failed: b")
    upstream = judge(entry.model_copy(update={"upstream": "fails anywhere"}), failed, 1.0)
    verified = judge(entry, {"profile": "python", "verified": True, "runs": [{"report": {"tests": 3}}]}, 1.0)
    assert (upstream.state, verified.state, verified.tests) == ("upstream", "verified", 3)
    absent = judge(entry, {"error": {"code": "absent", "brief": "404"}}, 0.0)
    assert absent.state == "absent"
    assert format_table([lost, upstream, verified, absent]).endswith("pass upstream: 50 %; of all: 33 %")


def test_a_project_without_a_counted_test_is_not_verified_unless_it_prints_what_the_file_says() -> None:
    entry = Entry(name="n", version="1", source="pypi", file="f", sha256="0" * 64, profile="make")
    runs = [{"report": None}, {"report": {"tests": 0}, "stdout_tail": "96 tests, 0 failed\n", "stderr_tail": ""}]
    silent = {"profile": "make", "verified": True, "runs": runs}
    uncounted = judge(entry, silent, 1.0)
    other = judge(entry.model_copy(update={"says": "97 tests, 0 failed"}), silent, 1.0)
    known = judge(entry.model_copy(update={"says": "96 tests, 0 failed"}), silent, 1.0)
    assert [found.state for found in (uncounted, other, known)] == ["uncounted", "uncounted", "verified"]
    assert format_table([uncounted, known]).endswith("pass upstream: 50 %; of all: 50 %")


@pytest.mark.parametrize(
    ("status", "begun", "same", "said"),
    [
        (125, False, True, "not started"),  # the engine refused
        (1, False, True, "not started"),  # its packages could not be installed
        (1, True, True, "fails"),
        (1, True, False, "passes"),
        (0, True, True, "passes"),
        (124, True, False, "stopped"),
        (137, True, False, "stopped"),
        (137, True, True, "fails"),
        (1, True, None, "unknown"),
        (0, True, None, "passes"),
        (124, True, None, "stopped"),
    ],
)
def test_a_control_that_did_not_start_or_was_stopped_says_nothing(
    status: int, begun: bool, same: bool | None, said: Control
) -> None:
    assert judge_control(status, begun=begun, same_failures=same) == said
    entry = Entry(name="n", version="1", source="pypi", file="f", sha256="0" * 64, profile="python")
    lost = judge(entry, {"profile": "python", "runs": [{"check_id": "test", "verdict": "failed"}]}, 1.0, said)
    assert format_table([lost]).endswith("pass upstream: 0 %; of all: 0 %")
    counts, silent = format_table([lost]).splitlines()[1].split()[8:11], {"unknown", "not started", "stopped"}
    assert counts == ["1" if said in column else "0" for column in ({"fails"}, {"passes"}, silent)]


def test_a_control_has_the_failed_tests_of_a_run_or_prints_its_diagnostics() -> None:
    tests = {
        "verdict": "failed",
        "failures": [{"test": "t::a", "message": "no"}],
        "report": {"failures": 1, "kind": "tests"},
    }
    same = Report(tests=2, failures=1, errors=0, skipped=0, failed=(TestFailure(name="t::a", message="no"),))
    assert contains_failures(tests, same, "")
    assert not contains_failures(tests, None, "t::a: no")
    message = "required directory ./sub does not exist"
    diagnostic = {"test": f"Makefile.am: {message}", "message": f"{message}\nmore"}
    found = {"verdict": "failed", "failures": [diagnostic], "report": {"failures": 1, "kind": "diagnostics"}}
    assert contains_failures(found, None, f"Makefile.am:1: error: {message}\n")
    assert not contains_failures(found, None, "Makefile.am:1: error: another\n")


FAILED_BUILDS = {
    "src/a.c:3:10: fatal error: zlib.h: No such file or directory": "cc -Wno-error=x error.c\n0 errors\n{}\nmake: ***",
    "ModuleNotFoundError: No module named 'a'": "Traceback (most recent call last):\n  import a\n\x1b[31m{}\x1b[0m\n",
    "not ok 3 - reads a file": "ok 1\nok 2\n{}\n",
    "make: *** [Makefile:3: all] Error 2": "errors: 0\n{}\n",
    "": "****** a ******\nFAILED\nerror.c\nno errors\ntest_failed.py\n-Werror\n",
}


@pytest.mark.parametrize(("error", "output"), FAILED_BUILDS.items())
def test_a_run_without_a_counted_test_fails_in_its_control_only_with_the_same_error(error: str, output: str) -> None:
    run: dict[str, Any] = {"verdict": "failed", "failures": [], "report": None, "stderr_tail": output.format(error)}
    assert find_first_error(run) == error
    assert contains_failures(run, None, f"another order\n{error}\n") is (True if error else None)
    other = Report(
        tests=99,
        failures=60,
        errors=0,
        skipped=0,
        failed=tuple(TestFailure(name=str(n), message="no") for n in range(60)),
    )
    for report in (None, other):
        assert contains_failures(run, report, "ld: cannot find -lm\n") is None, "it fails otherwise"
    assert contains_failures(run | {"verdict": "timed_out"}, None, error) is None
    assert contains_failures(run | {"report": {"kind": "diagnostics"}}, None, "") is None


def test_a_control_has_the_locale_of_a_check_because_compilers_quote_names_by_it(tmp_path: Path) -> None:
    words = _start(tmp_path, "image", 1)
    assert words[words.index("LANG=C.UTF-8") - 1] == "--env"


@pytest.mark.parametrize("profile", ["python", "python-rust"])
def test_the_control_of_a_python_package_is_installed_by_pip_and_tested_by_pytest(profile: str) -> None:
    """The commands of the profile are our own program, which needs a layer."""
    script = _script(load_entries(["orjson"])[0], profile)
    assert script.startswith("python3 -m venv ")
    assert script.endswith("python -m pytest -q --junitxml=/report/junit.xml")
    assert "sandbox-python-check" not in script


def test_a_project_with_the_checks_of_another_profile_has_no_control(tmp_path: Path) -> None:
    """They would fail in an ordinary container too. A control would make its folder first."""
    entry = Entry(name="n", version="1", source="debian", file="f", sha256="0" * 64, profile="make-tests")
    failed = {"profile": "node", "runs": [{"check_id": "test", "verdict": "failed"}]}
    assert run_control(entry, tmp_path / "project", tmp_path / "home", failed, tmp_path / "control") is None
    with pytest.raises(FileNotFoundError):
        run_control(entry, tmp_path / "project", tmp_path / "home", failed | {"profile": "make-tests"}, tmp_path / "c")
