"""The global options, and how a command opens the workbench and prints its result."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sandbox.cli.terminal import StatusLine, count_columns, is_interactive
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from pydantic import BaseModel

    from sandbox.workbench import Workbench

_COMMAND = lazy_pattern(r"(?m)(^|`|: )sandbox (?=[a-z])(?!(?:[a-z]+ )*--help)")
_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])
_ClickCommandT = TypeVar("_ClickCommandT", bound=click.Command)


@dataclass
class Invocation:
    """Options and state of one command. `has_printed`: the JSON document is on stdout. `has_logs`: they are set up."""

    json: bool = False
    home: Path | None = None
    runtime: str | None = None
    status: StatusLine = field(default_factory=StatusLine)
    has_printed: bool = False
    has_logs: bool = False

    def set_up_logs(self, *, plain_progress: bool = False) -> None:
        """Configure logs, at the first call: a daemon opens several workbenches. `plain_progress`: as there."""
        from sandbox.cli.log_setup import configure_logs  # noqa: PLC0415 - lazy: `--help` and usage errors stay fast

        if not self.has_logs:
            configure_logs(self.add_home, plain_progress=plain_progress)
            self.has_logs = True

    def add_home(self, text: str) -> str:
        """Add `--home` to the `sandbox ...` commands in a text, so that they use the same home when copied.

        A command is recognised at the start of a line, after a backtick, or after a colon.
        """
        if self.home is None or not text:
            return text
        home = shlex.quote(str(self.home.absolute()))
        return _COMMAND.sub(lambda found: f"{found[1]}sandbox --home {home} ", text)

    def find_home(self) -> Path:
        """The home of this command, for one that opens no workbench. Raises: `invalid_input`, as `resolve_home`."""
        from sandbox.store.home import default_home, resolve_home  # noqa: PLC0415 - lazy: `--help` stays fast

        return resolve_home(self.home) if self.home is not None else default_home(os.environ)

    @contextmanager
    def workbench(self, *, on_cluster: bool = True) -> Iterator[Workbench]:
        """Open the workbench of this command. The command line may use local paths as remotes.

        `on_cluster`: if the settings name a cluster, operations on its tasks are carried out there.
        """
        from sandbox.models import Actor  # noqa: PLC0415 - lazy: `--help` and usage errors stay fast
        from sandbox.workbench import Workbench  # noqa: PLC0415 - as above

        self.set_up_logs(plain_progress=True)
        made = Workbench(self.home, allow_file=True, progress=self._progress_callback(), actor=Actor.CLI)
        with made as workbench, _distribute(workbench, on_cluster=on_cluster) as found:
            yield found

    @contextmanager
    def agent_workbench(self, *, on_cluster: bool = True) -> Iterator[Workbench]:
        """Open the workbench of a server for agents: the settings say whether local paths may be remotes.

        `on_cluster`: as for `workbench`.
        """
        from sandbox.memory import prepare_server  # noqa: PLC0415 - as above
        from sandbox.models import Actor  # noqa: PLC0415 - as above
        from sandbox.workbench import Workbench  # noqa: PLC0415 - as above

        prepare_server()
        self.set_up_logs()
        made = Workbench(self.home, actor=Actor.AGENT)
        with made as workbench, _distribute(workbench, on_cluster=on_cluster) as found:
            yield found

    def _progress_callback(self) -> Callable[[str], None] | None:
        """Show git's progress in the status line of a terminal; None elsewhere."""
        if not self.status.live:
            return None
        from sandbox.text import one_line  # noqa: PLC0415 - lazy, as above

        def show(line: str) -> None:
            self.status.show(one_line(line))

        return show

    def emit(self, document: BaseModel | dict[str, Any], print_text: Callable[[], None]) -> None:
        """Print one JSON document with --json, else call `print_text`."""
        if self.json:
            click.echo(to_json(document))
            self.has_printed = True
        else:
            print_text()


@contextmanager
def _distribute(workbench: Workbench, *, on_cluster: bool) -> Iterator[Workbench]:
    if not on_cluster or not workbench.has_cluster:
        yield workbench
        return
    from sandbox.cluster.cluster_workbench import distribute  # noqa: PLC0415 - lazy: homes without a cluster start fast
    from sandbox.text import one_line  # noqa: PLC0415 - as above

    with distribute(workbench) as found:
        try:
            yield found
        finally:
            for loss in found.take_losses():
                note(f"note: {one_line(loss)}")


