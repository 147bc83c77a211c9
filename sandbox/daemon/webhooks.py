"""Send events to the URLs that the operator named, signed, with retries.

The signature is HMAC-SHA256 of `<timestamp>.<body>` with the operator's key, so a receiver can tell our messages from
others and old ones from new. Redirects are not followed: an answer must not lead us to another host. A receiver that
does not answer delays only its own queue; beyond `WAITING_EVENTS` its events are dropped, which our log says.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import queue
import threading
import time
from functools import partial

import requests
import tenacity

from sandbox.agent.results import neutralise_values
from sandbox.agent.transports.address import read_token
from sandbox.config import WebhookSettings
from sandbox.models import HomeEvent

WAITING_EVENTS = 1000
TIMEOUT_S = 10.0
ATTEMPTS = 6
_LONGEST_PAUSE_S = 60.0
_log = logging.getLogger(__name__)


class Webhook:
    """One receiver, with a thread and a queue of its own. It is a listener of `EventHub`."""

    def __init__(self, settings: WebhookSettings, *, pause_s: float = 1.0) -> None:
        """Raises: `policy_violation` for a secret that others can read or that is too short; `invalid_input`."""
        self._settings, self._pause_s = settings, pause_s
        self._key = read_token(settings.secret_file, create=False).encode()
        self._queue: queue.Queue[HomeEvent | None] = queue.Queue(WAITING_EVENTS)
        threading.Thread(target=self._work, name="webhook", daemon=True).start()

    def __call__(self, event: HomeEvent | None) -> None:
        """Send this event soon; None: end."""
        if event is not None and self._settings.kinds and event.kind.value not in self._settings.kinds:
            return
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            _log.warning("a webhook does not keep up: an event was dropped")

    def _work(self) -> None:
        with requests.Session() as session:
            session.trust_env = False  # no proxy or netrc of the environment: the operator's URL is used as it is
            while (event := self._queue.get()) is not None:
                try:
                    self._send(session, event)
                except (requests.RequestException, tenacity.RetryError):
                    _log.warning("a webhook did not accept the event %s", event.id)

    def _send(self, session: requests.Session, event: HomeEvent) -> None:
        body = json.dumps(neutralise_values(event.model_dump(mode="json")), ensure_ascii=True).encode()
        retry = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            wait=tenacity.wait_random_exponential(self._pause_s, _LONGEST_PAUSE_S),
            retry=tenacity.retry_if_exception_type(requests.RequestException),
        )
        retry(partial(self._post, session, event, body))

    def _post(self, session: requests.Session, event: HomeEvent, body: bytes) -> None:
        headers = {"content-type": "application/json", **sign(self._key, event, body, int(time.time()))}
        answer = session.post(
            self._settings.url, data=body, headers=headers, timeout=TIMEOUT_S, allow_redirects=False, stream=True
        )
        answer.close()
        if not answer.ok or answer.is_redirect:
            raise requests.HTTPError(f"status {answer.status_code}")


def sign(key: bytes, event: HomeEvent, body: bytes, timestamp: int) -> dict[str, str]:
    """The headers that let a receiver check a message."""
    signature = hmac.new(key, f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {
        "x-sandbox-event": event.kind.value,
        "x-sandbox-delivery": event.id,
        "x-sandbox-timestamp": str(timestamp),
        "x-sandbox-signature": f"sha256={signature}",
    }
