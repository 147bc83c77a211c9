"""Title and body of a pull request, from the record of a task. Pure.

What was made stands between two comments of ours, so that it can be made anew in a body that people have edited since.
No text of others can be such a line: see `sandbox.forges.escape`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.drafts import without_draft
from sandbox.forges.escape import RULE, broken, clean, clipped, code, fitting, prose, verbatim
from sandbox.forges.sanitize import tame
from sandbox.models import CheckRun, DiffFile

MOST_CHARS = 60_000
"""GitHub takes 65,536, GitLab 1,048,576."""

TITLE_CHARS = 200
BEGIN, END = "<!-- space-sandbox: made from here -->", "<!-- space-sandbox: made to here -->"
_PROMPT_CHARS, _ROWS_CHARS = 6_000, 8_000  # of the request, and of each list
_NAME_CHARS = 300
# Surrogates are how Python holds bytes of an argument that are no UTF-8; no forge takes either.
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
_FOOTER = (
    "Made by Space Sandbox, which wrote the lists above from its own record and quotes what others wrote. "
    "It may write this part anew: add your own text above or below it."
)


@dataclass(frozen=True)
class Provenance:
    """What the verdicts on a tree are bound to, and the command that asks for them again. Empty: not known.

    `image`: its name in the profile; `wheelhouse`: sha256 of the requirements that the image was built with.
    """

    image: str
    image_digest: str
    wheelhouse: str
    runtime: str
    version: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """What the record knows of a task's commits.

    `given`: the caller's own text; `trusted`: a person wrote it, so it stays Markdown. `commits`: id and subject,
    oldest first. `runs`: of clean rooms on `tree`; `missing`: checks without one. `verified`: None where nobody could
    ask, and `unknown` says why. `gate`: what the gate demands and whether it has it, in words. `risks`: path and flags.
    """

    prompt: str
    given: str | None
    trusted: bool
    commits: tuple[tuple[str, str], ...]
    files: tuple[DiffFile, ...]
    runs: tuple[CheckRun, ...]
    missing: tuple[str, ...]
    tree: str
    head: str
    verified: bool | None
    unknown: str
    gate: str
    risks: tuple[tuple[str, tuple[str, ...]], ...]
    profile: str
    provenance: Provenance


def compose(facts: Facts) -> str:
    """The body, at most `MOST_CHARS`. Raises: `invalid_input` for a person's text that leaves no room for the rest."""
    made = f"{BEGIN}\n\n{_made(facts)}\n\n{END}"
    given = _given(facts, MOST_CHARS - len(made) - 2)
    return f"{given}\n\n{made}" if given else made


def replace_generated(existing: str, new: str) -> str | None:
    """The body `existing` with the made part of `new`. None: the marks are gone or doubled, or it gets too long."""
    lines, made = existing.replace("\r\n", "\n").split("\n"), new.split("\n")
    place, source = _between(lines), _between(made)
    if place is None or source is None:
        return None
    whole = "\n".join([*lines[: place.start], *made[source], *lines[place.stop :]])
    return whole if len(whole) <= MOST_CHARS else None


def title_of(given: str | None, first_subject: str | None, prompt: str, *, trusted: bool = False) -> str:
    """One line of at most `TITLE_CHARS`: the first of these texts that has one. A forge makes nothing of it.

    `trusted`: a person gave `given`, and means the references in it.
    """
    for text in (given, first_subject, prompt):
        line = without_draft(_first_line(clean(text or "")))
        title = line if trusted and text is given else broken(line)
        if title.strip():
            return clipped(title, TITLE_CHARS)
    return "Changes"


def _first_line(text: str) -> str:
    return next((" ".join(line.split()) for line in text.split("\n") if line.strip()), "")


def _between(lines: Sequence[str]) -> slice | None:
    bare = [line.strip() for line in lines]
    if bare.count(BEGIN) != 1 or bare.count(END) != 1 or bare.index(BEGIN) > bare.index(END):
        return None
    return slice(bare.index(BEGIN), bare.index(END) + 1)


def _given(facts: Facts, room: int) -> str:
    text = (facts.given or "").strip()
    if not facts.trusted:
        return tame(text, room)
    text = _NO_TEXT.sub("\ufffd", text).replace("<!-- space-sandbox:", "<!-- space sandbox:")
    if len(text) > room:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The text for the pull request has {len(text)} characters, and there is room for {room}",
            hint="Shorten it; the rest of the body is made from the task's record.",
        )
    return text


