"""Patterns that are compiled at their first use: a mistake in one would be found late, so all are compiled here."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from sandbox import lazy_pattern as pattern_module
from sandbox.lazy_pattern import lazy_pattern

PACKAGE = Path(pattern_module.__file__).parent


def test_it_is_compiled_once_and_answers_as_the_pattern_does(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[object, ...]] = []
    compile_now = re.compile

    def compile_and_count(*words: Any) -> Any:
        compiled.append(words)
        return compile_now(*words)

    monkeypatch.setattr(re, "compile", compile_and_count)
    pattern = lazy_pattern("(A)b", re.IGNORECASE)
    assert compiled == []
    assert (pattern.fullmatch("aB") is not None, pattern.search("c"), pattern.groups) == (True, None, 1)
    assert (pattern.sub("x", "abc"), pattern.flags & re.IGNORECASE) == ("xc", re.IGNORECASE)
    assert compiled == [("(A)b", re.IGNORECASE)]
    with pytest.raises(AttributeError):
        getattr(pattern, "unknown")  # noqa: B009 - the type checker sees a real pattern


def test_every_pattern_of_the_package_can_be_compiled() -> None:
    """Control: a pattern with a mistake raises at its first use."""
    with pytest.raises(re.error):
        lazy_pattern("(").search("")
    found = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        if "lazy_pattern(" in path.read_text() and path.stem not in {"lazy_pattern", "__init__"}:
            module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
            for pattern in (value for value in vars(module).values() if type(value) is lazy_pattern):
                assert pattern.pattern
                found += 1
    assert found > 50
