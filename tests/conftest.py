"""The suite ends by proving that it left nothing behind: in the engine, among mounts, processes and loop devices.

Other runs of the suite and users of the product may be at work on the same machine: what lies outside the directory of
this run is theirs.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdist.remote import Producer

from devtools import extracted_programs
from devtools.command import first_starts
from devtools.guests import remove_guests_below
from devtools.mounts import MountEvents
from devtools.still_used import wait_until_unused
from devtools.suite_groups import GroupScheduling
from devtools.this_run import is_of_this_run, may_be_of_this_run
from devtools.user_ids import list_users, release_users_below
from sandbox.engine.connection import connect
from sandbox.errors import SandboxError
from sandbox.files.mount_points import unmount_below

LABEL_PREFIX = "space.sandbox."
TAG_PREFIX = "space-sandbox/"
LEFT_BEHIND = 9
"""Exit code of a run whose tests passed and left something: no repetition of a test can mend that."""
LONGEST = ("e2e", "attack/test_shipped.py")
"""Where single tests take up to a minute. Started last they would keep one process busy while the others idle. Groups
(`devtools.suite_groups`) come before all single tests.
"""
MOUNT_TYPES = {"overlay", "tmpfs"}
STILL_USED_S = 20.0
"""How long a process or a loop device may take to go after the last test."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts its background jobs so, and their children inherit it: tests that interrupt would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)

for _name in ("NO_PROXY", "no_proxy"):
    # The suite's servers are on the loopback, of which a machine's proxy knows nothing.
    os.environ[_name] = ",".join(filter(None, (os.environ.get(_name), "127.0.0.1,localhost")))

extracted_programs.use_again()

_BEFORE = pytest.StashKey["Holdings"]()
_mount_events = MountEvents()


@dataclass(frozen=True)
class Holdings:
    """What of ours the engine and the host hold: names only."""

    containers: frozenset[str]
    networks: frozenset[str]
    tags: frozenset[str]
    mounts: frozenset[str]
    users: frozenset[str]

    def added_since(self, before: Holdings) -> list[str]:
        added = {
            "container": self.containers - before.containers,
            "network": self.networks - before.networks,
            "image tag": {tag for tag in self.tags - before.tags - KEPT_TAGS if not KEPT_RECIPES.fullmatch(tag)},
            "mount": self.mounts - before.mounts,
            "user id": self.users - before.users,
        }
        return [f"{kind} {name}" for kind, names in added.items() for name in sorted(names)]


_KEPT_IMAGES = (
    "base",
    "build",
    "build13",
    "go",
    "go1.24",
    "init",
    "lua",
    "node",
    "perl",
    "python",
    "redis",
    "rust",
    "trixie",
)
KEPT_TAGS = frozenset(f"{TAG_PREFIX}{name}:latest" for name in (*_KEPT_IMAGES, "python-self", "test-gitserver")) | {
    f"{TAG_PREFIX}debian:bookworm"
}
KEPT_RECIPES = re.compile(rf"{TAG_PREFIX}({'|'.join(map(re.escape, _KEPT_IMAGES))}):[0-9a-f]{{12}}(-used-\d{{8}})?")
"""Images that the next run uses again."""


def holdings(base: Path) -> Holdings | None:
    """What this run has; `base`: its directory. None when no engine answers: then tests could leave no such thing."""
    try:
        engine = connect("", os.environ, 10.0)
    except SandboxError:
        return None
    with contextlib.closing(engine):
        labelled = [c for c in engine.api.containers(all=True) if _ours(c["Labels"] or {})]
        labelled = [c for c in labelled if may_be_of_this_run(_list_binds(c["Mounts"]), base)]
        return Holdings(
            containers=frozenset(name for c in labelled for name in c["Names"]),
            networks=frozenset(n["Name"] for n in engine.api.networks()),
            tags=frozenset(t for i in engine.api.images() for t in i["RepoTags"] or () if t.startswith(TAG_PREFIX)),
            mounts=frozenset(place for place in _mounts() if is_of_this_run(place, base)),
            users=frozenset(f"{uid} of {home}" for uid, home in list_users().items() if is_of_this_run(home, base)),
        )


def _list_binds(mounts: list[dict[str, str]]) -> list[str]:
    """The host's paths in a container. Those of volumes are the engine's."""
    return [mount.get("Source", "") for mount in mounts if mount.get("Type") == "bind"]


def _ours(labels: dict[str, str]) -> bool:
    # An image's labels show up on its containers: only these three are put on containers themselves.
    return any(f"{LABEL_PREFIX}{key}" in labels for key in ("instance", "run", "test"))


def _mounts() -> list[str]:
    """But for those of running containers: whose are ours is known by their labels."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    rows = (line.split() for line in lines)
    return [f[4] for f in rows if f[f.index("-") + 1] in MOUNT_TYPES and "/overlay2/" not in f[4]]


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The name of a bucket of a server that speaks S3."""
    from devtools.s3server import serve_s3  # noqa: PLC0415 - slow, and for a few modules

    with serve_s3() as name:
        yield name


@pytest.fixture
def extracting() -> Iterator[None]:
    """Homes of the test extract PID 1 from its image, as those of users do."""
    extracted_programs.extract_anew()
    yield
    extracted_programs.use_again()


@pytest.fixture(scope="session", autouse=True)
def unmounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests leave tasks open in homes of their own; their guests and mounts go with the session."""
    yield
    remove_guests_below(tmp_path_factory.getbasetemp())
    unmount_below(tmp_path_factory.getbasetemp())
    release_users_below(tmp_path_factory.getbasetemp())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Unmount what a test left in its own folder, and give its user ids back: every start of a container copies and
    reads the table of mounts, and every `gc` reads that of the ids. One that a guest still has is not given out again.
    """
    try:
        return (yield)
    finally:
        folder = getattr(item, "funcargs", {}).get("tmp_path")
        if folder is not None:
            if _mount_events.since_last_look():  # a host in use has hundreds of mounts, and few tests add one
                unmount_below(folder)
            release_users_below(folder)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of items live to the end: no garbage collection looks at them, now or in a test that asks for one."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest come first, each kind in the order that it was given. What is marked `thorough` runs if asked for."""
    if not os.environ.get("THOROUGH"):
        items[:] = [item for item in items if item.get_closest_marker("thorough") is None]
    longest = [Path(__file__).parent / name for name in LONGEST]
    is_short = {path: not any(path.is_relative_to(place) for place in longest) for path in {i.path for i in items}}
    items.sort(key=lambda item: is_short[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def _base(session: pytest.Session) -> Path:
    """The directory of this run."""
    return Path(session.config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]  # else for fixtures only


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.option.collectonly:  # no test runs, so none leaves anything: `make compile`
        return
    if hasattr(session.config, "workerinput"):
        first_starts.folder = _base(session).parent
    else:
        found = holdings(_base(session))
        if found is not None:
            session.config.stash[_BEFORE] = found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    used = [] if hasattr(session.config, "workerinput") else wait_until_unused(_base(session), STILL_USED_S)
    before = session.config.stash.get(_BEFORE, None)
    if before is not None:
        remove_guests_below(_base(session))  # an engine under load may create one after its controller was killed
    after = holdings(_base(session)) if before is not None else None  # after the wait: a device goes after its mount
    left = [*used, *(after.added_since(before) if before is not None and after is not None else [])]
    if left:
        session.exitstatus = session.exitstatus or LEFT_BEHIND
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line("")
            reporter.write_line(f"LEFT BEHIND by this run: {', '.join(left)}", red=True)
