"""`sandbox repo`: clone, show and remove repositories."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from sandbox.byte_sizes import format_bytes
from sandbox.cli.invocation import Invocation, add_home, global_options, note, show_table
from sandbox.cli.project_option import PROJECT_METAVAR, parse_projects
from sandbox.cli.repository_argument import locate_repository
from sandbox.cli.repository_notes import show_advice
from sandbox.models import ChosenProject, ChosenSettings, CloneResult, RemoveResult, Repository, RepositoryUpdate
from sandbox.profiles import GENERIC
from sandbox.text import neutralise, one_line


@click.group()
def repo() -> None:
    """Clone, list, show and remove repositories."""


@repo.command()
@click.argument("url")
@click.option("--partial", is_flag=True, help="Download file contents only when a task, fetch or run needs them.")
@global_options
@click.pass_obj
def clone(invocation: Invocation, url: str, partial: bool) -> None:
    """Clone URL into the cache, or update an existing clone."""
    note("Cloning")
    with invocation.workbench() as workbench:
        result = workbench.clone(locate_repository(workbench, url), partial=partial)
    invocation.emit(result, lambda: _show_clone(result))
    show_advice(result.advice)


def _show_clone(result: CloneResult) -> None:
    _show(result.repository)
    if result.protocol:
        click.echo(f"  over     {result.protocol}, which there is a credential for")
    context = result.context
    click.echo(f"  files    {context.tree_total}")
    if context.entrypoints:
        click.echo(f"  start at {', '.join(one_line(e.path) for e in context.entrypoints[:8])}")


def _show(repository: Repository) -> None:
    click.echo(repository.id)
    click.echo(f"  remote   {repository.remote_url}")
    click.echo(f"  branch   {repository.default_branch}")
    chosen = repository.settings
    if not chosen.projects or repository.profile != GENERIC:
        click.echo(f"  profile  {repository.profile}{' (set)' if chosen.profile else ''}")
    if repository.subpath:
        click.echo(f"  subpath  {one_line(repository.subpath)}{'' if chosen.subpath else ' (the only project)'}")
    if chosen.git_facts != "auto":
        click.echo(f"  git      facts of the commit: {chosen.git_facts}")
    for url in chosen.submodules:
        click.echo(f"  submodule {one_line(url)}")
    if chosen.lfs:
        click.echo("  lfs      checks get the files of Git LFS")
    _show_values(chosen, "  ")
    for name, project in chosen.projects.items():
        click.echo(
            f"  project  {name}: {one_line(project.subpath) or '.'}/ ({project.profile or 'profile as detected'})"
        )
        _show_values(project, "    ")


def _show_values(chosen: ChosenSettings | ChosenProject, indent: str) -> None:
    if chosen.image:
        click.echo(f"{indent}image    {one_line(chosen.image)}")
    for name, limit in chosen.limits.items():
        click.echo(f"{indent}limit    {name}={format_bytes(int(limit)) if name.endswith('_bytes') else f'{limit:g}'}")
    for name, value in chosen.env.items():
        click.echo(f"{indent}env      {name}={one_line(value)}")


@repo.command()
@click.argument("url")
@click.option("--ref", default="HEAD", help="Branch, tag, commit id or pr/NUMBER. Default: the default branch.")
@click.option("--subpath", help="Check out only this directory.")
@global_options
@click.pass_obj
def fetch(invocation: Invocation, url: str, ref: str, subpath: str | None) -> None:
    """Make an immutable checkout of a ref of URL on this host and print its path."""
    note("Fetching")
    with invocation.workbench() as workbench:
        result = workbench.fetch(locate_repository(workbench, url), ref, subpath)
    invocation.emit(
        result, lambda: click.echo(f"{result.local_path}\n  {result.files_count} files of {result.commit_sha}")
    )


@repo.command("map")
@click.argument("owner_id", metavar="REPO|TASK")
@click.option(
    "--token-budget", type=int, default=1500, show_default=True, help="Maximum tokens (of 4 characters) to print."
)
@click.option("--include", "globs", multiple=True, metavar="GLOB", help="Only files that match this glob. Repeatable.")
@global_options
@click.pass_obj
def map_(invocation: Invocation, owner_id: str, token_budget: int, globs: tuple[str, ...]) -> None:
    """Print the most important symbols of the code, found by ctags in a container."""
    with invocation.workbench() as workbench:
        found = workbench.map(owner_id, token_budget, globs)
    invocation.emit(found, lambda: click.echo(neutralise(found.map), nl=False))


@repo.command()
@click.argument("repo_id", metavar="REPO")
@global_options
@click.pass_obj
def materialize(invocation: Invocation, repo_id: str) -> None:
    """Download everything that a partial clone left out."""
    note("Fetching the missing objects")
    with invocation.workbench() as workbench:
        found = workbench.materialize(repo_id)
    invocation.emit({"repository": found}, lambda: _show(found))


@repo.command("list")
@global_options
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List registered repositories."""
    with invocation.workbench() as workbench:
        found = workbench.repositories()
    rows = [[r.id, _describe_profiles(r), r.default_branch, r.remote_url] for r in found]
    invocation.emit({"repositories": found}, lambda: show_table(["REPOSITORY", "PROFILE", "BRANCH", "REMOTE"], rows))


