"""Tell a person at this desktop that an agent waits for an answer, through notify-send(1) of libnotify.

A notification has our words and ids alone: what an agent or a guest wrote is shown where it is asked about. A question
that was answered before it could be shown, such as one from before the daemon started, is not shown.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Mapping

from sandbox.daemon.receivers import EventReceiver
from sandbox.models import HomeEvent, HomeEventKind
from sandbox.store.session_bus import find_bus, find_program, run_on_bus

_log = logging.getLogger(__name__)


def find_notifier(environ: Mapping[str, str], waits: Callable[[str | None], bool]) -> DesktopNotifier | None:
    """A notifier, where there are the command and a session bus; else None. `waits`: see `DesktopNotifier`."""
    program, bus = find_program("notify-send"), find_bus(environ)
    return DesktopNotifier(program, bus, waits) if program and bus else None


class DesktopNotifier(EventReceiver):
    """Shows each question to a person. `bus`: the variables that lead to the session bus. `waits`: whether there is an
    open question in this task, or, for None, about none.
    """

    def __init__(self, program: str, bus: Mapping[str, str], waits: Callable[[str | None], bool]) -> None:
        self._program, self._bus, self._waits = program, bus, waits
        super().__init__("desktop-notifier")

    def wants(self, event: HomeEvent) -> bool:
        """See `EventReceiver`. Only a question that was asked: a refused one waits for no answer."""
        operation = event.operation
        return event.kind is HomeEventKind.APPROVAL and (operation.operation, operation.result) == ("ask", "ok")

    def hand_on(self, event: HomeEvent) -> bool:
        """See `EventReceiver`."""
        if self._waits(event.task_id):
            self._show(event)
        return True

    def _show(self, event: HomeEvent) -> None:
        words = ("--app-name=Space Sandbox", "--urgency=normal", "--", *describe_question(event))
        try:
            done = run_on_bus([self._program, *words], self._bus)
        except (OSError, subprocess.TimeoutExpired) as error:
            _log.warning("the desktop was not told of a question: %s", error)
            return
        if done.returncode != 0:
            _log.warning("the desktop was not told of a question: %a", done.stderr[-200:])


def describe_question(event: HomeEvent) -> tuple[str, str]:
    """Title and text of a notification. Pure."""
    about = f"in {event.task_id}" if event.task_id else "in this home"
    return "An agent waits for your answer", f"{about}: sandbox approvals list"
