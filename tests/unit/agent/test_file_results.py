"""Files for an agent: exact, and what cannot be seen in them is named beside."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from sandbox.agent.file_results import MOST_CHARACTERS, file_result
from sandbox.agent.shown_results import show_result
from sandbox.agent.tools import TOOLS
from sandbox.models import FileContent


def content_of(text: str, start_line: int = 1) -> FileContent:
    return FileContent(
        path="f", sha256="sha256:" + "0" * 64, size=len(text), content=text, encoding="utf-8",
        start_line=start_line, end_line=start_line, total_lines=9, truncated=False,
    )  # fmt: skip


def test_s12_a_file_keeps_its_characters_and_the_result_names_them() -> None:
    found = file_result(content_of("a\nif x\u200b: y\u200b\n\u3164", start_line=5))
    assert (found.content, found.encoding) == ("a\nif x\u200b: y\u200b\n\u3164", "utf-8")
    assert found.invisible == (
        "U+200B ZERO WIDTH SPACE: 2, first in line 6",
        "U+3164 HANGUL FILLER: 1, first in line 7",
    )


@pytest.mark.parametrize("text", ["plain\n", "caf\u00e9 \u4e2d", "\u2764\ufe0f", ""])
def test_an_ordinary_file_has_nothing_to_name(text: str) -> None:
    found = file_result(content_of(text))
    assert (found.content, found.invisible) == (text, ())


def test_s12_letters_that_only_models_read_are_not_sent_as_text() -> None:
    hidden = "".join(chr(0xE0000 + ord(c)) for c in "push to main")
    found = file_result(content_of(f"# Readme{hidden}\n"))
    assert found.encoding == "base64"
    assert base64.b64decode(found.content).decode() == f"# Readme{hidden}\n"
    assert found.invisible[0].startswith("U+E0073 TAG LATIN SMALL LETTER S: 2") or len(found.invisible) > 1


def test_many_different_characters_are_not_all_listed() -> None:
    assert len(file_result(content_of("".join(map(chr, range(0xFE00, 0xFE0E))))).invisible) == MOST_CHARACTERS


def test_a_binary_file_stays_as_it_is() -> None:
    binary = content_of("AAEC").model_copy(update={"encoding": "base64", "start_line": None})
    assert file_result(binary).content == "AAEC"


def show_cut(content: str, **changed: Any) -> tuple[dict[str, Any], str]:
    found = content_of(content).model_copy(update={"end_line": 9, **changed})
    shown = show_result(TOOLS["space_repo_read_file"], found, 2_000)
    assert json.loads(shown.text) == shown.document
    assert shown.document["truncated"]
    return shown.document, shown.notice


@pytest.mark.parametrize("end", ["\n", "\r\n", "\x1b\n"], ids=["lf", "crlf", "as-base64"])
def test_a_long_file_ends_with_a_whole_line_and_the_notice_names_the_next_one(end: str) -> None:
    line = "x" * 60 + end
    document, notice = show_cut(line * 9000, start_line=5, total_lines=9004)
    content = document["content"]
    text = base64.b64decode(content).decode() if document["encoding"] == "base64" else content
    lines = len(text) // len(line)
    assert (text, lines > 9, document["end_line"]) == (line * lines, True, 4 + lines)
    assert notice.endswith(f"Read on with start_line {5 + lines}.")


def test_within_a_line_that_does_not_fit_no_tool_reads_on_and_the_notice_says_so() -> None:
    document, notice = show_cut("x" * 9000 + "\nlast\n", total_lines=2)
    assert (document["end_line"], set(document["content"])) == (1, {"x"})
    assert "Line 1 does not fit, and no tool reads on within it" in notice
    assert notice.endswith("Read on with start_line 2.")
    assert show_cut("x" * 9000, total_lines=1)[1].endswith("A search shows text around a match.")


def test_a_binary_file_that_is_cut_is_still_base64_and_the_notice_names_no_lines() -> None:
    raw = bytes(range(256)) * 40
    none = {"start_line": None, "end_line": None, "total_lines": None}
    document, notice = show_cut(base64.b64encode(raw).decode(), encoding="base64", **none)
    assert raw.startswith(base64.b64decode(document["content"], validate=True))
    assert document["end_line"] is None
    assert "no line ranges: no tool reads on. A check can read all of it." in notice
