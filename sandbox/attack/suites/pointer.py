"""THREATS A: which repository is used? The guest controls the worktree's `.git`; the product must never read it."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.scene import SECRET, Scene, remove, require_equal, require_hit

LIFE = "status, diff, read, patch, commit, push, fetch and close of the task"
STATUS = "plain `git status` there"


def poison(scene: Scene, name: str) -> str:
    """A configuration with which every git runs a payload."""
    return f"[core]\n\tfsmonitor = {scene.script(name)}\n"


def hit_by(*words: str) -> Callable[[Scene], str]:
    """A control: plain git in the worktree leaves the mark `payload`."""

    def control(scene: Scene) -> str:
        scene.require_mark("payload", lambda: scene.git(*words, cwd=scene.worktree))
        return f"`git {' '.join(words)}` ran the payload"

    return control


def run_task_life(scene: Scene) -> str:
    """The attack: run every host operation of a task's life. Each must work or raise a typed error."""
    refused = scene.run_every_operation()
    require_equal([f"{e.code}: {e.brief}" for e in refused if e.code == "internal"], [], "untyped errors")
    return (
        "no payload ran" if not refused else f"no payload ran; refused: {', '.join(sorted({e.code for e in refused}))}"
    )


def _directory(scene: Scene) -> None:
    scene.replace_pointer(poison(scene, "payload"))


def _redirect(scene: Scene) -> None:
    scene.evil_git_dir(scene.worktree / "evilgit", poison(scene, "payload"))
    remove(scene.worktree / ".git")
    (scene.worktree / ".git").write_text("gitdir: ./evilgit\n")


def _link(scene: Scene) -> None:
    scene.evil_git_dir(scene.worktree / "x", poison(scene, "payload"))
    remove(scene.worktree / ".git")
    (scene.worktree / ".git").symlink_to("x")


def _commondir(scene: Scene) -> None:
    evil = scene.evil_git_dir(scene.worktree / "evilgit", poison(scene, "payload"))
    (scene.replace_pointer() / "commondir").write_text(f"../{evil.name}\n")


def _other_task(scene: Scene) -> str:
    clone, root = scene.root / "shared.git", scene.root
    scene.require_git("clone", "-q", "--bare", str(scene.remote), str(clone), cwd=root)
    for name in ("t1", "t2"):
        scene.require_git("worktree", "add", "-q", "-b", name, str(root / name), "main", cwd=root, git_dir=clone)
    (root / "t1" / ".git").write_text(f"gitdir: {clone}/worktrees/t2\n")
    before = scene.require_git("rev-parse", "t2", cwd=root, git_dir=clone)
    scene.require_git("commit", "-q", "--allow-empty", "-m", "x", cwd=root / "t1")
    require_hit(
        scene.require_git("rev-parse", "t2", cwd=root, git_dir=clone) != before, "the commit stayed on its own branch"
    )
    return "the commit is on the other branch"


def _own_branch(scene: Scene) -> str:
    other, mine = scene.task, scene.new_task()
    remove(scene.worktree / ".git")
    (scene.worktree / ".git").write_text(f"gitdir: {scene.home}/repositories/worktrees/{scene.repo_id}/{other.id}\n")
    (scene.worktree / "f.txt").write_text("mine\n")
    commit = scene.workbench.commit(mine.id, "mine").commit
    refs = scene.require_git("for-each-ref", "--format=%(objectname) %(refname)", cwd=scene.root, git_dir=scene.cache)
    require_equal(
        [r.split()[1] for r in refs.splitlines() if commit in r], [f"refs/heads/{mine.branch}"], "the commit is on"
    )
    require_equal(scene.workbench.task(other.id).head_commit, other.head_commit, "head of the other task")
    return "the commit is on the task's own branch"


def _around(scene: Scene) -> None:
    scene.require_git("init", "-q", str(scene.root), cwd=scene.root)
    remove(scene.worktree / ".git")


