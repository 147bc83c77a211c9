"""Connect to the Temporal server of a cluster: encrypted, unless it is on this host."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import KeepAliveConfig, RetryConfig, TLSConfig

from sandbox.config import ClusterSettings
from sandbox.credentials import require_private
from sandbox.errors import ErrorCode, SandboxError
from sandbox.remotes import is_loopback
from sandbox.store.token_file import read_token

CONNECT_S = 10.0
_KEEP_ALIVE = KeepAliveConfig(interval_millis=15_000, timeout_millis=10_000)
"""How it is noticed that a network drops all silently. Servers refuse to be asked more often than every 10 s."""

_END_S = 10.0
"""How long the end of the client library's threads is waited for; reached: they may end the process with a signal."""

_IDLE_S, _IDLE_SAMPLES = 1.0, 4

_NO_RETRIES = RetryConfig(max_retries=1)  # this counts the first attempt; 0 is without end


@dataclass(frozen=True)
class ServerAccess:
    """How the server is spoken to. `ca`: PEM, None: the system's authorities. `certificate`, `key`: ours, PEM."""

    tls: bool = False
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ClusterAddress:
    """`address`: host and port of the Temporal server. `name`: of the cluster; those that share a namespace have
    different ones. `lost_after_s`: how long a worker may be silent before its tasks go elsewhere. `publisher_s`: how
    long a controller that publishes may not take an operation.
    """

    address: str
    namespace: str = "default"
    name: str = "space-sandbox"
    lost_after_s: float = 10.0
    access: ServerAccess = ServerAccess()
    publisher_s: float = 30.0


def find_address(settings: ClusterSettings) -> ClusterAddress:
    """What the settings say, with the files that they name.

    Raises: `invalid_input` for a file that cannot be read, for a certificate without its key, and for one of these
    without TLS; `policy_violation` for a key that others can read, or an API key that would be sent without TLS.
    """
    tls = settings.tls == "on" or (settings.tls == "auto" and not _is_on_this_host(settings.address))
    files = (settings.ca_file, settings.certificate_file, settings.key_file)
    if bool(settings.certificate_file) != bool(settings.key_file):
        raise SandboxError(
            ErrorCode.INVALID_INPUT, "cluster.certificate_file and cluster.key_file belong together", hint="Set both."
        )
    if not tls and any(files):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The cluster has certificates and no TLS",
            details=f"cluster.tls is {settings.tls!r} and the address is {settings.address}",
            hint="Set cluster.tls = 'on', or remove the files.",
        )
    if not tls and settings.api_key_file:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            "The API key of the cluster would be sent without TLS",
            hint="Set cluster.tls = 'on', or remove cluster.api_key_file.",
        )
    api_key = read_token(settings.api_key_file, create=False) if settings.api_key_file else None
    ca, certificate, key = map(_read, files)
    if settings.key_file:
        require_private(settings.key_file.expanduser())
    access = ServerAccess(tls, ca, certificate, key, api_key)
    return ClusterAddress(settings.address, settings.namespace, settings.name, settings.lost_after_s, access)


def _is_on_this_host(address: str) -> bool:
    return is_loopback(address.rpartition(":")[0].removeprefix("[").removesuffix("]"))


def _read(path: Path | None) -> bytes | None:
    try:
        return None if path is None else path.expanduser().read_bytes()
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"The file {path} of the cluster cannot be read", details=error.strerror or ""
        ) from error


async def connect_client(place: ClusterAddress, runtime: Runtime, *, is_caller: bool = False) -> Client:
    """`is_caller`: it repeats failed requests itself (`sandbox.cluster.server_requests`), and looks first whether an
    operation was accepted. Raises: `network_error`; the caller ends the threads of the runtime then, too.
    """
    access = place.access
    tls = TLSConfig(access.ca, None, access.certificate, access.key) if access.tls else False
    try:
        connecting = Client.connect(
            place.address, namespace=place.namespace, tls=tls, api_key=access.api_key, keep_alive_config=_KEEP_ALIVE,
            retry_config=_NO_RETRIES if is_caller else None, runtime=runtime,
        )  # fmt: skip
        return await asyncio.wait_for(connecting, CONNECT_S)
    except (RuntimeError, TimeoutError) as error:
        if isinstance(error, RuntimeError):
            end_threads(runtime)
        else:
            await _wait_until_idle()
        spoken = "with TLS" if access.tls else "without TLS"
        raise SandboxError(
            ErrorCode.NETWORK_ERROR,
            f"No Temporal server answers at {place.address} {spoken}",
            details=str(error)[:500],
            hint="Start it, or correct cluster.address, or how it is spoken to: cluster.tls, cluster.ca_file.",
        ) from error


async def _wait_until_idle() -> None:
    """Wait until the threads of the client library are idle, for a second at most.

    Theory. A request that was cut off holds the runtime until one of these threads has let go of it. If we do so
    before, that thread is the last, ends the runtime from within, and prints a panic. The library does not tell when it
    has done so, but it was woken before the request counts as cut off: if it sleeps at each look, it has.
    """
    ends_at, seen = time.monotonic() + _IDLE_S, 0
    while seen < _IDLE_SAMPLES and time.monotonic() < ends_at:
        await asyncio.sleep(0.005)
        seen = 0 if any(map(_is_busy_thread, Path("/proc/self/task").iterdir())) else seen + 1


def _is_busy_thread(thread: Path) -> bool:
    """Whether it is one of the client library, and runs or waits for a processor."""
    try:
        name, state = (thread / "stat").read_text(errors="replace").split("(", 1)[1].rsplit(")", 1)
    except OSError:  # it has ended
        return False
    return name.startswith("tokio") and state.split()[0] == "R"


def make_runtime(*, is_quiet: bool = False) -> Runtime:
    """The threads of the client library, which `end_threads` ends. `is_quiet`: they write no line to stderr for each
    request that failed.
    """
    if not is_quiet:
        return Runtime(telemetry=TelemetryConfig())
    errors = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=errors)))


def end_threads(runtime: Runtime, client: Client | None = None) -> None:
    """End the threads of the client library; returns when none is left, or after `_END_S`. Neither is usable then.

    Theory. These threads are not of Python: each hands an answer to the event loop, and returns. One that has done so,
    and was not given the processor since, is still inside the interpreter when a command has shown all and ends. The
    interpreter then ends that thread in the middle of the library's code, and the process dies of SIGABRT or SIGSEGV
    (temporalio 1.35, Python 3.11; github.com/temporalio/sdk-python/issues/300). The library waits for its threads only
    when its runtime is let go of. What garbage there is may hold the runtime, as the frames of an error do, so it is
    taken out of the objects that have it.
    """

    def let_go() -> None:
        bridge = client.service_client._bridge_client if client is not None else None  # type: ignore[attr-defined]
        if bridge is not None:
            bridge._ref = bridge._runtime = None
        runtime._core_runtime._ref = None

    ending = threading.Thread(target=let_go, name="temporal-end", daemon=True)
    ending.start()
    ending.join(_END_S)
