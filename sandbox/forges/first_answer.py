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

import requests

from sandbox.forges.deadlines import DeadlineAdapter


class FirstAnswerSession(requests.Session):
    """For http and https. It ignores the environment: proxies, ~/.netrc, CA files. The deadline of an answer is the
    timeout of its request.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self.adapters.clear()
        for prefix in ("https://", "http://"):
            self.mount(prefix, DeadlineAdapter())

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """None: see the module's docstring."""
        return None
