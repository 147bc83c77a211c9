"""Pages that messages name can be shown, also where there is no checkout."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import sandbox
from devtools.shippedpages import find_shipped_pages
from sandbox.cli import main
from sandbox.cli.invocation import suggest_pages
from sandbox.cli.repository_notes import show_advice
from sandbox.cli.verdicts import show_runs
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Remark, RemarkKind
from sandbox.workbench import Workbench
from tests.unit.receipt_samples import made_run

ROOT = Path(sandbox.__file__).parents[1]
_PAGE = re.compile(r"\bdocs/([\w-]+)\.md")


@pytest.mark.parametrize("name", ["profiles", "profiles.md", "docs/profiles.md", "docs/profiles.md#limits"])
def test_a_page_is_shown_by_its_name_and_as_messages_name_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", name]) == 0
    assert capsys.readouterr().out.rstrip("\n") == (ROOT / "docs/profiles.md").read_text().rstrip("\n")


def test_without_a_name_all_pages_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    assert re.search(r"(?m)^other-languages +Other languages$", capsys.readouterr().out)
    assert main(["docs", "--json"]) == 0
    pages = json.loads(capsys.readouterr().out)["pages"]
    assert {"name": "profiles", "title": "Profiles"} in pages
    assert main(["--json", "docs", "profiles"]) == 0
    assert json.loads(capsys.readouterr().out)["text"].startswith("# Profiles\n")


@pytest.mark.parametrize("name", ["profile", "../README", "/etc/passwd", "adr/README", "a\nb"])
def test_what_is_no_page_is_refused_with_near_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", name]) == 2
    said = capsys.readouterr()
    assert (said.out, "error [not_found] There is no page" in said.err) == ("", True)
    assert "`sandbox docs` lists all" in said.err
    assert ("Did you mean profiles?" in said.err) == (name == "profile")


def find_texts() -> Iterator[str]:
    """Texts of the product that are no docstrings."""
    for path in Path(sandbox.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "docs/" not in source:
            continue
        tree = ast.parse(source)
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                yield node.value


def test_an_installed_package_has_each_page_that_a_message_names() -> None:
    named = {name for text in find_texts() for name in _PAGE.findall(text)}
    assert len(named) > 10, "void: nothing was found"
    assert named <= {page.stem for page in find_shipped_pages(ROOT)}


def test_a_hint_that_names_a_page_says_how_to_see_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_self: Workbench) -> None:
        raise SandboxError(ErrorCode.INVALID_INPUT, "What failed", hint="See docs/profiles.md, Limits.")

    monkeypatch.setattr(Workbench, "repositories", fail)
    assert main(["--home", str(tmp_path / "home"), "repo", "list"]) == 2
    assert (
        "hint  See docs/profiles.md, Limits.\n      `sandbox docs profiles` shows that page\n"
        in capsys.readouterr().err
    )


def test_runs_whose_explanations_name_pages_say_once_how_to_see_them(capsys: pytest.CaptureFixture[str]) -> None:
    show_runs([made_run(name, notes=("Left out (docs/images.md, Newer Go).",)) for name in ("build", "test")])
    assert capsys.readouterr().out.endswith("\n  `sandbox docs images` shows that page\n")
    show_runs([made_run("test", notes=("Left out.",))])
    assert "sandbox docs" not in capsys.readouterr().out


def test_a_remedy_that_names_a_page_says_how_to_see_it(capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(click.Command("x")):
        show_advice([Remark(kind=RemarkKind.NO_CHECKS, seen="No profile fits", remedy="See docs/profiles.md")])
    assert capsys.readouterr().err.endswith("  See docs/profiles.md\n  `sandbox docs profiles` shows that page\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("see docs/images.md.", ("`sandbox docs images` shows that page",)),
        (
            "docs/images.md and docs/push.md, docs/images.md",
            ("`sandbox docs images`, `sandbox docs push` show these pages",),
        ),
        ("docs/none.md, docs/adr/0001-x.md, mydocs/push.md, docs/push.mdx", ()),
        ("", ()),
    ],
)
def test_only_pages_that_there_are_are_suggested(text: str, said: tuple[str, ...]) -> None:
    assert tuple(suggest_pages(text)) == said
