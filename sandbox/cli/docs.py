"""`sandbox docs`: the pages for users, which messages name as docs/NAME.md. An installed package has them, too."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import click

from sandbox.cli.doc_pages import find_pages
from sandbox.cli.invocation import Invocation, global_options, show_table
from sandbox.errors import ErrorCode, SandboxError

_WRITTEN = re.compile(r"(?:docs/)?([\w-]+)(?:\.md)?(?:#.*)?", re.ASCII)


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@global_options
@click.pass_obj
def docs(invocation: Invocation, name: str | None) -> None:
    """Show the page NAME of the documentation, as Markdown; without NAME list the pages.

    A message that names docs/profiles.md means: sandbox docs profiles
    """
    pages = find_pages()
    if name is None:
        titles = {page: _read(path).partition("\n")[0].removeprefix("# ") for page, path in pages.items()}
        found = [{"name": page, "title": title} for page, title in titles.items()]
        invocation.emit({"pages": found}, lambda: show_table(["NAME", "TITLE"], [[*row.values()] for row in found]))
        return
    match = _WRITTEN.fullmatch(name)
    page = match[1] if match else ""
    if page not in pages:
        raise _missing_error(name, page, pages)
    text = _read(pages[page])
    invocation.emit({"name": page, "text": text}, lambda: click.echo(text, nl=False))


def _read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _missing_error(given: str, page: str, pages: dict[str, Path]) -> SandboxError:
    near = difflib.get_close_matches(page, pages, n=2)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return SandboxError(
        ErrorCode.NOT_FOUND, f"There is no page '{given[:80]}'", hint=f"{meant}`sandbox docs` lists all pages."
    )
