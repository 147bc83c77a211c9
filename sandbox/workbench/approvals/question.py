"""The question that is shown to a person who decides about an agent's call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sandbox.approvals import OF_CLUSTER, AgentCall
from sandbox.egress.registries import find_registries
from sandbox.errors import ErrorCode, SandboxError
from sandbox.gate import DeliveryStep
from sandbox.models import Change, DiffFile, Repository, Status, Task, TaskOptions, TaskStatus
from sandbox.models.releases import ReleaseManifest
from sandbox.profiles import Profile
from sandbox.store.records import find_repository, find_task
from sandbox.text import escape_path, note_ascii, spell_out
from sandbox.workbench.approvals import chosen_profile
from sandbox.workbench.approvals.published_text import (
    describe_comparison,
    describe_messages,
    describe_prompt,
    quote_value,
)
from sandbox.workbench.checks import gate
from sandbox.workbench.checks.layers import (
    MissingLayer,
    find_last_tree,
    find_missing_layers,
    find_owner_tree,
)
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery import promote, pull_requests, push
from sandbox.workbench.delivery.diff_rule import find_reasons_to_ask
from sandbox.workbench.delivery.intermediate_files import find_intermediate_paths, find_paths_below_base
from sandbox.workbench.delivery.risks import find_risky_files, find_risky_paths
from sandbox.workbench.repositories.commit_facts import TreeSource
from sandbox.workbench.repositories.profile_checks import load_task_profile
from sandbox.workbench.tasks import lifecycle, status
from sandbox.workbench.tasks.approved_state import (
    ASK_AGAIN,
    add_choice,
    describe_record,
    describe_repository,
    digest_siblings,
    find_choice,
    join_state,
)
from sandbox.workbench.tasks.left_out_paths import find_clean_state
from sandbox.workbench.tasks.lifecycle import compare_task

MOST_LINES = 2000
"""A longer question is refused: a person would not read it."""

MOST_CHARS = 256 * 1024
_ARGUMENT_LINES = 400
"""Of a question about a push or pull request: left for the agent's own text, if the commit messages are long."""

PUSHING, OPENING, CLEANING = "space_repo_push", "space_repo_open_pr", "space_repo_clean"
CREATING, FORKING = chosen_profile.CREATING, chosen_profile.FORKING
PREPARING, PROMOTING, CLOSING = "space_repo_prepare", "space_repo_promote", "space_repo_close_task"
COMMITTING, EXPLORING = "space_repo_commit", "space_repo_explore"
SENDING = frozenset({PUSHING, OPENING})
"""Tools that send the last commit to the remote."""

_CLEANED = (
    "deletes permanently: all files that git ignores here, of any origin (build output, local settings); files that",
    "  cannot be committed (nested repositories, sockets); each path listed under `without`",
    "keeps: other uncommitted changes, also as a snapshot",
)

_TOO_LONG = "Split the work into calls with fewer files, or let a person run the command."
_TOO_LONG_TO_SEND = (
    "Send fewer files or commits at a time, of which each has a line, or give a shorter text for the pull request. "
    "Shorter commit messages do not help: long ones are cut in the question. Or let a person run the command."
)
_DELETED = "it is closed, and its worktree deleted: to close it again changes no file"


@dataclass(frozen=True)
class Target:
    """What a call acts on. `describe`: the lines of the question about it, from the same reading as `state`: a change
    between two readings would show one state, and bind another. `status`: of that reading, if it was of files.
    """

    state: str
    describe: Callable[[], Sequence[str]]
    status: Status | None = None


def find_target(services: Services, tool: str, arguments: Mapping[str, Any], task_id: str | None) -> Target:
    """The state that a call acts on: the commit for tools that send, clean or fetch packages, else the working tree;
    with all that the question shows of the task beside its arguments (`approved_state`). Of a choice of a profile it is
    a digest of what that changes.

    A clean does not use the working tree, because that may be too large to read, or missing: see `find_clean_state`.
    Raises: for a promotion as `promote.find_promotable`.
    """
    if task_id is None:
        return _look_without_task(services, tool, arguments)
    return _look_at_task(services, tool, arguments, find_task(services.home, task_id, allow_closed=True))


