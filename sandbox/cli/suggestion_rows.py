"""Show checks and packages, and what the files of a repository suggest of both."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Sequence, Set

import click

from sandbox.checks.parameters import fill_parameters
from sandbox.models import Check, SuggestedPart, SuggestionNote
from sandbox.models.model import Model
from sandbox.text import one_line, spell_out

SHOWN_OF_CHECK = frozenset({"id", "argv", "cwd", "requires"})
"""What has a place of its own in the row of a check."""
_SCRIPT_MARK = f"{'':13}| "


def show_packages(packages: Sequence[str]) -> None:
    """One line with Debian packages, if there are any."""
    if packages:
        click.echo(f"  packages  {', '.join(packages)}")


def spell_out_lines(text: str) -> str:
    """As `spell_out`, with a line of its own for each line of a script; a mark keeps them apart from all else."""
    return f"\n{_SCRIPT_MARK}".join(map(spell_out, text.split("\n")))


def show_rest(model: Model, shown: Set[str]) -> None:
    """A line for each field that is set and is not among those that are `shown`: what is trusted has to be
    seen.
    """
    rest = model.model_dump(mode="json", exclude_defaults=True, exclude=set(shown))
    for name, value in rest.items():
        click.echo(f"               {name} = {spell_out(json.dumps(value, ensure_ascii=False))}")


def show_checks(checks: Iterable[Check], *, scripts: bool = True, write: Callable[[str], str] = one_line) -> None:
    """A line for each check, and one for each of its variables. Without `scripts` the label stands for one of several
    lines. `write`: makes a text safe to show.
    """
    for check in checks:
        argv = fill_parameters(check).argv
        has_script = not scripts and any("\n" in word for word in argv)
        words = ("'...'" if has_script and "\n" in word else shlex.quote(word) for word in argv)
        command = write(" ".join(words))
        place = f"{one_line(check.label)}, " if has_script else ""
        place += "" if check.cwd == "." else f"in {write(check.cwd)}, "
        click.echo(f"  check  {check.id}: {command}  ({place}timeout {check.timeout_s:g} s)")
        show_variables(check.env, write)


def show_variables(env: dict[str, str], write: Callable[[str], str]) -> None:
    """A line for each variable."""
    for name, value in env.items():
        click.echo(f"         {name}={write(value)}")


def show_parts(parts: Iterable[SuggestedPart]) -> None:
    """What files other than .sandbox/checks.toml suggest, each part with its hash."""
    for part in parts:
        click.echo(f"{spell_out(part.path)}: suggests {part.kind.value}, {'used' if part.trusted else 'not used'}")
        show_packages(part.packages)
        if part.env:
            click.echo("  variables for all checks")
            show_variables(part.env, spell_out_lines)
        show_checks(part.checks, write=spell_out_lines)
        click.echo(f"  {part.sha256}")


def show_notes(notes: Iterable[SuggestionNote]) -> None:
    """What cannot be used, by file."""
    path = ""
    for found in notes:
        if found.path != path:
            path = found.path
            click.echo(f"{one_line(path)}: cannot be used")
        click.echo(f"  {one_line(found.text)}: {found.reason}")
