"""Copies of an error with other texts: the caught error keeps its own."""

from __future__ import annotations

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.push.reasons import PushReason, PushRejected


def test_a_copy_has_the_other_hint_and_leaves_the_original() -> None:
    error = SandboxError(ErrorCode.CONFLICT, "brief", details="old", hint="old", reason="why", data={"n": 1})

    copied = error.with_hint("new").with_details("more")

    assert copied.payload()["error"] == {**error.payload()["error"], "hint": "new", "details": "more"}
    assert (error.hint, error.details) == ("old", "old")
    assert (str(copied), copied.args) == ("brief", ("brief",))


def test_a_copy_keeps_class_and_attributes_of_a_subclass() -> None:
    error = PushRejected(PushReason.BRANCH_MOVED, output="words")

    with pytest.raises(PushRejected) as caught:
        raise error.with_hint("new") from error

    assert (caught.value.reason, caught.value.output, caught.value.hint) == (PushReason.BRANCH_MOVED, "words", "new")
    assert caught.value.__cause__ is error
