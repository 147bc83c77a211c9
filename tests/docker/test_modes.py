"""Modes below the home after checks and a map, and in a clean room while one runs, are the same under every umask."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import trustme

from devtools.forges.lfs import serving_lfs, store_credential
from devtools.guests import remove_guests_of
from sandbox.attack.harness import package_runs
from sandbox.attack.harness.package_index import serve_packages
from sandbox.files.mount_points import unmount_below
from sandbox.workbench import Workbench
from tests.docker.bench import Bench
from tests.unit.conftest import initialised
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


@pytest.mark.parametrize("mask", [0o077, pytest.param(0o022, marks=pytest.mark.thorough)], ids=oct)
def test_modes_of_runs_and_rooms_do_not_depend_on_the_umask(tmp_path: Path, mask: int) -> None:
    """Control: what a test writes itself, such as the profile, depends on it."""
    expected = (
        "logs/task-*/run-*.json",
        "logs/task-*/run-*.stdout",
        "logs/task-*/run-*.artifacts",
        "logs/task-*/run-*.tests",
    )
    (modes, seen), (found, saw) = (run_checks(tmp_path / f"{each:o}", each) for each in (0o000, mask))
    assert "/workspace/bench" in seen[1], "void"
    assert {f"repositories/{name}" for name in expected} <= modes.keys(), "void"
    assert saw == seen
    assert_same_modes(found, modes)


def assert_same_modes(found: Modes, modes: Modes) -> None:
    names = found.keys() | modes.keys()
    different = {name: (found.get(name), modes.get(name)) for name in names if found.get(name) != modes.get(name)}
    assert [name for name in different if name.startswith("profiles")], "void"
    assert {k: v for k, v in different.items() if not k.startswith(("profiles", "config.toml"))} == {}


_OF_THIS_RUN = re.compile(r"(?<=127\.0\.0\.1-)\d+|(?<=/)[0-9a-z](?:/[0-9a-z](?:/[0-9a-z]+)?)?$")
"""The port of a server, and names that ccache makes."""

KEPT = ("repositories/dependencies/trees/", "repositories/lfs/", "repositories/compilers/", "keys/")


def run_with_everything(root: Path, mask: int) -> tuple[Modes, list[str]]:
    """Modes below the home after a project with a layer, and one with files of Git LFS that is compiled, were verified
    and their receipts exported; and what the compiled one saw.
    """
    root.mkdir()
    authority = trustme.CA()
    before = os.umask(mask)
    try:
        packages, compiled = initialised(root / "packages"), initialised(root / "compiled")
        with serve_packages() as index, serving_lfs(compiled.git_dir, authority) as host:
            store_credential(root / "home", host, authority)
            (root / "home" / "profiles").mkdir()
            (root / "home" / "profiles" / "packages.toml").write_text(package_runs.PROFILE)
            index.add("evil", "1", {"evil.py": ""})
            packages.write("pyproject.toml", package_runs.PROJECT.encode())
            packages.write("use.py", b"import evil\n")
            packages.commit()
            compiled.write(".gitattributes", b"*.bin filter=lfs -text\n")
            compiled.write("model.bin", host.rules.add(b"large\n"))
            compiled.write("main.c", b"int main() { return 0; }\n")
            compiled.write("Makefile", MAKEFILE)
            compiled.commit()
            settings = {"registries": {"python": [index.url]}}
            with Workbench(root / "home", settings=settings, allow_file=True) as workbench:
                workbench.set_repository(workbench.clone(host.url).repository.id, {"lfs": True})
                summaries = [workbench.run(str(packages.root)), workbench.run(host.url)]
                assert [summary.verified for summary in summaries] == [True, True], summaries
                assert summaries[0].runs[0].layers
                assert summaries[1].runs[0].compiler_cache == "filled"
                for summary in summaries:
                    workbench.export_receipt(summary)
                workbench.create_task(workbench.repositories()[1].id)
                modes = read_modes(root / "home", _OF_THIS_RUN)
                return modes, [run.stdout_tail for run in summaries[1].runs]
    finally:
        os.umask(before)
        remove_guests_of(root / "home")
        unmount_below(root)


MAKEFILE = b"""\
app: main.c
\tg++ -x c++ -c main.c -o main.o
\tg++ main.o -o app
\t@find . -exec stat -c '%a %n' {} + | sort -k 2
test: app
\t@cat model.bin
clean:
.PHONY: app test
"""


@pytest.mark.usefixtures("build_image")
def test_modes_of_layers_large_files_and_compiler_caches_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    (modes, seen), (found, saw) = (run_with_everything(tmp_path / f"{mask:o}", mask) for mask in (0o000, 0o077))
    assert "large" in seen[-1], "void"
    for part in KEPT:
        assert [name for name in modes if name.startswith(part)], f"void: {part}"
    assert saw == seen
    assert_same_modes(found, modes)
