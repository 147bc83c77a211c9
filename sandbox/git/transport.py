"""Network git: list, fetch and push, for exactly one remote, with exactly one credential.

The secret travels in an anonymous memory file that only this git's children inherit; it is in no argv, environment,
URL, configuration or file on disk. The askpass script answers for one host only: prompts are text from the server.
"""

from __future__ import annotations

import base64
import logging
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import tenacity

from sandbox.credentials import Credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.classify import classify, is_transient
from sandbox.git.objects import check_ref_name, is_object_id, peel
from sandbox.git.process import Git, Grant
from sandbox.remotes import Remote

_log = logging.getLogger(__name__)

NETWORK_DEADLINE_S = 900.0
ATTEMPTS = 3
_BRANCHES = "+refs/heads/*:refs/remotes/origin/*"
_TAGS = "+refs/tags/*:refs/tags/*"
_ASKPASS = """#!/bin/sh
# Answers git's two questions for one host; anything else fails.
exec 0<"/proc/self/fd/$SANDBOX_SECRET_FD"
IFS= read -r authority; IFS= read -r username; IFS= read -r secret
case "$1" in
  "Username for 'https://$authority': ") printf '%s\\n' "$username" ;;
  "Password for 'https://"*"@$authority': ") printf '%s\\n' "$secret" ;;
  *) exit 1 ;;
esac
"""


@dataclass(frozen=True)
class Access:
    """All that network git may use: the remote, a credential for it, our known_hosts, and the SSH agent if any."""

    remote: Remote
    credential: Credential | None
    known_hosts: Path
    environ: Mapping[str, str]
    progress: Callable[[str], None] | None = None
    timeout_s: float = NETWORK_DEADLINE_S
    git: str = ""  # the operator's choice of git


@dataclass(frozen=True)
class RemoteHead:
    """The remote's HEAD: its branch and the commit there."""

    branch: str
    commit: str


@contextmanager
def granted(access: Access) -> Iterator[Grant]:
    """A grant for one command or a few; all that carried the secret is gone afterwards."""
    protocol = access.remote.protocol
    if protocol == "file":
        yield Grant("file")
    elif protocol == "ssh":
        yield Grant("ssh", env=_ssh_environment(access))
    else:
        with _askpass(access) as grant:
            yield grant


def _ssh_environment(access: Access) -> dict[str, str]:
    command = ["ssh", "-F", "/dev/null", "-a", "-x", "-T"]
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "accept-new",
        "UserKnownHostsFile": str(access.known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "PermitLocalCommand": "no",
        "ProxyCommand": "none",
        "ConnectTimeout": "20",
        "ServerAliveInterval": "15",
    }
    if access.credential is not None and access.credential.ssh_key is not None:
        command += ["-i", str(access.credential.ssh_key)]
        options["IdentitiesOnly"] = "yes"
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    environment = {"GIT_SSH_COMMAND": shlex.join(command), "GIT_SSH_VARIANT": "ssh"}
    if access.environ.get("SSH_AUTH_SOCK"):
        environment["SSH_AUTH_SOCK"] = access.environ["SSH_AUTH_SOCK"]
    return environment


@contextmanager
def _askpass(access: Access) -> Iterator[Grant]:
    credential, remote = access.credential, access.remote
    config: tuple[str, ...] = ()
    if credential is not None and credential.ca_file is not None:
        config = (f"http.sslCAInfo={credential.ca_file}",)
    if credential is None or not credential.secret.get_secret_value():
        yield Grant(remote.protocol, config=config)
        return
    authority = remote.url.split("/")[2]  # as git's prompt names it, with the brackets of an IPv6 address
    secret = os.memfd_create("sandbox-credential", os.MFD_CLOEXEC)
    try:
        lines = (authority, credential.username, credential.secret.get_secret_value(), "")
        os.write(secret, "\n".join(lines).encode())
        with tempfile.TemporaryDirectory(prefix="sandbox-askpass-") as folder:
            script = Path(folder) / "askpass"
            script.write_text(_ASKPASS)
            script.chmod(0o700)
            env = {"GIT_ASKPASS": str(script), "SANDBOX_SECRET_FD": str(secret)}
            yield Grant(remote.protocol, env=env, config=config, fds=(secret,))
    finally:
        os.close(secret)


