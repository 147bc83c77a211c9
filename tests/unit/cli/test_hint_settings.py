"""Lines for configuration files that texts of the product give can be pasted: they are TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest

from sandbox.config import Settings
from tests.unit.cli.test_hint_commands import read_source_texts

_TABLE_IN_LINE = re.compile(r"[a-z.]+\]{1,2}[ \t]+[a-z_]+ *= ?")
_SECTIONS = "|".join(Settings.model_fields)
_VALUE = r"""'[^'\n]*'|"[^"\n]*"|\[[^\]\n]*\]|true\b|false\b|\d+\b"""
_SETTING = re.compile(rf"(?<![\w.])(?:{_SECTIONS})(?:\.[a-z_]+)+ = (?:{_VALUE})")


def find_one_line_tables(text: str) -> list[str]:
    """Texts such as `[table] key = ` in one line, which TOML has not."""
    return _TABLE_IN_LINE.findall(text)


def find_settings() -> Iterator[tuple[str, str]]:
    """Module and a line for config.toml; what is filled in is X."""
    for path, text in read_source_texts(" = "):
        for line in _SETTING.findall(text):
            yield path, line


def test_no_text_has_a_table_and_its_key_in_one_line() -> None:
    assert [(path, found) for path, text in read_source_texts("] ") if (found := find_one_line_tables(text))] == []


def test_each_setting_in_a_text_is_one_that_a_configuration_takes() -> None:
    found = sorted(set(find_settings()))
    assert len(found) > 10, "void: no setting was found"
    for _, line in found:
        assert Settings.model_validate(tomllib.loads(line))


@pytest.mark.parametrize(
    "text",
    ['write: [registries] python = ["https://a.example/simple"]', "[users] mapped = true, first = 1", "[[a.b]] x = 1"],
)
def test_a_table_in_one_line_is_seen(text: str) -> None:
    assert find_one_line_tables(text)


def test_lines_that_can_be_pasted_are_no_table_in_one_line() -> None:
    text = (
        """Set `registries.python = ["https://X"]`, users = { mapped = true, first = X }, or gate.require = 'none'."""
    )
    assert find_one_line_tables(text) == []
    assert _SETTING.findall(text) == ['registries.python = ["https://X"]', "gate.require = 'none'"]
