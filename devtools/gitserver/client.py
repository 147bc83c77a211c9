"""Plain git as a user of the server runs it: own HOME, no configuration of this machine, credentials by askpass."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEADLINE_S = 60.0
_FIXED_DATE = "2024-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class GitClient:
    """`folder`: its HOME and scratch space. A None credential is not offered to the server."""

    folder: Path
    ca_file: Path
    known_hosts: str
    username: str | None = None
    password: str | None = None
    ssh_key_file: Path | None = None

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run `git ARGUMENTS` and return its stdout. Raises: `CalledProcessError`, with git's words in `stderr`."""
        git = shutil.which("git") or "git"
        done = subprocess.run(  # noqa: S603 -- the argv is ours, the arguments are the test's
            [git, *arguments],
            cwd=cwd or self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        return done.stdout

    def environment(self) -> Mapping[str, str]:
        """Everything git sees. Commits made with it are the same on every run."""
        return {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_SSL_CAINFO": str(self.ca_file),
            "GIT_ASKPASS": str(self._askpass()),
            "GIT_SSH_COMMAND": self._ssh_command(),
            **{f"GIT_{role}_NAME": "Demo" for role in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{role}_EMAIL": "demo@example.org" for role in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{role}_DATE": _FIXED_DATE for role in ("AUTHOR", "COMMITTER")},
        }

    def _askpass(self) -> Path:
        script = self.folder / "askpass"
        if self.username is None or self.password is None:
            return Path("/bin/false")
        if not script.exists():
            script.touch(mode=0o700)
            script.write_text(
                f"#!/bin/sh\ncase \"$1\" in User*) echo '{self.username}' ;; *) echo '{self.password}' ;; esac\n"
            )
        return script

    def _ssh_command(self) -> str:
        hosts = self.folder / "known_hosts"
        hosts.write_text(self.known_hosts)
        key = str(self.ssh_key_file or "/dev/null")
        options = (
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "StrictHostKeyChecking=yes",
            f"UserKnownHostsFile={hosts}",
        )
        return " ".join(["ssh", "-F", "none", "-i", key, *(f"-o {option}" for option in options)])