def _read_remote(git: Git, access: Access, *args: str, deadline_s: float) -> bytes:
    """A command that only reads: repeated, with growing and jittered pauses, while the network fails."""
    attempts = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_exponential_jitter(multiplier=0.5, max=5, jitter=0.5),
        retry=tenacity.retry_if_exception(is_transient),
        before_sleep=_log_retry,
        reraise=True,
    )
    with granted(access) as plain:
        grant = replace(plain, progress=access.progress)
        try:
            return attempts(git.run, *args, grant=grant, deadline_s=min(deadline_s, access.timeout_s))
        except SandboxError as error:
            made = attempts.statistics.get("attempt_number", 1)
            error.details = _without_secret(error.details, access.credential)
            if made > 1:
                error.details += f"\n(tried {made} times)"
            raise


def _without_secret(text: str, credential: Credential | None) -> str:
    """Words of a server that may repeat what we sent it, as we sent it."""
    secret = credential.secret.get_secret_value() if credential else ""
    if credential is None or not secret:
        return text
    basic = base64.b64encode(f"{credential.username}:{secret}".encode()).decode()
    for spelling in (secret, quote(secret, safe=""), quote(basic, safe=""), basic):
        text = text.replace(spelling, "***")
    return text


def _log_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    _log.warning("attempt %d failed, trying again: %s", state.attempt_number, error)


def remote_head(git: Git, access: Access) -> RemoteHead:
    """Ask the remote for its default branch. Raises: network errors; `not_found` for an empty remote."""
    question = ("ls-remote", "--symref", "--", access.remote.url, "HEAD")
    out = _read_remote(git, access, *question, deadline_s=120)
    branch, commit = "", ""
    for line in out.decode("utf-8", errors="replace").splitlines():
        value, _, name = line.partition("\t")
        if name == "HEAD" and value.startswith("ref: refs/heads/"):
            branch = value.removeprefix("ref: refs/heads/")
        elif name == "HEAD" and is_object_id(value):
            commit = value
    if not commit:
        raise SandboxError(
            ErrorCode.NOT_FOUND, "The remote repository has no commits yet", hint="Push a first commit to it."
        )
    return RemoteHead(check_ref_name(branch) if branch else "", commit)


def fetch(git: Git, access: Access) -> None:
    """Bring all branches and tags into the cache, forgetting those the remote dropped."""
    talk = "--progress" if access.progress else "--quiet"
    _read_remote(
        git, access, "fetch", talk, "--prune", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
        "--no-auto-maintenance", "--force", "--", access.remote.url, _BRANCHES, _TAGS,
        deadline_s=access.timeout_s,
    )  # fmt: skip


def remote_branch(git: Git, access: Access, branch: str) -> str | None:
    """Commit a remote branch points to right now, or None."""
    ref = f"refs/heads/{check_ref_name(branch)}"
    out = _read_remote(git, access, "ls-remote", "--", access.remote.url, ref, deadline_s=120)
    for line in out.decode("utf-8", errors="replace").splitlines():
        oid, _, name = line.partition("\t")
        if name == ref and is_object_id(oid):
            return oid
    return None


def push(git: Git, access: Access, commit: str, branch: str, expected: str | None) -> None:
    """Send exactly `commit` to one branch, which must still be at `expected` (None: not exist), and verify.

    Raises: `push_rejected` and network errors; `conflict` when the remote ends up elsewhere.
    """
    ref = f"refs/heads/{check_ref_name(branch)}"
    if peel(git, commit, "commit") != commit:
        raise SandboxError(ErrorCode.NOT_FOUND, f"Commit {commit[:12]} is not in the cache clone")
    with granted(access) as grant:
        result = git.attempt(
            "push", "--porcelain", "--no-verify", "--no-follow-tags", f"--force-with-lease={ref}:{expected or ''}",
            "--", access.remote.url, f"{commit}:{ref}", grant=grant, deadline_s=access.timeout_s,
        )  # fmt: skip
    if result.code != 0:  # with --porcelain the reason is on stdout
        said = f"{result.stderr}\n{result.stdout.decode(errors='replace')}"
        raise classify("push", result.code, _without_secret(said, access.credential))
    if remote_branch(git, access, branch) != commit:
        raise SandboxError(
            ErrorCode.CONFLICT, f"The remote's {branch} is not what we pushed", hint="Look at the branch there."
        )
