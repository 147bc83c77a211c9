"""The checks of an npm project, by the program of the image, on a host with Node.js: its layer is not there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


def test_a_package_json_that_is_no_json_fails_each_check_and_says_where(check: Check, tmp_path: Path) -> None:
    (tmp_path / "root/package.json").write_text('{\n  "scripts": {"test": "x",}\n}\n')
    assert check(workspace="") == (66, [])
    argv = [str(tmp_path / "bin/sandbox-node-check"), "build"]
    done = subprocess.run(argv, cwd=tmp_path / "root", capture_output=True, text=True, check=False)
    assert done.returncode == 66
    assert done.stderr.startswith("sandbox-node-check: package.json: line 2, column 27: "), done.stderr


@dataclass(frozen=True)
class Project:
    """A project with a layer. Its package `writer` writes into its own folder, its package `@s/user` does not."""

    layer: Path
    root: Path

    def check(self, check: str = "test", **scripts: str) -> tuple[int, list[str]]:
        """Gives the exit status, and the lines of the scripts' output that say what ran."""
        done = self.run(check, scripts)
        return done.returncode, [line[4:] for line in done.stdout.splitlines() if line.startswith("ran ")]

    def run(self, check: str, scripts: Mapping[str, str], **environment: str) -> subprocess.CompletedProcess[str]:
        (self.root / "package.json").write_text(json.dumps({"scripts": scripts}))
        environment = {**os.environ, "SANDBOX_NODE_LAYER": str(self.layer), **environment}
        return subprocess.run(
            [PROGRAM, check], cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )


IN_LAYER, IN_TREE = "layer/node_modules/writer", "root/node_modules/writer"
PASSED_AGAIN = "the first run ended with status 1, this second one, on copies of the packages, with 0"


@pytest.fixture(name="project")
def make_project(tmp_path: Path) -> Project:
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
    return Project(layer, root)


def test_packages_that_write_into_their_own_folder_are_copied_and_the_script_runs_once_more(project: Project) -> None:
    """Until the layer is another one. The layer stays as it is. Controls: a script that fails otherwise, or says it of
    another folder, runs once.
    """
    layer, root = project.layer, project.root
    assert project.check(test="writer other") == (3, [IN_LAYER])
    elsewhere = "writer \"EROFS: read-only file system, open '/elsewhere/own'\""
    assert project.check(test=elsewhere) == (3, [IN_LAYER])
    assert project.check(test="sleep 9 & writer") == (0, [IN_LAYER, IN_TREE])
    assert project.check(test="writer") == (0, [IN_TREE])
    assert sorted(path.name for path in (layer / "node_modules/writer").iterdir()) == ["cli.js"]
    assert (root / "node_modules/@s/user").is_dir()
    assert not (root / "node_modules/@s/user").is_symlink()

    layer.rename(layer.with_name("old"))
    shutil.copytree(layer.with_name("old"), layer, symlinks=True)
    shutil.rmtree(layer / "node_modules/@s")
    assert project.check(test="writer other") == (3, [IN_LAYER])
    assert not (root / "node_modules/@s/user").exists()
    assert (root / "node_modules/brought").is_dir()


def refuse(name: str) -> str:
    return f"echo \"EROFS: read-only file system, open '{name}'\" >&2; "


def test_a_script_runs_once_more_only_if_the_error_is_its_end_and_that_it_passed_then_is_said(project: Project) -> None:
    """A flaky test that fails the first time. Controls: it ends with the error, also by a name through a link."""
    flaky = "echo ran; test -e again || { touch again; exit 1; }"
    for name, between, said in (
        (f"{project.layer}/node_modules/writer/own", "seq 40 >&2; ", False),
        (f"{project.layer}/node_modules/writer/own", "", True),
        ("node_modules/writer/own", "seq 30; ", True),
        (f"{project.root}/node_modules/@s/user/x' -> 'y", "", True),
        (f"y' -> '{project.root}/node_modules/@s/user/x", "", True),
        (f"{project.root}/node_modules/brought/x", "", False),
    ):
        shutil.rmtree(project.root)
        (project.root / "node_modules/brought").mkdir(parents=True)
        done = project.run("test", {"test": f"{refuse(name)}{between}{flaky}"})
        assert (done.returncode, done.stderr.rstrip().endswith(PASSED_AGAIN)) == (0 if said else 1, said), name
    (project.root / "again").unlink()
    assert project.check(pretest=refuse("node_modules/writer/own"), test=flaky)[0] == 1, "another script said it"


