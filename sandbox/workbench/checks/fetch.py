"""Fetch packages: run a command of ours in a fresh guest that has one way out, the socket of an egress proxy.

The rule (docs/dependencies.md): what runs code of a repository or a package has no network, and what has a network runs
no code of a repository or a package. So the guest has no worktree: an empty folder, and the files that the caller wrote
anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.checks.executors import PROXY_URL, FetchContainer
from sandbox.dependencies.layer_plan import ANSWER, MISMATCHES
from sandbox.egress.connection_meter import EgressLimits
from sandbox.egress.destinations import AllowList, Destination
from sandbox.egress.proxy import EgressProxy, Outside
from sandbox.egress.registries import Registries, find_registries
from sandbox.engine.create_options import CA_FILE_TARGET, EgressMounts
from sandbox.engine.posture import OWN_KERNEL_RUNTIMES
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.guest_files import read_guest_file
from sandbox.images.supervisor import SupervisorExtractor, ensure_relay
from sandbox.models import Check, CheckRun, EgressAccess, EgressRefusal, Verdict
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.package_errors import describe_failure, keep_whole_lines
from sandbox.workbench.checks.registry_answers import explain_answer
from sandbox.workbench.checks.run import build_room_recorder
from sandbox.workbench.checks.step_rooms import open_step_room, run_step
from sandbox.workbench.controller.services import Services

if TYPE_CHECKING:
    from sandbox.models.layers import LayerEcosystem

_RETRIES = "3"  # the default of pip is 5; the container policy sets 0
_NETWORK_FAILURES = frozenset({EgressRefusal.NOT_RESOLVED, EgressRefusal.CONNECT_FAILED, EgressRefusal.IDLE})
"""A host of the list that does not answer: no fault of the fetch."""
_DETAILS_CHARS = 2000
_FAILED_HINT = "A registry that has what is missing can be named in [registries] (docs/dependencies.md)."
_LIMITS_REACHED = frozenset({EgressRefusal.TOO_MANY_CONNECTIONS, EgressRefusal.TOO_MANY_BYTES, EgressRefusal.TIME_OVER})


@dataclass(frozen=True)
class FetchRequest:
    """A command that fetches. `check`: its argv is ours, never a repository's; its directory is the empty folder.

    `layer`: what it fetches for, for messages. `inputs`: files to write into the folder first, by name: data that we
    wrote anew from what we parsed, never a file of a repository.
    """

    ecosystem: LayerEcosystem
    layer: str
    check: Check
    setup: GuestSetup
    inputs: Mapping[str, bytes] = field(default_factory=dict)
    limits: EgressLimits = field(default_factory=EgressLimits)
    outside: Outside = field(default_factory=Outside)


@dataclass(frozen=True)
class Fetched:
    """What a fetch left in `folder`, which is removed with its `with` block, and the connections that it made.

    What is in the folder comes from outside: read it like a worktree, never by following its links.
    """

    run: CheckRun
    folder: Path
    accesses: tuple[EgressAccess, ...]
    index: str = ""

    @property
    def refused(self) -> tuple[EgressAccess, ...]:
        """The connections that were refused or cut."""
        return tuple(access for access in self.accesses if access.refused is not None)

    def require_success(self, layer: str) -> None:
        """Raises: `policy_violation` naming an archive that is not the one that the registry's hashes are of;
        `egress_refused` naming the first host that was refused; `network_error` if none was: with a reason for what the
        registry answered instead of a package, else for another failure. All with the last lines of the command.
        """
        if self.run.verdict is Verdict.PASSED:
            return
        if archive := _read_line(self.folder / MISMATCHES):
            raise SandboxError(
                ErrorCode.POLICY_VIOLATION,
                f"An archive has another hash than the registry says: {archive}",
                details=keep_whole_lines(self.run.stderr_tail, _DETAILS_CHARS),
                hint="It is damaged, or was exchanged. No archive of this fetch was used.",
            )
        tail = keep_whole_lines(self.run.stderr_tail, _DETAILS_CHARS)
        details = f"{_describe_refusals(self.refused)}\n{tail}".strip()
        for access in self.refused:
            if access.refused not in _NETWORK_FAILURES:
                host = str(Destination(access.host, access.port)) if access.host else "a request that names no host"
                raise SandboxError(
                    ErrorCode.EGRESS_REFUSED,
                    f"egress_refused: {host}, asked by the fetch of layer {layer}",
                    details=details,
                    hint=self._suggest_setting(access, layer),
                )
        unreached = _describe_refusals(self.refused[:1])
        answer = _read_line(self.folder / ANSWER)
        # The proxy knows better why there was no answer, and npm takes the 403 of the proxy for the registry's.
        is_known = bool(unreached) and answer.startswith(("0 ", "403 "))
        if not is_known and (error := explain_answer(answer, layer, details)):
            raise error
        said = describe_failure(self.run.stderr_tail) or self.run.verdict.value
        raise SandboxError(
            ErrorCode.NETWORK_ERROR,
            f"The packages of layer {layer} could not be fetched: {unreached or said}",
            details=details if unreached else f"{said}\n{details}",  # its first line is shown
            hint="`sandbox doctor` shows which registries answer, and [registries] names others (docs/dependencies.md)."
            if unreached
            else _FAILED_HINT,
        )

    def _suggest_setting(self, access: EgressAccess, layer: str) -> str:
        if access.refused is EgressRefusal.ADDRESS_NOT_ALLOWED:
            return (
                f"{access.host} has an address inside this network. If that is a mirror of yours, make this the first "
                f'line of config.toml in the home: `registries.{layer} = ["{self.index}"]`. If the file has a table '
                "[registries], write it there, without `registries.` (docs/dependencies.md)."
            )
        if access.refused in _LIMITS_REACHED:
            return "The fetch reached its limit of connections, bytes or time (docs/dependencies.md, What is refused)."
        return "If it is a registry of yours, name it in [registries] (docs/dependencies.md)."


@contextmanager
def fetch(services: Services, request: FetchRequest, watch: Watch) -> Iterator[Fetched]:
    """Run a fetch. The folder with what it fetched exists inside the `with` block.

    Raises: `invalid_input` for a registry or CA file that cannot be used; `engine_unavailable` for a runtime that shows
    no socket; as `build_room_recorder`; `conflict`, `quota_exceeded`. What the command itself answers is in `run`.
    """
    _require_socket_runtime(request.setup.runtime)
    registries = find_registries(request.ecosystem, services.settings.registries, services.environ)
    ca = _read_ca_file(registries.ca_file or services.settings.images.ca_bundle)
    recorder = build_room_recorder(services, request.setup, request.layer)
    relay = _find_relay(services, request.setup.runtime)
    with open_step_room(services, request.check, request.inputs) as room:
        directories, ca_file = room.directories, room.folder / "ca.pem"
        ca_file.write_bytes(ca)
        ca_file.chmod(0o444)
        proxy = EgressProxy(
            room.folder / "egress.sock",
            AllowList(registries.hosts),
            replace(request.limits, duration_s=min(request.limits.duration_s, request.check.timeout_s + 60)),
            directories.account.user if os.geteuid() == 0 else None,
            request.outside,
        )
        executor = FetchContainer(
            services.guest_engine,
            services.policies.container,
            recorder.guest,
            EgressMounts(proxy.path, relay, ca_file),
        )
        env = {**build_environment(request.ecosystem, registries), **request.check.env}
        check = request.check.model_copy(update={"env": env})
        recorder = replace(recorder, executor=executor, logs=room.folder / "logs")
        with proxy:
            run = run_step(services, recorder, (room.run_id, check, directories), watch, request.layer)
        yield Fetched(run, directories.workspace, proxy.accesses, registries.indexes[0])


def build_environment(ecosystem: LayerEcosystem, registries: Registries) -> dict[str, str]:
    """The variables that lead package managers to the proxy, the registry and the CA file. Pure.

    Settings of the image and of the container policy are switched off: they tell package managers to stay offline.
    """
    common = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), PROXY_URL)
    common |= dict.fromkeys(("NO_PROXY", "no_proxy"), "")
    common |= dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), CA_FILE_TARGET)
    own = {
        "python": {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_NO_INDEX": "",
            "PIP_FIND_LINKS": "",
            "PIP_RETRIES": _RETRIES,
            "UV_OFFLINE": "0",
            "PIP_CERT": CA_FILE_TARGET,
            "PIP_INDEX_URL": registries.indexes[0],
            "PIP_EXTRA_INDEX_URL": " ".join(registries.indexes[1:]),
            "UV_DEFAULT_INDEX": registries.indexes[0],
            "UV_INDEX": " ".join(registries.indexes[1:]),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_CACHE_DIR": "1",
        },
        "node": {
            "npm_config_registry": registries.indexes[0],
            "npm_config_userconfig": "/dev/null",
            "npm_config_globalconfig": "/nonexistent",
            "npm_config_cafile": CA_FILE_TARGET,
            "npm_config_offline": "false",
            "npm_config_ignore_scripts": "true",
            "npm_config_audit": "false",
            "npm_config_fund": "false",
            "npm_config_update_notifier": "false",
        },
        "rust": {
            "CARGO_HTTP_CAINFO": CA_FILE_TARGET,
            "CARGO_NET_OFFLINE": "false",
            "SPACE_INDEX": registries.indexes[0],  # cargo has no variable for it: the fetch writes a file
        },
        "go": {"GOPROXY": registries.indexes[0]},
        "perl": {"SPACE_INDEX": registries.indexes[0]},  # of our own program
    }
    return common | own[ecosystem]


def _read_line(path: Path) -> str:
    """The first line that the fetch wrote; '' if it wrote none."""
    line = (read_guest_file(path, 300) or b"").partition(b"\n")[0]
    return ascii(line.decode("ascii", "replace"))[1:-1]


def _require_socket_runtime(runtime: str) -> None:
    if runtime in OWN_KERNEL_RUNTIMES:
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"A fetch cannot run under {runtime}, which shows a guest no socket of the host",
            hint="A fetch runs no code of a repository or package: let it run under runc.",
        )


def _find_relay(services: Services, runtime: str) -> Path:
    user = services.policies.pristine_owner or (os.geteuid(), os.getegid())
    extractor = SupervisorExtractor(
        f"sandbox-init-{services.presence.new_id()}", user, runtime, services.home.instance_id
    )
    return ensure_relay(services.image_build_context, services.policies.container, extractor)


def _read_ca_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"Cannot read the CA certificates of the registries: {path}",
            details=error.strerror or str(error),
            hint="Set registries.ca_file (docs/dependencies.md).",
        ) from error


def _describe_refusals(refused: tuple[EgressAccess, ...]) -> str:
    seen = dict.fromkeys((access.host, access.port, access.refused or EgressRefusal.NOT_ALLOWED) for access in refused)
    return "\n".join(f"{Destination(host, port)} {why.value}" for host, port, why in list(seen)[:20])
