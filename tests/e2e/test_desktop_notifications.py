"""Notifications of questions: the real notify-send on a real session bus, with a service of ours that shows none."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from jeepney import HeaderFields, MessageType, new_method_return
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from devtools import keyring
from devtools.requirement import unavailable
from sandbox.daemon.desktop_notifications import DesktopNotifier, find_notifier
from sandbox.models import HomeEventKind
from tests.unit.daemon.event_receiver import make_event

NAME = "org.freedesktop.Notifications"
TASK = "task-" + "0" * 32
Shown = tuple[str, str, str]


@pytest.fixture
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if absent := [name for name in ("dbus-daemon", "notify-send") if shutil.which(name) is None]:
        unavailable(f"no {', '.join(absent)}: run `scripts/setup tools`")
    with keyring.session(tmp_path_factory.mktemp("b"), "none") as environ:
        yield environ


@contextmanager
def desktop(environ: dict[str, str]) -> Iterator[Queue[Shown]]:
    """A service as a desktop has one. What it is to show: application, title, text."""
    shown: Queue[Shown] = Queue()
    with open_dbus_connection(bus=environ["DBUS_SESSION_BUS_ADDRESS"]) as connection:
        connection.send_and_get_reply(message_bus.RequestName(NAME))
        answering = threading.Thread(target=_answer, args=(connection, shown), daemon=True)
        answering.start()
        yield shown


def _answer(connection: DBusConnection, shown: Queue[Shown]) -> None:
    answers: dict[str, tuple[str, tuple[Any, ...]]] = {
        "GetServerInformation": ("ssss", ("test", "test", "1", "1.2")),
        "GetCapabilities": ("as", (["body"],)),
        "Notify": ("u", (1,)),
    }
    while True:
        try:
            message = connection.receive()
        except (OSError, EOFError, ConnectionError):
            return
        member = message.header.fields.get(HeaderFields.member)
        if message.header.message_type is not MessageType.method_call or member not in answers:
            continue
        connection.send(new_method_return(message, *answers[member]))
        if member == "Notify":
            application, _, _, title, text, *_ = message.body
            shown.put((application, title, text))


def make_notifier(environ: dict[str, str], answered: str | None = "") -> DesktopNotifier:
    """`answered`: the task of a question that is not open any more."""
    notifier = find_notifier(environ, lambda task_id: task_id != answered)
    assert notifier is not None
    return notifier


def test_a_question_is_shown_in_our_words(bus: dict[str, str]) -> None:
    other = "task-" + "1" * 32
    questions = [
        make_event(HomeEventKind.APPROVAL, 4, "ask").model_copy(update={"task_id": one}) for one in (other, TASK)
    ]
    with desktop(bus) as shown:
        notifier = make_notifier(bus, answered=other)
        for event in (
            make_event(HomeEventKind.APPROVAL, 1, "ask", "quota_exceeded"),
            make_event(HomeEventKind.APPROVAL, 2, "approve"),
            make_event(HomeEventKind.PUSH, 3),
        ):
            assert not notifier.wants(event)
        for event in (*questions, make_event(HomeEventKind.APPROVAL, 5, "ask")):
            assert notifier.wants(event)
            assert notifier.hand_on(event)
        title = "An agent waits for your answer"
        for about in (f"in {TASK}", "in this home"):
            assert shown.get(timeout=60) == ("Space Sandbox", title, f"{about}: sandbox approvals list")


def test_a_desktop_without_a_service_is_named_in_the_log(bus: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    notifier = make_notifier(bus)
    notifier.hand_on(make_event(HomeEventKind.APPROVAL, 1, "ask"))
    assert NAME in caplog.text


@pytest.mark.parametrize("environ", [{}, {"DBUS_SESSION_BUS_ADDRESS": ""}])
def test_without_a_session_bus_there_is_no_notifier(environ: dict[str, str]) -> None:
    assert find_notifier({"PATH": str(Path("/usr/bin")), **environ}, lambda _task_id: True) is None
