"""`sandbox profiles`."""

from __future__ import annotations

import click

from sandbox.cli.invocation import Invocation, add_home, global_options, note, show_table
from sandbox.cli.repository_argument import locate_repository
from sandbox.cli.repository_notes import show_advice
from sandbox.cli.service_rows import show_services
from sandbox.cli.suggestion_rows import show_checks, show_notes, show_packages, show_parts
from sandbox.models import ProfileCandidate, ProfileCandidates, ProjectCandidate, RemarkKind, WantedPackages
from sandbox.profiles import Profile
from sandbox.text import one_line

_SHOWN = {
    RemarkKind.NO_CHECKS,
    RemarkKind.BELOW,
    RemarkKind.SUGGESTION,
    RemarkKind.UNCHECKED,
    RemarkKind.IMAGE,
}  # packages are shown with their file

_PACKAGES_SHOWN = 30


@click.group()
def profiles() -> None:
    """List, show and detect profiles of repositories."""


@profiles.command("list")
@global_options
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List all profiles."""
    with invocation.workbench() as workbench:
        found = workbench.profiles()
    invocation.emit({"profiles": found}, lambda: _show_all(found))


def _show_all(found: tuple[Profile, ...]) -> None:
    rows = [[p.name, p.image or "-", ", ".join(c.id for c in p.checks) or "-", p.label or "broken"] for p in found]
    show_table(["PROFILE", "IMAGE", "CHECKS", "WHAT"], rows)
    for profile in found:
        if profile.problem:
            note(f"The profile {profile.source} cannot be used: {profile.problem}")


@profiles.command()
@click.argument("name")
@global_options
@click.pass_obj
def show(invocation: Invocation, name: str) -> None:
    """Show a profile with its image and checks."""
    with invocation.workbench() as workbench:
        found = workbench.profile(name)
    invocation.emit({"profile": found}, lambda: _show(found))


def _show(found: Profile) -> None:
    click.echo(f"{found.name}: {found.label}")
    click.echo(f"  image  {found.image}")
    show_packages(found.packages)
    show_checks(found.checks)
    show_services(found.services)


@profiles.command()
@click.argument("url")
@click.option("--ref", default="HEAD", help="Branch, tag, commit id or pr/NUMBER. Default: the default branch.")
@global_options
@click.pass_obj
def detect(invocation: Invocation, url: str, ref: str) -> None:
    """Show which profiles URL matches, by which evidence, and what would run. No code of it is run."""
    with invocation.workbench() as workbench:
        found = workbench.detect_profiles(locate_repository(workbench, url), ref)
    invocation.emit(found, lambda: _show_candidates(found))


def _show_candidates(found: ProfileCandidates) -> None:
    click.echo(f"{found.repo_id}  {one_line(found.ref)}  commit {found.commit[:12]}")
    used, *others = found.candidates
    _show_candidate(used, "used")
    if used.problem:
        note(f"The profile {used.name} cannot be used: {used.problem}")
    else:
        click.echo(f"  image  {used.image}")
        click.echo(f"  what   {used.label}")
        show_packages(used.packages)
        show_checks(used.checks, scripts=False)
        show_services(used.services)
    for wanted in found.fetches:
        _show_wanted(wanted)
    if found.missing_image:
        name = one_line(found.missing_image)
        built = f"the first check builds it, or `sandbox images build {name}` does."
        note(f"The image '{name}' is not there: {one_line(found.missing_image_hint) or built}")
    for project in found.projects:
        _show_project(project)
    if not used.checks and not used.problem and not any(project.used for project in found.projects):
        note("No checks would run. `sandbox docs other-languages` shows how to write a profile.")
    show_advice(remark for remark in found.advice if remark.kind in _SHOWN)
    for candidate in others:
        _show_candidate(candidate, "also matches")
    _explain_unused(found)
    show_parts(found.suggested)
    show_notes(found.notes)
    if any(not part.trusted for part in found.suggested):
        note(add_home(f"Suggestions are not used before you trust them: sandbox trust {found.repo_id}"))


def _show_wanted(wanted: WantedPackages) -> None:
    place = f" for {one_line(wanted.subpath)}/" if wanted.subpath else ""
    click.echo(
        f"  fetch  {wanted.ecosystem} packages{place} from {', '.join(wanted.hosts) or '-'}, and what they need:"
    )
    names = [one_line(text) for text in wanted.packages[:_PACKAGES_SHOWN]]
    more = len(wanted.packages) - len(names)
    click.echo(f"         {', '.join(names) or 'none'}{f', and {more} more' if more else ''}")
    if wanted.asks_build:
        click.echo("         what the project's build says in a guest without a network, too")
    for entry in wanted.refused:
        click.echo(f"         not used: {one_line(entry.text)} ({entry.reason.value}, {one_line(entry.origin)})")


def _show_project(project: ProjectCandidate) -> None:
    """Declared ones with their checks, seen ones in a line."""
    if project.used:
        click.echo(f"{project.name}: used, {project.profile} in {one_line(project.subpath) or '.'}/")
        click.echo(f"  image  {project.image}")
        show_checks(project.checks, scripts=False)
    else:
        checks = ", ".join(check.id for check in project.checks)
        click.echo(f"{one_line(project.subpath)}/: not used, {project.profile} ({checks})")


def _explain_unused(found: ProfileCandidates) -> None:
    """The command that adds seen projects, unless the advice has it."""
    unused = {project.name: project.subpath for project in found.projects if project.name and not project.used}
    if unused and not any(remark.kind is RemarkKind.BELOW for remark in found.advice):
        options = " ".join(f"--project {name}={folder}" for name, folder in unused.items())
        note(add_home(f"To run the checks of projects that are not used: sandbox repo set {found.repo_id} {options}"))


def _show_candidate(candidate: ProfileCandidate, role: str) -> None:
    click.echo(f"{candidate.name}: {role}, weight {candidate.weight}")
    for text in candidate.why or ("no other profile matches",):
        click.echo(f"  found  {one_line(text)}")
