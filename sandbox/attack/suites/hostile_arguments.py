"""THREATS G: a caller's argument never becomes an option, a revision expression, a refspec or a shell word."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.scene import HOST_EDIT, SECRET, Scene, plain_clone, require_equal, require_hit
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.unhardened import run_unhardened

P, OUT, REMOTE = "{p}", "{out}", "{remote}"
EVERYWHERE = "every argument that is text"


def fill_placeholders(scene: Scene, text: str) -> str:
    """Replace {p} by the payload program, {out} by the host's directory, {remote} by the remote."""
    known = ((P, scene.script("payload")), (OUT, str(scene.outside)), (REMOTE, str(scene.remote)))
    for name, value in known:
        text = text.replace(name, value)
    return text


def _calls(scene: Scene) -> Iterator[tuple[str, Callable[[str], object]]]:
    """The text arguments of the use-cases, each with a call that passes it."""
    wb, task, repo, remote = scene.workbench, scene.task.id, scene.repo_id, str(scene.remote)
    yield "clone url", lambda v: wb.clone(v)
    yield "run url", lambda v: wb.run(v)
    yield "run ref", lambda v: wb.run(remote, v)
    yield "run check", lambda v: wb.run(remote, check_ids=[v])
    yield "run profile", lambda v: wb.run(remote, profile=v)
    yield "fetch ref", lambda v: wb.fetch(remote, v)
    yield "repository", lambda v: wb.repository(v)
    yield "create repository", lambda v: wb.create_task(v)
    yield "create base", lambda v: wb.create_task(repo, "", v)
    yield "read task", lambda v: wb.read_file(v, "f.txt")
    yield "read path", lambda v: wb.read_file(task, v)
    yield "patch path", lambda v: wb.apply_patch(task, HOST_EDIT, {v: None})
    yield "patch hash", lambda v: wb.apply_patch(task, HOST_EDIT, {"g.txt": v})
    yield "write path", lambda v: wb.write_file(task, v, "x", "sha256:" + "0" * 64)
    yield "diff against", lambda v: wb.diff(task, v)
    yield "checks owner", lambda v: wb.checks(v)
    yield "check id", lambda v: wb.run_checks(task, [v])
    yield "snapshot", lambda v: wb.restore(task, v)
    yield "push task", lambda v: wb.push(v)
    yield "close task", lambda v: wb.close_task(v, delete_worktree=True, discard=True)


def refuse_in_every_argument(values: Sequence[str], urls: bool) -> Callable[[Scene], str]:
    """The attack: each value in each argument is refused with a typed error."""

    def attack(scene: Scene) -> str:
        count = 0
        for text in values:
            value = fill_placeholders(scene, text)
            for what, call in _calls(scene):
                if what.endswith(" url") and not urls:
                    continue
                count += 1
                _refuses(what, call, value)
        return f"{count} calls refused"

    return attack


def _refuses(what: str, call: Callable[[str], object], value: str) -> None:
    try:
        call(value)
    except SandboxError as error:
        if error.code is ErrorCode.INTERNAL:
            raise GotThrough(f"{what}: {error.brief} {error.details}") from error
        return
    raise GotThrough(f"{what} accepted {value!r}")


def runs(*words: str, where: str = "remote") -> Callable[[Scene], str]:
    """A control: the same value as an argument of plain git runs the payload."""

    def control(scene: Scene) -> str:
        cwd = scene.remote if where == "remote" else plain_clone(scene)
        argv = [fill_placeholders(scene, word) for word in words]
        scene.require_mark("payload", lambda: scene.git(*argv, cwd=cwd))
        return f"`git {words[0]}` ran the payload"

    return control


def _writes_file(scene: Scene) -> str:
    written = scene.outside / "written"
    scene.git("log", f"--output={written}", "main", cwd=scene.remote)
    require_hit(written.exists(), "no file was written")
    written.unlink()
    return "`git log` wrote a file of the host"


def _reads_file(*words: str) -> Callable[[Scene], str]:
    def control(scene: Scene) -> str:
        done = scene.git(*[fill_placeholders(scene, word) for word in words], cwd=plain_clone(scene))
        require_hit(SECRET.strip() in done.stdout, f"git did not show it: {done.stderr!r}")
        return f"`git {words[0]}` showed a file of the host"

    return control


def _other_repository(scene: Scene) -> str:
    evil = scene.evil_git_dir(scene.root / "evil.git", f"[core]\n\tfsmonitor = {scene.script('payload')}\n")
    words = [scene.git_program, "-c", "safe.directory=*", f"--git-dir={evil}", "--work-tree=.", "status"]
    scene.require_mark("payload", lambda: run_unhardened(words, cwd=scene.outside, home=scene.root))
    return "`git --git-dir=` used another repository"


def _magic(scene: Scene) -> str:
    clone = plain_clone(scene)
    (clone / "one").touch()
    (clone / "two").touch()
    scene.git("add", "--", ":/", cwd=clone)
    require_hit(
        scene.require_git("diff", "--cached", "--name-only", cwd=clone).split() == ["one", "two"],
        "git treated it literally",
    )
    return "`git add -- :/` added everything"


def _raises_untyped(scene: Scene) -> str:
    try:
        run_unhardened([scene.git_program, "a\0b"], cwd=scene.root, home=scene.root)
    except ValueError as error:
        return f"a careless caller fails with {type(error).__name__}"
    require_hit(False, "it was accepted")
    return ""


