"""The command tree, global options, exit codes of errors, signals."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from sandbox.cli.invocation import Invocation, global_options, suggest_pages, to_json
from sandbox.cli.streams import guard_streams, is_job_of_github
from sandbox.cli.terminal import StatusLine, is_interactive, uses_color
from sandbox.errors import ErrorCode, SandboxError, translate_shortage
from sandbox.text import neutralise, one_line
from sandbox.version import __version__

INTERRUPTED_CODE = 130
_STOPPED = "stopped"
"""The reason of what a caller stopped, also elsewhere."""

_USAGE, _REFUSED, _CONFLICT, _INFRASTRUCTURE = 2, 3, 4, 5
_EXIT_CODES = {
    ErrorCode.INVALID_INPUT: _USAGE,
    ErrorCode.UNSAFE_PATH: _USAGE,
    ErrorCode.NOT_FOUND: _USAGE,
    ErrorCode.NOTHING_TO_COMMIT: _USAGE,
    ErrorCode.FORGE_UNSUPPORTED: _USAGE,
    ErrorCode.UNSAFE_REPOSITORY: _REFUSED,
    ErrorCode.APPROVAL_REQUIRED: _REFUSED,
    ErrorCode.APPROVAL_DENIED: _REFUSED,
    ErrorCode.EGRESS_REFUSED: _REFUSED,
    ErrorCode.GATE_CLOSED: _REFUSED,
    ErrorCode.QUOTA_EXCEEDED: _REFUSED,
    ErrorCode.POLICY_VIOLATION: _REFUSED,
    ErrorCode.RECEIPT_REFUSED: _REFUSED,
    ErrorCode.STALE_HASH: _CONFLICT,
    ErrorCode.PATCH_REJECTED: _CONFLICT,
    ErrorCode.CONFLICT: _CONFLICT,
    ErrorCode.DIRTY_WORKSPACE: _CONFLICT,
    ErrorCode.ORIGIN_MISMATCH: _CONFLICT,
    ErrorCode.PUSH_REJECTED: _CONFLICT,
}

# One row per command. To add a command, add a module and a row.
_SECTIONS = {
    "Main job": {
        "run": ("sandbox.cli.run:run", "Clone a repository and run its checks in clean rooms."),
    },
    "Repositories": {
        "repo": ("sandbox.cli.repo:repo", "Clone, list, show and remove repositories."),
        "profiles": ("sandbox.cli.profiles:profiles", "List, show and detect profiles."),
        "trust": ("sandbox.cli.trust:trust", "Show or trust the checks that a repository suggests."),
        "history": ("sandbox.cli.history:history", "Show verdicts, time and memory over the last commits."),
        "bisect": ("sandbox.cli.bisect:bisect", "Find the commit that broke a check, or one test."),
        "flaky": ("sandbox.cli.flaky:flaky", "List or forget the flaky tests of a repository."),
    },
    "Tasks and their files": {
        "task": ("sandbox.cli.task:task", "Create, list, inspect and close tasks."),
        "list": ("sandbox.cli.task:list_", "List open tasks, newest first."),
        "use": ("sandbox.cli.task:use", "Let `-` stand for a task in this terminal."),
        "file": ("sandbox.cli.file:file", "Read, search and edit the files of a task."),
        "status": ("sandbox.cli.task:status", "Show a task's uncommitted changes."),
        "diff": ("sandbox.cli.task:diff", "Show what a task changed."),
    },
    "Checks and verdicts": {
        "check": ("sandbox.cli.check:check", "List, run and stop a task's checks, and read their output."),
        "logs": ("sandbox.cli.check_runs:log", "Print the output of a task's last check run, or of one run."),
        "top": ("sandbox.cli.top:top", "Show what runs now and what it uses of its limits."),
        "watch": ("sandbox.cli.watch:watch", "Follow what happens in a task."),
        "verify": ("sandbox.cli.verify:verify", "Run all checks of a task's last commit in clean rooms."),
        "explore": ("sandbox.cli.explore:explore", "Try several changes of a task side by side, and take the best."),
        "candidate": ("sandbox.cli.applications:candidate", "Launch an application in a clean room and probe it."),
        "artifacts": ("sandbox.cli.artifacts:artifacts", "List and get the files that checks left to be kept."),
        "receipt": ("sandbox.cli.receipt:receipt", "Export and verify signed receipts of verdicts."),
    },
    "Delivery": {
        "commit": ("sandbox.cli.deliver:commit", "Commit a task's changes on its branch."),
        "push": ("sandbox.cli.deliver:push", "Push a task's commit to its branch on the remote."),
        "pr": ("sandbox.cli.pr:pr", "Open and watch pull requests."),
        "promote": (
            "sandbox.cli.applications:promote",
            "Put a candidate in use as a release of this host, or roll back.",
        ),
    },
    "Agents": {
        "mcp": ("sandbox.cli.mcp:mcp", "Serve agents over the Model Context Protocol."),
        "approvals": ("sandbox.cli.approvals:approvals", "List and answer the approval requests of agents."),
    },
    "Settings and images": {
        "images": ("sandbox.cli.images:images", "List and build the images of profiles."),
        "layers": ("sandbox.cli.layers:layers", "List, show and remove the packages that checks get."),
        "policy": ("sandbox.cli.policy:policy", "Show the policy rules in force and where each is set."),
        "credentials": ("sandbox.cli.credentials:credentials", "Store, list and remove the credentials of hosts."),
    },
    "This host": {
        "doctor": ("sandbox.cli.doctor:doctor", "Check whether this host has what the sandbox needs."),
        "gc": ("sandbox.cli.gc:gc", "Remove what killed controllers left behind."),
        "storage": (
            "sandbox.cli.storage_tables:storage",
            "Show what uses how much disk space, and what gc would free.",
        ),
        "pool": ("sandbox.cli.pool:pool", "Manage spare tasks, which make `task create` and its first check fast."),
        "events": ("sandbox.cli.events:events", "Show what happened in this home, or follow it."),
        "audit": ("sandbox.cli.audit:audit", "Verify and export the journals of operations."),
        "serve": ("sandbox.cli.serve:serve", "Serve this home: fast commands, HTTP, events, metrics."),
        "dashboard": ("sandbox.cli.open_dashboard:dashboard", "Open this home in a browser."),
        "docs": ("sandbox.cli.docs:docs", "Show a page of the documentation, such as one that a message names."),
        "completion": ("sandbox.cli.completion:completion", "Print what completes commands and options in a shell."),
    },
    "Several hosts": {
        "worker": ("sandbox.cli.cluster:worker", "Take tasks of a cluster on this host."),
        "cluster": ("sandbox.cli.cluster:cluster", "Create tasks on a cluster of workers, and ask for operations."),
    },
}
_COMMANDS = {name: row for rows in _SECTIONS.values() for name, row in rows.items()}

_EXAMPLES = (
    ("sandbox run URL", "clone a repository and run its checks"),
    ("sandbox run URL --ref pr/7", "the same for a pull request"),
    ("sandbox task create REPO", "begin to work on it"),
    ("sandbox check run - test", "run a check of that task"),
    ("sandbox mcp config claude", "let an agent work on it"),
)
_ENDINGS = (
    ("0", "ok"),
    ("1", "a check did not pass, here or upstream"),
    (str(_USAGE), "bad input"),
    (str(_REFUSED), "refused by policy, gate or approval"),
    (str(_CONFLICT), "conflict or stale hash"),
    (str(_INFRASTRUCTURE), "infrastructure: engine, git, network, forge"),
    (str(INTERRUPTED_CODE), "interrupted"),
)


class LazyGroup(click.Group):
    """Imports a command's module when the command is used; help texts come from the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, rows in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in rows.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            formatter.write_dl(_EXAMPLES)
        with formatter.section("Exit codes"):
            formatter.write_dl(_ENDINGS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise _unknown_command(args[0])
        return super().resolve_command(ctx, args)


def _unknown_command(name: str) -> click.UsageError:
    from sandbox.cli.misuse import describe_unknown_command  # noqa: PLC0415 - only on this path: commands start fast

    return click.UsageError(f"There is no command '{name}'. {describe_unknown_command(name, _COMMANDS)}".strip())


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        text = f"sandbox, version {__version__}"
        ctx.ensure_object(Invocation).emit({"version": __version__}, lambda: click.echo(text))
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@global_options
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Edit, build and test untrusted code safely, and turn it into pull requests."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. With --json an error is one JSON document, else text."""
    if argv is not None:
        return _run(list(argv))
    status = StatusLine()
    output = guard_streams(status, breaks_commands=is_job_of_github(os.environ))
    status.live = is_interactive(sys.stderr)
    code = _run(sys.argv[1:], status)
    status.clear()
    _set_signal_handlers(signal.SIG_DFL)  # cleanup is done: a late signal may end the process
    sys.stdout.flush()
    return code if output.last_error is None else _report_error(_output_error(output.last_error), Invocation())


def _run(arguments: list[str], status: StatusLine | None = None) -> int:
    _disable_model_plugins()
    invocation = Invocation(json="--json" in arguments, status=status or StatusLine())
    try:
        _set_signal_handlers(signal.default_int_handler)
        _require_values(arguments)
        code = cli.main(
            args=arguments, prog_name="sandbox", standalone_mode=False, obj=invocation, color=_choose_color()
        )
    except SandboxError as error:
        return _report_error(error, invocation)
    except click.ClickException as error:
        return _report_misuse(error, invocation)
    except (KeyboardInterrupt, click.Abort):
        return _report_interrupt(invocation)
    except Exception as error:
        if os.environ.get("SANDBOX_DEBUG"):
            raise
        return _report_error(_describe_unexpected(error, invocation), invocation)
    return int(code or 0)


def _require_values(arguments: list[str]) -> None:
    """Refuse empty values, here for all commands: a command that asks `if value` would take one for no option at all,
    and do more than it was asked to. Raises: `invalid_input`.
    """
    if any(not argument or argument.endswith("=") for argument in arguments):
        from sandbox.cli.empty_values import require_values  # noqa: PLC0415 - only on this path: commands start fast

        require_values(arguments)


def _disable_model_plugins() -> None:
    """No plugin of pydantic is loaded: they are foreign code. A variable says so; but to read it, pydantic imports what
    would find plugins, with `importlib.metadata`, `email` and `zipfile`: 8 ms, so an empty module takes its place.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    finder = ModuleType("pydantic.plugin._loader")
    finder.__dict__["get_plugins"] = tuple
    sys.modules.setdefault(finder.__name__, finder)


def _set_signal_handlers(handler: Any) -> None:
    """Set the handler of SIGTERM, SIGINT and SIGHUP. SIGINT or SIGHUP that a shell or `nohup` ignores stays ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number is signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _choose_color() -> bool | None:
    """None: color on terminals only. click does not know NO_COLOR (https://no-color.org); rich does."""
    return None if uses_color() else False


def _report_misuse(error: click.ClickException, invocation: Invocation) -> int:
    """Wrong arguments are an error. No arguments at all print the help."""
    if not isinstance(error, click.exceptions.NoArgsIsHelpError):
        return _report_error(_usage_error(error), invocation)
    if invocation.json:
        return _report_error(_usage_error(error, "Missing command."), invocation)
    click.echo(error.format_message(), err=True)
    return _USAGE


def _usage_error(error: click.ClickException, instead: str = "") -> SandboxError:
    """`instead`: of the sentence of click."""
    from sandbox.cli.misuse import describe_misuse  # noqa: PLC0415 - only on this path: commands start fast

    brief, hint = describe_misuse(error, _COMMANDS)
    missing = error.param if isinstance(error, click.MissingParameter) else None
    meaning = str(getattr(missing, "help", None) or "")
    return SandboxError(ErrorCode.INVALID_INPUT, instead or brief, details=meaning, hint=hint)


def _describe_unexpected(error: Exception, invocation: Invocation) -> SandboxError:
    lacking = (translate_shortage(error) or _describe_denied(error, invocation)) if isinstance(error, OSError) else None
    if isinstance(error, ModuleNotFoundError) and not (error.name or "sandbox").startswith("sandbox"):
        lacking = _describe_missing_module(error)
    return lacking or _bug_error(error)


def _describe_denied(error: OSError, invocation: Invocation) -> SandboxError | None:
    """For a file of the home that another user, such as root, has made."""
    from sandbox.store.home import (  # noqa: PLC0415 - only on this path: the command starts fast
        Home,
        default_home,
        denied_error,
        resolve_home,
    )

    if not isinstance(error.filename, str | bytes | os.PathLike):
        return None
    path = Path(os.fsdecode(error.filename))
    try:
        home = Home(resolve_home(invocation.home or default_home(os.environ)))
    except SandboxError:  # there is none, so it is no file of it
        return None
    return denied_error(path, error, home.root) if path.is_relative_to(home.repositories) else None


def _describe_missing_module(error: ModuleNotFoundError) -> SandboxError:
    from sandbox.extras import find_extra  # noqa: PLC0415 - only on this path: the command starts fast

    extra = find_extra(error)
    if extra is not None:
        return SandboxError(
            ErrorCode.INVALID_INPUT,
            f"This needs the extra '{extra}', which is not installed: there is no Python module '{error.name}'",
            hint=f"Install it: pip install 'space-sandbox[{extra}]' (docs/install.md).",
        )
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The Python module '{error.name}' is missing: this installation is not complete",
        hint="Install space-sandbox again, with its dependencies, into this Python environment (docs/install.md).",
    )


