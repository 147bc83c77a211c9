"""THREATS B: configuration, attributes and hooks that make git run programs.

Each sink is planted twice: in a repository that replaces the worktree's `.git` and in one nested below it. The control
is a command that a user would type in a copy of that worktree.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox.attack.harness.attack_host import AttackHost
from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.scene import Scene
from sandbox.attack.suites.pointer import LIFE, run_task_life
from sandbox.git.unhardened import run_unhardened

CONFIGURED_HOOKS = (2, 54)


@dataclass(frozen=True)
class Sink:
    """`config`: of the planted repository. `files`: in its worktree, or in its git directory if below `git/`.
    `programs`: files that are the payload itself. `commands`: shell lines with plain git that trigger the payload.

    {p}: the payload program; {url}: the remote.
    """

    title: str
    config: str
    commands: str
    files: tuple[tuple[str, str], ...] = ()
    programs: tuple[str, ...] = ()
    typed: str = ""  # the command to report, if it is not the last of `commands`


_HOOKS = ("post-index-change", "pre-commit", "reference-transaction", "post-checkout", "pre-push")
SINKS = {
    "B01": Sink("core.fsmonitor", "[core]\n\tfsmonitor = {p}\n", "git status"),
    "B02": Sink("hooks", "", "git status; git add -A", programs=tuple(f"git/hooks/{h}" for h in _HOOKS)),
    "B03": Sink(
        "core.hooksPath into the tree", "[core]\n\thooksPath = evil\n", "git add -A",
        programs=tuple(f"evil/{h}" for h in _HOOKS),
    ),
    "B04": Sink(
        "hooks in the configuration",
        '[hook "e"]\n\tevent = post-index-change\n\tevent = pre-commit\n\tcommand = {p}\n', "git add -A",
    ),
    "B05": Sink(
        "filter.*.clean and smudge", '[filter "e"]\n\tclean = {p}; cat\n\tsmudge = {p}; cat\n', "git status",
        ((".gitattributes", "* filter=e"),),
    ),
    "B06": Sink(
        "filter.*.process", '[filter "e"]\n\tprocess = {p}\n', "git add -A", ((".gitattributes", "* filter=e\n"),)
    ),
    "B07": Sink("diff.external", "[diff]\n\texternal = {p}\n", "git diff"),
    "B08": Sink(
        "diff.*.command", '[diff "e"]\n\tcommand = {p}\n', "git diff", ((".gitattributes", "* diff=e\n"),)
    ),
    "B09": Sink(
        "diff.*.textconv", '[diff "e"]\n\ttextconv = {p}\n', "git diff", ((".gitattributes", "* diff=e\n"),)
    ),
    "B10": Sink(
        "merge.*.driver", '[merge "e"]\n\tdriver = {p}\n',
        "git checkout -qfb o; echo 1 >f.txt; git commit -qam 1; git checkout -qf main; echo 2 >f.txt;"
        "git commit -qam 2; git cherry-pick o",
        (("git/info/attributes", "* merge=e\n"),),
    ),
    "B11": Sink(
        "gpg.program", "[gpg]\n\tprogram = {p}\n[commit]\n\tgpgSign = true\n", "git commit -qam x"
    ),
    "B12": Sink(
        "log.showSignature with gpg.program", "[gpg]\n\tprogram = {p}\n[log]\n\tshowSignature = true\n",
        "{ git cat-file commit HEAD | sed '/^$/,$d'; printf 'gpgsig -----BEGIN PGP SIGNATURE-----\\n \\n"
        " -----END PGP SIGNATURE-----\\n\\nx\\n'; } >c; git log -1 $(git hash-object -w -t commit c)",
        typed="git log -1",
    ),
    "B13": Sink(
        "core.sshCommand", '[core]\n\tsshCommand = {p}\n[remote "origin"]\n\turl = ssh://x/y\n',
        "git fetch ssh://x/y",
    ),
    "B14": Sink(
        "a remote of the protocol ext", '[remote "origin"]\n\turl = ext::{p}\n[protocol "ext"]\n\tallow = always\n',
        "git fetch ext::{p}", typed="git fetch",
    ),
    "B15": Sink(
        "remote.*.uploadpack", '[remote "origin"]\n\tuploadpack = {p}\n\treceivepack = {p}\n', "git fetch"
    ),
    "B16": Sink(
        "url.*.insteadOf", '[url "ext::{p} "]\n\tinsteadOf = {url}\n[protocol "ext"]\n\tallow = always\n', "git fetch"
    ),
    "B17": Sink(
        "credential.helper", "[credential]\n\thelper = !{p}\n",
        "printf 'protocol=https\\nhost=x\\n\\n' | git credential fill", typed="git credential fill",
    ),
    "B18": Sink(
        "a promisor remote and a missing object",
        "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = evil\n"
        '[remote "evil"]\n\turl = ext::{p}\n\tpromisor = true\n[protocol "ext"]\n\tallow = always\n',
        "for p in .git/objects/pack/*.pack; do mv $p p; rm -f .git/objects/pack/*; git unpack-objects -q < p; done;"
        "o=$(git rev-parse HEAD:d/x); rm -f .git/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-);"
        "git archive HEAD",
    ),
    "B19": Sink(
        "include.path", "[include]\n\tpath = ../evil.inc\n", "git status",
        (("evil.inc", "[core]\n\tfsmonitor = {p}\n"),),
    ),
    "B20": Sink(
        "config.worktree", "[extensions]\n\tworktreeConfig = true\n", "git status",
        (("git/config.worktree", "[core]\n\tfsmonitor = {p}\n"),),
    ),
    "B21": Sink("tar.*.command", '[tar "e"]\n\tcommand = {p}\n', "git archive --format=e HEAD"),
}  # fmt: skip


def newer(version: tuple[int, int], what: str) -> Callable[[AttackHost], str]:
    """A need: git of this version or later; it was the first with `what`."""

    def reason(site: AttackHost) -> str:
        if site.git_version >= version:
            return ""
        return f"needs git {'.'.join(map(str, version))}, the first with {what}"

    return reason


def _place(top: Path, git: Path, name: str) -> Path:
    target = git / name.removeprefix("git/") if name.startswith("git/") else top / name
    target.parent.mkdir(exist_ok=True)
    return target


def plant(scene: Scene, sink: Sink, top: Path) -> None:
    """Make `top` a repository with the sink, and a file with a change that git must read to detect."""
    payload = scene.script("payload", then="exit 1")
    fill = {"p": payload, "url": str(scene.remote)}

    def fill_in(text: str) -> str:
        return re.sub(r"\{(p|url)\}", lambda m: fill[m[1]], text)

    git = scene.evil_git_dir(top / ".git", fill_in(sink.config))
    for name, text in sink.files:
        _place(top, git, name).write_text(fill_in(text))
    for name in sink.programs:
        shutil.copy(payload, _place(top, git, name))
    (top / "f.txt").write_text("one\ntwo\nTHREE\n")  # the same size
    for name in ("g.txt", "d/x", "README.md"):
        if not (top / name).exists():
            (top / name).parent.mkdir(exist_ok=True)
            (top / name).write_text("x\n")


def trigger(scene: Scene, sink: Sink, top: Path) -> None:
    """Run the sink's commands in a copy of the worktree."""
    copy = scene.root / "copy"
    shutil.copytree(top, copy, symlinks=True)
    script = sink.commands.replace("{p}", scene.script("payload", then="exit 1")).replace("git ", "$git ")
    git = f"{scene.git_program} -c safe.directory=* -c user.name=a -c user.email=a@b"
    run_unhardened(["/bin/sh", "-c", script], cwd=copy, home=scene.root, env={"git": git})
    shutil.rmtree(copy)


def _entry(name: str, sink: Sink) -> AttackEntry:
    def plant_both(scene: Scene) -> None:
        (scene.worktree / "sub").mkdir()
        plant(scene, sink, scene.worktree / "sub")
        (scene.worktree / ".git").unlink()
        plant(scene, sink, scene.worktree)

    def control(scene: Scene) -> str:
        scene.require_mark("payload", lambda: trigger(scene, sink, scene.worktree))
        return f"`{sink.typed or sink.commands.rpartition(';')[2].strip()}` ran the payload"

    needs = (newer(CONFIGURED_HOOKS, sink.title),) if name == "B04" else ()
    return AttackEntry(
        name, f"{sink.title} in the worktree and nested in it", LIFE, control, run_task_life, plant_both, needs
    )


ENTRIES = tuple(_entry(name, sink) for name, sink in SINKS.items())