def _describe_profiles(repository: Repository) -> str:
    """The profile, and the names of projects; `generic` only if there is no project."""
    names = list(repository.settings.projects)
    return ", ".join(names if names and repository.profile == GENERIC else [repository.profile, *names])


@repo.command()
@click.argument("repo_id", metavar="REPO")
@global_options
@click.pass_obj
def show(invocation: Invocation, repo_id: str) -> None:
    """Show a repository."""
    with invocation.workbench() as workbench:
        found = workbench.repository(repo_id)
    invocation.emit({"repository": found}, lambda: _show(found))


@repo.command()
@click.argument("repo_id", metavar="[REPO]", required=False)
@click.option("--all", "everything", is_flag=True, help="Update all registered repositories.")
@global_options
@click.pass_obj
def update(invocation: Invocation, repo_id: str | None, everything: bool) -> int:
    """Fetch what is new of REPO, or of all repositories. Exits with 1 if one of them could not be reached."""
    if (repo_id is None) != everything:
        raise click.UsageError("Give either REPO or --all.")
    with invocation.workbench() as workbench:
        found = (workbench.update_repository(repo_id),) if repo_id else workbench.update_repositories()
    invocation.emit({"updates": found}, lambda: _show_updates(found))
    return 1 if any(one.error for one in found) else 0


def _show_updates(found: Sequence[RepositoryUpdate]) -> None:
    for one in found:
        if one.error:
            said = one_line(one.error)
        elif one.default_before:
            said = f"the default branch is {one_line(one.default_branch)} now, it was {one_line(one.default_before)}"
        elif one.before == one.after:
            said = f"{one.default_branch} is up to date"
        else:
            said = f"{one.default_branch}  {(one.before or '-')[:12]} -> {(one.after or '-')[:12]}"
        click.echo(f"{one.repo_id}  {said}")
        if one.rewritten:
            click.echo(f"{one.repo_id}  rewritten by a force push: {one_line(', '.join(one.rewritten))}")


