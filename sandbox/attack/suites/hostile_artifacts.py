"""THREATS S114: a guest leaves links and special files in the place of artifacts, and a stored one is swapped."""

from __future__ import annotations

import os
from contextlib import nullcontext

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.scene import SECRET, Scene, require_equal, require_hit, require_refusal
from sandbox.attack.harness.verdict_samples import make_run
from sandbox.errors import ErrorCode
from sandbox.files.tree import WorktreeFiles
from sandbox.models import ArtifactList, ArtifactRule, Check
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.workbench.checks.collected_artifacts import collect_artifacts, read_artifact

_CHECK = Check(id="test", label="test", argv=("true",), artifacts=(ArtifactRule(path="dist/**"),))


def _leave(scene: Scene) -> None:
    dist = scene.worktree / "dist"
    dist.mkdir()
    (dist / "app").write_bytes(b"fine")
    (dist / "link").symlink_to(scene.outside / "secret")
    (dist / "folder").symlink_to(scene.outside)
    os.mkfifo(dist / "fifo")


def _copies_secret(scene: Scene) -> str:
    require_hit((scene.worktree / "dist" / "link").read_bytes() == SECRET, "the link leads nowhere")
    return "a collector who copies what it finds gives out a file of the host"


def _collect(scene: Scene) -> ArtifactList:
    home, run = Home(scene.home), make_run()
    home.logs(scene.task.id).mkdir(exist_ok=True)
    save_run(home, scene.task.id, run)
    with WorktreeFiles(scene.worktree) as files:
        return collect_artifacts(home, scene.task.id, run.run_id, _CHECK, files, lambda _size: nullcontext())


def _takes_plain_files(scene: Scene) -> str:
    found, home = _collect(scene), Home(scene.home)
    require_equal([each.path for each in found.artifacts], ["dist/app"], "what was taken")
    reasons = {each.path: each.reason for each in found.refused}
    require_equal(reasons, dict.fromkeys(("dist/fifo", "dist/folder", "dist/link"), "special"), "what was not")
    (stored,) = home.artifacts.glob("[0-9a-f]*")
    require_equal(stored.read_bytes(), b"fine", "what is stored")
    stored.write_bytes(b"evil")
    require_refusal(lambda: b"".join(read_artifact(home, found.run_id, "dist/app")), ErrorCode.INTERNAL)
    require_refusal(lambda: b"".join(read_artifact(home, found.run_id, "../secret")), ErrorCode.NOT_FOUND)
    return "one plain file taken, three names refused; a stored one that was swapped is not given out"


ENTRIES = (
    AttackEntry("S114", "artifacts that are links and FIFOs", "artifacts", _copies_secret, _takes_plain_files,
          _leave),
)  # fmt: skip
