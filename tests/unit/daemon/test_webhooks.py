"""Webhooks: signed, retried, never redirected."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import socket
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import requests

from sandbox.config import ServeSettings, WebhookSettings
from sandbox.daemon import webhooks
from sandbox.daemon.webhooks import Webhook
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import HomeEventKind
from tests.unit.daemon.event_receiver import Receiver, make_event
from tests.unit.forges.test_deadlines import saying

if TYPE_CHECKING:
    from sandbox.forges.first_answer import FirstAnswerSession

KEY = "k" * 40


def make_hook(receiver: Receiver, folder: Path, *kinds: str, mode: int = 0o600) -> Webhook:
    secret = folder / "secret"
    secret.write_text(KEY)
    secret.chmod(mode)
    url = f"http://127.0.0.1:{receiver.server.server_port}/hook"
    settings = WebhookSettings.model_validate({"url": url, "secret_file": secret, "kinds": kinds})
    return Webhook(settings, pause_s=0.01)


def test_an_event_is_signed_and_sent_again_until_it_is_accepted(receiver: Receiver, tmp_path: Path) -> None:
    receiver.statuses = [500, 302]
    hook = make_hook(receiver, tmp_path)
    assert hook.hand_on(make_event(HomeEventKind.PUSH, 1))
    found = [receiver.received.get(timeout=60) for _ in range(3)]
    for path, headers, body in found:
        assert path == "/hook", "a redirect is not followed"
        signed = f"{headers['x-sandbox-timestamp']}.".encode() + body
        assert headers["x-sandbox-signature"] == f"sha256={hmac.new(KEY.encode(), signed, hashlib.sha256).hexdigest()}"
        assert headers["x-sandbox-delivery"] == "home/1"
        assert json.loads(body)["operation"]["names"] != ["a\u202eb\n"], "guest text is neutralised"
        assert body.isascii()


def test_only_the_kinds_that_were_asked_for_are_sent(receiver: Receiver, tmp_path: Path) -> None:
    hook = make_hook(receiver, tmp_path, "push")
    assert [hook.wants(make_event(kind, 1)) for kind in (HomeEventKind.TASK, HomeEventKind.PUSH)] == [False, True]


def test_an_event_that_is_not_accepted_is_given_up_after_six_attempts(
    receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [503] * 20
    hook = make_hook(receiver, tmp_path)
    assert hook.hand_on(make_event(HomeEventKind.PUSH, 1)), "the next event is next"
    assert receiver.received.qsize() == 6
    assert "did not accept the event home/1 in 6 attempts" in caplog.text


def test_a_receiver_that_refuses_connections_does_not_hold_the_end_and_gives_nothing_up(
    receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(receiver, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    hook._settings = hook._settings.model_copy(update={"url": url})
    assert hook.hand_on(make_event(HomeEventKind.PUSH, 1)), "the control: given up"
    hook._pause_s = 1000.0
    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(hook.hand_on, make_event(HomeEventKind.PUSH, 2))
        hook.ending.set()
        assert sent.result(60) is False
    assert "event home/1 in" in caplog.text
    assert "home/2" not in caplog.text


HEADS = {
    "a byte now and then": [b"HTTP/1.1 200 OK\r\nX-Slow: ", *[b"x"] * 1000],
    "not yet, and not yet": [b"HTTP/1.1 100 Continue\r\n\r\n"] * 1000,
}


@pytest.mark.parametrize("pieces", HEADS.values(), ids=HEADS)
def test_s164_a_receiver_whose_answer_never_begins_is_given_up(
    pieces: list[bytes], receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte is within the timeout of one read: the control is a session of the library."""
    hook = make_hook(receiver, tmp_path)
    monkeypatch.setattr(webhooks, "ATTEMPTS", 1)
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.3)

    def send(session: requests.Session) -> float:
        with ThreadPoolExecutor(1) as thread, saying(pieces, 0.02) as url:  # for 20 s
            hook._settings = hook._settings.model_copy(update={"url": url})
            hook._session, begun = cast("FirstAnswerSession", session), time.monotonic()
            wait([thread.submit(hook.hand_on, make_event(HomeEventKind.PUSH, 1))], timeout=1.5)
            return time.monotonic() - begun

    ours = hook._session
    assert send(requests.Session()) >= 1.5, "void: a careless client waits"
    assert send(ours) < 1.5


def test_s164_the_body_of_an_answer_is_not_read(receiver: Receiver, tmp_path: Path) -> None:
    """Also of a redirect, which `requests` would unpack into memory; and no cookie is kept."""
    unpacked = 32 * 1024**2
    bomb = gzip.compress(bytes(unpacked), 9)
    head = "HTTP/1.1 302 Found\r\nLocation: /x\r\nSet-Cookie: a=b\r\nContent-Encoding: gzip\r\n"
    hook = make_hook(receiver, tmp_path)

    def send(session: requests.Session) -> tuple[int, int]:
        hook._session = cast("FirstAnswerSession", session)
        with saying([f"{head}Content-Length: {len(bomb)}\r\n\r\n".encode() + bomb], 0.0) as url:
            hook._settings = hook._settings.model_copy(update={"url": url})
            tracemalloc.start()
            try:
                with pytest.raises(requests.HTTPError, match="status 302"):
                    hook._post(make_event(HomeEventKind.PUSH, 1), b"{}")
                return tracemalloc.get_traced_memory()[1], len(session.cookies)
            finally:
                tracemalloc.stop()

    ours = hook._session
    peak, cookies = send(requests.Session())
    assert (peak > unpacked, cookies) == (True, 1), "void: a careless client unpacks it"
    peak, cookies = send(ours)
    assert (peak < unpacked / 8, cookies) == (True, 0)


def test_a_secret_that_others_can_read_is_refused(receiver: Receiver, tmp_path: Path) -> None:
    with pytest.raises(SandboxError) as error:
        make_hook(receiver, tmp_path, mode=0o644)
    assert error.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("url", ["http://example.org/", "https://user@example.org/", "file:///etc/passwd"])
def test_only_https_and_this_host_are_receivers(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="url"):
        WebhookSettings.model_validate({"url": url, "secret_file": tmp_path / "secret"})


def test_two_keys_of_one_receiver_are_two_webhooks_and_the_same_twice_is_refused(tmp_path: Path) -> None:
    """While the receiver changes its key. Webhooks of one name would wait for each other's lock."""
    files = [tmp_path / "old", tmp_path / "new"]
    for file in files:
        file.write_text(KEY)
        file.chmod(0o600)
    tables = [{"url": "https://example.org/", "secret_file": file} for file in files]
    both = ServeSettings.model_validate({"webhook": tables}).webhook
    assert len({Webhook(one).name for one in both}) == 2
    again = [{**tables[0], "kinds": kinds} for kinds in (["push", "task"], ["task", "push", "task"])]
    assert len({Webhook(WebhookSettings.model_validate(one)).name for one in again}) == 1
    with pytest.raises(ValueError, match="the same url"):
        ServeSettings.model_validate({"webhook": again})