def _made(facts: Facts) -> str:
    sections = (
        _section("Request", verbatim(facts.prompt, _PROMPT_CHARS)),
        _section("Verification", f"{_verified(facts)}\n\n{prose(facts.gate)}".strip()),
        _section("", _checks(facts)),
        _section("", _provenance(facts)),
        _section(f"Commits ({len(facts.commits)})", _list([_commit(*commit) for commit in facts.commits])),
        _section(f"Files ({len(facts.files)})", _list([_file(file) for file in facts.files])),
        _section("Look closely", _list([_risk(*risk) for risk in facts.risks])),
        f"{RULE}\n\n{_FOOTER}",
    )
    return "\n\n".join(section for section in sections if section)


def _section(title: str, text: str) -> str:
    return f"### {title}\n\n{text}" if title and text else text


def _list(rows: Sequence[str]) -> str:
    lines = [f"- {row}" for row in rows]
    kept = fitting(lines, _ROWS_CHARS)
    return "\n".join([*lines[:kept], *([f"- and {len(rows) - kept} more"] if kept < len(rows) else [])])


def _verified(facts: Facts) -> str:
    where = f"tree {code(facts.tree)} of commit {code(facts.head)}"
    if facts.verified is None:
        return f"**Unknown**: whether {where} is verified could not be found out ({prose(facts.unknown)})."
    if facts.verified:
        return f"**Verified**: clean rooms have passed every check of the profile {code(facts.profile)} on {where}."
    if not facts.runs and not facts.missing:
        return f"**Not verified**: the profile {code(facts.profile)} has no checks to verify {where} with."
    return f"**Not verified**: not every check of the profile {code(facts.profile)} has passed on {where}."


def _checks(facts: Facts) -> str:
    """A table: ids of checks and runs and words for verdicts have no character that ends a cell."""
    rows = [*map(_run, facts.runs), *(f"| {code(name)} | not run on this tree | | | | |" for name in facts.missing)]
    kept = fitting(rows, _ROWS_CHARS)
    more = [f"| and {len(rows) - kept} more | | | | | |"] if kept < len(rows) else []
    head = ["| Check | Verdict | Tests | Time | Run | Tree |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *rows[:kept], *more]) if rows else ""


def _run(run: CheckRun) -> str:
    cells = (code(run.check_id), code(run.verdict.value), _tests(run), f"{run.wall_time_s:.1f} s", code(run.run_id))
    return f"| {' | '.join(cells)} | {_on(run)} |"


def _tests(run: CheckRun) -> str:
    """Counts of the JUnit report, which the guest wrote: numbers, and nothing else of it."""
    if run.report is None:
        return ""
    others = (("failed", run.report.failures + run.report.errors), ("skipped", run.report.skipped))
    return ", ".join([str(run.report.tests), *(f"{count} {word}" for word, count in others if count)])


def _provenance(facts: Facts) -> str:
    """A list: names of images and profiles are the operator's, and may hold what ends a cell."""
    found = facts.provenance
    digest = f" {code(found.image_digest)}" if found.image_digest else ""
    lines = (
        ("profile", code(facts.profile)),
        ("image", f"{code(found.image)}{digest}" if found.image else ""),
        ("wheel-house of the image", code(f"sha256:{found.wheelhouse}") if found.wheelhouse else ""),
        ("runtime", code(found.runtime) if found.runtime else ""),
        ("product", f"Space Sandbox {code(found.version)}"),
    )
    bound = _list([f"{name}: {value}" for name, value in lines if value])
    again = f"Run the checks again on exactly this commit:\n\n{code(shlex.join(found.command))}"
    return f"A verdict is bound to:\n\n{bound}\n\n{again}"


def _on(run: CheckRun) -> str:
    return code(run.tree[:12])


def _commit(oid: str, subject: str) -> str:
    return f"{code(oid[:12])} {code(subject, _NAME_CHARS)}"


def _file(file: DiffFile) -> str:
    lines = "" if file.additions is None or file.deletions is None else f", +{file.additions} -{file.deletions}"
    before = f"{code(file.old_path, _NAME_CHARS)} → " if file.old_path else ""
    return f"{before}{code(file.path, _NAME_CHARS)} {file.kind.value.replace('_', ' ')}{lines}"


def _risk(path: str, flags: Sequence[str]) -> str:
    return f"{code(path, _NAME_CHARS)}: {prose(', '.join(flags))}"
