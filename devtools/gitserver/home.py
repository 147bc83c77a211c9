"""A sandbox home that knows how to authenticate to a git server."""

from __future__ import annotations

from pathlib import Path

from devtools.gitserver.server import GitServer


def introduce(home: Path, server: GitServer, *, password: str | None = None, ssh_key: Path | None = None) -> Path:
    """Write `credentials.toml` for every port of this host, tunnels too; the home. Made when it is not there.

    `password`, `ssh_key`: others than the right ones.
    """
    home.mkdir(mode=0o700, exist_ok=True)
    credentials = home / "credentials.toml"
    credentials.touch(mode=0o600)
    credentials.write_text(
        f'[[credential]]\nhost = "127.0.0.1"\nusername = "{server.username}"\n'
        f'secret = "{server.password if password is None else password}"\nca_file = "{server.ca_file}"\n'
        f'ssh_key = "{ssh_key or server.ssh_key_file}"\n'
    )
    return home