def _look_at_task(services: Services, tool: str, arguments: Mapping[str, Any], task: Task) -> Target:
    choice = chosen_profile.read_choice(tool, arguments, task.repo_id)
    chosen = chosen_profile.look_at_choice(services, choice) if choice else chosen_profile.ShownChoice("", ())
    if choice and arguments.get("snapshot") is not None:  # the task's files do not matter, and may be gone
        repository = find_repository(services.home, task.repo_id)
        return Target(add_choice("", chosen.state), lambda: [_describe_repository(repository), *chosen.lines])
    about = _describe_branch(services, tool, task)
    if tool == CLEANING:
        state = find_clean_state(services, task, arguments.get("without", ()))
        return Target(state, lambda: [*about, *_CLEANED])
    if tool in SENDING:
        tree_gate = gate.TreeGate(services, task)
        return Target(
            push.find_send_state(tree_gate, opens=tool == OPENING), lambda: [*about, *_sending_lines(tool, tree_gate)]
        )
    if tool == PROMOTING:
        found = promote.find_promotable(services, task.id)
        current = promote.read_releases(services, task.id).current
        state = promote.find_promotion_state(services, task.id, found, current)
        return Target(state, lambda: [*about, *_promotion_lines(found.manifest, current)])
    if tool == PREPARING:
        state = join_state(task.head_commit, describe_record(services.home, task))
        return Target(state, lambda: [*about, *_package_lines(services, *_find_packages_of(services, task))])
    siblings = arguments.get("task_ids") if tool == EXPLORING else None
    look = partial(_look_at_siblings, task_ids=siblings) if siblings else partial(_look_at_files, tool, chosen=chosen)
    return look(services, task, about)


def _look_at_files(
    tool: str, services: Services, task: Task, about: Sequence[str], chosen: chosen_profile.ShownChoice
) -> Target:
    if tool == CLOSING and lifecycle.is_deleted(services, task):
        return Target("", lambda: [*about, _DELETED])
    with compare_task(services, task) as opened:
        shown = status.build_status(opened)
        state = lifecycle.find_working_state(services, opened, chosen.state)
    return Target(state, lambda: [*about, *_changed_lines(services, task, shown.changes), *chosen.lines], shown)


def _look_at_siblings(services: Services, task: Task, about: Sequence[str], task_ids: Sequence[str]) -> Target:
    """The task, and others that an exploration compares with it: their files run, and may be taken into the task."""
    trees, lines = dict[str, str](), list[str]()
    for task_id in task_ids:
        other = find_task(services.home, task_id)
        with compare_task(services, other) as opened:
            trees[other.id] = lifecycle.find_opened_tree(opened)
            lines.append(f"compares {other.id}: tree {trees[other.id][:12]}, commit {other.head_commit[:12]}")
            lines += _changed_lines(services, other, status.build_status(opened).changes)
    with compare_task(services, task) as opened:
        shown = status.build_status(opened)
        state = lifecycle.find_working_state(services, opened, siblings=digest_siblings(trees))
    return Target(state, lambda: [*about, *_changed_lines(services, task, shown.changes), *lines], shown)


def _look_without_task(services: Services, tool: str, arguments: Mapping[str, Any]) -> Target:
    """As `_look_at_task`; without lines for a tool that can do little with a repository."""
    repo_id = arguments.get("repo_id")
    choice = chosen_profile.read_choice(tool, arguments, repo_id)
    if repo_id is None or (choice is None and tool != PREPARING):
        return Target("", lambda: ())
    repository = find_repository(services.home, repo_id)
    if choice is not None:
        chosen = chosen_profile.look_at_choice(services, choice)
        return Target(chosen.state, lambda: [_describe_repository(repository), *chosen.lines])
    profile, tree = find_owner_tree(services, repo_id)
    about = [
        _describe_repository(repository),
        f"branch: {spell_out(repository.default_branch)}, commit {tree.commit[:12]}",
    ]
    state = join_state(tree.commit, describe_repository(repository))
    return Target(state, lambda: [*about, *_package_lines(services, profile, tree)])


def needs_no_question(services: Services, call: AgentCall) -> bool:
    """Whether the call asks for packages and fetches none, because the layers that it asks for are there; or closes a
    task that is closed, and whose worktree is deleted or to be kept.

    Raises: as `find_missing_layers`; `conflict` for a closed task.
    """
    if call.tool == CLOSING and call.task_id is not None:
        task = find_task(services.home, call.task_id, allow_closed=True)
        is_kept = task.status is TaskStatus.CLOSED and not call.arguments.get("delete_worktree")
        return is_kept or lifecycle.is_deleted(services, task)
    owner = call.task_id or call.repo_id
    return (
        call.tool == PREPARING and owner is not None and not _find_missing(services, *find_owner_tree(services, owner))
    )


