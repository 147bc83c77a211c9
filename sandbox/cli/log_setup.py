"""Logs go to stderr: as text on a terminal, as one JSON object per line elsewhere. `SANDBOX_LOG` sets the level.

What a command logs of its progress is for a person, so it is a plain line everywhere.

The package uses the standard library's logging, so a program that imports it configures logs itself.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from sandbox.environment_names import LOG, may_be_setting
from sandbox.text import one_line

_LEVELS = ("debug", "info", "warning", "error")
_NAMES_CHARACTERS = 500
_PROGRESS = "sandbox.progress"
"""The logger of what is logged of progress."""


def configure_logs(rewrite: Callable[[str], str], *, plain_progress: bool = False) -> None:
    """Configure logs, once per command. An unknown level means `warning`, and is one, as is a variable with our prefix
    that no setting has. `rewrite`: is applied to each message. `plain_progress`: not for servers: all their lines have
    a time.
    """

    def rewrite_record(record: logging.LogRecord) -> bool:
        record.msg, record.args = rewrite(record.getMessage()), ()
        return True

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(rewrite_record)
    handler.setFormatter(_Formatter(plain_progress=plain_progress))
    level = os.environ.get(LOG, "").lower()
    logger = logging.getLogger("sandbox")
    logger.handlers = [handler]
    logger.setLevel(level.upper() if level in _LEVELS else logging.WARNING)
    logger.propagate = False
    if level and level not in _LEVELS:
        logger.warning("%s=%s is no level: use %s", LOG, ascii(level[:40]), ", ".join(_LEVELS))
    if any(map(may_be_setting, os.environ)):
        from sandbox.config import describe_ignored_variables  # noqa: PLC0415 - lazy: most commands have no settings

        if said := describe_ignored_variables(os.environ):
            logger.warning("%s", one_line(said[:_NAMES_CHARACTERS]))


class _Formatter(logging.Formatter):
    """structlog's formatter, built at the first record: it loads slowly, and most commands log no record."""

    _inner: logging.Formatter | None = None

    def __init__(self, *, plain_progress: bool) -> None:
        super().__init__()
        self._plain_progress = plain_progress

    def format(self, record: logging.LogRecord) -> str:
        if self._plain_progress and record.name == _PROGRESS:
            return one_line(record.getMessage())
        if self._inner is None:
            self._inner = _build_formatter()
        return self._inner.format(record)


def _build_formatter() -> logging.Formatter:
    import structlog  # noqa: PLC0415 - lazy, see above

    rendering: list[structlog.typing.Processor] = [
        structlog.processors.format_exc_info,  # else a trace is the address of an object
        structlog.processors.JSONRenderer(),
    ]
    if sys.stderr.isatty():
        rendering = [structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)]
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )
