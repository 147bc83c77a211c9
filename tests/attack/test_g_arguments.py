"""THREATS G: what a caller passes never becomes an option, a revision expression, a refspec or a shell word.

Every value goes through every argument of the workbench. Nothing may start a process with it as a word that begins
with `-`, and whatever is raised is typed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.git import process
from tests.attack.arena import Arena, outcome, refused, variants

pytestmark = pytest.mark.must
P = "{p}"
VALUES = {
    "g01": f"--upload-pack={P}",
    "g02_abbreviated": f"--upload-p={P}",
    "g02_joined": f"-u{P}",
    "g02_config": "-cprotocol.ext.allow=always",
    "g03": f"--receive-pack={P}",
    "g04": f"-O{P}",
    "g05": "--output={out}/written",
    "g06": "--no-index",
    "g07": "--contents=/etc/passwd",
    "g08": f"--exec={P}",
    "g10": "--index-output={out}/written",
    "g11": "--git-dir={out}",
    "g12_ext": f"ext::{P}",
    "g12_fd": "fd::7",
    "g12_helper": "foo::bar",
    "g12_git": "git://127.0.0.1/x",
    "g13": ":/",
    "g14": "--end-of-options",
    "g15": "a\0b",
    "g16_newline": "a\nAuthor: evil <e@v>",
    "g16_cr_tab": "a\r\tb",
    "g17_shell": f"test; {P}",
    "g17_substitution": f"$({P})",
    "g18": "a:/etc:rw",
    "dots": "../../x",
    "empty": "",
    "surrogate": "\ud800",
    "long": "x" * 100_000,
    "nul_only": "\0",
    "space": " ",
    "glob": "*",
    "format": "%s%n{0}",
}


OURS = (
    "g01", "g02_config", "g05", "g06", "g10", "g12_git", "g13", "g14", "g15", "g16_newline", "g17_substitution",
    "g18", "dots", "empty", "surrogate", "long",
)  # fmt: skip
"""What no entry that ships tries, and one of each other kind: `tests/attack/test_shipped.py` tries all of those."""


def calls(arena: Arena) -> dict[str, Callable[[str], object]]:
    """Every argument of every use-case that takes text."""
    wb, task, repo = arena.workbench, arena.task.id, arena.repo_id
    patch = b"--- a/g.txt\n+++ b/g.txt\n@@ -1,2 +1,3 @@\n g1\n+host\n g2\n"
    return {
        "clone url": lambda v: wb.clone(v),
        "run url": lambda v: wb.run(v),
        "run ref": lambda v: wb.run(str(arena.remote), v),
        "run check": lambda v: wb.run(str(arena.remote), check_ids=[v]),
        "run profile": lambda v: wb.run(str(arena.remote), profile=v),
        "repository id": lambda v: wb.repository(v),
        "profile name": lambda v: wb.profile(v),
        "create repo id": lambda v: wb.create_task(v),
        "create prompt": lambda v: wb.create_task(repo, v),
        "create base": lambda v: wb.create_task(repo, "", v),
        "tasks repo id": lambda v: wb.tasks(v),
        "task id": lambda v: wb.task(v),
        "read task id": lambda v: wb.read_file(v, "f.txt"),
        "read path": lambda v: wb.read_file(task, v),
        "patch task id": lambda v: wb.apply_patch(v, patch, {}),
        "patch text": lambda v: wb.apply_patch(task, v.encode("utf-8", "surrogatepass"), {}),
        "patch path": lambda v: wb.apply_patch(task, patch, {v: None}),
        "patch hash": lambda v: wb.apply_patch(task, patch, {"g.txt": v}),
        "status task id": lambda v: wb.status(v),
        "diff task id": lambda v: wb.diff(v),
        "diff against": lambda v: wb.diff(task, v),
        "checks owner": lambda v: wb.checks(v),
        "run_checks task id": lambda v: wb.run_checks(v, ["go"]),
        "run_checks id": lambda v: wb.run_checks(task, [v]),
        "verify task id": lambda v: wb.verify(v),
        "commit task id": lambda v: wb.commit(v, "x"),
        "commit message": lambda v: wb.commit(task, v),
        "push task id": lambda v: wb.push(v),
        "close task id": lambda v: wb.close_task(v, delete_worktree=True, discard=True),
    }


HARMLESS = {"create prompt", "commit message"}
"""Free text: taken as it is, as data."""


@pytest.mark.parametrize("name", variants(VALUES, *OURS))
def test_g01_to_g18_hostile_text_in_every_argument(arena: Arena, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = VALUES[name].replace("{p}", arena.script(name)).replace("{out}", str(arena.outside))
    started: list[list[str]] = []
    real = process.build_command_line

    def recorded(*args: Any, **kwargs: Any) -> process.CommandLine:
        command = real(*args, **kwargs)
        started.append(command.through_env())
        return command

    monkeypatch.setattr(process, "build_command_line", recorded)
    before = arena.read_canaries(arena.remote)
    for what, call in calls(arena).items():
        (arena.worktree / "new").write_text(what)
        error = outcome(lambda call=call: call(value))  # type: ignore[misc]  # bound now
        if error is None:
            accepted = what in HARMLESS or (what == "create base" and value == "")
            assert accepted, f"{what} took {value!r}"
        else:
            assert error.code is not ErrorCode.INTERNAL, (what, error.brief, error.details)
    assert started, "void: no git was recorded"
    if value.startswith("-") and name != "g14":  # that one is a word of our own
        assert not [argv for argv in started if value in argv]
    assert arena.marks() == set()
    assert arena.read_canaries(arena.remote) == before
    assert not (arena.outside / "written").exists()


CONTROLS = {
    "g01": ("ls-remote", f"--upload-pack={P}", "{remote}"),
    "g02_abbreviated": ("ls-remote", f"--upload-p={P}", "{remote}"),
    "g02_joined": ("clone", f"-u{P}", "{remote}", "{out}/c"),
    "g02_config": ("clone", "-cprotocol.ext.allow=always", f"ext::{P}", "{out}/c"),
    "g03": ("push", f"--receive-pack={P}", "{remote}", "main"),
    "g08": ("archive", "--remote=.", f"--exec={P}", "main"),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_control_the_same_words_run_programs_in_plain_git(arena: Arena, name: str) -> None:
    words = [
        w.replace("{p}", arena.script(name)).replace("{out}", str(arena.outside)).replace("{remote}", str(arena.remote))
        for w in CONTROLS[name]
    ]
    arena.require_mark(name, lambda: arena.git(*words, cwd=arena.remote))


def test_control_other_words_read_and_write_files(arena: Arena) -> None:
    out = arena.outside / "written"
    arena.git("log", f"--output={out}", "main", cwd=arena.remote)
    assert out.exists()
    assert b"root:" in arena.git("diff", "--no-index", "/dev/null", "/etc/passwd", cwd=arena.remote).stdout
    done = subprocess.run("true; echo fired", shell=True, capture_output=True, check=False)  # noqa: S602 - the control
    assert done.stdout == b"fired\n"


def test_g16_o02_commit_message_and_author_are_data(make_arena: Callable[..., Arena]) -> None:
    """Control: the same bytes pasted into a commit object would be headers."""
    arena = make_arena(settings={"author": {"name": "h <x>\nauthor evil", "email": "a@b>\ncommitter e <e@v> 0 +0000"}})
    arena.new_task()
    (arena.worktree / "f.txt").write_text("x\n")
    message = "subject\n\nparent 0000\nauthor evil <e@v>\n# kept\n---\ndiff --git a/x b/x\n\x1b[31m\0\a\u202eend"
    commit = arena.workbench.commit(arena.task.id, message).commit
    raw = arena.require_git("cat-file", "commit", commit, cwd=arena.root, git_dir=arena.cache)
    head, _, body = raw.partition("\n\n")
    assert [line.split()[0] for line in head.splitlines()] == ["tree", "parent", "author", "committer"]
    assert "# kept" in body
    assert not set(body) & {"\x1b", "\0", "\a", "\u202e"}
    with refused(ErrorCode.INVALID_INPUT):
        arena.workbench.commit(arena.task.id, "x" * (1 << 20))


@pytest.mark.one_git
def test_g17_profiles_of_the_repository_are_not_read(arena: Arena) -> None:
    """A repository cannot bring checks of its own. Control: the operator's folder can."""
    text = (
        'label = "x"\nimage = "base"\npriority = 100\n[[detect.any]]\nfile = "f.txt"\n'
        '[[check]]\nid = "go"\nlabel = "x"\nargv = ["id"]\n'
    )
    (arena.home / "profiles").mkdir()
    (arena.home / "profiles" / "mine.toml").write_text(text)
    assert [c.id for c in arena.open_workbench().checks(arena.repo_id)] == ["go"]
    (arena.home / "profiles" / "mine.toml").unlink()
    for folder in ("profiles", "policies/profiles", ".sandbox/profiles"):
        path = Path(arena.worktree, folder)
        path.mkdir(parents=True)
        (path / "mine.toml").write_text(text)
    arena.workbench.commit(arena.task.id, "x")
    assert arena.open_workbench().checks(arena.task.id) == ()
