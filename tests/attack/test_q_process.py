"""THREATS Q: the controller's own surroundings: inherited variables, PATH, descriptors, process groups, modes."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devtools.command import SANDBOX
from devtools.host_speed import slowness
from devtools.waiting import wait_until
from sandbox.errors import ErrorCode
from sandbox.git import process
from sandbox.git.process import Git
from tests.attack.arena import Arena, refused

pytestmark = pytest.mark.must
NAP = f"31.{os.getpid()}"  # by which our sleepers are told from those of another test process

LIFE = """
import sys
from pathlib import Path
from typing import Any
sys.path.insert(0, {checkout!r})
from sandbox.workbench import Workbench
with Workbench(Path({home!r}), allow_file=True) as wb:
    task = wb.create_task(wb.clone({remote!r}).repository.id)
    root = task.worktree_path
    (root / "f.txt").write_text("changed\\n")
    wb.status(task.id), wb.diff(task.id), wb.commit(task.id, "x"), wb.push(task.id)
    wb.close_task(task.id, delete_worktree=True)
print("whole")
"""


def hostile(arena: Arena) -> dict[str, str]:
    """Every variable that git or its helpers obey, each with a mark of its own."""
    evil_config = arena.root / "evil.config"
    hooks = arena.root / "hooks"
    hooks.mkdir()
    mark = arena.script
    for name in ("reference-transaction", "post-index-change", "pre-push", "post-checkout"):
        (hooks / name).write_text(Path(mark("hook")).read_text())
        (hooks / name).chmod(0o755)
    evil_config.write_text(f"[core]\n\tfsmonitor = {mark('fsmonitor')}\n\thooksPath = {hooks}\n")
    template = arena.root / "template"
    template.mkdir()
    (template / "hooks").symlink_to(hooks)
    return {
        "GIT_EXTERNAL_DIFF": mark("external-diff"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(hooks),
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{mark('parameters')}'",
        "GIT_CONFIG_GLOBAL": str(evil_config),
        "GIT_CONFIG_SYSTEM": str(evil_config),
        "GIT_TRACE": str(arena.outside / "trace"),
        "GIT_TRACE2": str(arena.outside / "trace2"),
        "GIT_TRACE2_EVENT": str(arena.outside / "trace2e"),
        "GIT_TEMPLATE_DIR": str(template),
        "GIT_SSH": mark("ssh"),
        "GIT_SSH_COMMAND": mark("ssh-command"),
        "GIT_PROXY_COMMAND": mark("proxy"),
        "GIT_ASKPASS": mark("askpass"),
        "SSH_ASKPASS": mark("ssh-askpass"),
        "GIT_EDITOR": mark("editor"),
        "GIT_PAGER": mark("git-pager"),
        "PAGER": mark("pager"),
        "GIT_INDEX_FILE": str(arena.outside / "index"),
        "GIT_DIR": str(arena.outside),
        "GIT_WORK_TREE": str(arena.outside),
        "GIT_OBJECT_DIRECTORY": str(arena.outside),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(arena.outside),
        "GIT_NAMESPACE": "evil",
        "GIT_ATTR_SOURCE": "HEAD",
        "GIT_REPLACE_REF_BASE": "refs/heads/",
        "GIT_EXEC_PATH": str(arena.outside),
        "GIT_COMMON_DIR": str(arena.outside),
        "XDG_CONFIG_HOME": str(arena.outside),
        "BASH_ENV": mark("bash-env"),
        "ENV": mark("env"),
    }


def life(arena: Arena, **env: str) -> subprocess.CompletedProcess[str]:
    program = LIFE.format(checkout=str(Path.cwd()), home=str(arena.home), remote=str(arena.remote))
    environ = {**arena.build_environment(), **env}
    return subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_q01_every_inherited_git_variable_is_hostile(arena: Arena) -> None:
    env = hostile(arena)
    plain = arena.root / "plain"
    arena.require_git("clone", "-q", str(arena.remote), str(plain), cwd=arena.root)
    (plain / "f.txt").write_text("changed\n")
    before = arena.read_canaries()
    for names, command, mark in (
        (("GIT_EXTERNAL_DIFF",), ("diff",), "external-diff"),
        (("GIT_CONFIG_PARAMETERS",), ("status",), "parameters"),
        (("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0"), ("update-ref", "refs/x", "HEAD"), "hook"),
        (("GIT_CONFIG_GLOBAL",), ("status",), "fsmonitor"),
    ):
        some = {n: env[n] for n in names}
        arena.require_mark(mark, lambda some=some, command=command: arena.git(*command, cwd=plain, env=some))  # type: ignore[misc]
    arena.git("version", cwd=plain, env={"GIT_TRACE": env["GIT_TRACE"]})
    assert (arena.outside / "trace").exists(), "void"
    (arena.outside / "trace").unlink()
    os.utime(arena.outside, ns=(0, before[str(arena.outside)][4]))  # type: ignore[arg-type]  # an int
    done = life(arena, **env)
    assert done.stdout == "whole\n", done.stderr
    assert arena.marks() == set()
    assert arena.read_canaries() == before


def test_q03_only_git_on_the_fixed_path_is_run(arena: Arena) -> None:
    """As `node_modules/.bin` in PATH does. Control: plain commands take the first one.

    First in PATH, in the current directory, and as `GIT_PYTHON_GIT_EXECUTABLE`: each by itself, then all at once.
    """
    folder = arena.root / "bin"
    folder.mkdir()
    for name in ("git", "sh", "env", "ssh", "docker"):
        (folder / name).write_text(Path(arena.script("path")).read_text())
        (folder / name).chmod(0o755)
    usual = os.environ["PATH"]
    for git, where, path in (
        ("git", arena.root, f"{folder}:{usual}"),
        ("git", folder, f".::{usual}"),
        (str(folder / "git"), arena.root, usual),
    ):
        call = partial(subprocess.run, ["/usr/bin/env", git, "version"], cwd=where, env={"PATH": path}, check=True)
        arena.require_mark("path", partial(call, capture_output=True))
    extra = {"PATH": f".::{folder}:{usual}", "GIT_PYTHON_GIT_EXECUTABLE": str(folder / "git")}
    program = LIFE.format(checkout=str(Path.cwd()), home=str(arena.home), remote=str(arena.remote))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env={**arena.build_environment(), **extra},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "whole\n", done.stderr
    assert arena.marks() == set()


@pytest.mark.one_git
def test_q04_children_inherit_no_descriptor(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program in place of git lists its own. Control: an inheritable descriptor does reach a careless child."""
    lister = arena.root / "lister"
    lister.write_text("#!/bin/sh\nexec ls -l /proc/self/fd\n")
    lister.chmod(0o755)
    secret = (arena.outside / "secret").open("rb")
    os.set_inheritable(secret.fileno(), True)
    careless = subprocess.run([lister], close_fds=False, capture_output=True, text=True, check=True).stdout
    assert str(arena.outside) in careless, "void"
    monkeypatch.setattr("sandbox.git.process.git_executable", lambda _: str(lister))
    listing = Git(arena.cache).run("x").decode()
    secret.close()
    entries = [line.split(" ", 8)[-1].split() for line in listing.splitlines() if "->" in line]
    assert str(arena.outside) not in listing
    assert {e[-3] for e in entries} <= {"0", "1", "2", "3"}, listing  # 3: ls itself reads the directory
    assert "/dev/null" in listing