def require_possible(services: Services, tool: str, arguments: Mapping[str, Any], task_id: str | None) -> None:
    """Refuse a call that would be refused anyway, as far as that is known without doing its work: no person is asked
    about it, and none of their approvals is used up by it.

    Raises: what the call would: as `push.require_sendable`, `pull_requests.require_openable`, `gate.require_open_gate`,
    `lifecycle.require_closable`, and for a promotion as `promote.find_promotable`; of a new task as
    `lifecycle.require_possible_options`.
    """
    if tool == CREATING:
        options = TaskOptions(profile=arguments.get("profile"), branch=arguments.get("branch"))
        lifecycle.require_possible_options(services, options)
    if task_id is None:
        return
    if tool == PROMOTING:
        promote.find_promotable(services, task_id)
    elif tool in SENDING:
        task = find_task(services.home, task_id)
        remote = push.require_sendable(services, task_id, task)
        if tool == OPENING:
            pull_requests.require_openable(services, task, remote)
        opened = DeliveryStep.DRAFT_PR if arguments.get("draft", True) else DeliveryStep.READY_PR
        gate.require_open_gate(services, task, DeliveryStep.PUSH if tool == PUSHING else opened)
    elif tool == CLOSING:
        task = find_task(services.home, task_id, allow_closed=True)
        delete, discard = (bool(arguments.get(name)) for name in ("delete_worktree", "discard"))
        lifecycle.require_closable(services, task, delete=delete, discard=discard)


def build_question(services: Services, call: AgentCall) -> tuple[str, ...]:
    """The complete question, as lines. Raises: `quota_exceeded` when it is too long to be read by a person; `conflict`
    when the state of the call is no longer the one that the question is about.
    """
    tool, arguments, task_id = call.tool, call.arguments, call.task_id
    lines = [f"An agent wants to call {tool}"]
    lines += [line for name, value in arguments.items() if value is not None for line in quote_value(name, value)]
    if task_id is not None:
        task = find_task(services.home, task_id, allow_closed=True)
        lines += _describe_target(call, _look_at_task(services, tool, arguments, task))
    elif OF_CLUSTER in arguments and not arguments.get("repo_id"):
        lines += _CLEANED if tool == CLEANING else ()
    else:
        lines += _describe_target(call, _look_without_task(services, tool, arguments))
    size = sum(map(len, lines))
    if len(lines) > MOST_LINES or size > MOST_CHARS:
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"The question would have {len(lines)} lines, {size} characters: too long to be read by a person",
            details=f"at most {MOST_LINES} lines and {MOST_CHARS} characters",
            hint=_TOO_LONG_TO_SEND if tool in SENDING else _TOO_LONG,
        )
    return tuple(lines)


def _describe_target(call: AgentCall, target: Target) -> Sequence[str]:
    """Of a task of a cluster only the choice of a profile is looked at here. Raises: `conflict`."""
    state = find_choice(call.state) if OF_CLUSTER in call.arguments else call.state
    if state != target.state:
        raise SandboxError(
            ErrorCode.CONFLICT, f"What {call.tool} would act on changed while a person was to be asked", hint=ASK_AGAIN
        )
    return target.describe()


def _describe_repository(repository: Repository) -> str:
    return f"repository: {repository.id}, remote {spell_out(repository.remote_url)}"


def _describe_branch(services: Services, tool: str, task: Task) -> list[str]:
    about = [
        _describe_repository(find_repository(services.home, task.repo_id)),
        f"branch: {spell_out(task.branch)}, commit {task.head_commit[:12]}",
    ]
    if task.profile is not None:
        about.append(f"profile: {spell_out(task.profile)}, chosen for this task")
    if tool == OPENING:
        about.append(f"pull request: into {spell_out(task.base_branch)}")
    return about


def _sending_lines(tool: str, tree_gate: gate.TreeGate) -> Iterator[str]:
    services, task = tree_gate.services, tree_gate.task
    sent = status.list_committed_files(services.repositories, task)
    rule = services.policies.approvals.find_diff_rule(tool)
    reasons = find_reasons_to_ask(services, task, rule) if rule else ()
    yield _verification_line(tree_gate)
    yield from (f"asked because: {spell_out(reason)}" for reason in reasons)
    published = [] if tool != OPENING else [*describe_prompt(task), *describe_comparison(tree_gate.try_comparison())]
    files = (
        *_file_lines("sends", sent),
        *_risk_lines(services.policies, task, sent),
        *_lines_below_base(services, task),
        *_intermediate_lines(services.repositories, services.policies, task, sent),
    )
    yield from published
    yield from describe_messages(services, task, MOST_LINES - _ARGUMENT_LINES - len(published) - len(files))
    yield from files


def _changed_lines(services: Services, task: Task, changes: Sequence[Change]) -> list[str]:
    return [*_file_lines("uncommitted", changes), *_risk_lines(services.policies, task, changes)]


