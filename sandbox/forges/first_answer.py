"""HTTP sessions that give the first answer as it came, and do no more: no redirect, no cookie, no environment.

Theory. `requests` looks at a redirect even if it was asked not to follow it: it prepares the next request for
`Response.next`, and for that it reads the whole body into memory, unpacked, also when a stream was asked for
(`SessionRedirectMixin.resolve_redirects`, requests 2.34). So a server that answers with 302 chose how much memory and
time it cost. A session without a target of redirects reads no body. A `Location` that cannot be parsed raised
`ValueError` there, which is none of the library's errors.

Cookies are in the session's jar until it ends, without a limit, and are sent again.
"""

from __future__ import annotations

from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection

from sandbox.forges.deadlines import CONNECTION_CLASSES


class FirstAnswerSession(requests.Session):
    """It ignores the environment: proxies, ~/.netrc, CA files."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """None: see the module's docstring."""
        return None


class DeadlineAdapter(HTTPAdapter):
    """The timeout of a request is the deadline of its whole answer (`sandbox.forges.deadlines`)."""

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = self.find_connection_class(pool.scheme)
        return pool

    def find_connection_class(self, scheme: str) -> type[HTTPConnection]:
        """The class of connections of a scheme."""
        return CONNECTION_CLASSES[scheme]


def make_first_answer_session() -> FirstAnswerSession:
    """A session for http and https; answers have a deadline."""
    session = FirstAnswerSession()
    session.adapters.clear()
    for prefix in ("https://", "http://"):
        session.mount(prefix, DeadlineAdapter())
    return session
