"""Options of the commands that run checks in clean rooms, and how progress is shown."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from sandbox.cli.invocation import Invocation
from sandbox.cli.verdicts import CheckProgress
from sandbox.lazy_dataclass import dataclass
from sandbox.workbench import VerifyOptions, Watch

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--no-cache", is_flag=True, help="Run every check, even if a verdict for the same tree is cached."),
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Run up to N independent check chains in parallel. Default: 1.",
    ),
    click.option("--keep-going", is_flag=True, help="After a failure, still run the checks that do not depend on it."),
    click.option("--from-scratch", is_flag=True, help="Read no compiler cache, and no verdict that used one."),
    click.option("--refresh", is_flag=True, help="Choose the project's packages anew, instead of those chosen before."),
    click.option("--follow", is_flag=True, help="Show the output of the checks while they run."),
)


@dataclass(frozen=True)
class CleanRoomArguments:
    """What the options of a command ask for."""

    options: VerifyOptions
    watch: Watch


def add_clean_room_options(command: _CommandT) -> _CommandT:
    """The options above and the value of `--runtime`, as one parameter `rooms`."""

    @functools.wraps(command)
    def with_rooms(*arguments: Any, no_cache: bool, jobs: int, follow: bool, **others: Any) -> Any:
        chosen = {name: others.pop(name) for name in ("keep_going", "refresh", "from_scratch")}
        runtime = click.get_current_context().ensure_object(Invocation).runtime
        options = VerifyOptions(cache=not no_cache, jobs=jobs, runtime=runtime, **chosen)
        return command(*arguments, rooms=CleanRoomArguments(options, _watch(jobs, follow=follow)), **others)

    found: Any = with_rooms
    for option in reversed(_OPTIONS):
        found = option(found)
    return found  # type: ignore[no-any-return]  # click's decorators lose the type


def _watch(jobs: int, *, follow: bool) -> Watch:
    """Raises: UsageError when the output of several checks would be mixed."""
    if jobs == 1:
        return CheckProgress(follow=follow).watch()
    if follow:
        raise click.UsageError("--follow shows one check at a time: remove --jobs.")
    return CheckProgress(parallel=True).watch()