def _forges_header(scene: Scene) -> str:
    tree = scene.require_git("rev-parse", "main^{tree}", cwd=scene.remote, git_dir=scene.remote)
    name = "h <x> 0 +0000\nauthor evil <e@v> 0 +0000\ncommitter c"
    text = f"tree {tree}\nauthor {name} <a@b> 0 +0000\ncommitter c <a@b> 0 +0000\n\nx\n"
    words = ("hash-object", "-t", "commit", "--literally", "-w", "--stdin")
    oid = scene.require_git(*words, cwd=scene.remote, git_dir=scene.remote, stdin=text.encode())
    raw = scene.require_git("cat-file", "commit", oid, cwd=scene.remote, git_dir=scene.remote)
    require_hit("author evil" in raw, "there is no such header")
    return "text inserted into a commit became a header"


def _message_is_data(scene: Scene) -> str:
    (scene.worktree / "f.txt").write_text("x\n")
    message = "subject\n\nparent 0000\nauthor evil <e@v>\n---\ndiff --git a/x b/x\n\x1b[31m\0\a\u202eend"
    commit = scene.workbench.commit(scene.task.id, message).commit
    raw = scene.require_git("cat-file", "commit", commit, cwd=scene.root, git_dir=scene.cache)
    head, _, body = raw.partition("\n\n")
    require_equal([line.split()[0] for line in head.splitlines()], ["tree", "parent", "author", "committer"], "headers")
    require_equal(sorted(set(body) & {"\x1b", "\0", "\a", "\u202e"}), [], "control characters in the message")
    return "four headers; the message is text without control characters"


def _shell(scene: Scene) -> str:
    line = f"git check-ref-format {fill_placeholders(scene, f'test; {P}')}"
    scene.require_mark("payload", lambda: run_unhardened(["/bin/sh", "-c", line], cwd=scene.root, home=scene.root))
    return "a shell ran the payload"


def _bind(scene: Scene) -> str:
    parts = ["a", "/etc", "rw", "/workspace"]
    require_hit(parts[1] == "/etc", "it is one name")
    return "as a name in a bind mount it mounts /etc"


@dataclass(frozen=True)
class _ArgumentTrick:
    title: str
    control: Callable[[Scene], str]
    values: tuple[str, ...]
    urls: bool = True  # whether to try them as URLs: some are valid ones and would contact a host


WORDS = {
    "G01": _ArgumentTrick("`--upload-pack=` as a URL",
                  runs("ls-remote", f"--upload-pack={P}", REMOTE), (f"--upload-pack={P}",)),
    "G02": _ArgumentTrick("abbreviated and joined options", runs("ls-remote", f"--upload-p={P}", REMOTE),
                  (f"--upload-p={P}", f"-u{P}", "-cprotocol.ext.allow=always")),
    "G03": _ArgumentTrick("`--receive-pack=`", runs("push", f"--receive-pack={P}", REMOTE, "main"),
          (f"--receive-pack={P}",)),
    "G04": _ArgumentTrick("a pager for grep", runs("grep", f"-O{P}", "one", where="clone"),
                  (f"-O{P}", f"--open-files-in-pager={P}")),
    "G05": _ArgumentTrick("`--output=` into the host", _writes_file, (f"--output={OUT}/written",)),
    "G06": _ArgumentTrick("`--no-index`, which reads the host", _reads_file("diff", "--no-index", "/dev/null",
          f"{OUT}/secret"),
                  ("--no-index", f"{OUT}/secret"), urls=False),
    "G07": _ArgumentTrick("`--contents=`, which reads the host",
                  _reads_file("blame", f"--contents={OUT}/secret", "f.txt"),
                  (f"--contents={OUT}/secret",)),
    "G08": _ArgumentTrick("`--exec=` for a remote archive",
                  runs("archive", "--remote=.", f"--exec={P}", "main"), (f"--exec={P}",)),
    "G11": _ArgumentTrick("another git directory", _other_repository, (f"--git-dir={OUT}", f"--work-tree={OUT}",
          "-C/")),
    "G12": _ArgumentTrick("transports that run commands",
                  runs("-c", "protocol.ext.allow=always", "ls-remote", f"ext::{P}"),
                  (f"ext::{P}", "fd::7", "foo::bar", "git://127.0.0.1:1/x")),
    "G13": _ArgumentTrick("magic in path names", _magic, (":/", ":(top)x", ":(exclude)f.txt")),
    "G15": _ArgumentTrick("NUL, newlines and surrogates", _raises_untyped, ("a\0b", "a\nAuthor: evil <e@v>", "a\r\tb",
          "\ud800")),
    "G17": _ArgumentTrick("words for a shell", _shell, (f"test; {P}", f"$({P})", f"`{P}`", f"x|{P}")),
    "G18": _ArgumentTrick("separators of mounts and refspecs", _bind,
                  ("a:/etc:rw", ":main", "+main", "a:refs/heads/main"), urls=False),
}  # fmt: skip

ENTRIES = (
    *(
        AttackEntry(name, w.title, EVERYWHERE, w.control, refuse_in_every_argument(w.values, w.urls))
        for name, w in WORDS.items()
    ),
    AttackEntry("G16", "a commit message that imitates headers", "commit", _forges_header, _message_is_data),
)
