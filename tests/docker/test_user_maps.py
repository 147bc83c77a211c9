"""An engine with userns-remap: supported once the policy gives guests ids that it maps, else refused by name; and were
its name not known, by the proof that PID 1 gives.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from devtools.privateengine import FIRST_MAPPED_ID, PrivateEngine
from devtools.requirement import unavailable
from sandbox import Workbench
from sandbox.engine import supervised, user_maps
from sandbox.engine.connection import connect
from sandbox.engine.container import list_containers
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.mount_points import unmount_below
from sandbox.models import ProbeLevel, Verdict
from tests.docker.conftest import make_remote

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("user-maps"), pytest.mark.usefixtures("engine")]

IMAGES = ("space-sandbox/init:latest", "space-sandbox/base:latest")
USERS = range(133_000, 133_100)
MAPPED = f"[users]\nmapped = true\nfirst = {USERS.start}\ncount = {len(USERS)}\n"
PROFILE = f"""label = "T"
image = "{IMAGES[1]}"
[[check]]
id = "blind"
label = "It looks at no error: it writes nothing and passes."
argv = ["true"]
[[check]]
id = "work"
label = "It writes everywhere it may, and says who it is."
argv = ["sh", "-ec", "echo more >> README; touch new /report/x ~/x /tmp/x; id -u; id -un; cat /proc/self/uid_map"]
"""


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory whose later mounts the engine sees, as it does on hosts with systemd."""
    folder = tmp_path_factory.mktemp("homes")
    for words in (["--bind", str(folder), str(folder)], ["--make-shared", str(folder)]):
        subprocess.run(["mount", *words], check=True, timeout=60)
    yield folder
    unmount_below(folder)


@pytest.fixture(scope="module")
def mapping(homes: Path) -> Iterator[PrivateEngine]:
    if reason := PrivateEngine.why_not():
        unavailable(reason)
    with PrivateEngine(maps_users=True) as engine:
        for image in IMAGES:
            engine.load(image)
        yield engine
    assert engine.groups() == []


@pytest.fixture
def start(mapping: PrivateEngine, homes: Path) -> Iterator[Callable[[str], Workbench]]:
    """Open a home on that engine with this text in its container policy."""
    home = Path(tempfile.mkdtemp(dir=homes))
    (home / "profiles").mkdir()
    (home / "profiles" / "generic.toml").write_text(PROFILE)
    (home / "policies").mkdir()
    with ExitStack() as stack:

        def start_with(policy: str) -> Workbench:
            (home / "policies" / "container.toml").write_text(policy)
            settings = {"engine": {"host": mapping.url}}
            found = Workbench(home, environ={"PATH": os.environ["PATH"]}, settings=settings, allow_file=True)
            return stack.enter_context(found)

        yield start_with
    with closing(connect(mapping.url, {}, 60.0)) as engine:
        assert list_containers(engine, {}) == []


@pytest.fixture
def remote(tmp_path: Path) -> str:
    return make_remote(tmp_path / "remote", "README", "text\n")


def test_guests_with_mapped_ids_own_their_files_in_a_user_namespace(
    start: Callable[[str], Workbench], remote: str
) -> None:
    workbench = start(MAPPED)
    (line,) = (probe for probe in workbench.doctor() if probe.name == "userns")
    assert (line.level, str(FIRST_MAPPED_ID) in line.value) == (ProbeLevel.OK, True)
    task = workbench.create_task(workbench.clone(remote).repository.id)
    (run,) = workbench.run_checks(task.id, ["work"])
    assert run.verdict is Verdict.PASSED, run
    uid, name, mapping = run.stdout_tail.split(maxsplit=2)
    assert (int(uid) + FIRST_MAPPED_ID in USERS, name) == (True, "sandbox")
    assert mapping.split()[:2] == ["0", str(FIRST_MAPPED_ID)]
    assert {change.path for change in workbench.status(task.id).changes} == {"README", "new"}
    assert [run.verdict for run in workbench.run(remote).runs] == [Verdict.PASSED] * 2
    workbench.close_task(task.id, discard=True)


@pytest.mark.parametrize("policy", ["", "[users]\nmapped = true\nfirst = 65000\ncount = 100\n"])
def test_s15_ids_that_it_does_not_map_are_refused_and_doctor_says_the_same(
    start: Callable[[str], Workbench], remote: str, policy: str
) -> None:
    workbench = start(policy)
    for act in (
        lambda: workbench.run(remote),
        lambda: workbench.build_image("base", print),
        lambda: workbench.derive_image("base", ["zip"], print),
    ):
        with pytest.raises(SandboxError, match="maps the users") as caught:
            act()
    assert (caught.value.code, "mapped = true, first = 133000" in caught.value.hint) == (
        ErrorCode.ENGINE_UNAVAILABLE,
        True,
    )
    with pytest.raises(SandboxError, match="maps the users"):
        workbench.run(remote, profile="perl")  # its image is missing there: it is not built first
    (line,) = (probe for probe in workbench.doctor() if probe.name == "userns")
    assert (line.level, line.hint) == (ProbeLevel.FAIL, caught.value.hint)


def test_s15_without_its_name_the_first_process_finds_out(
    start: Callable[[str], Workbench], remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_maps, "require_known_users", lambda engine, users: engine.info())
    workbench = start("[users]\nfirst = 61000\ncount = 1000\n")
    task = workbench.create_task(workbench.clone(remote).repository.id)
    for act in (lambda: workbench.run(remote), lambda: workbench.run_checks(task.id, ["blind"])):
        with pytest.raises(SandboxError, match=r"could not write /workspace .* and /report .*belongs to uid 65534"):
            act()
    workbench.close_task(task.id, discard=True)


def test_s15_control_with_neither_a_check_passes_that_has_done_nothing(
    start: Callable[[str], Workbench], remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_maps, "require_known_users", lambda engine, users: engine.info())
    monkeypatch.setattr(supervised, "require_writable_folders", lambda *_: None)
    workbench = start("[users]\nfirst = 61000\ncount = 1000\n")
    task = workbench.create_task(workbench.clone(remote).repository.id)
    (run,) = workbench.run_checks(task.id, ["blind"])
    assert run.verdict is Verdict.PASSED
    workbench.close_task(task.id, discard=True)
