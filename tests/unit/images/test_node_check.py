"""The checks of an npm project, by the program of the image, on a host with Node.js: its layer is not there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.unit.dependencies.manifest_trees import PNPM_WORKSPACES

PROGRAM = Path(__file__).parents[3] / "images" / "node" / "sandbox-node-check"
PACKAGES = ("lib/one", "lib/one/inner", "lib/two", "other")
UNPRIVILEGED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()

Check = Callable[..., tuple[int, list[str]]]


@pytest.fixture(name="check")
def make_check(tmp_path: Path) -> Check:
    """Runs it in a tree of packages. Gives the exit status, and for each package whose test ran its arguments."""
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    for name in ("sandbox-node-check", "pnpm"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        shutil.copy(PROGRAM, tmp_path / "bin" / name)
        (tmp_path / "bin" / name).chmod(0o755)
    root = tmp_path / "root"
    for folder in PACKAGES:
        (root / folder).mkdir(parents=True)
        (root / folder / "package.json").write_text(json.dumps({"scripts": {"test": f"echo ran {folder}"}}))
    (root / "package.json").write_text("{}")

    def check(*arguments: str, workspace: str, argv: Sequence[str] = UNPRIVILEGED) -> tuple[int, list[str]]:
        (root / "pnpm-workspace.yaml").write_bytes(workspace.encode())
        command = [*argv, str(tmp_path / "bin" / "sandbox-node-check"), "test", *arguments]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        return done.returncode, [line[4:] for line in done.stdout.splitlines() if line.startswith("ran ")]

    return check


@pytest.mark.parametrize("listed", PNPM_WORKSPACES.values(), ids=PNPM_WORKSPACES)
def test_members_that_pnpm_lists_are_those_of_the_layer(listed: str, check: Check) -> None:
    assert check(workspace=listed) == (0, ["lib/one"])


@pytest.mark.parametrize("listed", ["", "packages: lib/*\n", "packages:\n\tlib/*\n", " packages: [lib/*]\n"])
def test_what_lists_no_members_has_none(listed: str, check: Check) -> None:
    assert check(workspace=listed) == (65, [])


ALL = "packages:\n  - lib/**\n  - other\n"


@pytest.mark.parametrize(
    ("arguments", "ran"),
    [
        ([], ["lib/one", "lib/one/inner", "lib/two", "other"]),
        (["by-name"], ["lib/one by-name", "lib/one/inner by-name", "lib/two by-name", "other by-name"]),
        (["lib/one/a.test.js", "./other/t/b.js"], ["lib/one a.test.js", "other t/b.js"]),
        (["lib/one/inner/a.js", "by-name"], ["lib/one/inner a.js by-name"]),
        (["lib/two"], ["lib/two"]),
        (["lib/two-more/a.js"], [f"{one} lib/two-more/a.js" for one in PACKAGES]),
    ],
)
def test_files_of_a_member_are_given_to_it_alone_by_their_names_there(
    arguments: list[str], ran: list[str], check: Check
) -> None:
    assert check(*arguments, workspace=ALL) == (0, ran)


def test_a_folder_that_cannot_be_read_has_no_packages(check: Check, tmp_path: Path) -> None:
    left = tmp_path / "root" / "lib" / "left"
    (left / "inner").mkdir(parents=True)
    for closed in (left / "inner", left):
        closed.chmod(0)
    try:
        assert check(workspace=ALL) == (0, list(PACKAGES))
    finally:
        left.chmod(0o700)
        (left / "inner").chmod(0o700)
