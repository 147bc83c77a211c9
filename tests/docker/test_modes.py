"""Modes below the home after checks and a map, and in a clean room while one runs, are the same under every umask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools.guests import remove_guests_of
from sandbox.files.mount_points import unmount_below
from tests.docker.bench import Bench
from tests.unit.store.test_modes import Modes, read_modes

pytestmark = pytest.mark.usefixtures("engine")
PROFILE = """
label = "modes"
image = "base"
priority = 99
[[detect.any]]
file = "bench"
[[check]]
id = "list"
label = "lists what it has"
argv = ["sh", "-c", '''
find /workspace /report -exec stat -c '%a %n' {} + | sort -k 2
echo x > out
echo '<testsuite><testcase name="a"/></testsuite>' > /report/a.xml''']
timeout_s = 60
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }
[[check.artifact]]
path = "out"
"""


def run_checks(root: Path, mask: int) -> tuple[Modes, list[str]]:
    """Modes below the home after a check in a task and one in a clean room; and what each of them saw."""
    root.mkdir()
    before = os.umask(mask)
    try:
        bench = Bench(root)
        (bench.home / "profiles" / "bench.toml").write_text(PROFILE)
        with bench.open() as workbench:
            task = workbench.create_task(bench.repo_id).id
            runs = [*workbench.run_checks(task, ["list"]), *workbench.verify(task).runs]
            assert [len(workbench.artifacts(run.run_id).artifacts) for run in runs] == [1, 1]
            workbench.write_file(task, "code.py", b"def symbol_of_code(): pass\n", None)
            workbench.commit(task, "code")
            assert "symbol_of_code" in workbench.map(task).map, "the guest of the map reads its list and the files"
            return read_modes(bench.home), [run.stdout_tail for run in runs]
    finally:
        os.umask(before)
        remove_guests_of(root / "home")
        unmount_below(root)


def test_modes_of_runs_and_rooms_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    """Control: what a test writes itself, such as the profile, depends on it."""
    expected = (
        "logs/task-*/run-*.json",
        "logs/task-*/run-*.stdout",
        "logs/task-*/run-*.artifacts",
        "logs/task-*/run-*.tests",
    )
    (modes, seen), *others = (run_checks(tmp_path / f"{mask:o}", mask) for mask in (0o022, 0o000, 0o077))
    assert "/workspace/bench" in seen[1], "void"
    assert {f"repositories/{name}" for name in expected} <= modes.keys(), "void"
    for found, saw in others:
        assert saw == seen
        names = found.keys() | modes.keys()
        different = {name: (found.get(name), modes.get(name)) for name in names if found.get(name) != modes.get(name)}
        assert [name for name in different if name.startswith("profiles")], "void"
        assert {k: v for k, v in different.items() if not k.startswith(("profiles", "config.toml"))} == {}
