"""Units of systemd for the daemon, with the command of this installation: `sandbox serve --unit KIND` prints them.

`KillMode=process`: the daemon ends, and what runs in it goes on. `ExecReload` starts the newer program after an
upgrade. `StartLimitIntervalSec`: five starts that fail are never within the 10 s of systemd's default. No `PrivateTmp`
and the like: with namespaces of its own the daemon would run no command of a client (docs/serve.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.command_client import FOLDER, SOCKET
from sandbox.daemon.place import API_SOCKET

KINDS = ("user", "system", "socket")
_PLAIN = re.compile(r"[\w@%+=:,./$-]+")
_LOCALE = (
    *("LANG", "LANGUAGE", "LC_ALL", "LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION", "LC_MEASUREMENT"),
    *("LC_MESSAGES", "LC_MONETARY", "LC_NAME", "LC_NUMERIC", "LC_PAPER", "LC_TELEPHONE", "LC_TIME", "TZ"),
)
"""systemd sets LANG also where a login has none, and the daemon runs no command of which one of these differs."""

_SERVICE = """[Unit]
Description=Space Sandbox on {home}
After=network-online.target docker.service
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
ExecStart={command}
ExecReload=kill -HUP $MAINPID
KillMode=process
Restart=on-failure
RestartSec=2
{environment}{user}
[Install]
WantedBy={target}
"""

_SOCKET = """[Unit]
Description=Sockets of Space Sandbox on {home}

[Socket]
ListenStream={folder}/{commands}
ListenStream={folder}/{api}
SocketMode=0666
DirectoryMode=0700

[Install]
WantedBy=sockets.target
"""


def make_unit(kind: str, home: Path, command: Sequence[str], user: str, environ: Mapping[str, str]) -> str:
    """The text of a unit: `user` and `system` are services, `socket` starts either when a command is run.

    `environ`: of those who will run commands; a service has its locale and time zone.

    Sockets have mode 0666: the folder that they are in keeps other users out, and so does the daemon. With
    `SocketUser=` systemd, as root, would give a file to the user by its path in a folder of that user, where it may be
    a link by then.
    """
    if kind == "socket":
        folder = _quote(str(home / FOLDER))
        return _SOCKET.format(home=_quote(str(home)), folder=folder, commands=SOCKET, api=API_SOCKET)
    return _SERVICE.format(
        home=_quote(str(home)),
        command=" ".join(map(_write_word, command)),
        environment=_write_locale(environ),
        user=f"User={_quote(user.removeprefix('uid '))}\n" if kind == "system" else "",
        target="multi-user.target" if kind == "system" else "default.target",
    )


def _write_locale(environ: Mapping[str, str]) -> str:
    """Settings for the variables of the locale: those that are there, and that the others are not to be."""
    found = {name: value for name in _LOCALE if (value := environ.get(name)) is not None and value.isprintable()}
    lines = [f"Environment={_quote_word(_quote(f'{name}={value}'))}\n" for name, value in found.items()]
    return "".join([*lines, f"UnsetEnvironment={' '.join(name for name in _LOCALE if name not in found)}\n"])


def _write_word(word: str) -> str:
    """One argument of a command: systemd reads escapes in quotes of either kind, and puts no two of them together."""
    text = _quote(word).replace("$", "$$")
    return text if _PLAIN.fullmatch(text) else _quote_word(text)


def _quote_word(text: str) -> str:
    """In quotes, as systemd.syntax(7) has them."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _quote(text: str) -> str:
    """Without the specifiers of systemd.unit(5)."""
    return text.replace("%", "%%")
