"""HTTP sessions for forges: limited in time and size, no redirects, no credentials from the environment.

The GitHub adapter sends its requests through such a session, and python-gitlab takes one. Also the retry policy.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import requests
from urllib3.exceptions import HTTPError, ReadTimeoutError

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.answer_cache import AnswerCache
from sandbox.forges.deadlines import DeadlineAdapter
from sandbox.forges.forge import CALL_TIMEOUT_S, CONNECT_TIMEOUT_S, MAX_ANSWER_BYTES
from sandbox.forges.plain_url import PORTS, find_origin, parse_plain_url
from sandbox.retries import build_retrying

USER_AGENT = "space-sandbox"
_CHUNK = 64 * 1024
_ResultT = TypeVar("_ResultT")


class TransientForgeError(SandboxError):
    """A transient failure. `wait_s`: the pause that the forge asked for; 0 if it named none."""

    def __init__(self, error: SandboxError, wait_s: float = 0.0) -> None:
        super().__init__(
            error.code, error.brief, details=error.details, hint=error.hint, reason=error.reason, data=error.data
        )
        self.wait_s = wait_s


class RefusedError(Exception):
    """An answer other than success. `headers`: names in any case. `document`: its JSON; its text if it is not JSON."""

    def __init__(self, status: int, headers: Mapping[str, str], document: Any) -> None:
        super().__init__(status)
        self.status, self.headers, self.document = status, headers, document


class _RedirectError(SandboxError):
    """A redirect."""

    def __init__(self, status: int, location: str) -> None:
        place = _split(location)
        super().__init__(
            ErrorCode.FORGE_ERROR,
            "The forge redirects to another address",
            details=f"HTTP {status} to {place.scheme}://{place.netloc}{place.path}",  # a query may be a signature
            hint="If the project was renamed or moved, clone it by its new URL.",
        )
        self.location, self.place = location, place


def _split(url: str) -> SplitResult:
    """The parts of a URL; all empty if it is not valid."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def build_session(
    ca_file: Path | None, *, only_origin: str = "", conditional: bool = False, proxy: str | None = None
) -> requests.Session:
    """A session that follows no redirect and reads no ~/.netrc; it raises `RefusedError` for any answer but success.

    `ca_file`: trusted instead of the system's and the environment's CA files. `proxy`: its URL, '' for none, None for
    that of the environment.
    `only_origin`: a URL; requests to any other origin fail (`requests` raises `InvalidSchema`).
    `conditional`: cache answers that have an ETag and send conditional requests for them.
    """
    session = requests.Session()
    session.headers["User-Agent"] = USER_AGENT
    session.auth = _leave_unchanged  # any other value than None keeps `requests` from looking into ~/.netrc
    session.hooks["response"].append(_require_success)
    if proxy is not None:
        session.trust_env = False  # the environment's proxies would go first
        session.proxies = {"https": proxy, "http": proxy} if proxy else {}
    session.adapters.clear()
    for prefix in (_origin(only_origin),) if only_origin else ("https://", "http://"):
        session.mount(prefix, _CachingAdapter(ca_file) if conditional else _BoundedAdapter(ca_file))
    return session


def _origin(url: str) -> str:
    """Scheme and host as `requests` writes them: a host with letters outside ASCII in its IDNA form."""
    with contextlib.suppress(requests.RequestException):  # the first request raises it again
        url = str(requests.Request("GET", url).prepare().url)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/"


def _require_success(response: requests.Response, *_: object, **__: object) -> None:
    """A response hook of `requests`."""
    if 200 <= response.status_code < 300:
        return
    try:
        document = response.json()
    except (ValueError, RecursionError):
        document = response.text
    raise RefusedError(response.status_code, response.headers, document)


def _leave_unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _limit_request(timeout_s: object) -> float:
    """The seconds for a whole request. `timeout_s`: those that the caller has left, if it says so."""
    return min(float(timeout_s), CALL_TIMEOUT_S) if isinstance(timeout_s, int | float) else CALL_TIMEOUT_S


class _BoundedAdapter(DeadlineAdapter):
    """Reads each answer whole, within a deadline and a size limit: a timeout of `requests` limits one read only. The
    timeout of a request is the deadline of its whole answer, at most `CALL_TIMEOUT_S`.
    """

    def __init__(self, ca_file: Path | None) -> None:
        super().__init__()
        self._ca_file = ca_file

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        limit_s = _limit_request(kwargs.get("timeout"))
        deadline = time.monotonic() + limit_s
        kwargs |= {"stream": True, "timeout": (min(CONNECT_TIMEOUT_S, limit_s), limit_s)}
        kwargs |= {"verify": str(self._ca_file)} if self._ca_file else {}  # `requests` prefers REQUESTS_CA_BUNDLE
        response = super().send(request, *args, **kwargs)
        try:
            body = _read_body(response, deadline)
        finally:
            response.close()
        response.raw = io.BytesIO(body)
        response.encoding = "utf-8"  # not the declared one: guessing is slow, and decoding `punycode` may never end
        _require_answer(request, response)
        return response


