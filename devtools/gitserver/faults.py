"""What the https server says instead of git's answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Answer:
    """An HTTP answer: status, headers and a text that git shows to people."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    def cgi(self) -> str:
        """As a CGI program prints it (RFC 3875, 6.2)."""
        headers = {"Status": f"{self.status} On order", "Content-Type": "text/plain", **self.headers}
        return "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + f"\r\n{self.text}"
