"""Lists in pages, as each forge tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from devtools.forges.exchange import Request

_MOST = 100


def page_of(request: Request, items: Sequence[Any], default: int) -> tuple[list[Any], Mapping[str, str]]:
    """The page that was asked for, and its headers: `Link` (both forges) and `X-Page` and its like (GitLab)."""
    size = min(int(request.query.get("per_page", default)), _MOST)
    if request.query.get("pagination") == "keyset":
        return _after(request, items, size)
    number = int(request.query.get("page", 1))
    last = max(1, -(-len(items) // size))
    rows = {"first": 1, "prev": number - 1, "next": number + 1, "last": last}
    links = [
        f'<{_url(request, page=at)}>; rel="{name}"' for name, at in rows.items() if 1 <= at <= last and at != number
    ]
    headers = {
        "X-Page": str(number), "X-Per-Page": str(size), "X-Total": str(len(items)), "X-Total-Pages": str(last),
        "X-Next-Page": str(number + 1) if number < last else "", "X-Prev-Page": str(number - 1) if number > 1 else "",
    }  # fmt: skip
    if links:
        headers["Link"] = ", ".join(links)
    return list(items[(number - 1) * size : number * size]), headers


def _after(request: Request, items: Sequence[Any], size: int) -> tuple[list[Any], Mapping[str, str]]:
    """GitLab's keyset pagination: only the next page is told, and no count."""
    begin = int(request.query.get("cursor", 0))
    end = begin + size
    links = {"Link": f'<{_url(request, cursor=end)}>; rel="next"'} if end < len(items) else {}
    return list(items[begin:end]), links


def _url(request: Request, **changed: int) -> str:
    return f"{request.base_url}{request.path}?{urlencode({**request.query, **changed})}"
