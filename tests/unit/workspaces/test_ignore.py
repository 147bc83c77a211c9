"""Ignore rules: what git says, in bounded time."""

from __future__ import annotations

import subprocess
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workspaces import ignore
from sandbox.workspaces.ignore import IgnoreRules

Ask = Callable[[str, list[str]], list[bool]]
LINES = [
    "*.o", "build/", "/top", "a/b", "a/**", "**/x", "a/**/x", "!keep.o", "!a/b/", "\\!lit", "\\#lit", "# no", "t ",
    "e\\ ",
    "[ab]c", "[!ab]c", "[a-c]?", "[]x]y", "[", "a[", "z\\", "**", "*", "a*b*c", "*a*b", "d/*.o", "**/", "/", "//",
    "x[[:digit:]]", "[z-a]", "foo**bar", "a/**/**/x", "sub/", "!sub/x", "\\*", "a\\b", "?", "[a-]", "[-a]", "a/*/x",
    "**/a/b",
]  # fmt: skip
NAMES = ["a", "b", "x", "c", "sub", "build", "top", "keep.o", "m.o", "ac", "bc", "cc", "t", "e ", "!lit", "#lit", "x1",
         "]y", "xy", "a*b", "fooXbar", "foobar", "axbyc", "-", "*", "ab", "t "]  # fmt: skip
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    top = tmp_path_factory.mktemp("ignore")
    subprocess.run(["git", "init", "-q", top], check=True)

    def answer(rules: str, paths: list[str]) -> list[bool]:
        (top / ".gitignore").write_text(rules)
        done = subprocess.run(
            ["git", "-C", top, "check-ignore", "--no-index", "-z", "--stdin"],
            input="\0".join(paths).encode(), capture_output=True, check=False,
        )  # fmt: skip
        found = set(done.stdout.decode().split("\0"))
        return [p in found for p in paths]

    return answer


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=4), st.lists(PATHS, min_size=1, max_size=30, unique=True))
@pytest.mark.slow
def test_rules_mean_what_git_means(ask: Ask, lines: list[str], paths: list[str]) -> None:
    text = "\n".join(lines)
    ours = IgnoreRules({"": text})
    assert [ours.is_ignored(p, directory=False) for p in paths] == ask(text, paths)


@pytest.mark.parametrize("line", ["t  ", "e\\ ", "e\\  ", "e\\\\ ", "e\\\\\\  ", "e \\ ", "\\ ", "  ", "e \\", " e"])
def test_blanks_at_the_end_mean_what_git_means(ask: Ask, line: str) -> None:
    paths = ["t", "t ", "t  ", "e", "e ", "e  ", "e\\", "e\\ ", "e\\  ", " ", "  ", " e"]
    ours = IgnoreRules({"": line})
    assert [ours.is_ignored(p, directory=False) for p in paths] == ask(line, paths)


@pytest.mark.parametrize("line", [" " * 1024**2 + "x", "x" + "\\" * 1024**2 + " "])
def test_s188_a_line_of_blanks_is_read_in_linear_time(line: str) -> None:
    """The expression of former versions started again at each blank: half an hour for one line."""
    started = time.thread_time()
    rules = IgnoreRules({"": f"{line}\nkept{' ' * 1024**2}\n"})
    assert time.thread_time() - started < 5 * slowness()
    assert rules.is_ignored("kept", directory=False)


def test_directory_rules_need_a_directory() -> None:
    rules = IgnoreRules({"": "build/\n"})
    assert not rules.is_ignored("build", directory=False)
    assert rules.is_ignored("build", directory=True)
    assert rules.is_ignored("build/x", directory=False)


def test_nearer_files_win_and_artifacts_always() -> None:
    rules = IgnoreRules({"": "*.log\n", "d": "!*.log\r\n"}, artifacts=["*.tmp"])
    assert rules.is_ignored("x.log", directory=False)
    assert not rules.is_ignored("d/x.log", directory=False)
    assert rules.is_ignored("d/x.tmp", directory=False)


@pytest.mark.parametrize("rule", ["*a" * 100 + "b", "**/a/" * 60 + "b", "a/**/" * 60 + "b"])
def test_one_match_is_fast(rule: str) -> None:
    started = time.thread_time()  # of this test alone, whatever else the machine does
    rules = IgnoreRules({"": rule})
    assert not rules.is_ignored("/".join(["a" * 250] * 10), directory=False)
    assert not rules.is_ignored("/".join(["a"] * 100 + ["c"]), directory=False)
    assert time.thread_time() - started < 2 * slowness()


@pytest.mark.parametrize("line", ["{:x}", "a/{:x}", "/a/a/a/{:x}"])
def test_s190_the_rules_of_all_files_have_a_limited_number_of_names(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four MiB of short rules were 500 MB: a tenth of both, and of the limit. Control: a tenth of it is read."""
    monkeypatch.setattr(ignore, "MAX_NAMES", ignore.MAX_NAMES // 10)
    lines = [line.format(number) for number in range(20 * ignore.MAX_NAMES)]
    IgnoreRules({"": "\n".join(lines[: ignore.MAX_NAMES // 10])})
    tracemalloc.start()
    try:
        with pytest.raises(SandboxError) as caught:
            IgnoreRules({name: "\n".join(lines[start::4]) for start, name in enumerate(["", "a", "b", "c"])})
        assert tracemalloc.get_traced_memory()[1] < 25 * 1024**2
    finally:
        tracemalloc.stop()
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED


def test_s188_compiling_long_rules_is_part_of_the_budget() -> None:
    """Four MiB of rules of 4,000 characters with stars took 20 seconds and 200 MB. Control: a few are read."""
    lines = [f"{number}{'*a' * 2000}" for number in range(1000)]
    IgnoreRules({"": "\n".join(lines[:10])}).is_ignored("b", directory=False)
    with pytest.raises(SandboxError) as caught:
        IgnoreRules({"": "\n".join(lines)}).is_ignored("b", directory=False)
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED


def test_all_matching_together_has_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignore, "BUDGET", 500_000)
    rules = IgnoreRules({"": "".join(f"*{i}*x\n" for i in range(2000))})
    names = [f"{i}yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy" for i in range(1000)]
    with pytest.raises(SandboxError) as caught:
        list(map(partial(rules.is_ignored, directory=False), names))
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
