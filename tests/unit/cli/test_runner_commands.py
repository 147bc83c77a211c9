"""S241: text of a guest is no command of GitHub's runner, whatever command of ours prints it, also when it fails."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from sandbox.cli import app
from sandbox.cli.ci import GitHubActions, detect_ci
from sandbox.cli.invocation import to_json
from sandbox.cli.streams import GuardedStream, TextStream, commanding
from sandbox.cli.terminal import StatusLine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench import Workbench
from tests.unit.cli.runner_commands import commands_of

EVIL = (
    "::set-output name=verified::true",
    "  ::add-mask::e",
    "note: ##[save-state name=a]b",
    "\u200d:\u200d:error::x",
    "\u3000::error::x",
    "#\u200d##\u200d[error]x",
)


def written(*texts: str, breaks_commands: bool = True) -> str:
    """What reaches the runner of a command that writes these texts one after the other."""
    raw = io.BytesIO()
    stream = TextStream(raw, encoding="utf-8", newline="\n")
    stream.breaks_commands = breaks_commands
    for text in texts:
        stream.write(text)
    stream.flush()
    return raw.getvalue().decode()


def as_seen(text: str) -> list[str]:
    """Characters that have no width may be ignored by the runner: it compares text by the rules of a language."""
    return text.replace("\u200d", "").splitlines()


@pytest.mark.parametrize("line", EVIL)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_s241_no_line_of_a_stream_is_a_command(line: str, size: int) -> None:
    """Control: the runner would obey the text, and a stream that it does not read changes none."""
    text = f"one\n{line}\n{line}"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert len(commands_of(as_seen(text))) == 2
    assert written(*pieces, breaks_commands=False) == text
    shown = written(*pieces)
    assert commands_of(as_seen(shown)) == []
    assert shown.replace(" ", "") == text.replace(" ", "")


def test_s241_other_text_is_as_it_was_written() -> None:
    text = "std::move\n a ::error::b\n# [x] ## y #[z]\n: :\n:\n" + " " * 9 + "\n\n"
    assert written(text) == text
    assert written(*text) == text


def test_s241_our_own_commands_reach_the_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    stream = TextStream(raw, encoding="utf-8", newline="\n")
    stream.breaks_commands = True
    monkeypatch.setattr(sys, "stdout", stream)
    ci = detect_ci({"GITHUB_ACTIONS": "true"}, to_stderr=False)
    assert ci is not None
    assert isinstance(ci, GitHubActions)
    ci.echo("::group::a")
    ci.echo_text("::group::b")
    stream.write("the beginning of a line")
    with commanding(stream):
        stream.write("::endgroup::\n")
    stream.write("::error::c\n")
    stream.flush()
    said = ["::group::a", ": :group::b", "the beginning of a line", "::endgroup::", ": :error::c", ""]
    assert raw.getvalue().decode().split("\n") == said


def test_s241_a_document_is_the_same_for_a_program() -> None:
    """One line that begins with a brace."""
    document = {"text": "##[error]x \\##[y]", "##[z]": "\n::error::x"}
    text = to_json(document)
    assert json.loads(text) == document
    assert written(text) == text


@pytest.mark.parametrize("as_json", [False, True])
def test_s241_an_error_of_a_run_commands_no_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    """The process of a command, from its streams to its last line; the last lines of a guest are in the error."""

    def fail(*_: object) -> None:
        raise SandboxError(ErrorCode.NOT_FOUND, "##[error]x", details="\n".join(EVIL), hint="::notice::x")

    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setattr(Workbench, "run", fail)
    monkeypatch.setattr(app, "_set_signal_handlers", lambda _: None)
    options = ["--json"] if as_json else []
    monkeypatch.setattr(sys, "argv", ["sandbox", "--home", str(tmp_path), "run", "https://example.com/o/n", *options])
    for name in ("stdin", "stdout", "stderr"):  # put back afterwards
        monkeypatch.setattr(sys, name, getattr(sys, name))
    assert app.main() == 2
    said = capfd.readouterr()
    assert "name=verified" in "".join(said)
    for text in said:
        assert commands_of(as_seen(text)) == []
    if as_json:
        assert json.loads(said.out)["error"]["brief"] == "##[error]x"


def test_a_stream_that_no_runner_reads_is_left_alone() -> None:
    assert TextStream(GuardedStream(1, StatusLine())).breaks_commands is False