@repo.command("set")
@click.argument("repo_id", metavar="REPO")
@click.option("--profile", help="Use this profile instead of the detected one.")
@click.option("--image", help="Run checks in this image instead of the profile's.")
@click.option("--subpath", help="Folder of the project: detection looks there, and checks run there.")
@click.option(
    "--project",
    "projects",
    multiple=True,
    metavar=PROJECT_METAVAR,
    help="Add a project: its checks run in FOLDER and are named NAME.CHECK. Repeatable. NAME alone is enough for one "
    "that is there. With one --project, other options, such as --image and --env, are of that project.",
)
@click.option("--no-project", "dropped", multiple=True, metavar="NAME", help="Take a project back. Repeatable.")
@click.option(
    "--limit", "limits", multiple=True, metavar="NAME=N", help="Limit of every check, such as tmp_bytes=2G. Repeatable."
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Variable of every check; no secrets. Repeatable.")
@click.option("--submodules", is_flag=True, help="Lay out the submodules that the default branch has now.")
@click.option("--lfs", is_flag=True, help="Lay out the files of Git LFS instead of their pointers.")
@click.option(
    "--git-facts",
    type=click.Choice(["auto", "always", "never"]),
    help="Give checks the commit's id, description and time. auto: if the project asks for them.",
)
@click.option(
    "--unset",
    multiple=True,
    metavar="NAME",
    help="Take back profile, image, subpath, submodules, lfs, git_facts, limits, env, projects, limits.NAME, env.NAME "
    "or projects.NAME.",
)
@global_options
@click.pass_obj
def set_(
    invocation: Invocation,
    /,
    repo_id: str,
    unset: tuple[str, ...],
    dropped: tuple[str, ...],
    submodules: bool,
    lfs: bool,
    **fields: Any,
) -> None:
    """Choose how the checks of REPO run, in `run`, tasks, for the gate and for agents.

    A verdict counts only for the settings that it was given under.
    """
    values: dict[str, Any] = {name: value for name, value in fields.items() if value not in {None, ()}}
    for name, parse in _TABLES.items():
        if name in values:
            values[name] = parse(fields[name])
    unset = _give_to_project(values, unset)
    if submodules:
        note("Cloning the submodules")
        values["submodules"] = True
    if lfs:
        note("Fetching the files of Git LFS")
        values["lfs"] = True
    taken_back = (*unset, *(f"projects.{name}" for name in dropped))
    if not values and not taken_back:
        raise click.UsageError("Nothing to set: `sandbox repo show` shows the settings.")
    with invocation.workbench() as workbench:
        found = workbench.set_repository(repo_id, values, unset=taken_back)
    invocation.emit({"repository": found}, lambda: _show(found))


def _give_to_project(values: dict[str, Any], unset: tuple[str, ...]) -> tuple[str, ...]:
    """Move the settings that a project can have to the only one that is named. Returns what to take back."""
    own = [name for name in values if name != "projects" and name in ChosenProject.model_fields]
    names = list(values.get("projects", ()))
    if len(names) > 1 and (own or unset):
        raise click.UsageError(
            f"--{(own or ['unset'])[0].rstrip('s')} is of which project? Name one --project at a time."
        )
    if not names:
        return unset
    values["projects"][names[0]] |= {name: values.pop(name) for name in own}
    if not values["projects"][names[0]] and unset:
        del values["projects"]  # only something to take back
    tables = ChosenProject.model_fields
    return tuple(f"projects.{names[0]}.{n}" if n.partition(".")[0] in tables else n for n in unset)


def _split_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"'{text[:80]}' is not NAME=VALUE.")
    return name, value


def _parse_amount(text: str) -> int | float:
    """A number, with K, M, G or T for powers of 1024."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)([KMGT]?)", text)
    if match is None:
        raise click.UsageError(f"'{text[:80]}' is not a number such as 512M, 2G or 1.5.")
    amount = float(match[1]) * 1024 ** " KMGT".index(match[2] or " ")
    return int(amount) if amount == int(amount) else amount


_TABLES: dict[str, Callable[[Sequence[str]], object]] = {
    "limits": lambda texts: {name: _parse_amount(text) for name, text in map(_split_pair, texts)},
    "env": lambda texts: dict(map(_split_pair, texts)),
    "projects": parse_projects,
}
"""Options that may be repeated: how their values are read."""


@repo.command()
@click.argument("repo_id", metavar="REPO")
@click.option("--discard", is_flag=True, help="Delete unpushed commits and uncommitted changes, too.")
@global_options
@click.pass_obj
def remove(invocation: Invocation, repo_id: str, discard: bool) -> None:
    """Unregister REPO and delete its cache clone. Records of its closed tasks are kept. The remote is not changed."""
    with invocation.workbench() as workbench:
        removed = workbench.remove_repository(repo_id, discard=discard)
    invocation.emit(removed, lambda: _show_removal(removed))


def _show_removal(removed: RemoveResult) -> None:
    click.echo(f"removed {removed.repo_id}")
    for work in removed.lost:
        click.echo(f"  lost  {one_line(work)}")
    if removed.releases is not None:
        note(f"Its releases stay, for one may be in use: {one_line(str(removed.releases))}")
        note(add_home(f"They are listed and rolled back as before: sandbox promote --history {removed.repo_id}"))
