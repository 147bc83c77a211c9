"""THREATS D and I: the guest's git metadata and attributes must not change what the product sees or stores."""

from __future__ import annotations

import sys

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.scene import Scene, plain_clone, require_equal, require_hit
from sandbox.git.unhardened import run_unhardened
from sandbox.models import SearchQuery

CRLF = b"one\r\ntwo\r\n"
STEPS = "a" * 40 + "!"
RUNAWAY = r"^(a+)+$"
RUNAWAY_S = 0.5


def _changes(scene: Scene) -> list[str]:
    return [change.path for change in scene.workbench.status(scene.task.id).changes]


def _hide_by_bits(scene: Scene) -> None:
    scene.replace_pointer()
    scene.require_git("update-index", "--assume-unchanged", "f.txt", cwd=scene.worktree)
    scene.require_git("update-index", "--skip-worktree", "g.txt", cwd=scene.worktree)
    (scene.worktree / "f.txt").write_text("evil\n")
    (scene.worktree / "g.txt").write_text("evil\n")


def _hide_by_exclude(scene: Scene) -> None:
    git = scene.replace_pointer()
    (git / "info").mkdir(exist_ok=True)
    (git / "info" / "exclude").write_text("*\n")
    (scene.worktree / "new.sh").write_text("evil\n")


def _git_hides(scene: Scene) -> str:
    require_hit(scene.require_git("status", "--porcelain", cwd=scene.worktree) == "", "git shows it")
    return "plain `git status` shows no change"


def _both_seen(scene: Scene) -> str:
    require_equal(_changes(scene), ["f.txt", "g.txt"], "status")
    require_equal([f.path for f in scene.workbench.diff(scene.task.id).files], ["f.txt", "g.txt"], "diff")
    return "both changes are reported"


def _new_seen(scene: Scene) -> str:
    (scene.worktree / ".gitignore").write_text("*\n")
    require_equal(_changes(scene), [".gitignore", "new.sh"], "status")
    return "reported; only the rules of the base commit apply"


def _clone_links(scene: Scene) -> str:
    scene.require_git("clone", "-q", "--bare", str(scene.remote), str(scene.root / "local.git"), cwd=scene.root)
    require_hit(_links(scene, "local.git"), "git copied")
    return "`git clone` of a path hard-links the object files"


def _links(scene: Scene, name: str) -> list[str]:
    return [p.name for p in (scene.root / name / "objects").rglob("*") if p.is_file() and p.stat().st_nlink > 1]


def _own_files(scene: Scene) -> str:
    shared = [p.name for p in (scene.cache / "objects").rglob("*") if p.is_file() and p.stat().st_nlink > 1]
    require_equal(shared, [], "objects shared with the remote")
    alternates = scene.cache / "objects" / "info" / "alternates"
    if alternates.exists() and alternates.read_text().strip():
        raise GotThrough("the cache borrows objects of another repository")
    return "no file of the cache is hard-linked elsewhere"


def _binary_by_attribute(scene: Scene) -> None:
    (scene.worktree / ".gitattributes").write_text("* -diff\n")
    (scene.worktree / "f.txt").write_text("one\nevil()\nthree\n")


def _diff_hides(scene: Scene) -> str:
    clone = plain_clone(scene)
    for name in (".gitattributes", "f.txt"):
        (clone / name).write_bytes((scene.worktree / name).read_bytes())
    require_hit("Binary files" in scene.require_git("diff", cwd=clone), "git shows the lines")
    return "plain `git diff` says only that binary files differ"


def _diff_shows(scene: Scene) -> str:
    require_equal("+evil()" in scene.workbench.diff(scene.task.id).text, True, "the changed line is in the diff")
    return "the changed line is shown"


def _converting(scene: Scene) -> None:
    (scene.worktree / ".gitattributes").write_text("* text=auto eol=lf\n")
    (scene.worktree / "f.txt").write_bytes(CRLF)


def _converts(scene: Scene) -> str:
    clone = scene.root / "plain"
    scene.require_git("init", "-q", str(clone), cwd=scene.root)
    (clone / ".gitattributes").write_text("* text=auto eol=lf\n")
    (clone / "f.txt").write_bytes(CRLF)
    scene.require_git("add", "-A", cwd=clone)
    stored = scene.git("show", ":f.txt", cwd=clone).stdout
    require_hit(stored != CRLF, "git stored the bytes")
    return "plain git committed bytes that differ from the reviewed ones"


def _same_bytes(scene: Scene) -> str:
    commit = scene.workbench.commit(scene.task.id, "x").commit
    stored = scene.git("show", f"{commit}:f.txt", cwd=scene.root, git_dir=scene.cache).stdout
    require_equal(stored, CRLF, "bytes of the commit")
    return "the commit has the bytes of the worktree"


def _runs_away(scene: Scene) -> str:
    program = f"import re; re.search({RUNAWAY!r}, {STEPS!r})"
    done = run_unhardened([sys.executable, "-I", "-c", program], cwd=scene.root, home=scene.root, seconds=RUNAWAY_S)
    require_hit(done.code == -9, "it found an answer")
    return "Python's regular expressions do not end in time"


def _search_ends(scene: Scene) -> str:
    (scene.worktree / "f.txt").write_text(f"{STEPS}\n")
    found = scene.workbench.search(scene.task.id, SearchQuery(pattern=RUNAWAY, regex=True, timeout_s=RUNAWAY_S))
    return f"answered: {len(found.hits)} hits, stopped by {found.stopped_by or 'no limit'}"


ENTRIES = (
    AttackEntry("D12", "objects shared by hard links", "clone, task", _clone_links, _own_files),
    AttackEntry("D13", "index bits that hide changes", "status, diff", _git_hides, _both_seen, _hide_by_bits),
    AttackEntry("D14", "an exclude file that hides new files", "status", _git_hides, _new_seen, _hide_by_exclude),
    AttackEntry("I01", "an attribute that hides a change from review", "diff", _diff_hides, _diff_shows,
          _binary_by_attribute),
    AttackEntry("I03", "attributes that convert committed content", "commit", _converts, _same_bytes, _converting),
    AttackEntry("I07", "a pattern that takes for ever", "search", _runs_away, _search_ends),
)  # fmt: skip
