from __future__ import annotations

from sandbox.workbench.repositories.manifest_errors import MOST_BYTES, find_syntax_errors


def test_a_manifest_that_cannot_be_parsed_is_named_with_the_place() -> None:
    """Controls: a sound one, one of another form, one that cannot be read, and one that is too large to look at."""
    files = {
        "Cargo.toml": b"[package\nname = 'p'\n",
        "package.json": b'{\n "scripts": {"test": "x",}\n}',
        "pyproject.toml": b"[project]\n",
        "go.mod": b"modul",
        "large.json": b" " * MOST_BYTES + b"x",
    }
    found = find_syntax_errors([*files, "absent.toml"], files.get)
    assert found.keys() == {"Cargo.toml", "package.json"}
    assert "line 1, column 9" in found["Cargo.toml"]
    assert "line 2 column" in found["package.json"]


def test_what_is_no_text_and_what_is_deep_is_no_error_of_ours() -> None:
    files = {"a.toml": b"\xff", "b.json": b"[" * 100_000}
    assert find_syntax_errors(files, files.get).keys() == {"a.toml"}
