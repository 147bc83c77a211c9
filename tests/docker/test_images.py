"""Images on the real engine. Builds need the Debian archive and a package index once; afterwards they are no-ops."""

from __future__ import annotations

import os
import shutil
import socket
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from devtools.requirement import unavailable
from sandbox.config import ImageSettings, find_resources
from sandbox.engine.connection import DockerEngine
from sandbox.engine.guest_group import parent_name, read_group_host
from sandbox.engine.image_types import ImageBuild
from sandbox.engine.protocol import ContainerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images import ImageBuildContext, build, list_images, resolve_image, tag_of
from sandbox.images.build_steps import find_step_images, remove_step_image
from sandbox.images.lookup import find_recipe_image
from sandbox.store.home import Home
from tests.docker.conftest import docker_api, remove_tags

GUEST = 64000


def quiet(line: str) -> None:
    """A progress callback that forgets."""


@pytest.fixture
def site(engine: DockerEngine, tmp_path: Path) -> ImageBuildContext:
    home = Home(tmp_path / "home")
    home.prepare()
    return ImageBuildContext(engine, home, ImageSettings(), os.environ)


def run(
    engine: ContainerEngine, image: str, argv: list[str], *, user: str = "", binds: dict[str, str] | None = None
) -> str:
    """Run as a check would, and return `exit code, newline, output`."""
    api = docker_api(engine)
    container = api.create_container(
        image,
        argv,
        user=user,
        working_dir="/workspace",
        environment={"HOME": "/home/sandbox", "PATH": "/usr/local/bin:/usr/bin:/bin"},
        host_config=api.create_host_config(
            network_mode="none",
            read_only=True,
            cap_drop=None if user == "0" else ["ALL"],
            security_opt=["no-new-privileges"],
            tmpfs={"/tmp": "exec,size=512m,mode=1777", "/home/sandbox": f"uid={GUEST},size=128m"},
            binds=[f"{host}:{guest}" for guest, host in (binds or {}).items()],
        ),
    )
    try:
        api.start(container["Id"])
        code = api.wait(container["Id"], timeout=120)["StatusCode"]
        return f"{code}\n{api.logs(container['Id']).decode()}"
    finally:
        api.remove_container(container["Id"], force=True)


@pytest.fixture
def scratch(site: ImageBuildContext) -> Iterator[str]:
    """The name of an image a test may build; gone afterwards."""
    name = f"test-scratch-{uuid.uuid4().hex[:8]}"  # tests run at the same time in several processes
    (site.home.root / "images" / name).mkdir(parents=True)
    yield name
    remove_tags(site.engine, name)


def tag_in(site: ImageBuildContext, name: str) -> str:
    """The tag that a home's recipe of this name gives its images."""
    return find_recipe_image(site, name).tag


