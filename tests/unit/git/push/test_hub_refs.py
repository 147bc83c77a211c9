"""What a hub says of a task's epochs, when somebody else has written to it."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.git.push import hub_refs


def test_only_names_that_we_write_are_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    oid = "a" * 40
    names = ("2", "02", "\u00b2", "\u0663", "0", "1" * 5000, "3/x", "x")
    listed = [(oid, f"{hub_refs.PREFIX}task-1/{name}") for name in names]
    monkeypatch.setattr(hub_refs, "list_refs", lambda *_unused, **_options: listed)
    nothing: Any = None
    assert hub_refs.list_epochs(nothing, nothing, "task-1") == {2: oid}