def _climbs(scene: Scene) -> str:
    # Across file systems: otherwise the mount of an overlay stops discovery, and a plain worktree does not.
    env = {"GIT_DISCOVERY_ACROSS_FILESYSTEM": "1"}
    found = scene.git("rev-parse", "--show-toplevel", cwd=scene.worktree, env=env).text
    require_hit(found == str(scene.root), "discovery stopped")
    return "plain git acts on the repository around the home"


def _stays(scene: Scene) -> str:
    (scene.worktree / "f.txt").write_text("changed\n")
    require_equal([c.path for c in scene.workbench.status(scene.task.id).changes], ["f.txt"], "status")
    scene.workbench.commit(scene.task.id, "x")
    require_equal(list((scene.root / ".git" / "refs" / "heads").iterdir()), [], "branches of the repository around")
    return "committed only to the task"


def _init(scene: Scene) -> None:
    remove(scene.worktree / ".git")
    scene.require_git("init", "-q", cwd=scene.worktree)
    with (scene.worktree / ".git" / "config").open("a") as stream:
        stream.write(poison(scene, "payload"))


def _blocks_removal(scene: Scene) -> str:
    clone, other = scene.root / "c.git", scene.root / "w"
    scene.require_git("clone", "-q", "--bare", str(scene.remote), str(clone), cwd=scene.root)
    scene.require_git("worktree", "add", "-q", str(other), "main", cwd=scene.root, git_dir=clone)
    remove(other / ".git")
    (other / ".git").mkdir()
    done = scene.git("worktree", "remove", "--force", str(other), cwd=clone, git_dir=clone)
    require_hit(done.code != 0, "git removed it")
    return "`git worktree remove --force` fails"


def _removes(scene: Scene) -> str:
    remove(scene.worktree / ".git")
    (scene.worktree / ".git").mkdir()
    scene.workbench.close_task(scene.task.id, delete_worktree=True, discard=True)
    require_equal(scene.worktree.exists(), False, "the worktree is still there")
    return "the worktree is gone"


def _elsewhere(scene: Scene) -> None:
    scene.replace_pointer(f"[core]\n\tbare = false\n\tworktree = {scene.outside}\n")


def _reads_host(scene: Scene) -> str:
    scene.require_git("add", "-A", cwd=scene.worktree)
    require_hit(
        scene.require_git("show", ":secret", cwd=scene.worktree).encode() + b"\n" == SECRET,
        "git stayed in the worktree",
    )
    return "plain git staged the host's secret"


def _foreign_worktree(scene: Scene) -> str:
    (scene.worktree / "f.txt").write_text("changed\n")
    require_equal([c.path for c in scene.workbench.status(scene.task.id).changes], ["f.txt"], "status")
    return run_task_life(scene)


ENTRIES = (
    AttackEntry(
        "A01",
        "`.git` becomes a directory with hostile configuration",
        LIFE,
        hit_by("status"),
        run_task_life,
        _directory,
    ),
    AttackEntry("A02", "`.git` points to a directory of the guest's", LIFE, hit_by("status"), run_task_life, _redirect),
    AttackEntry("A03", "`.git` becomes a symlink", LIFE, hit_by("status"), run_task_life, _link),
    AttackEntry("A04", "`.git` points to another task", "commit", _other_task, _own_branch),
    AttackEntry(
        "A05",
        "`.git` is deleted, so that git searches the parent directories",
        "status, commit",
        _climbs,
        _stays,
        _around,
    ),
    AttackEntry("A06", "`commondir` beside innocent files", LIFE, hit_by("status"), run_task_life, _commondir),
    AttackEntry("A10", "a new repository created by the guest", LIFE, hit_by("status"), run_task_life, _init),
    AttackEntry("A16", "a changed `.git` prevents removal of the worktree", "close", _blocks_removal, _removes),
    AttackEntry("A17", "`core.worktree` points to files of the host", LIFE, _reads_host, _foreign_worktree, _elsewhere),
)
