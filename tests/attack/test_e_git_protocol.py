"""git:// has neither a proof of who answers nor of what arrives: refused before anything is sent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git.process import Git, NetworkAccess
from tests.attack.arena import GIT, Arena, refused

pytestmark = pytest.mark.must


@contextmanager
def git_daemon(base: Path) -> Iterator[tuple[str, Path]]:
    """A real read-only server of all repositories below `base`: its `host:port`, and its log of connections."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    core = subprocess.run([GIT, "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    log = base / "daemon.log"
    argv = [f"{core}/git-daemon", "--listen=127.0.0.1", f"--port={port}", "--reuseaddr", "--verbose", "--export-all"]
    environ = {**os.environ, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    read, write = os.pipe()
    process = subprocess.Popen([*argv, f"--base-path={base}"], stderr=write, env=environ, start_new_session=True)
    os.close(write)
    with os.fdopen(read) as said, log.open("w") as kept:
        try:
            for line in said:
                kept.write(line)
                if "Ready to rumble" in line:
                    break
            yield f"127.0.0.1:{port}", log
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=30)
            kept.writelines(said)


def test_e_git_protocol_is_refused_before_any_connection(arena: Arena) -> None:
    """Control: plain git connects to the same address and reads the repository."""
    with git_daemon(arena.root) as (address, log):
        url = f"git://{address}/remote.git"
        for spelling in (url, url.upper().replace("REMOTE", "remote"), f"git://git@{address}/remote.git"):
            with refused(ErrorCode.INVALID_INPUT) as caught:
                arena.workbench.clone(spelling)
            assert "https://" in caught[0].hint
        with refused(ErrorCode.INVALID_INPUT):  # nor does the git below, told to speak another protocol
            Git(arena.cache).run("ls-remote", "--", url, network=NetworkAccess("https"))
        with refused(ErrorCode.INVALID_INPUT):
            arena.workbench.run(url)
        done = arena.git("ls-remote", url, cwd=arena.root)
    assert done.code == 0, done.stderr
    assert b"refs/heads/main" in done.stdout
    assert log.read_text().count("Connection from") == 1
