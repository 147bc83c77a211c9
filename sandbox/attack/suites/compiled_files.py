"""THREATS S147: a commit that was merged, but was never the state of the branch, fills the cache of compiled files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sandbox.attack.harness.attack_host import AttackHost
from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough, Void
from sandbox.attack.harness.scene import Scene, require_equal, require_hit
from sandbox.errors import SandboxError
from sandbox.models import CheckRun
from sandbox.store.compiler_caches import CompilerCaches
from sandbox.store.home import Home

MAKEFILE = b"app: main.c\n\tg++ -x c++ -c main.c -o main.o && g++ main.o -o app\ntest: app\n\t./app\n.PHONY: app test\n"
PROGRAM = b"int main() { return 0; }\n"
PLANTED = "a/b/0123456789abcdef0123456789abcR"
POISON = f"""\
app:
\tfor f in $$(find /report/.ccache /sandbox-ccache -type f 2>/dev/null); do echo poison >$$f; rm -f $$f; done; true
\tmkdir -p /report/.ccache/a/b && echo poison >/report/.ccache/{PLANTED}; chmod -R 777 /report/.ccache; true
test:
\ttrue
.PHONY: app test
""".encode()


def needs_compiler(site: AttackHost) -> str:
    """A need: the image with compilers and ccache."""
    try:
        site.image("build")
    except SandboxError as error:
        return f"{error.brief}: `sandbox images build build`"
    return ""


def _commit(scene: Scene, folder: Path, files: Mapping[str, bytes]) -> str:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    scene.require_git("add", "-A", cwd=folder)
    scene.require_git("commit", "-q", "-m", "change", cwd=folder)
    return scene.require_git("rev-parse", "HEAD", cwd=folder)


def _begin(scene: Scene, name: str, makefile: bytes) -> Path:
    folder = scene.root / name
    folder.mkdir()
    scene.require_git("init", "-q", "-b", "main", cwd=folder)
    _commit(scene, folder, {"Makefile": makefile, "main.c": PROGRAM})
    return folder


def _run(scene: Scene, folder: Path) -> CheckRun:
    """The run of the build in a room of the last commit. Raises: `Void` if it did not fill the cache."""
    run = scene.workbench.run(str(folder)).runs[0]
    if run.compiler_cache != "filled":
        raise Void(f"the build filled no cache of compiled files: {run.verdict}")
    return run


def _read_cache(scene: Scene, repo_id: str, run: CheckRun) -> dict[str, bytes]:
    folder = CompilerCaches(Home(scene.home), repo_id, run.image_digest).find()
    if folder is None:
        return {}
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _last_commit_fills(scene: Scene) -> str:
    folder = _begin(scene, "poisoned", POISON)
    run = _run(scene, folder)
    repo_id = scene.workbench.clone(str(folder)).repository.id
    require_hit(PLANTED in _read_cache(scene, repo_id, run), "the commands planted no file")
    return "the same commands in the last commit of the branch planted a file that other rooms would take"


def _merged_commit_fills_nothing(scene: Scene) -> str:
    folder = _begin(scene, "merged", MAKEFILE)
    scene.require_git("checkout", "-q", "-b", "request", cwd=folder)
    planted = _commit(
        scene, folder, {"Makefile": POISON, "other": b""}
    )  # a tree that no verdict of the control answers
    _commit(scene, folder, {"Makefile": MAKEFILE, "more": b""})
    scene.require_git("checkout", "-q", "main", cwd=folder)
    scene.require_git("merge", "-q", "--no-ff", "--no-edit", "request", cwd=folder)
    run = _run(scene, folder)
    repo_id = scene.workbench.clone(str(folder)).repository.id
    before = _read_cache(scene, repo_id, run)
    task = scene.workbench.create_task(repo_id, "attack", planted)
    try:
        attacker = scene.workbench.verify(task.id).runs[0]
    finally:
        scene.workbench.close_task(task.id, delete_worktree=True, discard=True)
    require_equal(attacker.compiler_cache, "read", "what the room of the merged commit did with the cache")
    if _read_cache(scene, repo_id, run) != before:
        raise GotThrough("a commit that was merged changed the cache of compiled files")
    return f"the room of the merged commit read the cache; its {len(before)} files are as they were"


ENTRIES = (
    AttackEntry(
        "S147", "compiled files of a commit that was merged", "verify",
        _last_commit_fills, _merged_commit_fills_nothing,
        needs=(needs_compiler,), scene="bare", needs_engine=True,
    ),
)  # fmt: skip
