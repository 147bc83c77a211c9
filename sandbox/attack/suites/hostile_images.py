"""THREATS M: an image with a configuration that tries to control the guest."""

from __future__ import annotations

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.guests import PROFILE, small_limits
from sandbox.attack.harness.outcomes import NotSupported
from sandbox.attack.harness.scene import Scene, require_equal, require_hit, require_refusal
from sandbox.engine.container_labels import INSTANCE_LABEL
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Verdict

HOSTILE = """FROM {base}
ENTRYPOINT ["/bin/sh", "-c", "echo ENTRYPOINT-RAN $(id -u) $(pwd) $GIT_DIR"]
CMD ["CMD-RAN"]
USER 0
WORKDIR /tmp
STOPSIGNAL SIGCONT
HEALTHCHECK --interval=1s CMD touch /workspace/health
ENV GIT_DIR=/evil BASH_ENV=/evil PATH=/evil:/usr/bin:/bin
LABEL {label}=another-owner space.sandbox.task=evil
"""
CHECK = """
[[check]]
id = "go"
label = "go"
argv = ["sh", "-c", "id -u; pwd; env"]
timeout_s = 60
limits = {{ memory_bytes = {memory}, cpus = 1.0, pids = {pids} }}
"""


def _tag(scene: Scene, name: str) -> str:
    return f"sandbox-attack/{scene.host.instance}:{name}"


def _build(scene: Scene, name: str, text: str) -> str:
    base = scene.host.image("base")
    tag = _tag(scene, name)
    try:
        scene.host.soft_containers.build(tag, text.format(base=base, label=INSTANCE_LABEL))
    except SandboxError as error:
        raise NotSupported(f"the engine cannot build an image here: {error.details or error.brief}") from error
    scene.host.images.append(tag)
    return tag


def _engine_applies(scene: Scene) -> str:
    said = scene.host.soft_containers.run(_build(scene, "hostile", HOSTILE), None).stdout
    require_hit(b"ENTRYPOINT-RAN 0 /tmp /evil" in said, f"the engine did not apply it: {said[-200:]!r}")
    return "by default an engine applies its entrypoint, user, directory and environment"


def _profile(scene: Scene, image: str) -> None:
    (scene.home / "profiles").mkdir(exist_ok=True)
    mebibytes, pids = small_limits(scene.host.runtime)
    text = PROFILE.replace('"base"', f'"{image}"') + CHECK.format(memory=mebibytes << 20, pids=pids)
    (scene.home / "profiles" / "attack.toml").write_text(text)


def _overridden(scene: Scene) -> str:
    _profile(scene, _tag(scene, "hostile"))
    with scene.open_workbench() as workbench:
        (run,) = workbench.run_checks(scene.task.id, ["go"])
    require_equal(run.verdict, Verdict.PASSED, "the check")
    uid, folder, *rest = run.stdout_tail.splitlines()
    require_equal((uid == "0", folder), (False, "/workspace"), "whether the guest is root, and its directory")
    require_equal([line for line in rest if "/evil" in line or "RAN" in line], [], "what the image set")
    return f"uid {uid} in {folder}, no variable of the image"


def _makes_volume(scene: Scene) -> str:
    tag = _build(scene, "volume", "FROM {base}\nVOLUME /data\n")
    said = scene.host.soft_containers.run(tag, ["cat", "/proc/self/mountinfo"]).stdout
    require_hit(b" /data " in said, "the engine created no volume")
    return "by default an engine gives it a volume without any limit"


def _volume_refused(scene: Scene) -> str:
    _profile(scene, _tag(scene, "volume"))
    with scene.open_workbench() as workbench:
        require_refusal(lambda: workbench.run_checks(scene.task.id, ["go"]), ErrorCode.POLICY_VIOLATION)
    return "an image with a volume is refused"


ENTRIES = (
    AttackEntry("M01", "an image with its own entrypoint and user", "check run with that image", _engine_applies,
          _overridden,
          needs_engine=True),
    AttackEntry("M01V", "an image with a volume", "check run with that image", _makes_volume, _volume_refused,
          needs_engine=True),
)  # fmt: skip
