"""Webhooks: signed, retried, never redirected."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

import pytest

from sandbox.config import WebhookSettings
from sandbox.daemon.webhooks import Webhook
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import HomeEventKind
from tests.unit.daemon.event_receiver import Receiver, make_event

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
    hook(make_event(HomeEventKind.PUSH, 1))
    found = [receiver.received.get(timeout=60) for _ in range(3)]
    hook(None)
    for path, headers, body in found:
        assert path == "/hook", "a redirect is not followed"
        signed = f"{headers['x-sandbox-timestamp']}.".encode() + body
        assert headers["x-sandbox-signature"] == f"sha256={hmac.new(KEY.encode(), signed, hashlib.sha256).hexdigest()}"
        assert headers["x-sandbox-delivery"] == "home/1"
        assert json.loads(body)["operation"]["names"] != ["a\u202eb\n"], "guest text is neutralised"
        assert body.isascii()


def test_only_the_kinds_that_were_asked_for_are_sent(receiver: Receiver, tmp_path: Path) -> None:
    hook = make_hook(receiver, tmp_path, "push")
    hook(make_event(HomeEventKind.TASK, 1))
    hook(make_event(HomeEventKind.PUSH, 2))
    assert receiver.received.get(timeout=60)[1]["x-sandbox-delivery"] == "home/2"
    hook(None)


def test_a_secret_that_others_can_read_is_refused(receiver: Receiver, tmp_path: Path) -> None:
    with pytest.raises(SandboxError) as error:
        make_hook(receiver, tmp_path, mode=0o644)
    assert error.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("url", ["http://example.org/", "https://user@example.org/", "file:///etc/passwd"])
def test_only_https_and_this_host_are_receivers(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="url"):
        WebhookSettings.model_validate({"url": url, "secret_file": tmp_path / "secret"})