def to_json(document: BaseModel | dict[str, Any]) -> str:
    """One line of ASCII JSON: safe on any terminal and in any log, also that of a job of GitHub (`streams.py`)."""
    import json  # noqa: PLC0415 - lazy, see above

    return json.dumps(_to_plain(document), ensure_ascii=True).replace("##[", "#\\u0023[")


def _to_plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {k: _to_plain(v) for k, v in value.items()}
    return [_to_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def global_options(command: _CommandT) -> _CommandT:
    """Add `--home`, `--json` and `--no-daemon`, accepted before and after the command's name."""
    return _add_options(command, "Print exactly one JSON document.")


def event_options(command: _CommandT) -> _CommandT:
    """As `global_options`, for a command that prints events."""
    return _add_options(command, "Print a JSON document for each event, one a line.")


def _add_options(command: _CommandT, json_help: str) -> _CommandT:
    home = click.option(
        "--home",
        type=click.Path(file_okay=False, path_type=Path),
        expose_value=False,
        callback=_set_home,
        help="Directory of the sandbox's state. Default: $SANDBOX_HOME.",
    )
    as_json = click.option("--json", is_flag=True, expose_value=False, callback=_set_json, help=json_help)
    alone = click.option(
        "--no-daemon", is_flag=True, expose_value=False, help="Run in this process, also if `sandbox serve` runs."
    )
    return home(as_json(alone(command)))


def show_examples(*rows: tuple[str, str]) -> Callable[[_ClickCommandT], _ClickCommandT]:
    """Add examples at the end of a command's help: command lines, and what each does. Stands above `click.command`."""
    width = max(len(line) for line, _ in rows)
    lines = (f"  {line:<{width}}  {text}" for line, text in rows)

    def add(command: _ClickCommandT) -> _ClickCommandT:
        command.epilog = "\n".join(["\b", "Examples:", *lines])  # \b: click keeps the lines of this paragraph
        return command

    return add


def runtime_option(command: _CommandT) -> _CommandT:
    """Add `--runtime` to a command that runs checks; its value is `Invocation.runtime`."""
    return click.option(
        "--runtime",
        metavar="NAME",
        expose_value=False,
        callback=_set_runtime,
        help="Container runtime of the engine, e.g. runsc, instead of the configured one.",
    )(command)


def _set_home(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.ensure_object(Invocation).home = value


def _set_json(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).json = True


def _set_runtime(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Invocation).runtime = value


def add_home(text: str) -> str:
    """Call `Invocation.add_home` of the current command."""
    return click.get_current_context().ensure_object(Invocation).add_home(text)


def suggest_pages(text: str) -> Iterator[str]:
    """The line, if any, that says how to see the pages of the documentation that a text names."""
    if "docs/" in text:
        from sandbox.cli.doc_pages import name_commands  # noqa: PLC0415 - lazy: few texts name one

        yield from name_commands(text)


def note(text: str) -> None:
    """Print progress or a remark to stderr."""
    click.echo(text, err=True)


def show_table(headers: list[str], rows: list[list[str]]) -> None:
    """Print a table on stdout: on a terminal no wider than it; elsewhere plain, aligned and complete.

    Cells are neutralised here, too: a column may hold what a worker, an engine or a forge said (S194).
    """
    from sandbox.text import one_line  # noqa: PLC0415 - lazy, see above

    rows = [[one_line(cell) for cell in row] for row in rows]
    if is_interactive(sys.stdout):
        from sandbox.cli.tables import print_table  # noqa: PLC0415 - lazy, see above

        print_table(headers, rows)
        return
    widths = [max(count_columns(r[i]) for r in [headers, *rows]) for i in range(len(headers))]
    for index, row in enumerate([headers, *rows]):
        padded = (cell + " " * (width - count_columns(cell)) for cell, width in zip(row, widths, strict=True))
        line = "  ".join(padded).rstrip()
        click.echo(click.style(line, bold=True) if index == 0 else line)
