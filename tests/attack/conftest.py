"""Attacks run against a victim made anew for each test. The suite ends by proving that it left nothing behind."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from devtools import newergit
from devtools.copied_clones import copied_clones
from devtools.guests import remove_guests_of
from devtools.requirement import unavailable
from devtools.user_ids import release_users_below
from sandbox.attack.harness.scratch import ScratchDirectory
from sandbox.attack.harness.site import AttackRun
from sandbox.config import Settings
from sandbox.engine.connection import DockerEngine, connect
from sandbox.errors import SandboxError
from sandbox.files.mount_points import unmount_below
from sandbox.store.home import Home
from tests.attack.arena import ALL_RUNS, GIT, Arena

ABOUT_GIT = (*(f"test_{section}_" for section in "abcdefgq"), "test_i_search", "test_o_push", "test_s_local_remotes")
NOT_ABOUT_LAYOUTS = (*(f"test_{section}_" for section in "befgoq"), "test_s_local_remotes")
"""Entries on configuration, remotes, credentials, arguments and processes: how files lie on disk plays no part."""

EACH_PATH = tuple(f"test_{section}_" for section in "chj")
"""Entries on how paths are resolved and trees are walked: all their variations run in both layouts."""

ABOUT_CLONES = (
    *(f"test_{section}_" for section in "abcefgq"), "test_o_push", "test_s_local_remotes", "test_s_looks",
)  # fmt: skip
"""Entries on clones, their remotes and git's own files: what they attack was cloned by the product, never copied."""

_seen_on_newer: set[str] = set()

ROOM_FOR_LIMITS = "limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "must: an entry of THREATS that version 1 has to withstand")
    config.addinivalue_line("markers", "one_git: about our own code alone, so one git is enough")
    config.addinivalue_line("markers", "one_layout: about what is said, so one layout of the files on disk is enough")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Entries about git run on the installed git and on a newer one; where a guest is the point, one is enough.

    Entries about worktrees run in both layouts. Those about both run twice, not three times: each git and each layout.
    Where layouts play no part, a second run of each entry costs the suite a minute: it has one of each module. Of an
    entry with many variations the second run has the first one. `make attacks` has all of them.
    """
    if "git_program" not in metafunc.fixturenames:
        return
    module = metafunc.module.__name__.rpartition(".")[2]
    once = "guests" in metafunc.fixturenames or metafunc.definition.get_closest_marker("one_git")
    one_layout = module.startswith(NOT_ABOUT_LAYOUTS) or metafunc.definition.get_closest_marker("one_layout")
    both = "arena_layout" in metafunc.fixturenames and not one_layout
    newer = not once and module.startswith(ABOUT_GIT)
    runs = [("installed", "overlay")]
    if both and newer and has_newer_git():
        runs.append(("newer", "plain"))
    else:
        runs += [("installed", "plain")] if both else []
        runs += [("newer", "overlay")] if newer and (ALL_RUNS or module not in _seen_on_newer) else []
        _seen_on_newer.add(module)
    ids = [f"{git_id(which)}-{layout}" for which, layout in runs]
    names = ("git_program", "arena_layout") if "arena_layout" in metafunc.fixturenames else ("git_program",)
    values = [run[: len(names)] for run in runs]
    metafunc.parametrize(names, values, indirect=True, ids=ids, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out repeated variations; which ones must not depend on the order of the items, which may be random."""
    if ALL_RUNS:
        return
    kept: dict[tuple[str, str], pytest.Item] = {}
    for item in items:
        if run := _second_run(item):
            entry = (item.nodeid.partition("[")[0], run)
            kept[entry] = min(kept.get(entry, item), item, key=_variation)
    chosen = {item.nodeid for item in kept.values()}
    items[:] = [item for item in items if not _second_run(item) or item.nodeid in chosen]


def _second_run(item: pytest.Item) -> str:
    """The git and the layout of an item that has them, and repeats what ran on the installed git and an overlay."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    run = f"{parameters.get('git_program')}-{parameters.get('arena_layout', 'overlay')}"
    ours = "git_program" in parameters and not item.path.name.startswith(EACH_PATH)
    return run if ours and run != "installed-overlay" else ""


def _variation(item: pytest.Item) -> tuple[bool, list[tuple[str, int]]]:
    """The first one, of those that `make test` runs."""
    assert isinstance(item, pytest.Function)
    return item.get_closest_marker("thorough") is not None, sorted(item.callspec.indices.items())


@cache
def git_id(which: str) -> str:
    """`git-2.39`, or `git-newer` when there is none."""
    try:
        return "git-" + ".".join(map(str, newergit.version_of(git_called(which))))
    except (newergit.NotOffered, OSError):
        return f"git-{which}"


def has_newer_git() -> bool:
    """Without it, its runs are skipped, and must not take a layout along."""
    return git_id("newer") != "git-newer"


def git_called(which: str) -> Path:
    return Path(GIT) if which == "installed" else newergit.find()


@pytest.fixture(scope="session")
def git_program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The git of this run of the test, for the product and its controls alike."""
    try:
        found = git_called(request.param)
    except newergit.NotOffered as absent:
        pytest.skip(str(absent))  # in CI too: nobody can change what an archive offers
    except FileNotFoundError as missing:
        unavailable(str(missing))
    if request.param == "installed":
        return str(found)
    # The product refuses a git in a folder that a group may write to, which a checkout may well be.
    starter = tmp_path_factory.mktemp("git") / "git"
    newergit.write_starter(starter, found)
    return str(starter)


