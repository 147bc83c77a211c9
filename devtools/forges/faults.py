"""What goes wrong between a client and a forge: whole answers, and ways to spoil the answer that would have come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from devtools.forges.exchange import Answer

Spoil = Callable[[Answer], Answer]


def lost(answer: Answer) -> Answer:
    """The forge has done it; the client sees a closed connection."""
    return replace(answer, hangs_up=True)


def cut(answer: Answer) -> Answer:
    """The connection closes in the middle of the body."""
    return replace(answer, cut_after=len(answer.content) // 2)


def stalled(answer: Answer) -> Answer:
    return replace(answer, stalls=True)


def dribbling(answer: Answer) -> Answer:
    return replace(answer, dribbles=True)


def padded(filler_bytes: int) -> Spoil:
    """The right answer, and that much white space after it."""
    return lambda answer: replace(answer, filler_bytes=filler_bytes)


def changed(**fields: Any) -> Spoil:
    """The right answer with other values in its top level: validated like any."""
    return lambda answer: replace(answer, body={**answer.body, **fields})


def server_error(status: int = 502) -> Answer:
    """What a load balancer says: no JSON."""
    page = b"<html><head><title>Unicorn!</title></head><body>This page is taking too long to load.</body></html>"
    return Answer(status, page, {"Content-Type": "text/html; charset=utf-8"})


def not_json() -> Answer:
    return Answer(200, b'{"number": ', {"Content-Type": "application/json; charset=utf-8"}, checked=False)


def redirect(status: int, url: str) -> Answer:
    """To wherever the test says: a token must not go along to another host."""
    body = {"message": "Moved Permanently", "url": url, "documentation_url": "https://docs.github.com/rest"}
    return Answer(status, body, {"Location": url}, checked=False)
