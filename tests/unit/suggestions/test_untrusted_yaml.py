"""YAML of others becomes texts, lists and maps, or is refused."""

from __future__ import annotations

import pytest
import yaml

from sandbox.suggestions.untrusted_yaml import MAX_CHARS, MAX_DEPTH, OPAQUE, loads


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("on: [push, 1, yes, ~]", {"on": ["push", "1", "yes", "~"]}),
        ("a: |\n  x\n  y\nb: 'q'", {"a": "x\ny\n", "b": "q"}),
        ("a: &x [1, 2]\nb: *x", {"a": ["1", "2"], "b": ["1", "2"]}),
        ("base: &b {x: 1, y: 2}\njob: {<<: *b, y: 3}", {"base": {"x": "1", "y": "2"}, "job": {"x": "1", "y": "3"}}),
        ("job: {<<: [{x: 1}, {x: 2, y: 2}]}", {"job": {"x": "1", "y": "2"}}),
        ("a: !reference [.b, script]\nc: !x y", {"a": OPAQUE, "c": OPAQUE}),
        ("!!python/object/apply:os.system [id]", OPAQUE),
    ],
)
def test_values_are_text_and_tags_mean_nothing(text: str, value: object) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: 1\na: 2",
        "? [x]\n: 1",
        "a: &x [*x]",
        "a: *missing",
        "a: 1\n---\nb: 2",
        "a: \x00",
        "x" * (MAX_CHARS + 1),
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "[" + "a, " * 20_001 + "]",
    ],
)
def test_what_is_no_plain_document_or_too_large_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)


@pytest.mark.parametrize(
    "text",
    [r'a: "\UFFFFFFFF"', r'a: "\U00110000"', "%YAML 1." + "1" * 5000 + "\n--- a", "%YAML " + "9" * 5000 + ".1\n--- a"],
)
def test_s189_numbers_that_python_refuses_are_no_yaml(text: str) -> None:
    """The first raised OverflowError, which no reader of suggestions expects."""
    with pytest.raises(ValueError, match=r"^no valid YAML"):
        loads(text)


@pytest.mark.parametrize("error", [OverflowError, IndexError, KeyError, TypeError, RecursionError])
def test_s189_whatever_the_parser_raises_is_no_yaml(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("hostile")

    monkeypatch.setattr(yaml.SafeLoader, "get_event", fail)
    with pytest.raises(ValueError, match=r"^no valid YAML$"):
        loads("a: b")