@pytest.mark.one_git
def test_q05_the_whole_group_dies_at_the_deadline(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: killing only the first process leaves its children."""
    spawner = arena.root / "spawner"
    spawner.write_text(f"#!/bin/sh\nsleep {NAP} & sleep {NAP}\n")
    spawner.chmod(0o755)
    control = subprocess.Popen([spawner], start_new_session=True)
    wait_until(lambda: len(sleepers()) >= 2)
    control.kill()
    control.wait()
    assert sleepers(), "void"
    os.killpg(control.pid, 9)
    wait_until(lambda: not sleepers())
    monkeypatch.setattr("sandbox.git.process.git_executable", lambda _: str(spawner))
    started = time.monotonic()
    with refused(ErrorCode.TIMEOUT):
        Git(arena.cache).run("x", deadline_s=0.5)
    assert time.monotonic() - started < 5 * slowness()
    wait_until(lambda: not sleepers())


def sleepers() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\0{NAP}\0".encode():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.one_git
def test_q07_home_is_private_whatever_the_umask(make_arena: Callable[..., Arena]) -> None:
    """Control: with this umask an ordinary file is open to all."""
    old = os.umask(0)
    try:
        arena = make_arena()
        (arena.root / "control").write_text("")
        assert stat.S_IMODE((arena.root / "control").stat().st_mode) == 0o666, "void"
        arena.new_task()
        (arena.worktree / "f.txt").write_text("changed\n")
        arena.workbench.commit(arena.task.id, "x")
        arena.workbench.push(arena.task.id)
    finally:
        os.umask(old)
    top = arena.home / "repositories"
    assert stat.S_IMODE(arena.home.stat().st_mode) == 0o700
    closed = {arena.home, top, *(p for p in top.iterdir() if p.is_dir()), arena.cache}
    assert {stat.S_IMODE(p.stat().st_mode) for p in closed} == {0o700}
    for path in arena.home.rglob("*"):
        if path.is_file() and not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            assert closed & set(path.parents) - {arena.home} or path.name in PUBLIC, path


PUBLIC = {"gitmask", "hosts", "instance"}
"""What every guest is given to read, or a random name."""


def test_q05_interrupt_leaves_no_git_behind(arena: Arena) -> None:
    """A clone from a server that never answers: the command is stopped, and its git ends with it.

    Control: until then the program that git started for the transfer holds the connection.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        url = f"https://127.0.0.1:{server.getsockname()[1]}/owner/name"
        command = [*SANDBOX, "--home", str(arena.home), "repo", "clone", url]
        environ = arena.build_environment()
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            connection, _ = server.accept()
            holders = processes_with(b"remote-https")
            process.terminate()
            process.communicate(timeout=60)
        with connection:
            connection.settimeout(30)
            with suppress(ConnectionResetError):
                while connection.recv(1 << 16):  # ends when nobody holds the other side any more
                    pass
    assert process.returncode == 130
    assert [url in line for line in holders].count(True) >= 1, "void"
    assert [line for line in processes_with(b"remote-https") if url in line] == []


def processes_with(word: bytes) -> list[str]:
    """Command lines that have this word in them."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word in (line := path.read_bytes()):
                lines.append(line.decode(errors="replace").replace("\0", " "))
    return lines


def test_git_used_by_the_controls_is_the_products(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controls prove something about the git that the product runs, in every command of a task's life."""
    programs: set[str] = set()
    real = process.build_command_line

    def recorded(*args: Any) -> process.CommandLine:
        command = real(*args)
        programs.add(command.argv[5 if command.argv[0] == "/bin/sh" else 0])  # `sh -c SCRIPT LIMIT LIMIT git`
        return command

    monkeypatch.setattr(process, "build_command_line", recorded)
    assert arena.run_every_operation() == []
    assert {Path(program).resolve() for program in programs} == {Path(arena.git_program).resolve()}
    assert arena.require_git("version", cwd=arena.root) == process.git_version(arena.home, arena.git_program)
