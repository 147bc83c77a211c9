"""A controller that is not root, with the real engine: it works, and says which promises are weaker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.command import SANDBOX
from devtools.requirement import unavailable
from sandbox.engine.connection import DockerEngine
from tests.unit.conftest import initialised

UID = 64123
PROFILE = """
label = "own"
image = "base"
priority = 99
[[detect.any]]
file = "own"
[[check]]
id = "who"
label = "who"
argv = ["sh", "-c", "id -u && touch built"]
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }
"""


class User:
    """A home and a repository of a user of the docker group, and commands that this user runs."""

    def __init__(self, folder: Path, engine: DockerEngine) -> None:
        socket = Path(engine.endpoint.url.removeprefix("unix://"))
        self.home = folder / "home"
        (self.home / "profiles").mkdir(parents=True)
        (self.home / "profiles" / "own.toml").write_text(PROFILE)
        self.upstream = initialised(folder / "upstream")
        self.upstream.write("own")
        self.upstream.commit()
        for path in (folder, *folder.rglob("*")):
            os.chown(path, UID, UID, follow_symlinks=False)
        self.home.chmod(0o700)
        # The interpreter and the project may lie where only root looks: reading is the one right that stays.
        self.prefix = (
            *("setpriv", f"--reuid={UID}", f"--regid={UID}", f"--groups={socket.stat().st_gid}"),
            *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
            "--bounding-set=-all,+dac_read_search",
        )
        self.environ = os.environ | {"SANDBOX_HOME": str(self.home), "HOME": str(folder)}

    def run(self, *words: str) -> Any:  # the answer of a command as JSON
        command = [*self.prefix, *SANDBOX, *words, "--json"]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=300)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def user(tmp_path: Path, engine: DockerEngine, base_image: str) -> Iterator[User]:
    assert base_image
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        unavailable("Only root can become another user")
    parents = [path for path in tmp_path.parents if path.stat().st_mode & 0o001 == 0]
    for path in parents:
        path.chmod(path.stat().st_mode | 0o011)
    yield User(tmp_path, engine)
    for path in parents:
        path.chmod(path.stat().st_mode & ~0o011)


def test_a_room_of_a_controller_that_is_not_root_is_fresh_but_not_clean(user: User) -> None:
    answer = user.run("run", str(user.upstream.root))
    [run] = answer["runs"]
    assert answer["verified"], answer
    assert (run["guest_user"], run["stdout_tail"]) == ("shared", f"{UID}\n")
    weak = {line["name"]: line["level"] for line in user.run("doctor")["probes"] if line["name"].startswith("wall: ")}
    assert {name for name, level in weak.items() if level != "ok"} == {"wall: users", "wall: failures"}
