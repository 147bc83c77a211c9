"""Patterns that are compiled at their first use: a mistake in one would be found late, so all are compiled here."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import sandbox
from sandbox.lazy_pattern import lazy_pattern


def test_it_is_compiled_once_and_answers_as_the_pattern_does(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    compile_now = re.compile
    monkeypatch.setattr(re, "compile", lambda *words: compiled.append(words) or compile_now(*words))
    pattern = lazy_pattern("(A)b", re.IGNORECASE)
    assert compiled == []
    assert (pattern.fullmatch("aB") is not None, pattern.search("c"), pattern.groups) == (True, None, 1)
    assert (pattern.sub("x", "abc"), pattern.flags & re.IGNORECASE) == ("xc", re.IGNORECASE)
    assert compiled == [("(A)b", re.IGNORECASE)]
    with pytest.raises(AttributeError):
        pattern.unknown  # noqa: B018 - reading it is the test


def test_every_pattern_of_the_package_can_be_compiled() -> None:
    """Control: a pattern with a mistake raises at its first use."""
    with pytest.raises(re.error):
        lazy_pattern("(").search("")
    found = 0
    for name in (module.name for module in pkgutil.walk_packages(sandbox.__path__, "sandbox.")):
        if not name.endswith("__main__"):
            module = vars(importlib.import_module(name))
            for pattern in (value for value in module.values() if type(value) is lazy_pattern):
                assert pattern.pattern
                found += 1
    assert found > 50
