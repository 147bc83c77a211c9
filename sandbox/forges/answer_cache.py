"""Answers of a forge that are remembered for conditional requests, by URL.

A server chooses ids and sizes, so there is no end of URLs: the cache has a limit of bytes. The same URLs are asked for
in turn, at each look at a pull request. If the oldest answer made room, each would be gone when it is asked for again,
so a full cache keeps what it has, and only what was not asked for lately makes room.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import requests

MAX_ANSWER_BYTES = 1024**2
"""Of one answer with its headers, which grow with each look; larger ones are not remembered."""

MAX_BYTES = 16 * 1024**2
"""Of all answers: the jobs of a hundred runs of GitHub Actions take 6 MiB."""

STALE_S = 900.0
"""Longer than the pause between two looks."""

_OVERHEAD_BYTES = 8192  # of the objects around an answer


@dataclass(frozen=True)
class _Entry:
    response: requests.Response
    size_bytes: int
    used_s: float


class AnswerCache:
    """The answers that have an ETag, those that were not used for longest first."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._bytes = 0

    def find(self, url: str) -> requests.Response | None:
        """The last answer of a URL."""
        known = self._entries.get(url)
        return known.response if known else None

    def keep(self, url: str, response: requests.Response) -> None:
        """Remember an answer, or that it was used, if there is room."""
        size, now = _measure(url, response), time.monotonic()
        self._drop(url)
        if size > MAX_ANSWER_BYTES:
            return
        while self._bytes + size > MAX_BYTES and self._entries:
            oldest = next(iter(self._entries))
            if now - self._entries[oldest].used_s <= STALE_S:
                return
            self._drop(oldest)
        self._entries[url] = _Entry(response, size, now)
        self._bytes += size

    def _drop(self, url: str) -> None:
        if known := self._entries.pop(url, None):
            self._bytes -= known.size_bytes


def _measure(url: str, response: requests.Response) -> int:
    headers = sum(len(name) + len(text) for name, text in response.headers.items())
    return len(url) + headers + len(response.content) + _OVERHEAD_BYTES
