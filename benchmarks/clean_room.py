"""S4: a clean-room verify of one trivial check, against the engine's API doing create, start, wait and remove."""

from __future__ import annotations

import tempfile
from pathlib import Path

import docker

from benchmarks._harness import compare
from benchmarks._repositories import make
from sandbox import VerifyOptions, Workbench

PROFILE = 'label = "Trivial"\nimage = "base"\n[[check]]\nid = "true"\nlabel = "true"\nargv = ["/bin/true"]\n'


def main() -> None:
    api = docker.APIClient(timeout=60)
    image = str(api.inspect_image("space-sandbox/base:latest")["Id"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "home" / "profiles").mkdir(parents=True)
        (folder / "home" / "profiles" / "generic.toml").write_text(PROFILE)
        remote = make(folder / "remote.git", "small")
        with Workbench(folder / "home", allow_file=True, environ={}) as workbench:
            repository = workbench.clone(str(remote)).repository
            task = workbench.create_task(repository.id)

            def product() -> None:
                assert workbench.verify(task.id, options=VerifyOptions(cache=False)).verified

            def floor() -> None:
                host = api.create_host_config(network_mode="none")
                container = str(api.create_container(image, ["/bin/true"], host_config=host)["Id"])
                api.start(container)
                api.wait(container)
                api.remove_container(container)

            compare("S4 verify, one trivial check, 100 files", product, floor, floor_name="engine API", target="1.2x")
    api.close()


if __name__ == "__main__":
    main()
