"""The caller in journal entries: this process's user and the name the client gives itself, which is unproven."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from sandbox.models import Caller
from sandbox.text import one_line
from sandbox.workbench.controller.callers import clip_text

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

_SESSION_HEADER = "mcp-session-id"
_CHARS = 1000


def caller_of(context: ServerRequestContext[Any, Any], user: Caller, server: str) -> Caller:
    """The caller to write to the journal.

    `server`: identifies this process if the client has no session. A session id grants access, so a digest is stored.
    """
    params = context.session.client_params
    info = params.client_info if params is not None else None
    request = context.request
    session = find_session(context)
    return user.model_copy(
        update={
            "client": _clip(info.name) if info else "",
            "client_version": _clip(info.version) if info else "",
            "transport": "stdio" if request is None else "http",
            "session": hashlib.sha256(session.encode()).hexdigest()[:32] if session else server,
        }
    )


def find_session(context: ServerRequestContext[Any, Any]) -> str:
    """The id over HTTP; '' over stdio (one session) and for requests without a session."""
    return context.request.headers.get(_SESSION_HEADER, "") if context.request is not None else ""


def _clip(text: str) -> str:
    """Cut the text before processing it: a client may send megabytes with every call."""
    return clip_text(one_line(text[:_CHARS]))
