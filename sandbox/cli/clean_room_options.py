"""Options of the commands that check in clean rooms, and how they tell about it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from sandbox.cli.invocation import Invocation
from sandbox.cli.verdicts import Progress
from sandbox.workbench import VerifyOptions, Watch

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--no-cache", is_flag=True, help="Run everything, also what is known already."),
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Run so many chains of checks at once that do not require each other; default: 1.",
    ),
    click.option("--keep-going", is_flag=True, help="After a failure also run the checks that do not require it."),
    click.option("--follow", is_flag=True, help="Show the checks' output while they run."),
)


@dataclass(frozen=True)
class Rooms:
    """What the options of a command say."""

    options: VerifyOptions
    watch: Watch


def room_options(command: _CommandT) -> _CommandT:
    """`--no-cache`, `--jobs`, `--keep-going`, `--follow` and what `--runtime` said, as one parameter `rooms`."""

    @functools.wraps(command)
    def with_rooms(*arguments: Any, no_cache: bool, jobs: int, keep_going: bool, follow: bool, **others: Any) -> Any:
        runtime = click.get_current_context().ensure_object(Invocation).runtime
        options = VerifyOptions(cache=not no_cache, jobs=jobs, keep_going=keep_going, runtime=runtime)
        return command(*arguments, rooms=Rooms(options, _watch(jobs, follow=follow)), **others)

    found: Any = with_rooms
    for option in reversed(_OPTIONS):
        found = option(found)
    return found  # type: ignore[no-any-return]  # click's decorators forget what they decorate


def _watch(jobs: int, *, follow: bool) -> Watch:
    """Raises: UsageError when the output of several checks would be one."""
    if jobs == 1:
        return Progress(follow=follow).watch()
    if follow:
        raise click.UsageError("--follow shows one check at a time: leave out --jobs.")
    return Progress(parallel=True).watch()