def write_dockerfile(site: ImageBuildContext, name: str, text: str) -> None:
    (site.home.root / "images" / name / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\n{text}\n")


@pytest.mark.parametrize(
    "name",
    [
        "base",
        pytest.param("build", marks=pytest.mark.thorough),  # that of Python is on it
        "python",
    ],
)
def test_image_has_no_setuid_file_and_runs_as_the_guest(site: ImageBuildContext, name: str) -> None:
    digest = build(site, name, quiet).digest
    assert digest is not None
    find = ["find", "/", "-xdev", "-perm", "/6000", "!", "-path", "/proc/*"]
    assert run(site.engine, digest, find, user="0") == "0\n"
    planted = ["sh", "-c", "cp /bin/true /tmp/x && chmod 4755 /tmp/x && find /tmp -perm /6000"]
    assert "/tmp/x" in run(site.engine, digest, planted)  # the search finds one when there is one
    assert "uid=64000(sandbox) gid=64000(sandbox)" in run(site.engine, digest, ["id"])
    stat = ["stat", "-c", "%u:%g", "/workspace", "/report", "/home/sandbox"]
    assert run(site.engine, digest, stat).split()[1:] == ["64000:64000", "64000:64000", "64000:0"]


def test_base_image_has_the_tools_and_inherits_nothing(site: ImageBuildContext) -> None:
    build(site, "base", quiet)
    tools = "git --version && make --version && ctags --version && test -s /etc/ssl/certs/ca-certificates.crt"
    output = run(site.engine, tag_of("base"), ["sh", "-c", tools])
    assert output.startswith("0\n")
    assert "Universal Ctags" in output
    config = docker_api(site.engine).inspect_image(tag_of("base"))["Config"]
    assert not config.get("Entrypoint")
    assert not config.get("Volumes")
    assert not config.get("Healthcheck")


def test_second_build_does_nothing(site: ImageBuildContext) -> None:
    first = build(site, "python", quiet)
    lines: list[str] = []
    assert build(site, "python", lines.append) == first
    names = ("base", "build", "init", "python")
    assert sorted(lines) == [f"{name} | {tag_in(site, name)} is up to date" for name in names]


def test_image_for_checks_brings_the_guests_pid_1_along_and_the_base_does_not(
    site: ImageBuildContext, scratch: str
) -> None:
    write_dockerfile(site, scratch, "")
    lines: list[str] = []
    build(site, scratch, lines.append)
    assert f"init | {tag_in(site, 'init')} is up to date" in lines
    lines.clear()
    build(site, "base", lines.append)
    assert lines == [f"base | {tag_in(site, 'base')} is up to date"]


def test_two_builds_at_once_both_succeed(site: ImageBuildContext, scratch: str) -> None:
    write_dockerfile(site, scratch, "RUN sleep 1")
    digests: list[str | None] = []
    threads = [threading.Thread(target=lambda: digests.append(build(site, scratch, quiet).digest)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(digests) == 2
    assert len(set(digests)) == 1


def test_changed_recipe_is_listed_as_missing_until_it_is_built(site: ImageBuildContext, scratch: str) -> None:
    def listed() -> tuple[bool, bool]:
        info = next(info for info in list_images(site) if info.name == scratch)
        return info.present, info.stale

    write_dockerfile(site, scratch, "")
    assert listed() == (False, False)
    build(site, scratch, quiet)
    assert listed() == (True, False)
    write_dockerfile(site, scratch, "RUN true")
    assert listed() == (False, False)
    build(site, scratch, quiet)
    assert listed() == (True, False)


def test_image_is_stale_when_its_parent_was_built_anew(site: ImageBuildContext, scratch: str) -> None:
    child = f"{scratch}-child"
    (site.home.root / "images" / child).mkdir()
    (site.home.root / "images" / child / "recipe.toml").write_text(f'parent = "{scratch}"')
    write_dockerfile(site, scratch, "RUN date +%N >/tmp/when")
    write_dockerfile(site, child, "")
    try:
        before = build(site, child, quiet).digest
        build(site, scratch, quiet, no_cache=True)
        stale = {info.name: info.stale for info in list_images(site) if info.name.startswith(scratch)}
        assert stale == {scratch: False, child: True}
        assert resolve_image(site, child) == before  # of use until it is built
        assert build(site, child, quiet).digest != before
    finally:
        remove_tags(site.engine, child)


def test_failed_build_shows_its_last_lines_and_leaves_no_tag(site: ImageBuildContext, scratch: str) -> None:
    write_dockerfile(site, scratch, "RUN echo the evidence && exit 7")
    with pytest.raises(SandboxError) as raised:
        build(site, scratch, quiet)
    assert (raised.value.code, raised.value.reason) == (ErrorCode.INVALID_INPUT, "build_failed")
    assert "the evidence" in raised.value.details
    assert "code: 7" in raised.value.details
    assert site.engine.inspect_image(tag_of(scratch)) is None


def test_what_an_interrupted_build_leaves_is_found_and_removed(site: ImageBuildContext, scratch: str) -> None:
    """Control: the engine lists the image of the completed step, without a tag, until then."""

    def interrupt(line: str) -> None:
        if line.endswith("| now"):
            raise SandboxError(ErrorCode.CONFLICT, "stopped by the test")

    write_dockerfile(site, scratch, f"RUN echo {scratch} > /tmp/one\nRUN echo now && sleep 60")
    with pytest.raises(SandboxError, match="stopped by the test"):
        build(site, scratch, interrupt)
    (left,) = find_step_images(site)
    assert left.digest in site.engine.find_dangling_image_digests()
    deadline = time.monotonic() + 60
    while left in find_step_images(site):
        assert time.monotonic() < deadline
        with suppress(SandboxError):  # the engine has yet to end the container of the step that ran
            remove_step_image(site, left)
        time.sleep(0.2)


def test_build_past_its_deadline_is_given_up(site: ImageBuildContext, scratch: str) -> None:
    parent = build(site, "base", quiet).digest or ""
    write_dockerfile(site, scratch, "RUN while echo x; do sleep 0.1; done")
    folder = site.home.root / "images" / scratch
    wanted = ImageBuild(folder, tag_of(scratch), {"BASE": parent}, {}, no_cache=True, deadline_s=1.0)
    with pytest.raises(SandboxError) as raised:
        site.engine.build_image(wanted, quiet)
    assert raised.value.code is ErrorCode.TIMEOUT


def test_the_steps_of_a_build_run_in_the_group_that_is_named(site: ImageBuildContext, scratch: str) -> None:
    """As the kernel says. Control: without a name they are in no such group."""
    host = read_group_host(site.engine.info())
    if host is None or os.geteuid() != 0 or host.driver != "cgroupfs":
        unavailable("this test makes a control group by its path")
    parent = build(site, "base", quiet).digest or ""
    write_dockerfile(site, scratch, "RUN echo now && sleep 3")
    folder, name = site.home.root / "images" / scratch, f"sandbox-test-{os.getpid()}"
    groups = [host.find_directory(name, controller) for controller in ("memory", "pids", "cpu")]

    def count_in_group(group: str) -> int:
        found: list[int] = []

        def look(line: str) -> None:
            if line == "now":
                found.append(sum(1 for _ in groups[0].glob("*/cgroup.procs")))

        wanted = ImageBuild(folder, tag_of(scratch), {"BASE": parent}, {}, no_cache=True, cgroup_parent=group)
        site.engine.build_image(wanted, look)
        return found[0]

    for group in dict.fromkeys(groups):
        group.mkdir(exist_ok=True)
    try:
        assert [count_in_group(parent_name(name, host.driver)), count_in_group("")] == [1, 0]
    finally:
        for hierarchy in host.root.glob("*"):
            with suppress(OSError):
                (hierarchy / name).rmdir()
        with suppress(OSError):
            (host.root / name).rmdir()


def test_image_with_a_volume_is_refused(site: ImageBuildContext, scratch: str) -> None:
    write_dockerfile(site, scratch, "")
    plain = build(site, scratch, quiet).digest
    assert resolve_image(site, scratch) == plain
    write_dockerfile(site, scratch, "VOLUME /data")
    build(site, scratch, quiet)
    for reference in (scratch, tag_of(scratch)):
        with pytest.raises(SandboxError) as raised:
            resolve_image(site, reference)
        assert raised.value.code is ErrorCode.POLICY_VIOLATION


def test_missing_image_names_the_command_or_what_looks_like_it(site: ImageBuildContext, scratch: str) -> None:
    write_dockerfile(site, scratch, "")
    for reference, hint in ((scratch, f"sandbox images build {scratch}"), ("pyhton", "python")):
        with pytest.raises(SandboxError) as raised:
            resolve_image(site, reference)
        assert raised.value.code is ErrorCode.IMAGE_MISSING
        assert hint in raised.value.hint


@pytest.mark.parametrize("reference", ["", "../containers/json", "UPPER", "a b", "x:y:z/"])
def test_what_cannot_name_an_image_is_refused(site: ImageBuildContext, reference: str) -> None:
    with pytest.raises(SandboxError) as raised:
        resolve_image(site, reference)
    assert raised.value.code is ErrorCode.INVALID_INPUT


def test_local_image_resolves_by_tag_and_digest(site: ImageBuildContext) -> None:
    digest = build(site, "base", quiet).digest
    assert digest is not None
    assert {resolve_image(site, name) for name in ("base", tag_of("base"), "space-sandbox/base", digest)} == {digest}


def test_pull_without_a_registry_fails_fast_with_a_code(site: ImageBuildContext) -> None:
    with pytest.raises(SandboxError) as raised:
        site.engine.pull_image("localhost:1/nothing:latest", quiet, 20.0)
    assert raised.value.code is ErrorCode.NETWORK_ERROR


def test_pull_from_a_silent_registry_ends_at_the_deadline(site: ImageBuildContext) -> None:
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(SandboxError) as raised:
        site.engine.pull_image(f"localhost:{silent.getsockname()[1]}/nothing:latest", lines.append, 3.0)
    assert raised.value.code is ErrorCode.TIMEOUT
    assert lines == ["waiting for the registry"]


@pytest.mark.thorough
def test_ca_bundle_reaches_the_download_and_not_the_image(
    site: ImageBuildContext, scratch: str, tmp_path: Path
) -> None:
    folder = site.home.root / "images" / scratch
    shutil.copytree(find_resources("images") / "python", folder, dirs_exist_ok=True)
    # The stage that downloads proves that it had the bundle by leaving its word among the wheels.
    (folder / "download-wheels").write_text('#!/bin/sh\nmkdir "$2" && grep -c space-canary "$1/ca.crt" >"$2/seen"\n')
    (folder / "install-wheels").write_text("#!/bin/sh\n")
    bundle = tmp_path / "ca.crt"
    bundle.write_bytes(b"# space-canary\n" + (find_resources("images") / "base" / "Dockerfile").read_bytes())
    with_canary = ImageBuildContext(site.engine, site.home, ImageSettings(ca_bundle=str(bundle)), site.environ)
    digest = build(with_canary, scratch, quiet).digest or ""
    assert run(site.engine, digest, ["cat", "/wheels/seen"]) == "0\n1\n"
    everywhere = ["grep", "-rls", "space-canary", "/etc", "/home", "/opt", "/root", "/srv", "/usr", "/var", "/wheels"]
    assert run(site.engine, digest, everywhere, user="0") == "1\n"
    assert run(site.engine, digest, ["ls", "/build"], user="0").startswith("2\n")


@pytest.mark.parametrize(
    ("mirror", "seen"),
    [
        ("https://mirror.example/debian", "1"),
        ("http://mirror.example/debian", "0"),
        pytest.param("", "0", marks=pytest.mark.thorough),
    ],
)
def test_ca_bundle_reaches_every_recipe_that_asks_for_it(
    site: ImageBuildContext, scratch: str, tmp_path: Path, mirror: str, seen: str
) -> None:
    bundle = tmp_path / "ca.crt"
    bundle.write_bytes(f"# space-canary {scratch}\n".encode())
    asking = ImageBuildContext(
        site.engine, site.home, ImageSettings(ca_bundle=str(bundle), mirror=mirror), site.environ
    )
    write_dockerfile(
        site,
        scratch,
        "COPY .generated /tmp/asked/\n"
        "RUN for file in ca mirror-ca; do grep -c space-canary /tmp/asked/$file.crt >>/workspace/seen || true; done",
    )
    digest = build(asking, scratch, quiet).digest or ""
    assert run(site.engine, digest, ["cat", "/workspace/seen"]).split() == ["0", "1", seen]


PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "sample"
version = "1"
dependencies = [DEPENDENCIES]
[dependency-groups]
dev = ["pytest", "not-in-any-wheel-house"]
[tool.setuptools]
packages = ["sample"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "sample").mkdir(parents=True)
    (folder / "sample" / "__init__.py").write_text("def double(n):\n    return 2 * n\n")
    (folder / "pyproject.toml").write_text(PROJECT.replace("DEPENDENCIES", '"pluggy>=1"'))
    test = "from sample import double\n\ndef test_double():\n    assert double(2) == 4\n"
    (folder / "test_sample.py").write_text(textwrap.dedent(test))
    return folder


def check(
    site: ImageBuildContext, project: Path, what: str, argv: Sequence[str] = ("sandbox-python-check",)
) -> tuple[int, str, Path]:
    """Exit code, output and report directory of `sandbox-python-check` on a project."""
    build(site, "python", quiet)
    report = project.with_name("report")
    report.mkdir(exist_ok=True)
    for path in (report, project, *project.rglob("*")):
        os.chown(path, GUEST, GUEST)
    binds = {"/workspace": str(project), "/report": str(report)}
    code, _, output = run(site.engine, tag_of("python"), [*argv, what], binds=binds).partition("\n")
    return int(code), output, report


def test_python_checks_pass_offline_and_leave_the_sources_as_they_were(site: ImageBuildContext, project: Path) -> None:
    before = sorted(project.rglob("*"))
    code, output, report = check(site, project, "test")
    assert code == 0, output
    assert "going on without: not-in-any-wheel-house" in output
    assert 'tests="1"' in (report / "junit.xml").read_text()
    code, output, _ = check(site, project, "build")
    assert (code, "sample-1-py3-none-any.whl" in output) == (0, True)
    assert sorted(project.rglob("*")) == before


def test_python_check_fails_with_the_code_of_pytest(site: ImageBuildContext, project: Path) -> None:
    (project / "sample" / "__init__.py").write_text("def double(n):\n    return n\n")
    assert check(site, project, "test")[0] == 1
    (project / "test_sample.py").unlink()
    assert check(site, project, "test")[0] == 5


def test_programs_of_a_layer_find_the_project(site: ImageBuildContext, project: Path) -> None:
    """Control: where they are, beside the interpreter of the layer, they do not."""
    start = "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"\n' '''\n"
    (project / "test_sample.py").unlink()  # or pytest runs
    (project / "tool").write_text(f"{start}import sample\nprint(sample.double(21))\n")
    (project / "runtests.py").write_text(
        "import os, subprocess, sys, unittest\nos.chdir('/')\nassert subprocess.check_output(['tool']) == b'42\\n'\n"
        "sys.exit(subprocess.run(['/tmp/layer/bin/tool']).returncode != 1)\n"
    )
    layer = (
        "python3 -m venv --without-pip --system-site-packages /tmp/layer && install /workspace/tool /tmp/layer/bin && "
        'VIRTUAL_ENV=/tmp/layer PATH=/tmp/layer/bin:$PATH sandbox-python-check "$0"'
    )
    code, output, _ = check(site, project, "test", ("sh", "-c", layer))
    assert (code, "as runtests.py says" in output) == (0, True), output


def test_python_check_names_a_dependency_the_wheelhouse_lacks(site: ImageBuildContext, project: Path) -> None:
    (project / "pyproject.toml").write_text(PROJECT.replace("DEPENDENCIES", '"left-pad>=1"'))
    code, output, _ = check(site, project, "test")
    assert code == 69
    assert "left-pad>=1 (from sample) is not in the wheel-house" in output
    assert "sandbox images build python --wheelhouse" in output


def test_python_check_names_what_its_build_lacks(site: ImageBuildContext, project: Path) -> None:
    text = PROJECT.replace("DEPENDENCIES", "").replace('"setuptools"]', '"setuptools", "left-pad-backend>=1"]')
    (project / "pyproject.toml").write_text(text)
    for what in ("build", "test"):
        assert check(site, project, what)[0] == 0, "the control: nothing uses it"
    (project / "pyproject.toml").write_text(text.replace("setuptools.build_meta", "left_pad_backend"))
    for what in ("build", "test"):
        code, output, _ = check(site, project, what)
        assert (code, "left-pad-backend>=1 is not in the wheel-house" in output) == (72, True)
    (project / "pyproject.toml").write_text(PROJECT.replace("DEPENDENCIES", "").replace('version = "1"', "version = 1"))
    assert check(site, project, "build")[0] == 1, "its own mistake"


def test_python_check_does_not_pass_without_the_wheel_of_a_member(site: ImageBuildContext, project: Path) -> None:
    """Its tests go on. Controls: an application is no package; all are built, also after one that reads its input."""
    (project / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["m/*"]\n')
    member = (
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[project]\nname = "{}"\n'
    )
    reads = "import sys, setuptools\nsys.stdin.read()\nsetuptools.setup()\n"
    texts = {name: f'{member.format(name)}version = "1"\n' for name in "abc"}
    for name, text in {**texts, "app": '[project]\nname = "app"\nversion = "1"\n[tool.uv]\npackage = false\n'}.items():
        (project / "m" / name).mkdir(parents=True)
        (project / "m" / name / "pyproject.toml").write_text(text)
        (project / "m" / name / "setup.py").write_text("raise SystemExit('no')\n" if name in {"b", "app"} else reads)
    code, output, _ = check(site, project, "build")
    assert (code, "m/b is not installed" in output, "m/app is not installed" in output) == (1, True, True), output
    assert "built c-1-py3-none-any.whl" in output
    assert check(site, project, "test")[0] == 0
    (project / "m" / "b" / "setup.py").write_text(reads)
    code, output, _ = check(site, project, "build")
    assert (code, output.count("built ")) == (0, 3), output


def test_python_check_compiles_a_tree_that_is_no_package(site: ImageBuildContext, project: Path) -> None:
    (project / "pyproject.toml").unlink()
    assert check(site, project, "build")[0] == 0
    (project / "sample" / "__init__.py").write_text("def double(:\n")
    code, output, _ = check(site, project, "build")
    assert (code, "SyntaxError" in output) == (1, True)
    for path in project.rglob("*.py"):
        path.unlink()
    assert check(site, project, "build")[0] == 65, "with nothing to build and nothing to compile it does not pass"


def test_variant_without_a_name_or_on_the_wrong_image_is_refused(site: ImageBuildContext, tmp_path: Path) -> None:
    wheels = tmp_path / "requirements.txt"
    wheels.write_text("click\n")
    for name, name_as in (("python", None), ("build", "build-acme"), ("python", "base")):
        with pytest.raises(SandboxError) as raised:
            build(site, name, quiet, wheelhouse=wheels, name_as=name_as)
        assert raised.value.code is ErrorCode.INVALID_INPUT
