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


def test_packages_that_write_into_their_own_folder_are_copied_and_the_script_runs_once_more(tmp_path: Path) -> None:
    """Until the layer is another one. The layer stays as it is. Controls: a script that fails otherwise, or says it of
    another folder, runs once.
    """
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    layer, root = tmp_path / "layer", tmp_path / "root"
    for package in ("writer", "@s/user"):
        (layer / "node_modules" / package).mkdir(parents=True)
    folder = layer.as_posix()
    (layer / "node_modules/writer/cli.js").write_text(
        f"""#!/usr/bin/env node
const path = require('path'), here = __dirname
console.log('ran', path.relative({str(tmp_path)!r}, here))
if (!here.startsWith('{folder}/')) require('fs').writeFileSync(path.join(here, 'own'), '')
else if (process.argv[2]) process.exit(console.log(process.argv[2]) || 3)
else throw new Error("EROFS: read-only file system, open '" + here + "/own'")
"""
    )
    (layer / "node_modules/writer/cli.js").chmod(0o755)
    (layer / "node_modules/.bin").mkdir()
    (layer / "node_modules/.bin/writer").symlink_to("../writer/cli.js")
    (root / "node_modules/brought").mkdir(parents=True)

    def check(script: str) -> tuple[int, list[str]]:
        (root / "package.json").write_text(json.dumps({"scripts": {"test": script}}))
        environment = {**os.environ, "SANDBOX_NODE_LAYER": folder}
        done = subprocess.run([PROGRAM, "test"], cwd=root, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, [line[4:] for line in done.stdout.splitlines() if line.startswith("ran ")]

    in_layer, in_tree = "layer/node_modules/writer", "root/node_modules/writer"
    assert check("writer other") == (3, [in_layer])
    assert check("writer \"EROFS: read-only file system, open '/elsewhere/own'\"") == (3, [in_layer])
    assert check("sleep 9 & writer") == (0, [in_layer, in_tree])
    assert check("writer") == (0, [in_tree])
    assert sorted(path.name for path in (layer / "node_modules/writer").iterdir()) == ["cli.js"]
    assert (root / "node_modules/@s/user").is_dir()
    assert not (root / "node_modules/@s/user").is_symlink()

    layer.rename(tmp_path / "old")
    shutil.copytree(tmp_path / "old", layer, symlinks=True)
    shutil.rmtree(layer / "node_modules/@s")
    assert check("writer other") == (3, [in_layer])
    assert not (root / "node_modules/@s/user").exists()
    assert (root / "node_modules/brought").is_dir()


@pytest.mark.parametrize(
    ("scripts", "ran"),
    [
        ({"install": "echo ran 1; exit 1", "postinstall": "echo ran 2", "prepare": "echo ran 3"}, ["1", "2", "3"]),
        ({"prepare": "echo ran not", "prebuild": "echo ran 1", "build": "echo ran 2"}, ["1", "2"]),
        ({"preinstall": "echo ran not", "prepare": "husky install || echo ran not"}, []),
        ({"preinstall": ":", "binding.gyp": ""}, []),
        ({"binding.gyp": ""}, ["node-gyp rebuild"]),
    ],
    ids=["installation", "build", "hooks of git", "no", "native"],
)
def test_a_build_runs_what_npm_runs_after_an_installation(
    scripts: dict[str, str], ran: list[str], tmp_path: Path
) -> None:
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    if "binding.gyp" in scripts:
        (tmp_path / "binding.gyp").touch()
    (tmp_path / "node-gyp").write_text('#!/bin/sh\necho "ran node-gyp $1"\n')
    (tmp_path / "node-gyp").chmod(0o755)
    (tmp_path / "package.json").write_text(json.dumps({"scripts": scripts}))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [PROGRAM, "build"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, [line[4:] for line in done.stdout.splitlines() if line.startswith("ran ")]) == (0, ran)
    assert ("install failed, going on" in done.stderr) == ("exit 1" in scripts.get("install", ""))


@pytest.mark.parametrize(("script", "said"), [("echo ran $NO_COLOR", ""), ("echo ran $NO_COLOR # vitest", "1")])
def test_what_a_project_does_with_colors_can_be_tested(script: str, said: str, tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    (tmp_path / "package.json").write_text(json.dumps({"scripts": {"test": script}}))
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run([PROGRAM, "test"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, f"ran {said}".strip())


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