def _bug_error(error: Exception) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL,
        f"Unexpected {type(error).__name__}; this is a bug in the sandbox",
        details=str(error)[:500],
        hint="Run again with SANDBOX_DEBUG=1 and report the traceback.",
    )


def _output_error(error: OSError) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL, "The command finished, but its output could not be written", details=error.strerror or ""
    )


def _report_interrupt(invocation: Invocation) -> int:
    """With --json a program gets a document then, too, unless the result was printed before (docs/adr/0145)."""
    brief = "Interrupted; no process is left running."
    if invocation.json and not invocation.has_printed:
        _report_error(SandboxError(ErrorCode.CONFLICT, brief, reason=_STOPPED), invocation)
    else:
        click.echo(brief, err=True)
    return INTERRUPTED_CODE


def _report_error(error: SandboxError, invocation: Invocation) -> int:
    """With --json as the document of the command, unless its result was printed before: then on stderr, as text."""
    error = error.with_hint(invocation.add_home(error.hint))
    if invocation.json and not invocation.has_printed:
        click.echo(to_json(error.payload()))
    else:
        click.echo(
            f"{click.style('error', fg='red')} [{error.code}] {one_line(error.brief)}", err=True, color=_choose_color()
        )
        for line in neutralise(error.details).splitlines()[-40:]:  # may hold file names and output of a guest
            click.echo(f"  {line}", err=True)
        if error.hint:
            click.echo(f"{click.style('hint', fg='cyan')}  {neutralise(error.hint)}", err=True, color=_choose_color())
            for line in suggest_pages(error.hint):
                click.echo(f"      {line}", err=True)
    return _EXIT_CODES.get(error.code, _INFRASTRUCTURE)
