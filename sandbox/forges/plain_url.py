"""URLs that servers choose, read so that no two libraries can read them in two ways.

What is checked here is connected to by another library: `urlsplit` takes `internal\\@allowed.example` for a user name
and the host `allowed.example`, urllib3 for a path on the host `internal`. So a URL with a character that only one of
them gives a meaning is refused, before its host is compared with anything.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

PORTS = {"https": 443, "http": 80}
"""The schemes that are read, with their ports."""

Origin = tuple[str, str, int]
"""Scheme, host and port."""


def parse_plain_url(url: str) -> SplitResult:
    """Raises: `ValueError` for a URL that is none, has a user name, or characters that a URL must encode."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname or parts.port == 0:
        raise ValueError("no https or http URL with a host")
    if "@" in parts.netloc or "\\" in url or not all("!" <= character <= "~" for character in url):
        raise ValueError("not a plain URL")
    return parts


def find_origin(parts: SplitResult) -> Origin:
    """Of a URL that was parsed here."""
    return parts.scheme, str(parts.hostname), parts.port or PORTS[parts.scheme]
