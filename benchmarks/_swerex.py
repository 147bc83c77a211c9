"""SWE-ReX for comparison: its server in a container, its client in a separate process with its own packages.

Run as a program, this file is that client: a line on stdin starts one command, a line on stdout reports its end.
"""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Self

PINNED = ("swe-rex==1.4.0", "aiohttp==3.14.5")
FOLDER = Path(__file__).parents[1] / ".tool_cache" / "swe-rex-1.4.0"
IMAGE = "space-sandbox/python:latest"
_DEADLINE_S = 120.0


class Peer:
    """A running server and a connected client, as its users run it: root, with a network."""

    def __init__(self, way: str) -> None:
        """`way`: `execute`, a new process, or `session`, a line in a persistent shell."""
        from benchmarks import _engine_api  # noqa: PLC0415 - run as a program, this file has no package

        self._api = _engine_api
        self._way = way

    def __enter__(self) -> Self:
        install()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        token = secrets.token_hex(8)
        server = ["python3", "-m", "swerex.server", "--host", "127.0.0.1", "--port", port, "--auth-token", token]
        bind = {"Type": "bind", "Source": str(FOLDER), "Target": "/swe-rex", "ReadOnly": True}
        self._container = self._api.create(
            {
                "Image": IMAGE,
                "Entrypoint": server,
                "User": "0",
                "WorkingDir": "/",
                "Env": ["PYTHONPATH=/swe-rex"],
                "HostConfig": {"NetworkMode": "host", "Mounts": [bind]},
            }
        )
        self._client = subprocess.Popen(
            [sys.executable, __file__, port, token, self._way],
            env={"PYTHONPATH": str(FOLDER), "PATH": "/usr/bin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        self._wait("ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.kill()
        self._client.communicate()
        self._api.delete(self._container)

    def true(self) -> None:
        """Run /bin/true through SWE-ReX."""
        self._pipe(self._client.stdin).write("go\n")
        self._wait("done")

    def _wait(self, word: str) -> None:
        if self._pipe(self._client.stdout).readline().strip() != word:
            raise RuntimeError("SWE-ReX did not answer")

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def install() -> None:
    """Install the pinned packages into their own folder, once."""
    if not (FOLDER / "swerex").is_dir():
        command = [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, "--target", str(FOLDER), *PINNED], check=True, timeout=600)


async def client(port: int, token: str, way: str) -> None:
    """The client, as a user of SWE-ReX would write it."""
    import asyncio  # noqa: PLC0415 - used by the client only

    from swerex.runtime.abstract import (  # type: ignore[import-not-found]  # noqa: PLC0415 - its own packages
        BashAction,
        Command,
        CreateBashSessionRequest,
    )
    from swerex.runtime.remote import RemoteRuntime  # type: ignore[import-not-found]  # noqa: PLC0415 - as above

    runtime = RemoteRuntime(host="http://127.0.0.1", port=port, auth_token=token, timeout=30.0)
    ends_at = asyncio.get_running_loop().time() + _DEADLINE_S
    while not (await runtime.is_alive(timeout=5.0)).is_alive:
        if asyncio.get_running_loop().time() > ends_at:
            return
        await asyncio.sleep(0.1)
    if way == "session":
        await runtime.create_session(CreateBashSessionRequest())
    print("ready", flush=True)
    for _ in sys.stdin:
        if way == "session":
            code = (await runtime.run_in_session(BashAction(command="/bin/true"))).exit_code
        else:
            code = (await runtime.execute(Command(command=["/bin/true"]))).exit_code
        print("done" if code == 0 else "failed", flush=True)


if __name__ == "__main__":
    import asyncio

    asyncio.run(client(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
