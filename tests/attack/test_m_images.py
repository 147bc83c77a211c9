"""THREATS M: an image's own configuration, tags that move, and files the engine's tools would read."""

from __future__ import annotations

import io
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.host_speed import slowness
from sandbox.attack.suites.hostile_archives import hide_in_directory, make_sparse_file
from sandbox.config import ImageSettings
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode
from sandbox.images import ImageBuildContext
from sandbox.images.imports import import_images
from sandbox.policy.container import UserIds
from sandbox.store.home import Home
from tests.attack.arena import Arena, refused
from tests.attack.image_archive import write_archive
from tests.attack.test_i_output import cli

pytestmark = pytest.mark.must
HOSTILE = """FROM space-sandbox/base
ENTRYPOINT ["/bin/echo", "ENTRYPOINT-RAN"]
CMD ["CMD-RAN"]
USER 0
WORKDIR /tmp
STOPSIGNAL SIGCONT
HEALTHCHECK --interval=1s CMD touch /workspace/health
ENV GIT_DIR=/evil BASH_ENV=/evil PATH=/evil
LABEL space.sandbox.instance=somebody-else space.sandbox.task=evil
SHELL ["/evil"]
"""


@pytest.fixture
def image(engine: DockerEngine, request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    """Build an image of a Dockerfile on ours; removed afterwards."""
    tags: list[str] = []

    def build(text: str) -> str:
        tag = f"sandbox-attack/{len(tags)}-{abs(hash(request.node.name)) % 10**8}:latest"
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as tar:
            member = tarfile.TarInfo("Dockerfile")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
        context.seek(0)
        log = list(engine.api.build(fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True, decode=True))
        assert not [line for line in log if "error" in line], log
        tags.append(tag)
        return tag

    yield build
    for tag in tags:
        engine.api.remove_image(tag, force=True)


def raw_run(engine: DockerEngine, tag: str, *command: str) -> str:
    """The image as it wants to be run."""
    body = {"Image": tag, "Cmd": list(command), "HostConfig": {"NetworkMode": "none"}}
    made = engine.api.create_container_from_config(body)
    try:
        engine.api.start(made["Id"])
        engine.api.wait(made["Id"])
        return engine.api.logs(made["Id"]).decode()
    finally:
        engine.api.remove_container(made["Id"], force=True, v=True)


def test_m01_l10_image_configuration_has_no_effect(
    guests: Callable[..., Arena], engine: DockerEngine, image: Callable[[str], str]
) -> None:
    tag = image(HOSTILE)
    assert "ENTRYPOINT-RAN" in raw_run(engine, tag, "x"), "void"
    arena = guests("sh", "-c", "id -u; pwd; env; sleep 2.5; ls", image=tag, extra="timeout_s = 30")
    arena.new_task()
    (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
    assert run.verdict == "passed", run.stderr_tail
    lines = run.stdout_tail.splitlines()
    assert lines[:2] == [str(arena.worktree.stat().st_uid), "/workspace"]
    assert int(lines[0]) in UserIds().ids
    assert "RAN" not in run.stdout_tail
    assert "/evil" not in run.stdout_tail
    assert "health" not in lines
    slow = guests("sleep", "60", image=tag, extra="timeout_s = 1")
    (run,) = slow.workbench.run(str(slow.remote)).runs
    assert run.verdict == "timed_out"
    assert run.wall_time_s < 6 * slowness()


def test_m01_loader_variables_are_removed_or_refused(
    guests: Callable[..., Arena], engine: DockerEngine, image: Callable[[str], str]
) -> None:
    tag = image("FROM space-sandbox/base\nENV LD_PRELOAD=/evil.so LD_AUDIT=/evil.so\n")
    assert {"LD_PRELOAD=/evil.so", "LD_AUDIT=/evil.so"} <= set(raw_run(engine, tag, "env").splitlines()), "void"
    arena = guests("env", image=tag)
    (run,) = arena.workbench.run(str(arena.remote)).runs
    assert "LD_PRELOAD" not in run.stdout_tail
    assert "LD_AUDIT" not in run.stdout_tail
    other = guests("env", image=image("FROM space-sandbox/base\nENV LD_SOMETHING=/evil.so\n"))
    with refused(ErrorCode.POLICY_VIOLATION):
        other.workbench.run(str(other.remote))


def test_m01_volumes_are_refused(
    guests: Callable[..., Arena], engine: DockerEngine, image: Callable[[str], str]
) -> None:
    """Control: they make a volume without any limit, which outlives the container."""
    tag = image("FROM space-sandbox/base\nVOLUME /data\n")
    made: Any = engine.api.create_container_from_config({"Image": tag, "Cmd": ["true"]})
    mounts = engine.api.inspect_container(made["Id"])["Mounts"]
    engine.api.remove_container(made["Id"], force=True, v=True)
    assert [m["Destination"] for m in mounts] == ["/data"], "void"
    arena = guests("true", image=tag)
    with refused(ErrorCode.POLICY_VIOLATION):
        arena.workbench.run(str(arena.remote))


def test_m02_a_tag_that_moves_is_recorded_by_digest(
    guests: Callable[..., Arena], engine: DockerEngine, image: Callable[[str], str]
) -> None:
    """Between two runs the tag comes to mean another image: each run names the one it ran. Nothing is ever pulled."""
    first, second = image("FROM space-sandbox/base\nLABEL a=1\n"), image("FROM space-sandbox/base\nLABEL a=2\n")
    arena = guests("true", image=first)
    one = arena.workbench.run(str(arena.remote)).runs[0].image_digest
    engine.api.tag(second, first.rpartition(":")[0], "latest", force=True)
    two = arena.workbench.run(str(arena.remote)).runs[0].image_digest
    inspected = engine.api.inspect_image(second)["Id"]
    assert one != two == inspected
    missing = guests("true", image="docker.io/library/no-such-image:latest")
    with refused(ErrorCode.IMAGE_MISSING):
        missing.workbench.run(str(missing.remote))


def test_m03_m06_engine_files_of_the_repository_are_not_read(guests: Callable[..., Arena]) -> None:
    """The command runs in the worktree, among a Dockerfile, compose files, `.env`, a docker configuration, a module.

    Control: each of these names is one that some tool takes from the current directory; python does here.
    """
    arena = guests("true")
    arena.new_task()
    mark = arena.script("m06")
    (arena.worktree / "Dockerfile").write_text(f"FROM scratch\nRUN {mark}\n")
    (arena.worktree / "docker-compose.yml").write_text("services: {x: {image: x, privileged: true}}\n")
    (arena.worktree / ".env").write_text("DOCKER_HOST=tcp://127.0.0.1:1\nSANDBOX_HOME=/nonexistent\n")
    (arena.worktree / ".docker").mkdir()
    (arena.worktree / ".docker" / "config.json").write_text('{"credsStore": "evil", "currentContext": "evil"}')
    (arena.worktree / "config.toml").write_text('[engine]\nhost = "tcp://127.0.0.1:1"\n')
    for name in ("sandbox", "docker", "git", "click"):
        (arena.worktree / f"{name}.py").write_text(f"import os; os.system({mark!r})\n")
    arena.require_mark("m06", lambda: _import_here(arena))
    done = cli(arena, "check", "run", arena.task.id, "go", cwd=arena.worktree)
    assert done.returncode == 0, done.stderr
    assert cli(arena, "run", str(arena.remote), cwd=arena.worktree).returncode == 0
    assert arena.marks() == set()


def test_m11_an_archive_that_lies_about_its_images_changes_nothing(engine: DockerEngine, tmp_path: Path) -> None:
    """Controls: the engine itself loads it under that name; and an archive that tells the truth is imported."""
    name, recipe = f"test-scratch-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex * 2
    tag = f"space-sandbox/{name}:{recipe[:12]}"
    truth = {"space.sandbox.image": name, "space.sandbox.folder": name, "space.sandbox.recipe": recipe}
    (home := Home(tmp_path / "home")).prepare()
    site = ImageBuildContext(engine, home, ImageSettings(), {})
    lying = write_archive(tmp_path / "lying.tar", tag, {**truth, "space.sandbox.recipe": "0" * 64})
    damaged = write_archive(tmp_path / "damaged.tar", tag, truth, damage=b"X")
    honest = write_archive(tmp_path / "honest.tar", tag, truth)
    other = imported = None
    try:
        for path in (lying, damaged):
            with refused(ErrorCode.INVALID_INPUT):
                import_images(site, path, print)
            assert engine.inspect_image(tag) is None
        with refused(ErrorCode.INVALID_INPUT):
            import_images(site, honest, print, expected=f"sha256:{'0' * 64}")
        engine.load_images([lying.read_bytes()])
        other = engine.inspect_image(tag)
        assert other is not None, "void"
        with refused(ErrorCode.CONFLICT):
            import_images(site, honest, print)
        assert engine.inspect_image(tag) == other
        import_images(site, honest, print, replace=True)
        imported = engine.inspect_image(tag)
        assert imported is not None
        assert imported.labels == truth
    finally:
        for digest in {image.digest for image in (other, imported) if image}:
            engine.api.remove_image(digest, force=True)


def test_s166_a_layer_unpacks_to_no_more_than_it_has(engine: DockerEngine, tmp_path: Path) -> None:
    """A sparse file where only the engine's reader looks for a header. Control: the engine writes all of it out."""
    large = 32 * 1024**2
    layer = hide_in_directory(make_sparse_file(large))
    name, recipe = f"test-scratch-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex * 2
    tag = f"space-sandbox/{name}:{recipe[:12]}"
    labels = {"space.sandbox.image": name, "space.sandbox.folder": name, "space.sandbox.recipe": recipe}
    (home := Home(tmp_path / "home")).prepare()
    site = ImageBuildContext(engine, home, ImageSettings(), {})
    path = write_archive(tmp_path / "bomb.tar", tag, labels, layers=[layer])
    assert path.stat().st_size < large / 100
    with refused(ErrorCode.INVALID_INPUT):
        import_images(site, path, print)
    assert engine.inspect_image(tag) is None
    engine.load_images([path.read_bytes()])
    try:
        assert engine.api.inspect_image(tag)["Size"] >= large, "void"
    finally:
        engine.api.remove_image(tag, force=True)


def _import_here(arena: Arena) -> None:
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    subprocess.run([sys.executable, "-c", "import docker"], cwd=arena.worktree, check=True, capture_output=True)
