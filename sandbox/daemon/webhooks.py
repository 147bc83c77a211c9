"""Send events to the URLs that the operator named, signed, with retries.

The signature is HMAC-SHA256 of `<timestamp>.<body>` with the operator's key, so a receiver can tell our messages from
others and old ones from new. Redirects are not followed: an answer must not lead us to another host. A receiver that
does not answer delays only itself. Of an answer only the status counts: its body is not read, and its head has the
deadline of the request.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from functools import partial

import requests
import tenacity

from sandbox.agent.json_lines import write_line
from sandbox.config import WebhookSettings
from sandbox.daemon.receivers import EventReceiver
from sandbox.forges.first_answer import FirstAnswerSession
from sandbox.models import HomeEvent
from sandbox.store.token_file import read_token

TIMEOUT_S = 10.0
ATTEMPTS = 6
_LONGEST_PAUSE_S = 60.0
_log = logging.getLogger(__name__)


class Webhook(EventReceiver):
    """One receiver."""

    def __init__(self, settings: WebhookSettings, *, pause_s: float = 1.0) -> None:
        """Raises: `policy_violation` for a secret that others can read or that is too short; `invalid_input`."""
        self._settings, self._pause_s = settings, pause_s
        self._key = read_token(settings.secret_file, create=False).encode()
        self._session = FirstAnswerSession()
        identity = "\n".join([settings.url, str(settings.secret_file), *sorted(set(settings.kinds))])
        super().__init__(f"webhook-{hashlib.sha256(identity.encode()).hexdigest()[:16]}")

    def wants(self, event: HomeEvent) -> bool:
        """See `EventReceiver`."""
        return not self._settings.kinds or event.kind.value in self._settings.kinds

    def hand_on(self, event: HomeEvent) -> bool:
        """See `EventReceiver`."""
        try:
            self._send(event)
        except (requests.RequestException, tenacity.RetryError):
            if self.ending.is_set():
                return False
            _log.warning("%s did not accept the event %s in %d attempts", self.name, event.id, ATTEMPTS)
        return True

    def _send(self, event: HomeEvent) -> None:
        body = write_line(event).encode()
        retry = tenacity.Retrying(
            stop=tenacity.stop_any(tenacity.stop_after_attempt(ATTEMPTS), tenacity.stop_when_event_set(self.ending)),
            wait=tenacity.wait_random_exponential(self._pause_s, _LONGEST_PAUSE_S),
            sleep=tenacity.sleep_using_event(self.ending),
            retry=tenacity.retry_if_exception_type(requests.RequestException),
        )
        retry(partial(self._post, event, body))

    def _post(self, event: HomeEvent, body: bytes) -> None:
        headers = {"content-type": "application/json", **sign(self._key, event, body, int(time.time()))}
        answer = self._session.post(
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
