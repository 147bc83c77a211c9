"""How the demo speaks: plain words on stdout, colour only on a terminal. Guest text is never read as markup."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from demo.command import Answer

_STYLES = {"passed": "green", "verified": "green", "failed": "red", "pushed": "green", "refused": "yellow"}


@dataclass(frozen=True)
class Row:
    """One line of the final table."""

    project: str
    source: str
    profile: str
    checks: str
    verdict: str
    wall_time_s: float


class Narrator:
    """Writes chapters, steps, commands and the final table."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)

    def chapter(self, text: str) -> None:
        """A heading."""
        self._console.print(f"\n[bold]{escape(text)}[/bold]")

    def say(self, text: str) -> None:
        """One sentence of explanation."""
        self._console.print(f"  {escape(text)}", soft_wrap=True)

    def command(self, line: str) -> None:
        """A command, before it runs."""
        self._console.print(f"[cyan]$ {escape(line)}[/cyan]", soft_wrap=True)

    def answer(self, answer: Answer, text: str, verdict: str = "") -> None:
        """What a command said, and its time."""
        word = f"[{_STYLES.get(verdict, 'bold')}]{escape(verdict)}[/] " if verdict else ""
        self._console.print(f"  {word}{escape(text)} [dim]({answer.wall_time_s:.1f} s)[/dim]", soft_wrap=True)

    def quote(self, text: str, limit: int = 14) -> None:
        """Text of the guest or of git, indented, clipped, with control characters made visible."""
        lines = text.splitlines()
        for line in lines[:limit]:
            shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line.expandtabs(4))
            self._console.print(f"    [dim]|[/dim] {escape(shown)}", soft_wrap=True)
        if len(lines) > limit:
            self._console.print(f"    [dim]| … {len(lines) - limit} more lines[/dim]")

    def table(self, rows: list[Row]) -> None:
        """The summary."""
        table = Table(title="What happened", title_justify="left")
        for heading in ("project", "source", "profile", "checks", "verdict"):
            table.add_column(heading, overflow="fold")
        table.add_column("time", justify="right")
        for row in rows:
            style = _STYLES.get(row.verdict, "")
            verdict = f"[{style}]{escape(row.verdict)}[/]" if style else escape(row.verdict)
            cells = [escape(cell) for cell in (row.project, row.source, row.profile, row.checks)]
            table.add_row(*cells, verdict, f"{row.wall_time_s:.1f} s")
        self._console.print()
        self._console.print(table)
