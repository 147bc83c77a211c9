"""Launch the application of the tests with a window, in the image `space`: `make desktop`. Not part of `make test`.

The control is the same with Debian's own libudev, which gives up without the kernel's uevent socket.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from sandbox.files.mount_points import unmount_below
from sandbox.workbench import Watch, Workbench

DATA = Path(__file__).parents[1] / "tests" / "data"
REAL_UDEV = '"env", "LD_PRELOAD=/lib/x86_64-linux-gnu/libudev.so.1", '
REPLACED = {
    'name = "build"': 'name = "space"',
    '["make", "build"]': '["make", "build", "WINDOW=1"]',
    'argv = ["build/lantern", "<run>"]': 'argv = ["sandbox-display", "build/lantern", "<run>"]',
    "memory_bytes = 134217728": "memory_bytes = 1073741824",
    "deadline_s = 6\n": "deadline_s = 60\n",
}


def write_profile(home: Path, before: str = "") -> None:
    """The profile of the tests, for a window. `before`: words before the application's own."""
    text = (DATA / "lantern.toml").read_text()
    for old, new in REPLACED.items():
        if old not in text:
            raise ValueError(f"tests/data/lantern.toml has no {old!r} any more")
        text = text.replace(old, new)
    (home / "profiles").mkdir(parents=True, exist_ok=True)
    (home / "profiles" / "lantern.toml").write_text(text.replace('display", ', f'display", {before}'))


def launch(home: Path, project: Path) -> tuple[bool, str]:
    """Whether the candidate passed, and its phases with what it printed."""
    with Workbench(home, environ=os.environ, allow_file=True) as workbench:
        repository = workbench.clone(project.as_uri()).repository
        result = workbench.candidate(repository.id, Watch(building=lambda line: _tell(sys.stderr, line)))
    lines = [phase.describe() for run in result.runs for phase in run.phases]
    return result.verified, "\n".join([*lines, *(run.stdout_tail + run.stderr_tail for run in result.runs)])


def make_project(folder: Path) -> Path:
    """A repository with the application."""
    project = folder / "lantern"
    shutil.copytree(DATA / "lantern", project)
    identity = ["-c", "user.name=Lantern", "-c", "user.email=lantern@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=project, check=True)  # noqa: S603, S607 - our own words
    return project


def _tell(stream: TextIO, text: str) -> None:
    stream.write(f"{text}\n")


def main() -> int:
    """Exit code 0: it passed with the stand-in, and did not without."""
    with tempfile.TemporaryDirectory(prefix="desktop-") as name:
        project, home = make_project(Path(name)), Path(name) / "home"
        try:
            write_profile(home)
            passed, said = launch(home, project)
            _tell(sys.stdout, said)
            write_profile(home, REAL_UDEV)
            control, why = launch(home, project)
            _tell(sys.stdout, f"--- with Debian's libudev\n{why}")
        finally:
            unmount_below(Path(name))
    return 0 if passed and not control and "SDL" in why else 1


if __name__ == "__main__":
    raise SystemExit(main())
