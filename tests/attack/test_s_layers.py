"""THREATS S19, S148, S161, S186: hostile packages, layers of checks. Real guests, and an index of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from devtools.guests import remove_guests_of
from devtools.mounts import small_file_system
from sandbox.attack.harness.package_index import PackageIndex, serve_packages
from sandbox.attack.harness.package_runs import PROFILE, PROJECT, REACH
from sandbox.config import LayerSettings
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.deleted_open import OpenFiles
from sandbox.models import Actor, Check, CheckRun, Limits, Permission, Verdict
from sandbox.store import layers
from sandbox.store.home import Home
from sandbox.workbench import Watch, Workbench
from sandbox.workbench.checks import descriptions, layer_builds
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.run import build_room_recorder
from sandbox.workbench.checks.step_rooms import open_step_room, run_step
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.reconciling.unused_layers import choose_unused
from tests.attack.layer_bench import LayerBench, open_bench
from tests.docker.conftest import image_digest
from tests.unit.conftest import refused

pytestmark = [pytest.mark.must, pytest.mark.one_git]

Bench = LayerBench[PackageIndex]


@pytest.fixture
def bench(tmp_path: Path, engine: DockerEngine) -> Iterator[Bench]:
    with serve_packages() as index, open_bench(tmp_path, index, {"python": [index.url]}, {"layers": PROFILE}) as made:
        yield made


def test_s19_the_build_of_a_source_distribution_has_no_network_and_writes_only_its_layer(bench: Bench) -> None:
    """Nor is it run to learn its requirements. Controls: the same code on the host reaches the index; another source
    distribution beside it, which cannot be built, is left out, and said.
    """
    steal = f"""
import os, socket, urllib.request
def reach():
    found = []
    urls = ["http://localhost:{bench.registry.port}/stolen/"]
    for opener in (urllib.request.build_opener(), urllib.request.build_opener(
            urllib.request.ProxyHandler({{"http": "http://127.0.0.1:3128"}}))):
        try:
            opener.open(urls[0], timeout=2)
            found.append("answered")
        except urllib.error.HTTPError:
            found.append("reached")
        except OSError:
            pass
    return found
