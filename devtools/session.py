"""Record docs/session.svg: the first commands of a user on a small project, run for real on a pseudo-terminal.

`python -m devtools.session` needs an engine and the image `python`. The picture shows what the commands print, without
the option `--home` of the scratch home. Times and ids differ from run to run; record it again when outputs change.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from devtools.terminal import Terminal

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "session.svg"
COLUMNS = 96
PROJECT = {
    "pyproject.toml": """[project]
name = "wordcount"
version = "1.0"

[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
py-modules = ["wordcount"]
""",
    "wordcount.py": '''def count(text):
    """Return how often each word occurs."""
    counts = {}
    for word in text.split(" "):
        counts[word] = counts.get(word, 0) + 1
    return counts
''',
    "test_wordcount.py": """from wordcount import count


def test_two_words():
    assert count("tea and tea") == {"tea": 2, "and": 1}
""",
}
FAILING_TEST = """

def test_extra_spaces():
    assert count(" tea  tea ") == {"tea": 2}
"""
_THEME = TerminalTheme(
    (13, 17, 23),
    (230, 237, 243),
    [
        *((72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)),
        *((88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)),
    ],
)
_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img" \
aria-label="A terminal session: a check passes, a new test fails">
<!-- Recorded by `python -m devtools.session`. -->
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Consolas, Menlo, monospace; line-height: {line_height}px; }}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def last_states(raw: str) -> list[str]:
    """The lines that stay on a terminal, with their colors: of a line that was erased, the text after that. Pure."""
    lines = raw.replace("\r\n", "\n").split("\n")
    return [line.split("\x1b[K")[-1].replace("\r", "") for line in lines]


def draw(steps: Iterable[tuple[str, str]]) -> str:
    """Commands and what the terminal got from each, as an SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard")
    for command, raw in steps:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        for line in last_states(raw.rstrip()):
            console.print(Text.from_ansi(line), no_wrap=True, crop=True)
        console.print()
    svg = console.export_svg(title="sandbox", theme=_THEME, code_format=_FORMAT, unique_id="session")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def record(folder: Path) -> list[tuple[str, str]]:
    """Run the commands on a new project in `folder`."""
    project, home = folder / "wordcount", folder / "home"
    terminal = Terminal(home, COLUMNS)

    def run() -> str:
        return terminal("run", str(project)).raw.replace(f" --home {home}", "")

    project.mkdir()
    for name, text in PROJECT.items():
        (project / name).write_text(text, encoding="utf-8")
    _commit(project, "Count words", "init", "-q", "-b", "main")
    steps = [("sandbox run ./wordcount", run())]
    with (project / "test_wordcount.py").open("a", encoding="utf-8") as file:
        file.write(FAILING_TEST)
    _commit(project, "Test extra spaces")
    steps.append(("sandbox run ./wordcount      # a new commit, with one more test", run()))
    steps.append(("sandbox run ./wordcount      # the same commit again", run()))
    return steps


def _commit(project: Path, message: str, *first: str) -> None:
    identity = ("-c", "user.name=Ada Example", "-c", "user.email=ada@example.org")
    for arguments in ([first] if first else []) + [("add", "."), (*identity, "commit", "-qm", message)]:
        subprocess.run(["git", *arguments], cwd=project, check=True)  # noqa: S603, S607 - fixed words


def main() -> int:
    """Record the session and write the picture."""
    with tempfile.TemporaryDirectory(prefix="session-") as folder:
        PICTURE.write_text(draw(record(Path(folder))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
