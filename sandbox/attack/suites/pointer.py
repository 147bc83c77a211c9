"""THREATS A: which repository is used? The guest controls the worktree's `.git`; the product must never read it."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.attack.harness.entry import Entry
from sandbox.attack.harness.scene import SECRET, Scene, fired, held, remove

LIFE = "status, diff, read, patch, commit, push, fetch and close of the task"
STATUS = "plain `git status` there"


def poison(scene: Scene, name: str) -> str:
    """A configuration with which every git runs a payload."""
    return f"[core]\n\tfsmonitor = {scene.script(name)}\n"


def hit_by(*words: str) -> Callable[[Scene], str]:
    """A control: plain git in the worktree leaves the mark `payload`."""

    def control(scene: Scene) -> str:
        scene.fires("payload", lambda: scene.git(*words, cwd=scene.wt))
        return f"`git {' '.join(words)}` ran the payload"

    return control


def live(scene: Scene) -> str:
    """The attack: run every host operation of a task's life. Each must work or raise a typed error."""
    refused = scene.whole_life()
    held([f"{e.code}: {e.brief}" for e in refused if e.code == "internal"], [], "untyped errors")
    return (
        "no payload ran" if not refused else f"no payload ran; refused: {', '.join(sorted({e.code for e in refused}))}"
    )


def _directory(scene: Scene) -> None:
    scene.replace_pointer(poison(scene, "payload"))


def _redirected(scene: Scene) -> None:
    scene.evil_git_dir(scene.wt / "evilgit", poison(scene, "payload"))
    remove(scene.wt / ".git")
    (scene.wt / ".git").write_text("gitdir: ./evilgit\n")


def _link(scene: Scene) -> None:
    scene.evil_git_dir(scene.wt / "x", poison(scene, "payload"))
    remove(scene.wt / ".git")
    (scene.wt / ".git").symlink_to("x")


def _commondir(scene: Scene) -> None:
    evil = scene.evil_git_dir(scene.wt / "evilgit", poison(scene, "payload"))
    (scene.replace_pointer() / "commondir").write_text(f"../{evil.name}\n")


def _other_task(scene: Scene) -> str:
    clone, root = scene.root / "shared.git", scene.root
    scene.must("clone", "-q", "--bare", str(scene.remote), str(clone), cwd=root)
    for name in ("t1", "t2"):
        scene.must("worktree", "add", "-q", "-b", name, str(root / name), "main", cwd=root, git_dir=clone)
    (root / "t1" / ".git").write_text(f"gitdir: {clone}/worktrees/t2\n")
    before = scene.must("rev-parse", "t2", cwd=root, git_dir=clone)
    scene.must("commit", "-q", "--allow-empty", "-m", "x", cwd=root / "t1")
    fired(scene.must("rev-parse", "t2", cwd=root, git_dir=clone) != before, "the commit stayed on its own branch")
    return "the commit is on the other branch"


def _own_branch(scene: Scene) -> str:
    other, mine = scene.task, scene.new_task()
    remove(scene.wt / ".git")
    (scene.wt / ".git").write_text(f"gitdir: {scene.home}/repositories/worktrees/{scene.repo_id}/{other.id}\n")
    (scene.wt / "f.txt").write_text("mine\n")
    commit = scene.wb.commit(mine.id, "mine").commit
    refs = scene.must("for-each-ref", "--format=%(objectname) %(refname)", cwd=scene.root, git_dir=scene.cache)
    held([r.split()[1] for r in refs.splitlines() if commit in r], [f"refs/heads/{mine.branch}"], "the commit is on")
    held(scene.wb.task(other.id).head_commit, other.head_commit, "head of the other task")
    return "the commit is on the task's own branch"


def _around(scene: Scene) -> None:
    scene.must("init", "-q", str(scene.root), cwd=scene.root)
    remove(scene.wt / ".git")


def _climbs(scene: Scene) -> str:
    # Across file systems: otherwise the mount of an overlay stops discovery, and a plain worktree does not.
    env = {"GIT_DISCOVERY_ACROSS_FILESYSTEM": "1"}
    found = scene.git("rev-parse", "--show-toplevel", cwd=scene.wt, env=env).text
    fired(found == str(scene.root), "discovery stopped")
    return "plain git acts on the repository around the home"


def _stays(scene: Scene) -> str:
    (scene.wt / "f.txt").write_text("changed\n")
    held([c.path for c in scene.wb.status(scene.task.id).changes], ["f.txt"], "status")
    scene.wb.commit(scene.task.id, "x")
    held(list((scene.root / ".git" / "refs" / "heads").iterdir()), [], "branches of the repository around")
    return "committed only to the task"


def _init(scene: Scene) -> None:
    remove(scene.wt / ".git")
    scene.must("init", "-q", cwd=scene.wt)
    with (scene.wt / ".git" / "config").open("a") as stream:
        stream.write(poison(scene, "payload"))


def _blocks_removal(scene: Scene) -> str:
    clone, other = scene.root / "c.git", scene.root / "w"
    scene.must("clone", "-q", "--bare", str(scene.remote), str(clone), cwd=scene.root)
    scene.must("worktree", "add", "-q", str(other), "main", cwd=scene.root, git_dir=clone)
    remove(other / ".git")
    (other / ".git").mkdir()
    done = scene.git("worktree", "remove", "--force", str(other), cwd=clone, git_dir=clone)
    fired(done.code != 0, "git removed it")
    return "`git worktree remove --force` fails"


def _removed(scene: Scene) -> str:
    remove(scene.wt / ".git")
    (scene.wt / ".git").mkdir()
    scene.wb.close_task(scene.task.id, delete_worktree=True, discard=True)
    held(scene.wt.exists(), False, "the worktree is still there")
    return "the worktree is gone"


def _elsewhere(scene: Scene) -> None:
    scene.replace_pointer(f"[core]\n\tbare = false\n\tworktree = {scene.outside}\n")


def _reads_host(scene: Scene) -> str:
    scene.must("add", "-A", cwd=scene.wt)
    fired(scene.must("show", ":secret", cwd=scene.wt).encode() + b"\n" == SECRET, "git stayed in the worktree")
    return "plain git staged the host's secret"


def _foreign_worktree(scene: Scene) -> str:
    (scene.wt / "f.txt").write_text("changed\n")
    held([c.path for c in scene.wb.status(scene.task.id).changes], ["f.txt"], "status")
    return live(scene)


ENTRIES = (
    Entry("A01", "`.git` becomes a directory with hostile configuration", LIFE, hit_by("status"), live, _directory),
    Entry("A02", "`.git` points to a directory of the guest's", LIFE, hit_by("status"), live, _redirected),
    Entry("A03", "`.git` becomes a symlink", LIFE, hit_by("status"), live, _link),
    Entry("A04", "`.git` points to another task", "commit", _other_task, _own_branch),
    Entry(
        "A05",
        "`.git` is deleted, so that git searches the parent directories",
        "status, commit",
        _climbs,
        _stays,
        _around,
    ),
    Entry("A06", "`commondir` beside innocent files", LIFE, hit_by("status"), live, _commondir),
    Entry("A10", "a new repository created by the guest", LIFE, hit_by("status"), live, _init),
    Entry("A16", "a changed `.git` prevents removal of the worktree", "close", _blocks_removal, _removed),
    Entry("A17", "`core.worktree` points to files of the host", LIFE, _reads_host, _foreign_worktree, _elsewhere),
)
