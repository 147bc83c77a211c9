"""One request and its answer, as plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

SECRET_HEADERS = ("authorization", "private-token", "job-token")


@dataclass(frozen=True)
class Request:
    """`path`: below the API's root, still percent-encoded. `base_url`: that root as the client named it."""

    method: str
    path: str
    raw_query: str
    headers: Mapping[str, str]
    body: bytes
    base_url: str

    @property
    def query(self) -> dict[str, str]:
        """The last value of each name."""
        return dict(parse_qsl(self.raw_query, keep_blank_values=True))

    @property
    def json(self) -> Any:
        """None without a body. Raises: `ValueError`."""
        return json.loads(self.body) if self.body else None

    def header(self, name: str) -> str:
        return self.headers.get(name.lower(), "")

    def carries(self, secret: str) -> list[str]:
        """Where the secret is, outside of the headers made for it."""
        places = [name for name, value in self.headers.items() if secret in value and name not in SECRET_HEADERS]
        texts = {"path": self.path, "query": self.raw_query, "body": self.body.decode("utf-8", "replace")}
        return places + [name for name, text in texts.items() if secret in text]


@dataclass(frozen=True)
class Answer:
    """`body`: a JSON value, or bytes as they are. The other fields are what can go wrong on the way."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    checked: bool = True  # held against the description
    filler_bytes: int = 0  # white space after the body: still valid JSON, only longer
    cut_after: int | None = None  # the connection closes after so many bytes of the body
    hangs_up: bool = False  # the connection closes before any answer
    stalls: bool = False  # half of the body comes, the rest when the stand-in ends
    dribbles: bool = False  # a byte at a time: no single read is ever late

    @property
    def content(self) -> bytes:
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    @property
    def content_type(self) -> str:
        """Lower case, without parameters."""
        given = next((value for name, value in self.headers.items() if name.lower() == "content-type"), "")
        plain = "application/octet-stream" if isinstance(self.body, bytes) else "application/json"
        return (given or plain).partition(";")[0].strip().lower()
