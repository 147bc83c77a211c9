"""A real Secret Service for tests: a session bus and a keyring of their own, headless, ended by their own processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import tenacity

PROGRAMS = ("dbus-daemon", "dbus-send", "gnome-keyring-daemon", "secret-tool")
_DEADLINE_S = 30.0
_QUESTION = (
    "dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.NameHasOwner"
    " string:org.freedesktop.secrets"
)
_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path={bus}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
</policy>
</busconfig>
"""  # without service files: nothing is started on demand


def missing() -> list[str]:
    """Programs that this machine lacks for it."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@contextmanager
def session(folder: Path, keyring: Literal["unlocked", "locked", "none"] = "unlocked") -> Iterator[dict[str, str]]:
    """Variables that lead to the bus, and to a keyring on it whose files are in `folder`."""
    environ = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": str(folder),
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={folder}/bus",
    }
    (folder / "bus.conf").write_text(_CONFIG.format(bus=folder / "bus"))
    bus = ["dbus-daemon", f"--config-file={folder}/bus.conf", "--nofork", "--print-address=1"]
    with _running(bus, environ) as started:
        assert started.stdout is not None  # noqa: S101 - a pipe was asked for
        started.stdout.readline()  # it listens
        if keyring == "none":
            yield environ
            return
        options = ["--unlock"] if keyring == "unlocked" else []
        with _running(["gnome-keyring-daemon", "--foreground", "--components=secrets", *options], environ) as daemon:
            assert daemon.stdin is not None  # noqa: S101 - as above
            daemon.stdin.write("password of this test")
            daemon.stdin.close()
            _wait_for_name(environ)
            yield environ


@contextmanager
def _running(argv: list[str], environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(  # noqa: S603 - fixed words
        argv,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _wait_for_name(environ: dict[str, str]) -> None:
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(_DEADLINE_S),
        wait=tenacity.wait_fixed(0.05),
        retry=tenacity.retry_if_result(lambda said: "boolean true" not in said),
    )
    retry(lambda: subprocess.run(_QUESTION.split(), env=environ, capture_output=True, text=True, check=True).stdout)  # noqa: S603