@pytest.fixture(scope="session")
def homes() -> list[Path]:
    """Every home the session made: what they labelled must be gone at the end."""
    return []


@pytest.fixture(scope="session")
def remotes() -> dict[str, Path]:
    """A victim's remote by the git that made it, to copy: making one takes two processes. Nothing writes to it."""
    return {}


@pytest.fixture
def make_arena(
    tmp_path_factory: pytest.TempPathFactory, homes: list[Path], git_program: str, remotes: dict[str, Path]
) -> Iterator[Callable[..., Arena]]:
    """Victims with settings, environment or files of the test's own."""
    made: list[Arena] = []

    def make(**options: Any) -> Arena:
        usual = "files" not in options
        known: dict[str, Any] = {"template": remotes.get(git_program)} if usual else {}
        arena = Arena(tmp_path_factory.mktemp("arena"), git_program=git_program, **known, **options)
        if usual and git_program not in remotes:
            copy = tmp_path_factory.mktemp("remote") / "remote.git"
            remotes[git_program] = Path(shutil.copytree(arena.remote, copy, symlinks=True))
        made.append(arena)
        homes.append(arena.home)
        return arena

    yield make
    for arena in made:
        arena.workbench.__exit__(None, None, None)
        remove_guests_of(arena.home)
        unmount_below(arena.home)
        release_users_below(arena.home)


@pytest.fixture(scope="session")
def arena_layout(request: pytest.FixtureRequest) -> str:
    """How the worktrees of this run of the test lie on disk."""
    return str(request.param)


@pytest.fixture
def arena(make_arena: Callable[..., Arena], arena_layout: str, request: pytest.FixtureRequest) -> Arena:
    """A victim with one task on it. Where the attack begins with the task, its clone is a copy."""
    arena = make_arena(settings={"workspaces": {"worktree": arena_layout}})
    with nullcontext() if request.path.name.startswith(ABOUT_CLONES) else copied_clones():
        arena.new_task()
    return arena


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    """The real engine with our base image."""
    try:
        found = connect("", os.environ, 60.0)
        found.api.inspect_image("space-sandbox/base:latest")
    except SandboxError as error:
        unavailable(f"{error.brief}: {error.details}")
    except Exception as error:  # noqa: BLE001 - whatever it is, there is no image to run
        unavailable(f"No image space-sandbox/base: {error}")
    yield found
    found.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackRun]:
    """One scratch directory, and one scene for all guests, for the shipped entries that this process runs."""
    with AttackRun(Settings(), os.environ, scratch=ScratchDirectory(tmp_path_factory.mktemp("shipped"))) as made:
        yield made


@pytest.fixture
def guests(engine: DockerEngine, make_arena: Callable[..., Arena]) -> Callable[..., Arena]:
    """Make a victim whose profile has one check with this argv. `extra`: more lines of the check."""

    def make(*argv: str, extra: str = ROOM_FOR_LIMITS, image: str = "base", **options: Any) -> Arena:
        arena = make_arena(**options)
        profiles = arena.home / "profiles"
        profiles.mkdir()
        words = ", ".join(f"'''{word}'''" for word in argv)
        (profiles / "attack.toml").write_text(
            f'label = "attack"\nimage = "{image}"\npriority = 99\n[[detect.any]]\nfile = "f.txt"\n'
            f'[[check]]\nid = "go"\nlabel = "go"\nargv = [{words}]\n{extra}\n'
        )
        return arena

    return make


@pytest.fixture
def group() -> Iterator[str]:
    """The name of a group of this test. The runtime makes it in every hierarchy, and nothing removes it there."""
    name = f"space-test-{secrets.token_hex(4)}"
    yield name
    for folder in Path("/sys/fs/cgroup").glob(f"*/{name}"):
        with suppress(OSError):
            folder.rmdir()


@pytest.fixture(scope="session")
def racer(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Start the C racer as a context: `with racer("swap", a, b): ...`."""
    compiler = shutil.which("gcc")
    if compiler is None:
        unavailable("No gcc: `apt-get install gcc libc6-dev`")
    binary = tmp_path_factory.mktemp("race") / "race"
    source = Path(__file__).with_name("race.c")
    subprocess.run([compiler, "-O2", "-o", binary, source], check=True, timeout=60)

    @contextmanager
    def start(*words: object) -> Iterator[None]:
        process = subprocess.Popen([binary, *map(str, words)])
        try:
            yield
            assert process.poll() is None, "void: the racer died"
        finally:
            process.kill()
            process.wait()

    return start


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(homes: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No container of our instances, no process that names our directories, no mount below them."""
    yield
    base = f"{tmp_path_factory.getbasetemp()}/"
    mounts = Path("/proc/self/mountinfo").read_text()
    assert [home for home in homes if f"{home}/" in mounts] == []
    assert [line for line in command_lines() if base in line] == []
    instances = {Home(home).instance_id for home in homes if (home / "instance").exists()}
    if not instances:
        return
    engine = connect("", os.environ, 60.0)
    try:
        found = engine.api.containers(all=True, filters={"label": "space.sandbox.instance"})
        left = [c["Names"] for c in found if c["Labels"]["space.sandbox.instance"] in instances]
    finally:
        engine.close()
    assert left == []


def command_lines() -> Iterator[str]:
    """Command lines of all processes but this one."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.parent.name != str(os.getpid()):
                yield path.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
