"""Colours for the lines of a diff, from Pygments in a process of its own.

Theory. Pygments matches text with regular expressions that were not written against an attacker: a file of a guest can
keep one busy for minutes, and in our process that would hold every thread. So a child with limits on CPU time and
memory does it, it is killed when the page has waited long enough, and what it has not coloured by then is shown plain.
Its answer is data: lines that are not exactly the text that was sent are not shown (docs/adr/0103).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from sandbox.daemon.diff_view import FileDiff, Piece

WAIT_S, CPU_S, MEMORY_BYTES = 3.0, 2, 512 * 1024**2
MAX_CHARS, MAX_TEXTS = 400_000, 200
"""Of one page."""

_LANGUAGES = {
    ".py": "python", ".pyi": "python", ".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".hpp": "cpp",
    ".rs": "rust", ".go": "go", ".java": "java", ".kt": "kotlin", ".cs": "csharp", ".js": "javascript",
    ".mjs": "javascript", ".cjs": "javascript", ".jsx": "javascript", ".ts": "typescript", ".tsx": "typescript",
    ".rb": "ruby", ".php": "php", ".sh": "bash", ".bash": "bash", ".sql": "sql", ".json": "json", ".toml": "toml",
    ".yaml": "yaml", ".yml": "yaml", ".ini": "ini", ".cfg": "ini", ".html": "html", ".xml": "xml", ".css": "css",
    ".lua": "lua", ".pl": "perl", ".swift": "swift", ".scala": "scala", ".cmake": "cmake",
}  # fmt: skip
_NAMES = {"Makefile": "make", "Dockerfile": "docker", "CMakeLists.txt": "cmake"}
_WORKER = Path(__file__).with_name("syntax_worker.py")
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class _Text:
    """One side of a file's hunks. `places`: of its lines in the file's."""

    language: str
    text: str
    file: int
    places: tuple[int, ...]


def find_language(path: str) -> str | None:
    """The name of Pygments' lexer for a path; None: shown plain."""
    name = PurePosixPath(path)
    return _NAMES.get(name.name) or _LANGUAGES.get(name.suffix.lower())


def colour_files(files: Sequence[FileDiff]) -> tuple[FileDiff, ...]:
    """The files with pieces in those lines for which there is a language, and was time."""
    texts = _choose_texts(files)
    answers = run_worker([(one.language, one.text) for one in texts]) if texts else []
    lines = [list(file.lines) for file in files]
    for one, coloured in zip(texts, answers, strict=False):
        for place, pieces in zip(one.places, coloured, strict=False):
            lines[one.file][place] = replace(lines[one.file][place], pieces=tuple(pieces))
    return tuple(replace(file, lines=tuple(new)) for file, new in zip(files, lines, strict=True))


def _choose_texts(files: Sequence[FileDiff]) -> list[_Text]:
    found: list[_Text] = []
    left = MAX_CHARS
    for number, file in enumerate(files):
        language = find_language(file.title)
        for kind in ("added", "removed") if language else ():
            places = tuple(at for at, line in enumerate(file.lines) if line.kind in {"same", kind})
            text = "\n".join(file.lines[at].text for at in places)
            if places and len(text) <= left and len(found) < MAX_TEXTS:
                left -= len(text)
                found.append(_Text(str(language), text, number, places))
    return found


def run_worker(texts: Sequence[tuple[str, str]]) -> list[list[list[Piece]]]:
    """The coloured lines of each (language, text); of the first ones only, if there was no time for all."""
    command = [sys.executable, "-I", str(_WORKER), str(CPU_S), str(MEMORY_BYTES)]
    with _one_at_a_time:
        child = subprocess.Popen(  # noqa: S603 - our own program, with no text of others in its arguments
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", env={}
        )
        try:
            output, _ = child.communicate(json.dumps(texts).encode(), WAIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()
    return _read_answers(output, texts)


def _read_answers(output: bytes, texts: Sequence[tuple[str, str]]) -> list[list[list[Piece]]]:
    """The whole answers; an empty one for lines that are not those that were sent."""
    answers: list[list[list[Piece]]] = []
    for line, (_, text) in zip(output.split(b"\n")[:-1], texts, strict=False):
        lines = [[(str(name), str(piece)) for name, piece in pieces] for pieces in json.loads(line)]
        is_same = "\n".join("".join(piece for _, piece in pieces) for pieces in lines) == text
        answers.append(lines if is_same else [])
    return answers
