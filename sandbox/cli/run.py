"""`sandbox run`: verify a remote or local repository."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from sandbox.cli.clean_room_options import CleanRoomArguments, add_clean_room_options
from sandbox.cli.invocation import Invocation, global_options, note, runtime_option, show_examples
from sandbox.cli.project_option import PROJECT_METAVAR, parse_projects
from sandbox.cli.repository_argument import locate_repository
from sandbox.cli.repository_notes import show_advice
from sandbox.cli.verdicts import format_elapsed, qualify, show_runs
from sandbox.lazy_module import LazyModule
from sandbox.models import RemarkKind, RunSummary, UncommittedChanges
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.cli import ci as ci_systems
    from sandbox.cli.reports import report_data, report_files
else:  # loaded in a CI, or if a report is asked for (docs/adr/0080)
    ci_systems = LazyModule("sandbox.cli.ci")
    report_files = LazyModule("sandbox.cli.reports.report_files")
    report_data = LazyModule("sandbox.cli.reports.report_data")

_CI_VARIABLES = {"GITHUB_ACTIONS", "GITLAB_CI"}
_ALWAYS_SHOWN = {
    RemarkKind.SUGGESTION,  # a reader of "verified" may think that these checks ran
    RemarkKind.ONLY_FOLDER,  # or that all folders were looked at
    RemarkKind.UNCHECKED,  # or that all languages were tested
    RemarkKind.IMAGE,  # or that the profile's image was used
}
_ON_FAILURE = {RemarkKind.PACKAGES, RemarkKind.SUBMODULES, RemarkKind.LFS, RemarkKind.GIT_DATA}


@show_examples(
    ("sandbox run https://github.com/owner/repo", "all checks of its default branch"),
    ("sandbox run . --include-changes --check test", "one check of these files as they are"),
)
@click.command()
@click.argument("url")
@click.option("--ref", default="HEAD", help="Branch, tag, commit id or pr/NUMBER. Default: the default branch.")
@click.option(
    "--check", "checks", multiple=True, metavar="ID", help="Run only this check and the checks it requires. Repeatable."
)
@click.option("--profile", help="Use this profile instead of the detected one.")
@click.option("--subpath", metavar="FOLDER", help="Folder of the project: detection looks there, and checks run there.")
@click.option(
    "--changed-since",
    metavar="REF",
    help="Run only the checks of projects with a file that changed since this branch, tag or commit.",
)
@click.option(
    "--project",
    "projects",
    multiple=True,
    metavar=PROJECT_METAVAR,
    help="Also run the checks of the project in FOLDER, named NAME.CHECK. Repeatable. Instead of the projects that "
    "`repo set` keeps.",
)
@click.option(
    "--lfs",
    type=click.Choice(["yes", "no"]),
    help="no: leave the pointers of Git LFS in place; yes: lay out its files. Default: as `repo set --lfs` says.",
)
@click.option(
    "--include-changes", is_flag=True, help="Verify the files of a local directory as they are, also uncommitted ones."
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="KIND=FILE",
    help="Write the result to FILE as junit, sarif, markdown, codequality, outputs (NAME=value) or receipt (signed). "
    "Repeatable.",
)
@add_clean_room_options
@runtime_option
@global_options
@click.pass_obj
def run(invocation: Invocation, /, url: str, checks: tuple[str, ...], rooms: CleanRoomArguments, **what: Any) -> int:
    """Clone URL, run the profile's checks on a fresh checkout without network, and print the verdicts.

    For a local repository (or a directory in one) the checked-out commit is verified; uncommitted changes are listed
    but not verified, unless --include-changes is given. Exits with 0 when every check passed, or when --changed-since
    found no check to run; else with 1.
    """
    started = time.monotonic()
    note(f"Cloning and verifying {what['ref']}")
    projects = parse_projects(what["projects"]) or None
    lfs = None if what["lfs"] is None else what["lfs"] == "yes"
    wanted = report_files.parse_reports(what["reports"]) if what["reports"] else []
    ci = ci_systems.current_ci(to_stderr=invocation.json) if _CI_VARIABLES & os.environ.keys() else None
    options = replace(
        rooms.options,
        include_changes=what["include_changes"],
        projects=projects,
        subpath=what["subpath"],
        changed_since=what["changed_since"],
        lfs=lfs,
    )
    with invocation.workbench() as workbench:
        if wanted:
            report_files.require_signing_key(workbench, wanted)
        located = locate_repository(workbench, url)
        options = replace(options, named_folder=_find_named_folder(url, located))
        with ci.guard() if ci else nullcontext():
            summary = workbench.run(located, what["ref"], checks, what["profile"], rooms.watch, options)
            invocation.emit(summary, lambda: _show(summary, format_elapsed(started)))
        if wanted or ci:
            data = report_data.collect_tests(workbench, summary)
            try:
                report_files.write_reports(workbench, data, wanted)
            finally:
                if ci:
                    ci.show(data)
    _warn_of_other_folder(url, located, summary)
    shown = (
        _ALWAYS_SHOWN
        | ({RemarkKind.LFS} if lfs is False else set())
        | (set() if summary.verified or summary.nothing_changed else _ON_FAILURE)
    )
    show_advice(remark for remark in summary.advice if remark.kind in shown)
    if summary.uncommitted is not None and summary.uncommitted.included:
        _explain_included(summary.uncommitted)
    elif summary.uncommitted is not None:
        _warn_uncommitted(summary.uncommitted)
    return 0 if summary.verified or summary.nothing_changed else 1


def _find_named_folder(url: str, located: str) -> str:
    """The folder of the repository that the user named; '' for the repository itself."""
    if located == url:
        return ""
    top = Path(unquote(located.removeprefix("file://")))
    folder = os.path.relpath(Path(url.removeprefix("file://")).resolve(), top.resolve())
    return "" if folder == "." else folder


def _warn_of_other_folder(url: str, located: str, summary: RunSummary) -> None:
    """Warn that the verdict is about another folder than the one that the user named: the settings say so."""
    folder, given = summary.subpath, _find_named_folder(url, located)
    if not given or not folder or folder != summary.repository.settings.subpath:
        return
    if not f"{given}/".startswith(f"{folder}/"):
        note(
            f"note: the settings of {summary.repository.id} say that checks run in {one_line(folder)}/, not in "
            f"{one_line(given)}/: `sandbox repo set {summary.repository.id} --subpath FOLDER` changes that"
        )


def _show(summary: RunSummary, took: str) -> None:
    click.echo(f"{summary.repository.id}  {summary.ref}")
    if request := summary.pull_request:
        what = f"trial merge of pull request {request.number}" if request.merged else f"pull request {request.number}"
        click.echo(f"  {what}: {one_line(request.subject)}, by {one_line(request.author)}")
    folder = summary.subpath
    place = f"  only in {one_line(folder)}/" if folder else ""
    included = summary.uncommitted.count if summary.uncommitted and summary.uncommitted.included else 0
    if summary.protocol:
        click.echo(f"  over   {summary.protocol}, which there is a credential for")
    changed = f" and {_count_changes(included)}" if included else ""
    click.echo(f"  commit {summary.commit[:12]}{changed}  tree {summary.tree[:12]}  profile {summary.profile}{place}")
    show_runs(summary.runs, summary.repository.id)
    click.echo(_conclude(summary, took))
    if summary.left_out:
        click.echo(
            f"not run: {one_line(', '.join(summary.left_out))}; the tree is verified only when all checks passed"
        )


def _conclude(summary: RunSummary, took: str) -> str:
    """One line: the word for all runs, and how long they took."""
    if summary.nothing_changed:
        return "no project has changed: no check had to run, and the tree is not verified"
    if not summary.verified:
        word = click.style("not verified", fg="red")
    elif summary.left_out:
        word = click.style("passed", fg="green", bold=True)
    else:
        word = click.style("verified", fg="green", bold=True)
    return f"{word}{qualify(summary.runs)} in {took}"


def _count_changes(count: int) -> str:
    return "1 uncommitted change" if count == 1 else f"{count} uncommitted changes"


def _explain_included(found: UncommittedChanges) -> None:
    if found.count:
        note("note: this tree is on no branch; commit to verify what others get:")
        _list_changes(found)
    for path in found.left_out:
        note(f"  {'left out':<12} {one_line(path)}")
    if found.left_out:
        note("note: left out are nested repositories, special files, and new links that lead out of the directory")
        note("  (git would commit such a link; docs/cli.md says why we do not)")


def _list_changes(found: UncommittedChanges) -> None:
    for change in found.changes:
        note(f"  {change.kind.value:<12} {one_line(change.path)}")
    if found.count > len(found.changes):
        note(f"  ... and {found.count - len(found.changes)} more")


def _warn_uncommitted(found: UncommittedChanges) -> None:
    """Warn that the verdict is about the commit only: the user may have meant the directory."""
    if found.count:
        least = "" if found.complete else "at least "
        note(f"note: the directory has {least}{_count_changes(found.count)}; the verdict is about the commit only")
        note("note: --include-changes verifies the files as they are:")
        _list_changes(found)
    if not found.complete and not found.count:
        note("note: the directory could not be compared with the commit in time; the verdict is about the commit")