def test_members_run_once_more_only_if_all_that_failed_were_refused(project: Project, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("sandbox-node-check", "pnpm"):
        shutil.copy(PROGRAM, tmp_path / "bin" / name)
    (project.root / "pnpm-workspace.yaml").write_text("packages: [a, b]\n")
    scripts = {"a": "writer", "b": "test -e again || { touch again; exit 1; }"}
    for folder, script in scripts.items():
        (project.root / folder).mkdir()
        (project.root / folder / "package.json").write_text(json.dumps({"scripts": {"test": script}}))
        (project.layer / folder / "node_modules").mkdir(parents=True)
    (project.layer / "a/node_modules/.bin").mkdir()
    (project.layer / "a/node_modules/.bin/writer").symlink_to("../../../node_modules/writer/cli.js")
    environment = {**os.environ, "SANDBOX_NODE_LAYER": str(project.layer)}
    (project.root / "package.json").write_text("{}")
    argv = [str(tmp_path / "bin" / "sandbox-node-check"), "test"]
    for status, said in ((1, False), (0, True)):
        done = subprocess.run(argv, cwd=project.root, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, PASSED_AGAIN in done.stderr) == (status, said), done.stderr


def test_copies_of_an_interrupted_check_are_made_anew(project: Project) -> None:
    """What it planned stands in its marker. Control: that of a complete one."""
    marker, writer = project.root / "node_modules/.sandbox-copied", project.root / "node_modules/writer"
    assert project.check(test="writer") == (0, [IN_LAYER, IN_TREE])
    lines = marker.read_text().splitlines()
    assert lines[-1] == "done"
    assert "node_modules/writer" in lines
    (writer / "cli.js").unlink()
    assert project.check(test="ls node_modules/writer/cli.js")[0] != 0
    marker.write_text("\n".join(lines[:-1]) + "\n")
    writer.chmod(0o500)
    assert project.check(test="writer") == (0, [IN_LAYER, IN_TREE])
    assert marker.read_text().splitlines()[-1] == "done"


def test_the_marker_is_there_before_the_first_copy(project: Project) -> None:
    """A copy that fails is said, and leaves links."""
    pipe = project.layer / "node_modules/a-pipe"
    os.mkfifo(pipe)
    done = project.run("test", {"test": "writer"})
    assert done.returncode == 1
    assert "the packages could not be copied: " in done.stderr
    for package in ("@s/user", "writer"):
        assert (project.root / "node_modules" / package).is_symlink()
    assert not (project.root / "node_modules/.sandbox-copied").exists()


def test_an_install_script_that_is_refused_runs_once_more_and_the_build_finds_its_packages(project: Project) -> None:
    """Also after a script that empties the folder. Control: one that fails otherwise runs once."""
    assert project.check("build", install="writer", build="writer") == (0, [IN_LAYER, IN_TREE, IN_TREE])
    shutil.rmtree(project.root / "node_modules")
    assert project.check("build", install="writer other", build="true") == (0, [IN_LAYER])
    assert project.check("build", install="rm -rf node_modules", build="writer other") == (3, [IN_LAYER])


def test_an_install_script_has_a_time_limit_with_all_its_processes(project: Project) -> None:
    done = project.run(
        "build", {"install": "sleep 77 & echo $! > pid; wait", "build": "echo ran"}, SANDBOX_NODE_INSTALL_TIMEOUT="0.5"
    )
    assert (done.returncode, "ran" in done.stdout.splitlines()) == (0, True)
    assert "it did not end in 0.5 s and is stopped" in done.stderr
    assert "install failed, going on" in done.stderr
    pid = (project.root / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]


def test_a_server_that_a_script_starts_in_the_background_can_write_until_all_scripts_ended(project: Project) -> None:
    server = "(while sleep 0.2; do echo served; touch alive; done) &"
    found = project.run("test", {"pretest": server, "test": "sleep 0.5; rm alive; sleep 1; test -e alive && echo ran"})
    assert (found.returncode, "ran" in found.stdout.splitlines()) == (0, True)


def test_a_script_can_open_its_output_by_name(project: Project) -> None:
    """With the sockets that Node gives a child it cannot."""
    done = project.run("test", {"test": "echo by-name > /dev/stderr; echo also > /dev/stdout"})
    assert (done.returncode, "by-name" in done.stderr, "also" in done.stdout) == (0, True, True)


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


@pytest.mark.parametrize(
    ("manager", "pattern", "expected"),
    [
        ("pnpm", "/^build:.*/", (0, ["build:a x", "build:b x"])),
        ("pnpm", r"/:a$|^fails$|c\/d/", (7, ["build:a x"])),
        ("pnpm", r"/c\/d/", (0, ["c/d x"])),
        ("pnpm", "/none/", (1, [])),
        ("pnpm", "/(/", (1, [])),
        ("yarn", "/^build:.*/", (1, [])),
    ],
)
def test_pnpm_runs_all_scripts_that_a_pattern_fits(
    manager: str, pattern: str, expected: tuple[int, list[str]], project: Project, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(PROGRAM, tmp_path / "bin" / manager)
    names = ("build:a", "prebuild", "build:b", "c/d")
    scripts = {name: f"echo ran {name}" for name in names[:1]} | {"fails": "exit 7"}
    scripts |= {name: f"echo ran {name}" for name in names[1:]}
    (project.root / "package.json").write_text(json.dumps({"scripts": scripts}))
    argv = [str(tmp_path / "bin" / manager), "run", pattern, "x"]
    done = subprocess.run(argv, cwd=project.root, capture_output=True, text=True, check=False)
    assert (done.returncode, [one[4:] for one in done.stdout.splitlines()]) == expected, done.stderr


def test_a_pattern_does_not_fit_the_script_that_asks_for_it(project: Project, tmp_path: Path) -> None:
    """As in pnpm. The limits are for a program that would start itself without end."""
    (tmp_path / "bin").mkdir()
    shutil.copy(PROGRAM, tmp_path / "bin/pnpm")
    scripts = {"test": 'test "$LEVEL" != xx && LEVEL=x$LEVEL pnpm run /^test/', "test:a": "echo ran a"}
    (project.root / "package.json").write_text(json.dumps({"scripts": scripts}))
    environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    argv = [str(tmp_path / "bin/pnpm"), "run", "test"]
    done = subprocess.run(
        argv, cwd=project.root, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "ran a\n"), done.stderr


WORKSPACE = {  # in folders of other names than theirs
    "": {"name": "root", "workspaces": ["m/*"], "scripts": {"all": "echo ran root"}},
    "m/1": {"name": "a", "dependencies": {"@s/c": "1"}, "scripts": {"test": "echo ran a; exit 7", "all": "echo ran a"}},
    "m/2": {"name": "b", "scripts": {"test": "echo ran b", "all": "echo ran b", "only-b": "echo ran b"}},
    "m/3": {"name": "@s/c", "scripts": {"all": "echo ran c"}},
}


@pytest.fixture(name="ask")
def make_workspace(tmp_path: Path) -> Callable[[str], tuple[int, list[str], str]]:
    """Runs a line with `yarn` or `pnpm` at the root of a workspace. Gives the status, which members ran, and stderr."""
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    for name in ("yarn", "pnpm"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        shutil.copy(PROGRAM, tmp_path / "bin" / name)
    root = tmp_path / "root"
    for folder, manifest in WORKSPACE.items():
        (root / folder).mkdir(parents=True)
        (root / folder / "package.json").write_text(json.dumps(manifest))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("npm_")}
    environment["PATH"] = f"{tmp_path}/bin:{os.environ['PATH']}"

    def ask(line: str) -> tuple[int, list[str], str]:
        argv = ["sh", "-c", line]
        done = subprocess.run(argv, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, [one[4:] for one in done.stdout.splitlines() if one.startswith("ran ")], done.stderr

    return ask


@pytest.mark.parametrize(
    ("line", "status", "ran"),
    [
        ("yarn workspaces foreach --all run test", 7, ["a"]),
        ("yarn workspaces foreach --all --exclude docs run test", 7, ["a"]),
        ("yarn workspaces foreach -Apt -j 2 --from a run test", 7, ["a"]),
        ("yarn workspaces foreach --include a run test", 7, ["a"]),
        ("yarn workspaces foreach -A --include 'm/*' --exclude a run test", 0, ["b"]),
        ("yarn workspaces foreach --all run all", 0, ["root", "a", "b", "c"]),
        ("yarn workspaces foreach -R --from a run all", 0, ["a", "c"]),
        ("yarn workspaces run test", 7, ["a"]),
        ("yarn workspace a test", 7, ["a"]),
        ("pnpm -r test", 7, ["a"]),
        ("pnpm -r t", 7, ["a"]),
        ("pnpm -r --loglevel error test", 7, ["a"]),
        ("pnpm run -r --no-bail all", 0, ["a", "b", "c"]),
        ("pnpm --filter b --filter a test", 7, ["a"]),
        ("pnpm --filter=@s/* --filter ./m/2 run all", 0, ["b", "c"]),
        ("pnpm run --filter b all", 0, ["b"]),
        ("pnpm --filter !a run all", 0, ["b", "c"]),
        ("pnpm -r only-b", 0, ["b"]),
        ("pnpm -C . -r --filter a test", 7, ["a"]),
        ("cd m/2 && pnpm -w run all", 0, ["root"]),
        ("cd m/2 && pnpm run -w all", 0, ["root"]),
        ("cd m/2 && yarn run all", 0, ["b"]),  # the control of the next ones
        ("cd m/2 && yarn run -T all", 0, ["root"]),
        ("cd m/2 && yarn run -TB all", 0, ["root"]),
        ("yarn workspaces foreach -A --include b run -T all", 0, ["root"]),
        ("cd m/2 && yarn run --top-level only-b", 1, []),
        ("cd m/2 && yarn run -T echo ran here", 0, ["here"]),
        ("pnpm -r --if-present run unit", 0, []),
        ("pnpm -r run --if-present unit", 0, []),
    ],
)
def test_members_that_an_option_of_yarn_or_pnpm_names_run(
    line: str, status: int, ran: list[str], ask: Callable[[str], tuple[int, list[str], str]]
) -> None:
    assert ask(line)[:2] == (status, ran), ask(line)[2]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pnpm -r run unit", "no member of the workspace that is chosen has a script `unit`"),
        ("yarn workspaces foreach -A run unit", "no member of the workspace that is chosen has a script `unit`"),
        ("pnpm --filter a --filter d test", "no member of the workspace is d"),
        ("yarn workspaces foreach -A --exclude '**' run test", "no member of the workspace is chosen"),
        ("yarn workspaces foreach --since run test", "the option `--since` is not known here"),
        ("pnpm -r --unknown error test", "the option `--unknown` is not known here"),
        ("yarn --unknown test test", "the option `--unknown` is not known here"),
        ("pnpm --filter @s/c test m", "there is neither a script nor a program `test`"),
    ],
)
def test_yarn_and_pnpm_fail_and_say_why_where_no_member_would_run(
    line: str, said: str, ask: Callable[[str], tuple[int, list[str], str]]
) -> None:
    status, ran, stderr = ask(line)
    assert (status != 0, ran, said in stderr) == (True, [], True), stderr


@pytest.mark.parametrize("is_there", [True, False])
def test_a_real_pnpm_of_the_layer_downloads_no_other_version(is_there: bool, project: Project) -> None:
    if is_there:
        (project.layer / "node_modules/.bin/pnpm").symlink_to("../writer/cli.js")
    says = 'echo "ran ${COREPACK_ROOT-unset}${pnpm_config_pm_on_fail+ $pnpm_config_pm_on_fail}"'
    done = project.run("test", {"test": f"{says}; npm --version"})
    assert done.stdout.splitlines()[0] == ("ran  ignore" if is_there else "ran unset")
    assert (done.returncode, "npm warn" in done.stderr.lower()) == (0, False), done.stderr
