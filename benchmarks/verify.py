"""S4: a clean-room verify of one trivial check, against the engine's API with create, start, wait and remove.

S5: a verify with a cached verdict, against starting `git rev-parse`; in process, and as a command.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import docker

from benchmarks._harness import compare
from benchmarks._repositories import make
from devtools.command import SANDBOX
from sandbox import VerifyOptions, Workbench

PROFILE = 'label = "Trivial"\nimage = "base"\n[[check]]\nid = "true"\nlabel = "true"\nargv = ["/bin/true"]\n'


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "home" / "profiles").mkdir(parents=True)
        (folder / "home" / "profiles" / "generic.toml").write_text(PROFILE)
        remote = make(folder / "remote.git", "small")
        with Workbench(folder / "home", allow_file=True, environ={}) as workbench:
            task_id = workbench.create_task(workbench.clone(str(remote)).repository.id).id
            clean_room(workbench, task_id)
            known(workbench, task_id, remote)
            command(folder / "home", task_id, remote)
            workbench.close_task(task_id, delete_worktree=True)


def clean_room(workbench: Workbench, task_id: str) -> None:
    api = docker.APIClient(timeout=60)
    image = str(api.inspect_image("space-sandbox/base:latest")["Id"])

    def product() -> None:
        assert workbench.verify(task_id, options=VerifyOptions(cache=False)).verified

    def floor() -> None:
        host = api.create_host_config(network_mode="none")
        container = str(api.create_container(image, ["/bin/true"], host_config=host)["Id"])
        api.start(container)
        api.wait(container)
        api.remove_container(container)

    compare("S4 verify, one trivial check, 100 files", product, floor, floor_name="engine API", target="1.2x")
    api.close()


def known(workbench: Workbench, task_id: str, remote: Path) -> None:
    def product() -> None:
        assert workbench.verify(task_id).runs[0].cached

    compare("S5 verify, known already", product, _rev_parse(remote), floor_name="git rev-parse", target="10x")


def command(home: Path, task_id: str, remote: Path) -> None:
    argv = [*SANDBOX, "--home", str(home), "--json", "verify", task_id]

    def product() -> None:
        subprocess.run(argv, check=True, capture_output=True, env=os.environ)

    floor = _rev_parse(remote)
    compare("S5 verify, known already, as a command", product, floor, floor_name="git rev-parse", target="-")


def _rev_parse(remote: Path) -> Callable[[], object]:
    argv = ["git", f"--git-dir={remote}", "rev-parse", "HEAD"]
    return lambda: subprocess.run(argv, check=True, capture_output=True)


if __name__ == "__main__":
    main()