"""
    control = f"import urllib.error\n{steal}\nprint(reach())"
    done = subprocess.run([sys.executable, "-c", control], capture_output=True, text=True, check=True)
    assert "reached" in done.stdout, "void"
    assert [path for path in bench.registry.asked if "stolen" in path], "void"
    bench.registry.asked.clear()

    backend = f"""import urllib.error, zipfile
{steal}
def build_wheel(folder, config=None, metadata=None):
    print('warning: building extension "evil.fast" failed: command gcc failed')  # as setuptools, without failing
    written = []
    for place in ("/etc", "/usr/lib/python3", "/usr/local/bin", "/sandbox-layers", "/", "/workspace/.git"):
        try:
            open(place + "/evil", "w")
            written.append(place)
        except OSError:
            pass
    name = "evil-1-py3-none-any.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("evil.py", "proof = " + repr((reach(), written)))
        wheel.writestr("evil-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: evil\\nVersion: 1\\n")
        wheel.writestr("evil-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("evil-1.dist-info/RECORD", "evil.py,,\\n")
    return name
"""
    bench.registry.add_source("evil", "1", {"backend.py": backend}, ("broken",))
    bench.registry.add_source("broken", "1", {"backend.py": "raise SystemExit(1)"})
    use = "import evil\nassert evil.proof == ([], []), evil.proof\n"
    summary = bench.run({"pyproject.toml": PROJECT, "use.py": use})
    assert summary.verified, summary.runs[0].stderr_tail
    assert [path for path in bench.registry.asked if "stolen" in path] == []
    (key,) = summary.runs[0].layers
    with Workbench(bench.home) as workbench:
        layer = workbench.layer(key).layer
    assert ([package.name for package in layer.packages], layer.left_out) == (["evil"], ("broken-1.tar.gz",))
    assert layer.without_extension == ("evil-1.tar.gz",)


_BUILD_WITH_PROCESSES = """
import os, time, zipfile
def build_wheel(folder, config=None, metadata=None):
    children = []
    try:
        for _ in range(COUNT):
            child = os.fork()
            if not child:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)
    with zipfile.ZipFile(folder + "/hungry-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("hungry.py", "")
        wheel.writestr("hungry-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: hungry\\nVersion: 1\\n")
        wheel.writestr("hungry-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("hungry-1.dist-info/RECORD", "hungry.py,,\\n")
    return "hungry-1-py3-none-any.whl"
"""


@pytest.mark.parametrize("is_starved", [True, False], ids=["starved", "control"])
def test_s161_a_package_that_a_starved_build_lost_is_built_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, is_starved: bool
) -> None:
    """No verdict without the package answers once it is there. Control: a build that gets its processes has it."""
    monkeypatch.setattr(layer_builds, "_RELEASED", Limits(tmp_bytes=1024**3, pids=60 if is_starved else 400))
    bench.registry.add_source("hungry", "1", {"backend.py": _BUILD_WITH_PROCESSES.replace("COUNT", "150")})
    bench.registry.add("evil", "1", {"evil.py": ""}, ("hungry",))
    files = {"pyproject.toml": PROJECT, "use.py": "import evil\nimport hungry\n"}
    summary = bench.run(files)
    assert summary.verified is not is_starved, summary.runs[0].stderr_tail
    if not is_starved:
        return
    (key,) = summary.runs[0].layers
    with Workbench(bench.home) as workbench:
        layer = workbench.layer(key).layer
        assert (layer.left_out, layer.shortage and layer.shortage.of) == (("hungry-1.tar.gz",), ("processes",))
        url = str(bench.root / "project")
    bench.registry.asked.clear()
    with bench.open() as workbench:
        assert workbench.run(url).runs[-1].layers == (key,)  # not at once
    assert bench.registry.asked == []

    monkeypatch.setattr(layers, "_FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(layer_builds, "_RELEASED", Limits(tmp_bytes=1024**3, pids=400))
    with bench.open() as workbench:
        again = workbench.run(url)
    assert again.verified, again.runs[0].stderr_tail
    assert again.runs[0].layers != (key,)


def test_s19_a_build_that_is_asked_for_requirements_has_no_network_and_answers_with_data(bench: Bench) -> None:
    """Controls: the requirement that it computes is in the layer; the same code on the host reaches the index."""
    reach = f"{REACH}\nfound = reach([('127.0.0.1', {bench.registry.port}), ('127.0.0.1', 3128), '/sandbox-egress'])\n"
    done = subprocess.run([sys.executable, "-c", f"{reach}print(found)"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['reached']", "void"
    bench.registry.add("evil", "1", {"evil.py": ""})
    bench.registry.add("reached", "1", {"reached.py": ""})
    back_end = f"""
import os, pathlib
{reach}
def prepare_metadata_for_build_wheel(folder, config=None):
    info = pathlib.Path(folder, "p-1.dist-info")
    info.mkdir()
    texts = ["evil", "x @ http://localhost:{bench.registry.port}/files/x.whl", "--index-url=http://elsewhere", *found]
    lines = ["Metadata-Version: 2.1", "Name: p", *("Requires-Dist: " + text for text in texts)]
    (info / "METADATA").write_text("\\n".join([*lines, "", "Requires-Dist: reached"]))
    return info.name
"""
    pyproject = '[project]\nname = "p"\nversion = "1"\ndynamic = ["dependencies"]\n[build-system]\nrequires = []\n'
    files = {"pyproject.toml": f'{pyproject}build-backend = "b"\nbackend-path = ["."]\n', "b.py": back_end}
    summary = bench.run(files | {"use.py": "import evil\n"})
    assert summary.verified, summary.runs[0].stderr_tail
    with Workbench(bench.home) as workbench:
        details = workbench.layer(summary.runs[0].layers[0])
    assert [package.name for package in details.layer.packages] == ["evil"]
    assert sorted(entry.reason.value for entry in details.resolutions[0].refused) == ["option", "url"]


@pytest.mark.parametrize("refused_forks", [3, 0], ids=["starved", "control"])
def test_s161_a_project_that_could_not_answer_on_a_starved_host_is_asked_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, refused_forks: int
) -> None:
    """Control: one that failed by itself is not: what it needs is read from its manifests."""
    bench.registry.add("evil", "1", {"evil.py": ""})
    back_end = """
import pathlib
def prepare_metadata_for_build_wheel(folder, config=None):
    info = pathlib.Path(folder, "p-1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: p\\nRequires-Dist: evil\\n")
    return info.name
"""
    pyproject = '[project]\nname = "p"\nversion = "1"\ndynamic = ["dependencies"]\n[build-system]\nrequires = []\n'
    files = {"pyproject.toml": f'{pyproject}build-backend = "b"\nbackend-path = ["."]\n', "b.py": back_end}

    def fail(*arguments: Any) -> CheckRun:
        run = run_step(*arguments)
        usage = run.usage.model_copy(update={"forks_refused": refused_forks})
        return run.model_copy(update={"verdict": Verdict.FAILED, "usage": usage})

    with monkeypatch.context() as starved:
        starved.setattr(descriptions, "run_step", fail)
        assert not bench.run(files | {"use.py": "import evil\n"}).verified
    with bench.open() as workbench:
        assert workbench.run(str(bench.root / "project")).verified is (refused_forks > 0)


@pytest.mark.thorough  # the suite has it as the entry that ships, S87
def test_s19_an_archive_that_differs_from_the_lock_file_is_not_used(bench: Bench) -> None:
    """Control: with the archive's own hash the layer is built."""
    digest = bench.registry.add("evil", "1", {"evil.py": ""})
    lock = '[[package]]\nname = "evil"\nversion = "1"\nsource = {registry = "https://elsewhere.invalid"}\n'
    files = {"pyproject.toml": PROJECT, "use.py": "import evil\n"}

    def locked(value: str) -> dict[str, str]:
        return files | {
            "uv.lock": f'{lock}wheels = [{{url = "https://elsewhere.invalid/x", hash = "sha256:{value}"}}]\n'
        }

    with pytest.raises(SandboxError) as raised:
        bench.run(locked("0" * 64), "wrong")
    assert raised.value.code is ErrorCode.POLICY_VIOLATION
    assert bench.trees == []
    assert bench.run(locked(digest), "right").verified, "void"


@pytest.mark.thorough  # the suite has it as the entry that ships, S86
def test_s19_a_file_of_an_archive_that_leaves_its_folder_is_not_installed(bench: Bench, tmp_path: Path) -> None:
    """Control: who joins the names of the archive to a folder writes outside of it."""
    outside = "../escaped"
    folder = tmp_path / "careless/site-packages"
    folder.mkdir(parents=True)
    (folder / outside).write_text("x")
    assert (tmp_path / "careless/escaped").exists(), "void"
    (tmp_path / "careless/escaped").unlink()
    bench.registry.add("evil", "1", {"evil.py": "", outside: "x"})
    assert bench.run({"pyproject.toml": PROJECT, "use.py": "import evil\n"}).verified
    assert [str(path) for path in tmp_path.rglob("escaped")] == []


def test_s19_an_install_that_fails_leaves_nothing(bench: Bench) -> None:
    """Control: the fetch of the same archive succeeds, so it is the install that fails."""
    bench.registry.add("evil", "1", {"evil": "a file", "evil/__init__.py": "within that file"})
    with pytest.raises(SandboxError) as raised:
        bench.run({"pyproject.toml": PROJECT, "use.py": "import evil\n"})
    assert raised.value.code is ErrorCode.INTERNAL, "void: " + raised.value.brief
    assert bench.trees == bench.rooms == []


IN_FLIGHT = """
import os, socket, sys, time
sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
for _ in range(8):
    fd = os.open("f", os.O_CREAT | os.O_WRONLY)
    os.write(fd, bytes(8 << 20))
    os.unlink("f")
    socket.send_fds(sender, [b"f"], [fd])
    os.close(fd)
print("held", flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """On a disk that others use too, their deletions may hide what a guest adds."""
    with small_file_system(tmp_path / "disk", 1 << 30) as place:
        yield place


@pytest.mark.parametrize("disk", ["auto", "watch", "blind"])
def test_s05_files_in_flight_between_sockets_count_in_the_install_of_a_layer(
    small_disk: Path, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    """Control: a watch that does not ask sockets sees none of these bytes: no process has such a file open."""
    if disk == "blind":
        monkeypatch.setattr(OpenFiles, "may_hide_files", lambda _: False)
    limits = Limits(memory_bytes=256 * 1024**2, cpus=1.0, pids=16, disk_bytes=16 * 1024**2)
    argv = ("python3", "-c", IN_FLIGHT, "4" if disk == "blind" else "30")
    check = Check(id="install", label="install", argv=argv, timeout_s=60, limits=limits)
    settings = {"workspaces": {"disk": "auto" if disk == "auto" else "watch"}, "disk": {"min_free_bytes": 0}}
    services = build_services(small_disk / "home", os.environ, settings, allow_file=True)
    with closing(services), open_step_room(services, check, {}) as room:
        setup = GuestSetup(image_digest(engine, "python"), "runc")
        recorder = replace(build_room_recorder(services, setup, "attack"), logs=room.folder / "logs")
        run = run_step(services, recorder, (room.run_id, check, room.directories), Watch(), "attack")
    if disk == "blind":
        assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "held\n"), f"void: {run.stderr_tail}"
    else:
        assert run.verdict is Verdict.DISK_LIMIT, run
    assert list((small_disk / "home/repositories/rooms").iterdir()) == []
    remove_guests_of(small_disk / "home")


def test_s19_an_agent_gets_packages_after_a_question_that_names_them(bench: Bench) -> None:
    """Control: its check without that finds no package, and nothing is fetched."""
    bench.registry.add("evil", "1", {"evil.py": ""})
    refused_url = PROJECT.replace('"evil"', '"evil", "x @ https://elsewhere.invalid/x.whl"')
    url = str(bench.commit({"pyproject.toml": refused_url, "use.py": "import evil\n"}, "asked"))
    with bench.open(Actor.AGENT) as workbench:
        task = workbench.create_task(workbench.clone(url).repository.id)
        without = workbench.run_checks(task.id, ["use"])[0]
        assert (without.verdict, without.layers, bench.registry.asked) == (Verdict.FAILED, (), [])
        assert without.cause is not None
        assert "no module 'evil': the packages that the project asks for were not fetched" in without.cause.sentence

        call = workbench.approval_call("space_repo_prepare", {"task_id": task.id})
        question = "\n".join(workbench.request_approval(call).question)
        assert f":{bench.registry.port}\nasked for by manifests: 1" in question
        assert "\n  evil\n" in question
        assert "not used: x @ https://elsewhere.invalid/x.whl (url)" in question
        assert call.state.partition(" ")[0] == task.head_commit
        assert not workbench.needs_no_question(call)
        with refused(ErrorCode.CONFLICT):
            workbench.build_layers(task.id, expected_commit="0" * 40)

        prepared = workbench.build_layers(task.id, expected_commit=task.head_commit)
        assert [layer.packages for layer in prepared.layers] == [1]
        assert workbench.run_checks(task.id, ["use"])[0].verdict is Verdict.PASSED

        asked, unasked = len(bench.registry.asked), workbench.acting(None, Permission(how="known"))
        assert workbench.needs_no_question(call), "a known layer"
        assert [one.key for one in unasked.build_layers(task.id).layers] == [prepared.layers[0].key]
        workbench.remove_layer(prepared.layers[0].key)
        with refused(ErrorCode.APPROVAL_REQUIRED):
            unasked.build_layers(task.id)
        assert not workbench.needs_no_question(call)
        assert len(bench.registry.asked) == asked
        workbench.close_task(task.id, delete_worktree=True, discard=True)


def test_s19_one_layer_is_shared_and_other_archives_give_another(bench: Bench) -> None:
    """The same packages are one layer, for two repositories; another archive under the same name is never that one. A
    known choice of a repository asks no registry.

    An agent's run uses what is there, and fetches no packages. Control: a person's run of the same project does.
    """
    bench.registry.add("evil", "1", {"evil.py": "value = 1\n"})
    files = {"pyproject.toml": PROJECT, "use.py": "import evil\nassert evil.value == 1\n"}
    first = bench.run(files, "one")
    second = bench.run(files | {"more": "x"}, "two")
    asked = len(bench.registry.asked)
    third = bench.run({"more": "y"}, "two")
    assert [run.verified for run in (first, second, third)] == [True] * 3
    assert first.runs[0].layers == second.runs[0].layers == third.runs[0].layers
    assert len(bench.trees) == 1
    assert len(bench.registry.asked) == asked, "a known layer asks no registry"

    bench.registry.add("evil", "1", {"evil.py": "value = 2\n"})
    assert bench.remarks == []
    other = files | {"pyproject.toml": PROJECT.replace('"evil"', '"evil>=1", "x @ https://elsewhere.invalid/x.whl"')}
    by_agent = bench.run(
        other | {"use.py": "try:\n    import evil\nexcept ImportError:\n    pass\n"}, "agent", Actor.AGENT
    )
    assert by_agent.runs[0].layers == ()
    assert len(bench.registry.asked) == asked
    poisoned = bench.run(other, "three")
    assert poisoned.runs[0].layers not in ((), first.runs[0].layers)
    assert poisoned.runs[0].verdict is Verdict.FAILED
    assert ["registry: x @ https://elsewhere.invalid/x.whl (url). Tests" in said for said in bench.remarks] == [True]
    assert bench.run({"again": "x"}, "one").verified, "the first layer is as it was"


@pytest.mark.thorough  # the suite has it as the entry that ships, S148
def test_s148_no_repository_chooses_the_versions_of_another_one(bench: Bench) -> None:
    """With the same manifests, and a date of its own. Control: the first repository keeps its choice."""
    bench.registry.add("evil", "1", {"evil.py": "value = 1\n"})
    files = {"pyproject.toml": PROJECT, "use.py": "import evil\nassert evil.value == 2\n"}
    stranger = bench.run(files, "stranger")
    bench.registry.add("evil", "2", {"evil.py": "value = 2\n"})
    assert bench.run(files, "own").verified
    again = bench.run({"more": "x"}, "stranger")
    assert (again.verified, again.runs[0].layers) == (False, stranger.runs[0].layers)


_BUILD_WITH_HOLES = """
import glob, zipfile
def build_wheel(folder, config=None, metadata=None):
    (modules,) = glob.glob("/workspace/layer/lib/python3*/site-packages")
    for number in range(COUNT):
        with open(f"{modules}/hole{number}", "wb") as file:
            file.truncate((8 << 30) - 1)
    with zipfile.ZipFile(folder + "/evil-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("evil.py", "")
        wheel.writestr("evil-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: evil\\nVersion: 1\\n")
        wheel.writestr("evil-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("evil-1.dist-info/RECORD", "evil.py,,\\n")
    return "evil-1-py3-none-any.whl"
"""


def test_s186_a_layer_that_seems_to_be_large_does_not_drive_others_out(bench: Bench) -> None:
    """24 GiB in holes, where all layers may have 20 GiB. Control: without them its layer is there, and used."""
    bench.registry.add("good", "1", {"good.py": ""})
    assert bench.run({"pyproject.toml": PROJECT.replace("evil", "good"), "use.py": "import good\n"}, "good").verified
    files = {"pyproject.toml": PROJECT, "use.py": "import evil\n"}
    store = layers.LayerStore(Home(bench.home))
    for holes in (3, 0):
        bench.registry.add_source("evil", "1", {"backend.py": _BUILD_WITH_HOLES.replace("COUNT", str(holes))})
        if holes:
            with refused(ErrorCode.POLICY_VIOLATION):
                bench.run(files)
        else:
            assert bench.run(files, "control").verified
        assert list(choose_unused(store, LayerSettings())) == []
        assert len(bench.trees) == (1 if holes else 2)
