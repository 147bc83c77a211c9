"""The tutorial, followed from top to bottom: its files, its commands in their order, and what it says they print."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.guests import remove_guests_of

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
IDENTITY = "[user]\nname = Ada Example\nemail = ada@example.org\n"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SHORT = re.compile(r"(sha256:[0-9a-f]+)\.\.\.")
_OWN = {
    r"\b\d+(\.\d)? s\b": "N s",
    r"\b\d+(\.\d)? [KMG]iB\b": "SIZE",
    r"\b(local|task|run|space-agent/)-?[0-9a-f]{8}[0-9a-f-]*(\.\.\.)?": r"\1ID",
    r"(?<![0-9a-f:])[0-9a-f]{7,40}(?![0-9a-f])": "COMMIT",
    r"sandbox --home \S+": "sandbox",
    r"\d{4}-\d\d-\d\dT\S+ \([^)]*\)": "TIME",
    r"(/[\w.-]+)+/(repositories|wordcount\.git)": r"/DIR/\2",
}
"""What differs from one machine and run to the next. Digests of files do not: the files are those of the page."""


def write_files(folder: Path) -> None:
    """The files that the page shows, each named before it: a patch, and those of the project."""
    (folder / "wordcount").mkdir()
    for name, content in re.findall(r"`([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        (folder if name.endswith(".patch") else folder / "wordcount").joinpath(name).write_text(content)


def read_steps() -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines that the page shows below it."""
    for kind, content in _BLOCK.findall(PAGE):
        if kind or not content.startswith("$ "):
            continue
        for step in content.replace("\\\n", "").removeprefix("$ ").split("\n$ "):
            command, *shown = step.splitlines()
            yield command, [line for line in shown if line.strip()]


def without_own(line: str) -> str:
    for pattern, text in _OWN.items():
        line = re.sub(pattern, text, line)
    return " ".join(line.split())


@pytest.mark.parametrize("size", ["28.9 MiB", "29 MiB", "101 MiB", "1.1 GiB"])
def test_sizes_are_those_of_one_machine(size: str) -> None:
    """Control: the other words of the line are held against the page."""
    line, shown = f"test  passed  4 s  (3 tests, {size} peak)", "test  passed  4.1 s  (3 tests, 28.8 MiB peak)"
    assert without_own(line) == without_own(shown) != without_own(shown.replace("3 tests", "2 tests"))


def test_every_step_works_and_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / ".gitconfig").write_text(IDENTITY)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    sandbox, ids, steps = Command(tmp_path / "home"), dict[str, str](), [*read_steps()]
    assert len(steps) > 20, "void: the page has other blocks"
    try:
        for command, shown in steps:
            words = shlex.split(_complete(command, ids).removesuffix("> /dev/null"))
            if words[0] == "sandbox":
                done = sandbox(*[str(tmp_path / word) if word.startswith("./") else word for word in words[1:]])
                code, printed = done.code, done.stdout + done.stderr
            else:
                git = subprocess.run(words, capture_output=True, check=False, text=True)
                code, printed = git.returncode, git.stdout + git.stderr
            assert code == ("1 failed" in "".join(shown)), f"{command}: {printed}"
            lines = {without_own(line) for line in printed.splitlines()}
            missing = [line for line in shown if without_own(line) not in lines]
            assert missing == [], f"{command}: {printed}"
            ids |= {name[:12]: found for name in shown[:1] for found in printed.splitlines()[:1] if _is_id(name)}
    finally:
        remove_guests_of(tmp_path / "home")


def _is_id(text: str) -> bool:
    return re.fullmatch(r"(local|task)-\S+", text) is not None


def _complete(command: str, ids: dict[str, str]) -> str:
    """With the ids of this run for those of the page, and the digests that the page shortens."""
    for start, found in ids.items():
        command = re.sub(rf"{re.escape(start)}\S*", found, command)
    digests = _DIGEST.findall(PAGE)
    return _SHORT.sub(lambda short: next(one for one in digests if one.startswith(short[1])), command)
