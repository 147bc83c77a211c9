"""What the pages for people name is there: links, files, pages, commands, options and limits."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path, PurePosixPath

import click
import pytest

from sandbox.cli.app import cli
from sandbox.config import find_resources
from sandbox.models import Limits
from sandbox.policy.container import load_container_policy
from sandbox.profiles import load_profiles
from sandbox.profiles.profile_matches import find_matches

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *sorted(DOCS.rglob("*.md")),
]
GENERATED = {DOCS / "threats.md", DOCS / "platforms.md", DOCS / "adr" / "README.md", *(DOCS / "reference").glob("*.md")}
LINE_LENGTH = 120
_LINK = re.compile(r"\]\(([^)\s#]+)[^)\s]*\)")
_FILE = re.compile(r"(?<![\w/.-])((?:docs|tests|scripts|policies|benchmarks|devtools)/[\w/-]+\.\w+)")
_ADR = re.compile(r"(?<![\w/.-])(docs/adr/\d{4})")
_COMMAND = re.compile(r"(?m)(?:`|^\$ |^)sandbox ([^`\n]+)")
_QUOTED = re.compile(r"`([\w-]+)`")
_ITEM = re.compile(r"- |\d+\. ")
_NO_PARAGRAPH = re.compile(r"- |\d+\. |\s|#|\|")
_WORD = re.compile(r"[^\s\[\]()|,;]+")
_REST = re.compile(r"\s{2,}|\s#|\s[|>:]\s")
"""Where a command ends and words about it begin."""


def links_to_nowhere(page: Path, text: str) -> list[str]:
    """Relative links of a page to files that are not there."""
    return [link for link in _LINK.findall(text) if "://" not in link and not (page.parent / link).exists()]


def files_of_nowhere(text: str) -> list[str]:
    """Files of the project that a text names and that are not there; those of a home are left out."""
    adr = [name for name in _ADR.findall(text) if not [*ROOT.glob(f"{name}-*")]]
    return adr + [name for name in _FILE.findall(text) if not (ROOT / name).exists() and "NAME" not in name]


def unknown_words(text: str) -> list[str]:
    """Commands and options of `sandbox` that a text names and that it does not have."""
    return [word for found in _COMMAND.findall(text) for word in _unknown(_WORD.findall(_REST.split(found)[0]))]


def _unknown(words: list[str]) -> list[str]:
    command: click.Command = cli
    options = {"--help"}
    words = [word for word in words if word not in {"--json", "--home", "DIR"}]
    while True:
        options |= {name for option in command.params for name in option.opts}
        if not isinstance(command, click.Group) or not words or not re.fullmatch(r"[a-z][a-z-]*", words[0]):
            break
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return [words[0]]
        command, words = found, words[1:]
    return [word for word in words if re.match(r"--\w", word) and word.partition("=")[0] not in options]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_only_what_there_is(page: Path) -> None:
    text = page.read_text()
    assert not links_to_nowhere(page, text)
    assert not files_of_nowhere(text)
    assert not unknown_words(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_table_shows_a_backslash_before_a_stroke(page: Path) -> None:
    """In code of a table it is `&#124;` in `<code>`: `\\|` shows its backslash on the site, a bare one ends a cell."""
    rows = [line for line in page.read_text().splitlines() if line.startswith("|")]
    assert [code for row in rows for code in strokes_in_code(row)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_is_too_long(page: Path) -> None:
    """Rows of tables, which Markdown cannot break, are left out; so are generated pages, and the changelog."""
    assert page in {*GENERATED, ROOT / "CHANGELOG.md"} or long_lines(page.read_text()) == []


def long_lines(text: str) -> list[str]:
    """Lines of a text with more than `LINE_LENGTH` characters, but for rows of tables."""
    return [line for line in text.splitlines() if len(line) > LINE_LENGTH and not line.startswith("|")]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_list_is_not_read_as_part_of_a_paragraph(page: Path) -> None:
    """The site needs an empty line before a list; the views of forges do not."""
    assert lists_in_paragraphs(page.read_text()) == []


def test_a_list_right_below_a_paragraph_is_found() -> None:
    text = "One.\n- a\n  more\n- b\n\nTwo.\n\n1. c\n\n```\nx\n- d\n```\n"
    assert lists_in_paragraphs(text) == ["- a"]


def lists_in_paragraphs(text: str) -> list[str]:
    """First items of lists right below a line of a paragraph, code aside."""
    lines = re.sub(r"(?ms)^```.*?^```$", "", text).splitlines()
    return [line for above, line in pairwise(lines) if _ITEM.match(line) and above and not _NO_PARAGRAPH.match(above)]


def strokes_in_code(row: str) -> list[str]:
    """Spans of code of one row with a stroke in them."""
    return [code for code in re.findall(r"`([^`]+)`", row) if "|" in code]


@pytest.mark.parametrize("start", [ROOT / "README.md", DOCS / "index.md"], ids=["readme", "site"])
def test_every_page_is_one_step_from_the_first(start: Path) -> None:
    named = {(start.parent / link).resolve() for link in _LINK.findall(start.read_text()) if "://" not in link}
    assert set(DOCS.glob("*.md")) - {DOCS / "index.md"} <= named


def amount(text: str) -> float:
    """A number as pages write it, in its unit."""
    number, _, unit = text.partition(" ")
    return float(number) * {"": 1, "MiB": 1024**2, "GiB": 1024**3}[unit]


def test_the_page_has_every_limit_with_its_default_and_ceiling() -> None:
    rows = re.findall(
        r"(?m)^\| `(\w+)` \| ([\d.]+(?: \w+)?) \| ([\d.]+(?: \w+)?) \|", (DOCS / "profiles.md").read_text()
    )
    told = {name: (amount(default), amount(ceiling)) for name, default, ceiling in rows}
    ceiling = load_container_policy(find_resources("policies")).container.ceiling
    assert told == {name: (getattr(Limits(), name), getattr(ceiling, name)) for name in Limits.model_fields}


def test_the_page_of_commands_gives_an_option_as_many_words_as_it_takes() -> None:
    text, group = (DOCS / "cli.md").read_text(), click.Context(cli)
    commands = [found for name in cli.list_commands(group) if (found := cli.get_command(group, name))]
    inner = [inner for found in commands if isinstance(found, click.Group) for inner in found.commands.values()]
    several = [option for found in (*commands, *inner) for option in found.params if option.nargs > 1]
    assert several, "void: no option takes two words"
    rows = "\n".join(row for row in text.splitlines() if row.startswith("|"))
    shown = {name: re.findall(rf"\[{name} ([^]]+)\]", rows) for option in several for name in option.opts}
    assert {option.opts[0]: [option.metavar] for option in several} == {
        name: [words for words in found if " " in words] for name, found in shown.items()
    }


def test_the_page_names_the_profiles_with_parallel_builds_and_tests() -> None:
    profiles = load_profiles([find_resources("policies") / "profiles"], PurePosixPath("/w"))
    parallel = {name: [check.id for check in found.checks if check.jobs == "auto"] for name, found in profiles.items()}
    text = re.sub(r"\s+", " ", (DOCS / "profiles.md").read_text())
    (build_only, both) = re.findall(
        r"The shipped profiles ([^.;]+) use `auto` for `build`[^.;]+;([^.;]+) use it for both\.", text
    )[0]
    assert {name for name, checks in parallel.items() if checks == ["build"]} == set(_QUOTED.findall(build_only))
    assert {name for name, checks in parallel.items() if checks == ["build", "test"]} == set(_QUOTED.findall(both))


def test_the_recipe_for_another_language_is_a_profile_that_can_be_used(tmp_path: Path) -> None:
    recipe = re.findall(r"(?ms)^```toml\n(.*?)^```", (DOCS / "other-languages.md").read_text())[0]
    (tmp_path / "ruby.toml").write_text(recipe)
    profiles = load_profiles([find_resources("policies") / "profiles", tmp_path], PurePosixPath("/w"))
    (ruby, *_) = find_matches(profiles, lambda name: b"test:" if name in {"Gemfile", "Makefile"} else None)
    assert (ruby.profile.name, ruby.profile.problem, ruby.profile.image) == ("ruby", "", "build")
    (check,) = ruby.profile.checks
    assert check.results
    assert re.search(str(check.results.failed), "SumTest#test_some = 0.00 s = F")


def test_what_is_not_there_is_found() -> None:
    assert links_to_nowhere(ROOT / "README.md", "[a](docs/cli.md) [b](docs/none.md#x)") == ["docs/none.md"]
    assert files_of_nowhere("see docs/none.md, docs/cli.md, docs/adr/9999, docs/adr/0001") == [
        "docs/adr/9999",
        "docs/none.md",
    ]
    text = "`sandbox pull x`, `sandbox push T --forced`\nsandbox check run TASK --followed   # or --jobs\n"
    assert unknown_words(text) == ["pull", "--forced", "--followed"]
    assert unknown_words("sandbox --json repo clone URL [--partial]\n") == []
    assert long_lines(f"{'x' * 121}\n{'x' * 120}\n| {'x' * 121} |\n") == ["x" * 121]
