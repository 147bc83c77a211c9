"""`sandbox completion`: what a shell needs to complete commands, options and choices."""

from __future__ import annotations

import click

from sandbox.cli.invocation import Invocation, global_options

VARIABLE = "_SANDBOX_COMPLETE"
"""Set by the shell's function when it asks: click then answers before any command is run."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@global_options
@click.pass_obj
def completion(invocation: Invocation, shell: str) -> None:
    """Print the function that completes commands, options and choices in SHELL.

    In bash: eval "$(sandbox completion bash)"
    """
    from click.shell_completion import ShellComplete, get_completion_class  # noqa: PLC0415 - only here: commands start fast

    found = get_completion_class(shell) or ShellComplete
    # bash's own `source` starts a bash, to warn about versions before 4.4 (2016)
    script = ShellComplete.source(found(click.get_current_context().find_root().command, {}, "sandbox", VARIABLE))
    invocation.emit({"shell": shell, "script": script}, lambda: click.echo(script))
