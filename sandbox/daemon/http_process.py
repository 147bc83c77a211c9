"""The daemon's process for what is no command: it does what time asks for, delivers events, and serves HTTP.

It is a controller like any other. What serves HTTP is 40 MB, and many homes are never asked over HTTP. So it is
imported when the first client connects, and the connection waits in the listener's queue until then. After an upgrade
it is left to the newer program: this process would import modules of two versions.

On SIGTERM it ends as `sandbox mcp --http` does. On SIGUSR1, when the daemon starts a newer program or its main process
was killed, it accepts no more requests and ends when the last check that it runs has ended, or at another signal as on
SIGTERM.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial

from sandbox.agent.transports.shutdown import handle_signals
from sandbox.config import ServeSettings
from sandbox.daemon.desktop_notifications import find_notifier
from sandbox.daemon.ending import Ending
from sandbox.daemon.receivers import Deliveries, EventReceiver
from sandbox.daemon.served_home import Controllers, HttpOptions, HttpSockets
from sandbox.daemon.timers import make_timers, name_as_timer, start_timers
from sandbox.memory import prepare_server
from sandbox.models import ApprovalState
from sandbox.workbench import Workbench

_END_S = 5.0
"""How long the end waits for events that are being sent; what is cut off, the next daemon sends."""


def serve_http_process(controllers: Controllers, options: HttpOptions, listeners: HttpSockets) -> int:
    """Serve until a signal. Returns the exit code of the process."""
    prepare_server()
    workbench = controllers.workbench
    settings = workbench.settings
    deliveries = Deliveries(workbench.home, list(_make_receivers(settings.serve, controllers.person)))
    ending = Ending(workbench.end_network, deliveries)
    signal.signal(signal.SIGUSR1, ending.drain)
    with handle_signals(ending.end_now):
        deliveries.start()
        duties = make_timers(name_as_timer(controllers.person), settings.serve, settings.pool.size)
        start_timers(duties, ending.begun)
        if ending.wait_for_client(listeners, controllers.upgrade):
            from sandbox.daemon.web_server import serve_web  # noqa: PLC0415 - see the module's docstring

            serve_web(controllers, options, listeners, ending)
        ending.begin()
    deliveries.wait(_END_S)
    if ending.is_draining:
        workbench.wait_for_runs()
    return 0


def _make_receivers(settings: ServeSettings, person: Workbench) -> Iterator[EventReceiver]:
    """Who gets each event, beside those who listen over HTTP."""
    if settings.webhook:
        from sandbox.daemon.webhooks import Webhook  # noqa: PLC0415 - lazy: few homes have one

        yield from map(Webhook, settings.webhook)
    if settings.desktop and (notifier := find_notifier(os.environ, partial(_is_question_open, person))):
        yield notifier
    if settings.otlp_url:
        from sandbox.daemon.telemetry import Telemetry  # noqa: PLC0415 - as above

        yield Telemetry(settings.otlp_url)


def _is_question_open(person: Workbench, task_id: str | None) -> bool:
    return any(one.task_id == task_id and one.state is ApprovalState.PENDING for one in person.approvals())
