"""Render the dashboard's pages. Every value is escaped; text of guests is made inert first.

The pages have no script of their own but `/static/live.js`, no style but `/static/style.css`, and load no other
file: the content security policy allows no other, so even markup that got through could not run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from sandbox.approvals import is_once_only
from sandbox.byte_sizes import format_bytes
from sandbox.daemon.diff_view import show_line
from sandbox.daemon.usage_chart import draw_charts
from sandbox.limit_shares import format_share
from sandbox.text import neutralise

PAGES = Path(__file__).parent / "pages"
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # with `no-referrer` a browser says that our forms have no origin
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
_WEB = re.compile(r"https?://[A-Za-z0-9.:\[\]-]{1,255}(/[!-~]{0,2000})?")
_OBJECT_ID = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28}\b")
_TASK_ID = re.compile(r"\btask-([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
STATIC = {
    "style.css": "text/css; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def render(name: str, values: Mapping[str, Any], status: int = 200) -> Response:
    """One page."""
    return HTMLResponse(render_text(name, values), status, HEADERS)


def render_text(name: str, values: Mapping[str, Any]) -> str:
    """The HTML of a page."""
    return _environment().get_template(f"{name}.html").render(values)


def serve_static(name: str) -> Response:
    """A file of ours."""
    kind = STATIC.get(name)
    if kind is None:
        return Response("Not found.\n", 404, HEADERS, "text/plain")
    return Response((PAGES / name).read_bytes(), headers=HEADERS | {"content-type": kind})


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(PAGES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.filters.update(
        inert=_make_inert, name=_show_name, when=_format_time, size=format_bytes, amount=_format_amount,
        charts=draw_charts, share=format_share, short=shorten_ids, age=_format_age,
    )  # fmt: skip
    found.tests.update(web=_is_web, once_only=is_once_only)
    return found


def _make_inert(text: object) -> str:
    """Neutralise the control and invisible characters of guest text; the template escapes the rest."""
    return neutralise(str(text))


def _show_name(text: object) -> str:
    """A name within a line: each character that a reader would not see, and each end of a line, is a symbol."""
    return show_line(str(text)).replace("\n", "\N{SYMBOL FOR NEWLINE}")


def shorten_ids(text: str) -> str:
    """Ids of commits, trees and tasks as short as elsewhere on the pages, so that a line of a list stays one."""
    return _TASK_ID.sub(r"\1", _OBJECT_ID.sub(r"\1", text))


def _format_age(seconds: float) -> str:
    """`5 s`, `14 min 24 s`, `3 h 5 min`, `2 d 1 h`."""
    left, words = round(seconds), list[str]()
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if left >= length:
            words.append(f"{left // length} {unit}")
            left %= length
        elif words:  # the two units that say most, and no gap between them
            break
    return " ".join(words[:2]) or "0 s"


def _is_web(url: object) -> bool:
    """Whether a URL of others may be a link: one that a browser opens as a page of another site, and no script."""
    return isinstance(url, str) and _WEB.fullmatch(url) is not None


def _format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def _format_amount(value: float, unit: str) -> str:
    """A figure of a chart with its unit; '': it stands beside."""
    return format_bytes(value) if unit == "bytes" else f"{round(value, 2):g} {unit}".rstrip()