def _promotion_lines(manifest: ReleaseManifest, current: str) -> list[str]:
    """What would be in use instead of what; whatever starts `current` runs it on this host."""
    size = sum(file.size for file in manifest.files)
    return [
        f"puts in use on this host: tree {manifest.tree}, {len(manifest.files)} file(s), {size} bytes",
        f"instead of: {current or 'no release'}",
        f"built and probed in image {manifest.image_digest}, run {manifest.run_id}",
        *(f"program: {_spell_out_path(file.path)} {file.sha256}" for file in manifest.files if file.executable),
    ]


def _package_lines(services: Services, profile: Profile, tree: TreeSource) -> list[str]:
    """The packages that would be fetched, and the hosts that may be asked for them. Not those of layers that are
    there.
    """
    lines = []
    for missing in _find_missing(services, profile, tree):
        ecosystem, plan = missing.rule.ecosystem, missing.plan
        found = find_registries(ecosystem, services.settings.registries, services.environ)
        hosts = ", ".join(str(host.destination) for host in found.hosts)
        lines.append(f"fetches {ecosystem} packages from {hosts}")
        lines.append(f"asked for by manifests: {len(plan.wanted)}, and what they depend on")
        lines += [f"  {spell_out(text)}" for text in plan.wanted]
        lines += [f"not used: {spell_out(entry.text)} ({entry.reason.value})" for entry in plan.refused]
    return lines or ["it fetches no packages: those that it asks for are there"]


def _find_packages_of(services: Services, task: Task) -> tuple[Profile, TreeSource]:
    """As `find_owner_tree`, of a record that was read: the task may have another commit by now."""
    return load_task_profile(services, task), find_last_tree(services, task)


def _find_missing(services: Services, profile: Profile, tree: TreeSource) -> tuple[MissingLayer, ...]:
    return tuple(missing for part in profile.parts for missing in find_missing_layers(services, part, tree))


def _verification_line(tree_gate: gate.TreeGate) -> str:
    """Whether all checks passed on the commit in clean rooms."""
    if not tree_gate.profile.checks:
        return f"verified: no, the profile '{tree_gate.profile.full_name}' has no checks"
    known = tree_gate.try_verdicts()
    if known.unknown:
        return f"verified: unknown ({known.unknown})"
    missing = known.describe_missing()
    return f"verified: NO, not passed: {missing}" if missing else "verified: yes, every check passed"


def _file_lines(what: str, files: Sequence[Change | DiffFile]) -> list[str]:
    return [f"{what}: {len(files)} file(s)", *(f"  {f.kind.value:<12} {_both_names(f)}" for f in files)]


def _intermediate_lines(
    repositories: RegisteredRepositories, policies: Policies, task: Task, sent: Sequence[DiffFile]
) -> list[str]:
    """Files of earlier commits: once sent, they can be read in the history."""
    paths = find_intermediate_paths(repositories, task, sent)
    return _path_lines(policies, task, paths, ("in earlier commits only", "in an earlier commit"))


def _lines_below_base(services: Services, task: Task) -> list[str]:
    """Files of commits that are not the task's, and are sent with its base."""
    paths = find_paths_below_base(services.repositories, task)
    title = f"sent with the base {task.base_commit[:12]}, which the remote has on no branch but those of tasks"
    return _path_lines(services.policies, task, paths, (title, "below the base"))


def _path_lines(policies: Policies, task: Task, paths: Sequence[str], words: tuple[str, str]) -> list[str]:
    """`words`: of all the paths, and of one of them."""
    if not paths:
        return []
    title, where = words
    risks = [
        f"RISK: {_spell_out_path(path)} {where} ({', '.join(flags)})"
        for path, flags in find_risky_paths(policies, task, paths)
    ]
    return [f"{title}: {len(paths)} file(s)", *(f"  {_spell_out_path(path)}" for path in paths), *risks]


def _both_names(file: Change | DiffFile) -> str:
    """Both names of a rename: the removed path matters as much."""
    new = _spell_out_path(file.path)
    return f"{_spell_out_path(file.old_path)} -> {new}" if file.old_path else new


def _risk_lines(policies: Policies, task: Task, files: Sequence[Change | DiffFile]) -> list[str]:
    return [
        f"RISK: {_spell_out_path(path)} ({', '.join(flags)})" for path, flags in find_risky_files(policies, task, files)
    ]


def _spell_out_path(path: str) -> str:
    """As `spell_out`; in a path it matters which characters only look like dots and separators."""
    return escape_path(path) + note_ascii(path)
