"""THREATS H: paths, links and file kinds. The product reads and writes below one open handle, never through a link."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough, NotSupported
from sandbox.attack.harness.scene import HOST_EDIT, SECRET, Scene, hash_of, require_equal, require_hit, require_refusal
from sandbox.attack.suites.nested import needs_root
from sandbox.attack.suites.pointer import run_task_life
from sandbox.errors import ErrorCode
from sandbox.git.unhardened import run_unhardened

NEW = b"--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+x\n"
LEXICAL = (
    "../x", "a/../../x", "//x", "C:\\x", "..\\x", "~/.ssh/id", "", ".", "..", "a/", "a//b", "./a", "a\0b",
    "x" * 4097, "n" * 256, "a/..", "a\nb", "a\x1b[31mb", ".git/config", "d/.GIT/x", "git~1", "%2e%2e/x", "\ud800",
    "-/../../x",
)  # fmt: skip
NAMES = (
    b"\xff\xfe", b"a\nb", b"tab\there", b"\x1b]0;pwned\x07", b"-rf", b" lead", b"trail ", b'q"uote', b":(top)x",
    b"a\n?? injected.py", b"caf\xc3\xa9", b"cafe\xcc\x81", b"F.TXT", "x\u202egnp.sh".encode(), b"back\\slash",
    b"$(id)", b"`id`", b"*", b"--upload-pack=x",
)  # fmt: skip
HANG_S = 0.5


def _refuses(scene: Scene, paths: Iterable[str]) -> str:
    """Reading and creating each of these must be refused as unsafe."""
    names = [*paths]
    for path in names:
        patch = NEW % path.encode("utf-8", "surrogatepass")
        require_refusal(lambda path=path: scene.workbench.read_file(scene.task.id, path), ErrorCode.UNSAFE_PATH)  # type: ignore[misc]  # bound now
        require_refusal(
            lambda path=path, patch=patch: scene.workbench.apply_patch(scene.task.id, patch, {path: None}),  # type: ignore[misc]  # bound now
            ErrorCode.UNSAFE_PATH, ErrorCode.PATCH_REJECTED,
        )  # fmt: skip
    return f"{len(names)} names refused for reading and for writing"


def _joins_names(scene: Scene) -> str:
    absolute = os.path.join(scene.worktree, str(scene.outside / "secret"))  # noqa: PTH118 - the point
    relative = Path(f"{scene.worktree}/../../../../../outside/secret")
    require_hit(Path(absolute).read_bytes() == SECRET == relative.read_bytes(), "the joined names stayed inside")
    return "a joined name read the host's secret"


def _lexical(scene: Scene) -> str:
    return _refuses(scene, (*LEXICAL, str(scene.outside / "secret"), "../../../../../outside/secret"))


def _links(*targets: str) -> Callable[[Scene], None]:
    def plant(scene: Scene) -> None:
        for number, target in enumerate(targets):
            (scene.worktree / f"link{number}").symlink_to(target.format(outside=scene.outside))

    return plant


def _follows_links(below: str) -> Callable[[Scene], str]:
    def control(scene: Scene) -> str:
        links = [p for p in sorted(scene.worktree.iterdir()) if p.name.startswith("link")]
        for link in links:
            with (link / below if below else link).open("rb") as stream:
                require_hit(stream.read(1), f"{link.name} has no target")
        return f"a plain open followed {len(links)} links out of the worktree"

    return control


def _link_refused(*names: str) -> Callable[[Scene], str]:
    def attack(scene: Scene) -> str:
        return f"{_refuses(scene, names)}; {run_task_life(scene)}"

    return attack


def _fifos(scene: Scene) -> None:
    for name in ("f.txt", ".gitignore", ".gitattributes"):
        (scene.worktree / name).unlink(missing_ok=True)
        os.mkfifo(scene.worktree / name)


def _hangs(scene: Scene) -> str:
    ended = run_unhardened(["/bin/cat", "f.txt"], cwd=scene.worktree, home=scene.root, seconds=HANG_S)
    require_hit(ended.code == -9, "a plain read ended")
    git_dir = scene.root / "control.git"
    scene.require_git("clone", "-q", "--bare", str(scene.remote), str(git_dir), cwd=scene.root)
    words = [scene.git_program, f"--git-dir={git_dir}", "--work-tree", str(scene.worktree), "status"]
    require_hit(run_unhardened(words, cwd=scene.worktree, home=scene.root, seconds=HANG_S).code == -9, "git ended")
    return "a plain read hangs, and so does `git status` with a FIFO as .gitignore"


def _not_blocked(scene: Scene) -> str:
    names = ("f.txt", ".gitignore", ".gitattributes")
    for name in names:
        require_refusal(lambda name=name: scene.workbench.read_file(scene.task.id, name), ErrorCode.UNSAFE_PATH)  # type: ignore[misc]  # bound now
    require_equal(
        set(names) <= set(scene.workbench.status(scene.task.id).rejected), True, "FIFOs are reported as rejected"
    )
    return f"refused at once; {run_task_life(scene)}"


def _special(scene: Scene) -> None:
    os.mknod(scene.worktree / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    os.mknod(scene.root / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    with socket.socket(socket.AF_UNIX) as server:
        descriptor = os.open(scene.worktree, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{descriptor}/sock")  # sun_path holds 108 bytes
        finally:
            os.close(descriptor)


def _device_read(scene: Scene) -> str:
    try:
        with (scene.root / "zero").open("rb") as stream:
            require_hit(stream.read(1) == b"\0", "the device gave no data")
    except PermissionError:
        raise NotSupported("needs a scratch directory that is not mounted nodev: set TMPDIR") from None
    return "a plain read of a device in the tree gets data"


def _special_refused(scene: Scene) -> str:
    for name in ("zero", "sock"):
        require_refusal(lambda name=name: scene.workbench.read_file(scene.task.id, name), ErrorCode.UNSAFE_PATH)  # type: ignore[misc]  # bound now
    require_equal(scene.workbench.status(scene.task.id).rejected, ("sock", "zero"), "set aside")
    return run_task_life(scene)


def _setuid(scene: Scene) -> None:
    (scene.worktree / "g.txt").chmod(0o6755)


def _copy_keeps_bits(scene: Scene) -> str:
    shutil.copy(scene.worktree / "g.txt", scene.root / "copy")
    require_hit((scene.root / "copy").stat().st_mode & stat.S_ISUID, "a plain copy has no setuid bit")
    return "a plain copy is setuid too"


def _strips_bits(scene: Scene) -> str:
    scene.workbench.apply_patch(scene.task.id, HOST_EDIT, {"g.txt": hash_of(scene.files["g.txt"])})
    require_equal(oct(stat.S_IMODE((scene.worktree / "g.txt").stat().st_mode)), "0o755", "mode after an edit")
    tree = scene.workbench.commit(scene.task.id, "x").tree
    modes = {
        line.split()[0]
        for line in scene.require_git("ls-tree", "-r", tree, cwd=scene.root, git_dir=scene.cache).splitlines()
    }
    require_equal(modes <= {"100644", "100755"}, True, "modes of the commit")
    return "files that the host writes and commits are not setuid"


def _hard_link(scene: Scene) -> None:
    os.link(scene.worktree / "g.txt", scene.worktree / "alias")


def _writes_through(scene: Scene) -> str:
    first, second = scene.root / "first", scene.root / "second"
    first.write_bytes(b"x")
    os.link(first, second)
    first.write_bytes(b"y")
    require_hit(second.read_bytes() == b"y", "the other name kept its content")
    return "a plain write changed the file under its other name"


def _replaces_file(scene: Scene) -> str:
    scene.workbench.apply_patch(scene.task.id, HOST_EDIT, {"g.txt": hash_of(scene.files["g.txt"])})
    require_equal((scene.worktree / "alias").read_bytes(), scene.files["g.txt"], "the other name")
    return "the edit created a new file; the other name kept its content"


def _sparse(scene: Scene) -> None:
    try:
        with (scene.worktree / "huge").open("wb") as stream:
            stream.truncate(1 << 40)
    except OSError as error:
        raise NotSupported(f"a file of 1 TiB cannot be created here: {error.strerror}") from None


def _endless(scene: Scene) -> str:
    words = ["/usr/bin/sha256sum", "huge"]
    require_hit(
        run_unhardened(words, cwd=scene.worktree, home=scene.root, seconds=HANG_S).code == -9, "reading all of it ended"
    )
    return "reading 1 TiB did not end in time"


def _too_large(scene: Scene) -> str:
    wb, task = scene.workbench, scene.task.id
    steps = (lambda: wb.read_file(task, "huge"), lambda: wb.status(task), lambda: wb.commit(task, "x"))
    for step in steps:
        require_refusal(step, ErrorCode.QUOTA_EXCEEDED)
    return "refused by its size before reading"


def _names(scene: Scene) -> None:
    for name in NAMES:
        Path(os.fsdecode(os.fsencode(scene.worktree) + b"/" + name)).write_bytes(b"content of " + name)


def _misread(scene: Scene) -> str:
    folder = scene.root / "names"
    scene.require_git("init", "-q", str(folder), cwd=scene.root)
    (folder / "a\n?? injected.py").touch()
    listing = scene.git("-c", "core.quotePath=false", "ls-files", "-o", cwd=folder).text
    require_hit("injected" in listing and listing.startswith('"'), "git listed it unquoted")
    return "line-based listings need a parser for quotes"


def _exact(scene: Scene) -> str:
    tree = scene.workbench.commit(scene.task.id, "x", allow=["*"]).tree
    done = scene.git("ls-tree", "-r", "-z", "--name-only", tree, cwd=scene.root, git_dir=scene.cache)
    stored = set(done.stdout.split(b"\0")) - {b""}
    require_equal(sorted(stored - {name.encode() for name in scene.files}), sorted(NAMES), "names in the commit")
    if scene.marks():
        raise GotThrough("a name ran as a command")
    return f"{len(NAMES)} names are in the commit byte for byte"


ENTRIES = (
    AttackEntry("H01", "names that lead out of the worktree", "read, patch", _joins_names, _lexical),
    AttackEntry("H02", "links to files of the host", "read, patch and a task's life", _follows_links(""),
          _link_refused("link0", "link1", "link2"),
          _links("{outside}/secret", "../../../../../outside/secret", "/dev/zero")),
    AttackEntry("H03", "links to directories of the host", "read, patch and a task's life", _follows_links("secret"),
          _link_refused("link0/secret", "link1/secret", "link0/new", "link1/deeper/new"),
          _links("{outside}", "../../../../../outside")),
    AttackEntry("H04", "magic links of /proc", "read, patch and a task's life", _follows_links(""),
          _link_refused("link0", "link1"),
          _links("/proc/self/root{outside}/secret", "/proc/thread-self/root{outside}/secret")),
    AttackEntry("H09", "FIFOs where files are expected", "read, status and a task's life", _hangs, _not_blocked,
          _fifos),
    AttackEntry("H12", "devices and sockets in the tree", "read, status and a task's life", _device_read,
          _special_refused,
          _special, (needs_root,)),
    AttackEntry("H14", "setuid files in the tree", "patch, commit", _copy_keeps_bits, _strips_bits, _setuid),
    AttackEntry("H15", "hard links", "patch", _writes_through, _replaces_file, _hard_link),
    AttackEntry("H16", "a sparse file of 1 TiB", "read, status, commit", _endless, _too_large, _sparse),
    AttackEntry("H21", "file names of any bytes", "commit", _misread, _exact, _names),
)  # fmt: skip
