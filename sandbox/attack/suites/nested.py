"""THREATS C: repositories inside the repository, the case that an explicit git directory does not cover."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from sandbox.attack.harness.attack_host import AttackHost
from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.plumbing import Plumbing
from sandbox.attack.harness.scene import Scene, require_equal, require_hit, require_refusal
from sandbox.attack.suites.pointer import LIFE, run_task_life

HARDENED = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "submodule.recurse=false",
    "-c", "diff.ignoreSubmodules=all", "-c", "protocol.allow=never", "-c", "core.attributesFile=/dev/null",
)  # fmt: skip
ALIASES = (".GIT", ".g\u200cit", "git~1", ".git ", ".git.", ".git::$INDEX_ALLOCATION", ".Git . .")
FOREIGN = 10001


def needs_root(_site: AttackHost) -> str:
    """A need: only root can prepare some files."""
    return "" if os.geteuid() == 0 else "needs root, to create files of another owner"


def make_nested(scene: Scene, folder: Path) -> str:
    """Create a small repository; the id of its commit."""
    scene.require_git("init", "-q", "-b", "main", str(folder), cwd=scene.root)
    (folder / "a").write_text("a\n")
    scene.require_git("add", "a", cwd=folder)
    scene.require_git("commit", "-qm", "s", cwd=folder)
    return scene.require_git("rev-parse", "HEAD", cwd=folder)


def arm(scene: Scene, folder: Path, git: Path | None = None) -> None:
    """Add a filter, attributes that name it, and a change of the same size, which git must read to detect."""
    payload = scene.script("payload", then="cat")
    with ((git or folder / ".git") / "config").open("a") as stream:
        stream.write(f'[core]\n\tfsmonitor = {payload}\n[filter "evil"]\n\tclean = {payload}\n')
    (folder / ".gitattributes").write_text("* filter=evil\n")
    (folder / "a").write_text("b\n")
    os.utime(folder / "a", (1577836800, 1577836800))


def run_hardened_git(scene: Scene, *command: str) -> None:
    """Run the most hardened git possible in a worktree: a separate git directory, and features disabled by `-c`."""
    git_dir = scene.root / "trusted"
    if not git_dir.exists():
        scene.require_git("clone", "-q", "--bare", str(scene.remote), str(git_dir), cwd=scene.root)
        scene.require_git("config", "core.bare", "false", cwd=scene.root, git_dir=git_dir)
        scene.require_git("read-tree", "HEAD", cwd=scene.root, git_dir=git_dir)
    env = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
    scene.git(*HARDENED, "--work-tree", str(scene.worktree), *command, cwd=scene.worktree, git_dir=git_dir, env=env)


def _hit_by(*command: str) -> Callable[[Scene], str]:
    def control(scene: Scene) -> str:
        scene.require_mark("payload", lambda: run_hardened_git(scene, *command))
        return f"hardened `git {command[-1] if command[0] == '-c' else ' '.join(command)}` ran the payload"

    return control


def _at_gitlink(scene: Scene) -> Path:
    """The remote records a commit at `sub`; the guest puts an armed repository with that commit there."""
    commit = make_nested(scene, scene.root / "prototype")
    work = scene.root / "work"
    scene.require_git("clone", "-q", str(scene.remote), str(work), cwd=scene.root)
    scene.require_git("update-index", "--add", "--cacheinfo", f"160000,{commit},sub", cwd=work)
    scene.require_git("commit", "-qm", "link", cwd=work)
    scene.require_git("push", "-q", "origin", "HEAD:main", cwd=work)
    shutil.rmtree(work)
    scene.new_task()
    shutil.copytree(scene.root / "prototype", scene.worktree / "sub", dirs_exist_ok=True)
    arm(scene, scene.worktree / "sub")
    return scene.worktree / "sub"


def _plant_at_gitlink(scene: Scene) -> None:
    _at_gitlink(scene)


def _with_gitmodules(scene: Scene) -> None:
    _at_gitlink(scene)
    (scene.worktree / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n')


def _foreign(scene: Scene) -> None:
    sub = _at_gitlink(scene)
    for path in [sub, *sub.rglob("*")]:
        os.chown(path, FOREIGN, FOREIGN)


def _gitfile(scene: Scene) -> None:
    sub = _at_gitlink(scene)
    shutil.move(sub / ".git", scene.worktree / "elsewhere")
    (sub / ".git").write_text("gitdir: ../elsewhere\n")


def _is_rejected(name: str) -> Callable[[Scene], str]:
    def attack(scene: Scene) -> str:
        require_equal(name in scene.workbench.status(scene.task.id).rejected, True, f"{name} is reported as rejected")
        return f"rejected; {run_task_life(scene)}"

    return attack


def _two_steps(scene: Scene) -> None:
    make_nested(scene, scene.worktree / "emb")
    run_hardened_git(scene, "add", "-A")
    arm(scene, scene.worktree / "emb")


def _adds_alias(scene: Scene) -> str:
    naive = scene.root / "naive"
    scene.require_git("init", "-q", str(naive), cwd=scene.root)
    (naive / ALIASES[1]).write_text("x")
    scene.require_git("add", "-A", cwd=naive)
    require_hit(scene.require_git("ls-files", "-z", cwd=naive).strip("\0") == ALIASES[1], "git left it out")
    return "plain git added `.g<U+200C>it`"


def _aliases(scene: Scene) -> None:
    for folder, kind in (("", "file"), ("d/", "directory"), ("new/deep/", "link"), ("other/", "fifo")):
        for alias in ALIASES:
            path = scene.worktree / f"{folder}{alias}"
            path.parent.mkdir(parents=True, exist_ok=True)
            _make(path, kind)
    (scene.worktree / "f.txt").write_text("changed\n")


def _make(path: Path, kind: str) -> None:
    if kind == "file":
        path.write_text("evil")
    elif kind == "directory":
        path.mkdir()
        (path / "config").write_text("evil")
    elif kind == "link":
        path.symlink_to("f.txt")
    else:
        os.mkfifo(path)


def _none_committed(scene: Scene) -> str:
    tree = scene.workbench.commit(scene.task.id, "x").tree
    listing = scene.require_git("ls-tree", "-r", "-z", "--name-only", tree, cwd=scene.root, git_dir=scene.cache)
    require_equal(listing.strip("\0").split("\0"), sorted(scene.files), "names in the commit")
    if scene.in_odb(b"evil"):
        raise GotThrough("the content of such a file became an object")
    return "none of 28 files is in the commit or among the objects"


def _publish_submodule(scene: Scene) -> None:
    plumbing = Plumbing(scene, scene.remote)
    text = f'[submodule "s"]\n\tpath = s\n\turl = {scene.remote}\n'
    link = scene.require_git("rev-parse", "main", cwd=scene.root, git_dir=scene.remote)
    entries = (("100644", b".gitmodules", plumbing.blob(text.encode())), ("100644", b"f.txt", plumbing.blob(b"f")))
    plumbing.publish(plumbing.tree(*entries, ("160000", b"s", link)))


def _recurses(scene: Scene) -> str:
    work = scene.root / "work"
    allow = ("-c", "protocol.file.allow=always")
    scene.require_git(*allow, "clone", "-q", "--recurse-submodules", str(scene.remote), str(work), cwd=scene.root)
    require_hit((work / "s" / "f.txt").exists() or (work / "s" / "README.md").exists(), "git left it empty")
    return "`git clone --recurse-submodules` fetched it"


def _stays_empty(scene: Scene) -> str:
    scene.new_task()
    require_equal(
        (scene.worktree / "s").exists() and any((scene.worktree / "s").iterdir()), False, "files in the submodule"
    )
    for url in ("-u./x", f"ext::{scene.script('payload')}"):
        plumbing = Plumbing(scene, scene.remote)
        text = f'[submodule "s"]\n\tpath = s\n\turl = {url}\n\tupdate = !{scene.script("payload")}\n'
        plumbing.publish(plumbing.tree(("100644", b".gitmodules", plumbing.blob(text.encode()))))
        require_refusal(lambda: scene.workbench.clone(str(scene.remote)))
    return "left empty; a URL that is an option or a command is refused at fetch"


ENTRIES = (
    AttackEntry("C01", "a nested repository at a recorded submodule", LIFE, _hit_by("add", "-A"),
          _is_rejected("sub/.git"),
          _plant_at_gitlink),
    AttackEntry("C02", "`.gitmodules` disables the hardening", LIFE, _hit_by("status"), _is_rejected("sub/.git"),
          _with_gitmodules),
    AttackEntry("C03", "a nested repository of another owner", LIFE, _hit_by("add", "-A"), _is_rejected("sub/.git"),
          _foreign,
          (needs_root,)),
    AttackEntry("C04", "an embedded repository that is armed after `git add`", LIFE,
          _hit_by("-c", "diff.ignoreSubmodules=none", "status"), _is_rejected("emb/.git"), _two_steps),
    AttackEntry("C05", "a nested `.git` that points elsewhere", LIFE, _hit_by("add", "-A"), _is_rejected("sub/.git"),
          _gitfile),
    AttackEntry("C06", "other spellings of `.git` as files, directories, links and FIFOs", "commit", _adds_alias,
          _none_committed, _aliases),
    AttackEntry("C07", "submodules with hostile URLs", "clone, task", _recurses, _stays_empty, _publish_submodule),
)  # fmt: skip