class _CachingAdapter(_BoundedAdapter):
    """Sends the ETag of the last answer, and returns that answer if it has not changed (RFC 9110, 13)."""

    def __init__(self, ca_file: Path | None) -> None:
        super().__init__(ca_file)
        self._cache = AnswerCache()

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        if request.method != "GET":
            return super().send(request, *args, **kwargs)
        url = str(request.url)
        known = self._cache.find(url)
        if known is not None:
            request.headers["If-None-Match"] = known.headers["ETag"]
        response = super().send(request, *args, **kwargs)
        if response.status_code == 304 and known is not None:
            # A full page is unchanged even if there is a next page now: update the headers, except those of the body.
            known.headers.update({n: v for n, v in response.headers.items() if not n.lower().startswith("content-")})
            self._cache.keep(url, known)
            return known
        if response.ok and "ETag" in response.headers:
            self._cache.keep(url, response)
        return response


def _read_body(response: requests.Response, deadline: float) -> bytes:
    kept = bytearray()
    try:
        # Not `stream`: it waits for a whole chunk, and a server may use up the timeout for each byte of it.
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            kept += chunk
            if len(kept) > MAX_ANSWER_BYTES:
                raise SandboxError(ErrorCode.FORGE_ERROR, f"The forge's answer is larger than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise _timeout_error()
    except ReadTimeoutError as error:
        raise requests.ReadTimeout(str(error)) from error
    except HTTPError as error:  # cut off, or not as its headers declare
        raise requests.ConnectionError(str(error)) from error
    return bytes(kept)


def _require_answer(request: requests.PreparedRequest, response: requests.Response) -> None:
    """Reject redirects and 202. A followed redirect would send our request elsewhere, for another project.

    202 to a GET means `not yet`; a client library would ask again without end.
    """
    if response.status_code in {301, 302, 303, 307, 308}:
        raise _RedirectError(response.status_code, response.headers.get("location", ""))
    if response.status_code == 202 and request.method == "GET":
        raise TransientForgeError(
            SandboxError(ErrorCode.FORGE_ERROR, "The forge has no answer yet", hint="Try again later.")
        )


def fetch_redirected(
    session: requests.Session,
    url: str,
    headers: dict[str, str],
    allowed: Callable[[str], bool],
    limit_request: Callable[[], float],
) -> str:
    """Fetch a text directly or through one redirect. Only the first request carries `headers`. `limit_request`: the
    seconds for the next request.

    Raises: `forge_error` when the redirect's host is not `allowed`, when its scheme is not https, or its port is not
    that of https. The host that was asked may name another port, and the scheme that it was asked by.
    """
    try:
        return session.get(url, headers=headers, timeout=limit_request()).text
    except _RedirectError as answer:
        if not _may_follow(answer.location, url, allowed):
            raise
        return session.get(answer.location, timeout=limit_request()).text


def _may_follow(location: str, asked: str, allowed: Callable[[str], bool]) -> bool:
    """`requests` connects to what urllib3 reads in the URL: see `plain_url`."""
    with contextlib.suppress(ValueError):
        scheme, host, port = find_origin(parse_plain_url(location))
        if not allowed(host):
            return False
        if (scheme, port) == ("https", PORTS["https"]):
            return True
        asked_scheme, asked_host, _ = find_origin(parse_plain_url(asked))
        return host == asked_host and scheme in {"https", asked_scheme}
    return False


def retry_read(ask: Callable[[], _ResultT], left_s: Callable[[], float] | None = None) -> _ResultT:
    """Send a read-only request; retry it on transient failures, after the pause that the forge asks for, if this ends
    within the time that is left.
    """
    return build_retrying(_is_transient, _retry_after_s, left_s=left_s)(ask)


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, TransientForgeError)


def _retry_after_s(error: BaseException) -> float:
    return error.wait_s if isinstance(error, TransientForgeError) else 0.0


def network_error(error: requests.RequestException, hostname: str) -> SandboxError:
    """Translate an error of `requests`. A TLS failure is permanent; the others are transient."""
    if isinstance(error, requests.exceptions.SSLError):
        return SandboxError(
            ErrorCode.NETWORK_ERROR,
            f"The certificate of {hostname} is not trusted",
            details=_summarize(error),
            hint=f"For a private CA: sandbox credentials set {hostname} --ca-file FILE.",
        )
    if isinstance(error, requests.Timeout):
        return TransientForgeError(_timeout_error())
    return TransientForgeError(
        SandboxError(
            ErrorCode.NETWORK_ERROR,
            f"{hostname} did not answer",
            details=_summarize(error),
            hint="Check the network, then try again. No work was lost.",
        )
    )


def _timeout_error() -> SandboxError:
    return SandboxError(
        ErrorCode.TIMEOUT,
        "The forge did not answer in time",
        details=f"limits: {CONNECT_TIMEOUT_S:.0f} s to connect, {CALL_TIMEOUT_S:.0f} s for the whole answer",
        hint="Try again later.",
    )


def _summarize(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"  # `redact_secret` cuts it
