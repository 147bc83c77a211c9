"""`sandbox worker` and `sandbox cluster`: tasks on several hosts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from sandbox.byte_sizes import format_bytes
from sandbox.cli.invocation import Invocation, global_options, note, show_table, to_json
from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.cluster.dispatcher import Dispatcher
    from sandbox.models.operations import TaskOperation, WorkerInfo

_OPERATIONS = (
    "read-file", "edit-file", "write-file", "apply-patch", "delete-file", "rename-file", "search", "status", "diff",
    "list-checks", "check", "verify", "explore", "candidate", "snapshot", "list-snapshots", "restore", "clean", "sync",
    "checkout", "fork", "commit", "close", "push", "open-pr", "pr-status", "list-runs", "find-run", "run-log",
    "read-log", "test-results", "usage", "journal", "look", "past-run", "artifacts", "read-artifact", "stop-checks",
    "map", "impact", "check-limits", "find-launch", "layers-build", "export-changes", "clean-state",
)  # fmt: skip
_CLEAN_AFTER_S = 60.0
"""When a worker first does what `gc` does: its start is for tasks that wait."""
_PRIORITIES = ("person", "agent", "batch")


@click.command()
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label that tasks may require. Repeatable."
)
@global_options
@click.pass_obj
def worker(invocation: Invocation, labels: tuple[str, ...]) -> None:
    """Take tasks of the cluster that cluster.address names, until SIGTERM or Ctrl-C.

    Operations in progress then end first; a second signal ends them. Tasks of this host continue on other workers.
    With cluster.role = 'publish' it takes no tasks, but pushes those of all workers and opens their pull requests, with
    the credentials, gate and approvals of this home.
    """
    from sandbox.cluster.connecting import work  # noqa: PLC0415 - lazy: the command starts fast
    from sandbox.daemon.timers import make_cleaning_timers, name_as_timer, timers_running  # noqa: PLC0415 - as above

    with invocation.agent_workbench(on_cluster=False) as workbench:
        settings = workbench.settings.cluster
        publishes = f"publishes tasks of {', '.join(settings.publishes) or 'any repository'}"
        does = publishes if settings.role == "publish" else "takes tasks"
        duties = make_cleaning_timers(name_as_timer(workbench), workbench.settings.serve, _CLEAN_AFTER_S)
        with timers_running(duties):
            work(workbench, lambda name: note(f"{name} {does}"), _split_pairs(labels))


@click.group()
def cluster() -> None:
    """Create tasks on a cluster of workers, and ask for operations on them.

    Without cluster.address in the settings this home is the only worker.
    """


@cluster.command()
@global_options
@click.pass_obj
def workers(invocation: Invocation) -> None:
    """List the workers that can be given tasks, and what each can do."""
    with _dispatcher(invocation, explain=True) as dispatcher:
        found = dispatcher.workers()
    headers = ["WORKER", "VERSION", "SLOTS", "ARCH", "CPUS", "MEMORY", "CGROUP", "RUNTIMES", "LABELS"]
    invocation.emit({"workers": found}, lambda: show_table(headers, [_list_cells(one) for one in found]))


def _list_cells(worker: WorkerInfo) -> list[str]:
    """A row of the table; `-` for what a worker of an earlier version does not say."""
    slots = "-" if worker.slots is None else str(worker.slots)
    cells = [worker.id, worker.version or "-", slots]
    able = worker.capabilities
    if able is None:
        return [*cells, *"------"]
    labels = ",".join(f"{key}={value}" for key, value in sorted(able.labels.items()))
    memory = format_bytes(able.memory_bytes)
    figures = [able.arch, str(able.cpus), memory, able.cgroup or "-", ",".join(able.runtimes) or "-", labels or "-"]
    return [*cells, *(one_line(cell) for cell in figures)]


@cluster.command()
@click.argument("worker_id", metavar="WORKER")
@global_options
@click.pass_obj
def drain(invocation: Invocation, worker_id: str) -> None:
    """Let WORKER take no more tasks, and end once its operations have ended.

    Its tasks continue on other workers, from their last completed operation. Returns at once.
    """
    with _dispatcher(invocation) as dispatcher:
        found = dispatcher.drain(worker_id)
    progress = f"{found.operations} operations in progress end first" if found.operations else "it is idle"
    invocation.emit(found, lambda: note(f"{found.worker} takes no more tasks and ends; {progress}"))


@cluster.command()
@global_options
@click.pass_obj
def queue(invocation: Invocation) -> None:
    """Show how many tasks wait for a worker with a free slot, and since when."""
    with _dispatcher(invocation, explain=True) as dispatcher:
        found = dispatcher.line()
    row = [str(found.tasks), f"{found.oldest_s:.0f} s" if found.tasks else "-", str(found.workers)]
    invocation.emit(found, lambda: show_table(["WAITING", "OLDEST", "WORKERS"], [row]))


@cluster.command()
@click.argument("url")
@click.option("--prompt", default="", metavar="TEXT", help="What the task is about.")
@click.option("--base", "base_branch", metavar="BRANCH", help="Where it starts. Default: the default branch.")
@click.option(
    "--kind", "workspace_kind", type=click.Choice(["worktree", "tree"]),
    help="How the task keeps its files; tree: none on disk until its first check. Default: worktree.",
)  # fmt: skip
@click.option("--profile", metavar="NAME", help="Profile, instead of the detected one.")
@click.option("--priority", type=click.Choice(_PRIORITIES), default="agent", help="For whom it waits in the line.")
@click.option("--owner", default="", metavar="NAME", help="Owners take turns in the line. Default: the repository.")
@click.option(
    "--require", "required", multiple=True, metavar="NAME=VALUE",
    help="What the worker must have: arch=arm64, cgroup=2, cpus=8, memory=16g, runtime=runsc, or a label. Repeatable.",
)  # fmt: skip
@click.option("--task", default="", metavar="TASK", help="Id of a task that waits for a worker, to wait on for it.")
@global_options
@click.pass_obj
def create(
    invocation: Invocation,
    /,
    url: str,
    task: str,
    priority: str,
    owner: str,
    required: tuple[str, ...],
    **arguments: str | None,
) -> None:
    """Create a task for the repository URL on a worker, and print its id.

    If all workers are busy, the error says the task's id and about its place in the line. It keeps its place.
    If no worker has what is required, by --require, the settings or the profile, no task is created.
    """
    if arguments["workspace_kind"] is None:  # a worker of an earlier version does not know it
        del arguments["workspace_kind"]
    if task:
        _make_operation(id="create", task_id=task, name="create")
    from sandbox.cluster.asked_operations import raise_for_error  # noqa: PLC0415 - lazy: the command starts fast
    from sandbox.cluster.connecting import connect_dispatcher, find_requirements  # noqa: PLC0415 - as above
    from sandbox.cluster.dispatcher import PlacementTerms  # noqa: PLC0415 - as above
    from sandbox.models.operations import TaskPriority  # noqa: PLC0415 - as above

    with invocation.workbench(on_cluster=False) as workbench:
        requirements = find_requirements(workbench, url, arguments["profile"], _split_pairs(required))
        terms = PlacementTerms(TaskPriority(priority), owner, requirements)
        with closing(connect_dispatcher(workbench)) as dispatcher:
            answer = dispatcher.place(url, arguments, task, terms)
    raise_for_error(answer)
    invocation.emit(answer, lambda: click.echo(answer.task_id))


@cluster.command()
@click.argument("task", metavar="TASK")
@click.argument("operation", type=click.Choice(_OPERATIONS))
@click.argument("arguments", default="{}", metavar="[JSON]")
@click.option("--id", "key", metavar="ID", help="Id of the operation: the same id is carried out once.")
@global_options
@click.pass_obj
def ask(invocation: Invocation, task: str, operation: str, arguments: str, key: str | None) -> None:
    """Carry out OPERATION on TASK, and print its result as JSON.

    JSON has the arguments, such as '{"check_ids": ["test"]}' for check. docs/cluster.md lists those of each operation.
    """
    from sandbox.cluster.asked_operations import raise_for_error  # noqa: PLC0415 - lazy: the command starts fast
    from sandbox.cluster.dispatcher import require_answer_to  # noqa: PLC0415 - as above

    asked = _make_operation(id=key or uuid.uuid4().hex, task_id=task, name=operation, arguments=_parse(arguments))
    with _dispatcher(invocation) as dispatcher:
        dispatcher.submit(asked, is_new=key is None)
        answer = dispatcher.result(asked)
    if answer is None:  # only with a limit on the wait
        return
    require_answer_to(answer, asked)
    if answer.lost:
        note(one_line(answer.lost))
    raise_for_error(answer)
    invocation.emit(answer, lambda: click.echo(to_json({"value": answer.value})))


def _split_pairs(pairs: tuple[str, ...]) -> dict[str, str]:
    found = dict(pair.partition("=")[::2] for pair in pairs)
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise click.UsageError(f"'{wrong[0][:80]}' is not NAME=VALUE.")
    return found


def _make_operation(**fields: Any) -> TaskOperation:
    """Raises: `invalid_input` for an id that can be none."""
    from pydantic import ValidationError  # noqa: PLC0415 - lazy: the command starts fast

    from sandbox.models.operations import TaskOperation  # noqa: PLC0415 - as above

    try:
        return TaskOperation.model_validate(fields)
    except ValidationError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, "This is no id of a task or operation", details=describe_errors(error)
        ) from error


def _parse(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SandboxError(ErrorCode.INVALID_INPUT, "The arguments are no JSON", details=str(error)) from error
    if not isinstance(found, dict):
        raise SandboxError(ErrorCode.INVALID_INPUT, "The arguments must be a JSON object")
    return found


@contextmanager
def _dispatcher(invocation: Invocation, *, explain: bool = False) -> Iterator[Dispatcher]:
    """`explain`: say so if there is no cluster, since the figures look as if there was one."""
    from sandbox.cluster.connecting import connect_dispatcher  # noqa: PLC0415 - as above

    with invocation.workbench(on_cluster=False) as workbench, closing(connect_dispatcher(workbench)) as dispatcher:
        if explain and not workbench.has_cluster:
            note("note: this home belongs to no cluster (cluster.address is not set), and is its only worker")
        yield dispatcher
