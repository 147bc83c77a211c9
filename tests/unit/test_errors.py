"""Copies of an error, also in another process and with other texts: the caught error keeps its own."""

from __future__ import annotations

import ast
import copy
import multiprocessing
import pickle
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import sandbox
from sandbox.edits.patch_paths import UngatedError
from sandbox.egress.client_settings import UnusableRegistry
from sandbox.errors import ErrorCode, SandboxError, describe_briefly
from sandbox.files.names import WorktreeTooLarge
from sandbox.forges import http_session
from sandbox.forges.http_session import TransientForgeError
from sandbox.git.failures import GitFailure, OutOfMemory
from sandbox.git.grep import PatternTooCostly
from sandbox.git.push.reasons import PushReason, PushRejected
from sandbox.git.throttle import Throttled
from sandbox.workbench.tasks.pending_moves import UnusableMove


def test_a_copy_has_the_other_hint_and_leaves_the_original() -> None:
    error = SandboxError(ErrorCode.CONFLICT, "brief", details="old", hint="old", reason="why", data={"n": 1})

    copied = error.with_hint("new").with_details("more")

    assert copied.payload()["error"] == {**error.payload()["error"], "hint": "new", "details": "more"}
    assert (error.hint, error.details) == ("old", "old")
    assert (str(copied), copied.args) == ("conflict: brief\nmore\nnew", ("brief",))


def test_a_copy_with_other_texts_keeps_what_programs_read() -> None:
    error = SandboxError(ErrorCode.CONFLICT, "old", details="d", hint="h", reason="why", data={"n": 1})

    copied = error.with_changes(brief="new", data={"id": "x"})

    assert copied.payload()["error"] == {**error.payload()["error"], "brief": "new", "data": {"n": 1, "id": "x"}}
    assert copied.args == ("new",)
    assert (error.brief, error.data) == ("old", {"n": 1})
    assert TransientForgeError(error, 3.0).payload() == error.payload()


def test_a_note_on_a_copy_is_not_one_on_the_original() -> None:
    error = SandboxError(ErrorCode.CONFLICT, "brief")
    error.add_note("first")
    copied = error.with_hint("new")
    copied.add_note("second")
    assert (error.__notes__, copied.__notes__) == (["first"], ["first", "second"])


def test_a_copy_keeps_class_and_attributes_of_a_subclass() -> None:
    error = PushRejected(PushReason.BRANCH_MOVED, output="words")

    with pytest.raises(PushRejected) as caught:
        raise error.with_hint("new") from error

    assert (caught.value.reason, caught.value.output, caught.value.hint) == (PushReason.BRANCH_MOVED, "words", "new")
    assert caught.value.__cause__ is error


def test_other_details_of_a_rejected_push_keep_the_line_made_of_its_reason() -> None:
    error = PushRejected(PushReason.BRANCH_MOVED, output="words").with_details("more")

    assert (error.details, error.output) == ("reason: branch_moved\nmore", "more")
    assert error.payload()["error"]["reason"] == "branch_moved"


def _list_error_classes(kind: type[SandboxError] = SandboxError) -> Iterator[type[SandboxError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _list_error_classes(child)


@pytest.mark.parametrize(
    "copied",
    [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy],  # noqa: S301 - our own bytes
    ids=["pickle", "copy", "deepcopy"],
)
def test_an_error_of_each_class_can_be_copied_and_sent_to_another_process(
    copied: Callable[[SandboxError], SandboxError],
) -> None:
    data = {"ids": ["a"]}
    error = SandboxError(ErrorCode.CONFLICT, "brief", details="details", hint="hint", reason="why", data=data)
    error.add_note("a note")
    made: list[SandboxError] = [
        error,
        PushRejected(PushReason.BRANCH_MOVED, output="words"),
        TransientForgeError(error, 2.5),
        http_session._RedirectError(302, "https://host/path"),
        GitFailure(ErrorCode.TIMEOUT, "brief", details="details", transient=True),
        OutOfMemory(ErrorCode.TIMEOUT, "brief", details="details"),
        Throttled(GitFailure(ErrorCode.NETWORK_ERROR, "brief", details="details"), 3.0),
        UngatedError(["a"]),
        PatternTooCostly("details"),
        WorktreeTooLarge(ErrorCode.QUOTA_EXCEEDED, "brief"),
        UnusableRegistry(ErrorCode.INVALID_INPUT, "brief"),
        UnusableMove.of("task-1", "details"),
    ]
    shipped = {kind for kind in _list_error_classes() if kind.__module__.startswith("sandbox.")}
    assert shipped <= {type(one) for one in made}, "a class without an example"
    for one in made:
        arrived = copied(one)
        assert (type(arrived), arrived.args, vars(arrived)) == (type(one), one.args, vars(one))
        assert str(arrived) == str(one)


def _fail() -> None:
    raise SandboxError(ErrorCode.NOT_FOUND, "no task", hint="look again")


@pytest.mark.slow
def test_an_error_crosses_a_pool_of_processes() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(SandboxError) as caught:
            pool.submit(_fail).result(60)
        assert pool.submit(len, "abc").result(60) == 3
    assert (caught.value.code, caught.value.hint) == (ErrorCode.NOT_FOUND, "look again")


# --- no caught error is changed

_NAMED = re.compile(r"\bas \w+:")
ALLOWED = {
    # A copy would keep the secret in the original's traceback.
    *(f"forges/refusals.py: error.{name}" for name in ("brief", "details", "hint", "data", "args")),
}


def find_changes_of_caught_errors(source: str) -> Iterator[str]:
    """`name.attribute` of each assignment to an attribute of an error within its own `except` block."""
    if not _NAMED.search(source):  # most modules give no error a name: to parse all of them takes seconds
        return
    for handler in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler)):
        for node in ast.walk(handler):
            if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
                continue
            if isinstance(node.value, ast.Name) and node.value.id == handler.name:
                yield ast.unparse(node)


@pytest.mark.slow
def test_a_caught_error_is_copied_and_not_changed() -> None:
    root = Path(sandbox.__file__).parent
    found = {
        f"{path.relative_to(root)}: {change}"
        for path in root.rglob("*.py")
        for change in find_changes_of_caught_errors(path.read_text())
    }
    assert found <= ALLOWED, "use `raise error.with_hint(...) from error`"
    assert "forges/refusals.py: error.details" in found, "void: the known one was not found"


@pytest.mark.parametrize("change", ["error.hint = ''", "error.details += ''", "if x:\n        error.reason: str = ''"])
def test_a_change_of_a_caught_error_is_found(change: str) -> None:
    source = f"try:\n    pass\nexcept E as error:\n    {change}\n    other.hint = error.hint\n"
    assert len(list(find_changes_of_caught_errors(source))) == 1


# --- a log line takes the brief


def find_whole_errors_in_logs(source: str) -> Iterator[str]:
    """The arguments of logging calls that are all lines of an error of ours, in the `except` block that caught it."""
    if "SandboxError" not in source or "_log." not in source:
        return
    for handler in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler)):
        if handler.type is None or "SandboxError" not in ast.unparse(handler.type):
            continue
        calls = (node for node in ast.walk(handler) if isinstance(node, ast.Call))
        for argument in (one for call in calls if "_log." in ast.unparse(call.func) for one in call.args):
            text = ast.unparse(argument)
            if text == handler.name or f"str({handler.name})" in text:
                yield text


@pytest.mark.slow
def test_no_log_line_has_all_lines_of_an_error() -> None:
    found = {
        f"{path.relative_to(Path(sandbox.__file__).parent)}: {text}"
        for path in Path(sandbox.__file__).parent.rglob("*.py")
        for text in find_whole_errors_in_logs(path.read_text())
    }
    assert found == set(), "use `error.brief`, or `describe_briefly(error)` beside other kinds of errors"


@pytest.mark.parametrize("argument", ["error", "str(error)[:200]"])
def test_a_whole_error_in_a_log_is_found(argument: str) -> None:
    source = "try:\n    pass\nexcept (OSError, SandboxError) as error:\n    _log.info('%s', ARGUMENT)\n"
    assert list(find_whole_errors_in_logs(source.replace("ARGUMENT", argument))) == [argument]
    assert list(find_whole_errors_in_logs(source.replace("ARGUMENT", "describe_briefly(error)"))) == []


def test_what_a_log_says_of_an_error_is_one_line() -> None:
    ours = SandboxError(ErrorCode.CONFLICT, "brief", details="details", hint="hint")
    assert [describe_briefly(one) for one in (ours, ValueError("a\r\nb\tc"))] == ["brief", "a b c"]
    assert len(describe_briefly(ValueError("x" * 10_000))) == 500
