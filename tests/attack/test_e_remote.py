"""THREATS E: the remote is hostile. What it sends is refused, or ends as a typed error with nothing written outside."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from devtools import copied_clones
from devtools.host_speed import slowness
from sandbox.attack.harness.plumbing import Plumbing, naive_checkout
from sandbox.errors import ErrorCode, SandboxError
from tests.attack.arena import Arena, refused, variants
from tests.attack.httpstub import Stub, serving
from tests.attack.test_f_credentials import store

pytestmark = pytest.mark.must

NAMES = {
    "e01_git": ".git/config",
    "e01_upper": ".GIT/config",
    "e01_dots": "../escaped",
    "e01_deep_dots": "d/../../escaped",
    "e01_nested_git": "a/b/.git/hooks/x",
    "e01_absolute": "/escaped",
    "e01_dot": "./x",
    "e02_hfs": ".g\u200cit/config",
    "e03_ntfs": "git~1/config",
    "e03_stream": ".git::$INDEX_ALLOCATION/config",
    "e03_space": ".git /config",
}

OF_EACH_KIND = ("e01_git", "e01_dots", "e01_absolute", "e01_dot", "e02_hfs", "e03_ntfs")
"""Those that no entry which ships has, and one of each other kind."""


def everything(arena: Arena) -> set[str]:
    """All names below the arena outside of the home and of scratch copies."""
    skip = {str(arena.home), str(arena.remote), str(arena.root / "naive")}
    return {str(p) for p in arena.root.rglob("*") if not any(str(p).startswith(s) for s in skip)}


@pytest.fixture
def no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A victim with a copied clone would fail."""
    monkeypatch.setattr(copied_clones, "_copy_or_create", None)


@pytest.mark.one_git
def test_the_clone_that_is_attacked_is_no_copy(no_copies: None, arena: Arena) -> None:
    assert arena.worktree.is_dir()


@pytest.mark.parametrize("name", variants(NAMES, *OF_EACH_KIND))
def test_e01_e02_e03_hostile_tree_names(arena: Arena, name: str) -> None:
    """Control: a checkout that joins names and writes ends up with the file where it must not be."""
    plumbing = Plumbing(arena, arena.remote)
    path = NAMES[name]
    head = path.encode()
    if path.startswith(("./", "/")):  # one entry whose name holds the slash
        tree = plumbing.tree(("100644", head, plumbing.blob(b"evil")))
    else:
        tree = plumbing.nested_tree(path, "100644", plumbing.blob(b"evil"))
    commit = plumbing.publish(tree)
    (arena.root / "naive").mkdir()
    naive_checkout(arena, arena.remote, arena.root / "naive" / "wt")
    assert [p for p in (arena.root / "naive").rglob("*") if p.is_file() and p.read_bytes() == b"evil"] or Path(
        "/escaped"
    ).exists(), "void"
    Path("/escaped").unlink(missing_ok=True)
    before = everything(arena), arena.read_canaries()
    worktrees = {p.name for p in (arena.home / "repositories" / "worktrees").rglob("*")}
    for attempt in (
        lambda: arena.workbench.clone(str(arena.remote)),
        lambda: arena.workbench.run(str(arena.remote), commit),
    ):
        with refused(ErrorCode.UNSAFE_REPOSITORY):
            attempt()
    with refused(ErrorCode.NOT_FOUND):  # nothing hostile arrived in the cache
        arena.workbench.create_task(arena.repo_id, base_branch=commit)
    assert (everything(arena), arena.read_canaries()) == before
    assert {p.name for p in (arena.home / "repositories" / "worktrees").rglob("*")} == worktrees
    assert not list((arena.home / "repositories" / "rooms").iterdir())


@pytest.mark.one_git
def test_e01_writer_refuses_what_a_fetch_let_through(arena: Arena) -> None:
    """Defence in depth: the objects are already in the cache (an older git, a check that was forgotten)."""
    plumbing = Plumbing(arena, arena.cache)
    blob = plumbing.blob(b"evil")
    for name, path in NAMES.items():
        tree = (
            plumbing.tree(("100644", path.encode(), blob))
            if path.startswith(("./", "/"))
            else plumbing.nested_tree(path, "100644", blob)
        )
        commit = plumbing.publish(tree, "refs/remotes/origin/evil")
        before = everything(arena), arena.read_canaries()
        with refused(ErrorCode.UNSAFE_REPOSITORY):
            arena.workbench.create_task(arena.repo_id, base_branch=commit)
        assert (everything(arena), arena.read_canaries()) == before, name
        assert [p.name for p in (arena.worktree.parent).iterdir()] == [arena.task.id], name
        assert not Path("/escaped").exists(), name


def test_e01_link_then_file_below_it(arena: Arena) -> None:
    """A tree with the same name twice, a link and a directory. Control: the naive writer follows the link."""
    plumbing = Plumbing(arena, arena.remote)
    inner = plumbing.tree(("100644", b"f", plumbing.blob(b"evil")))
    link = plumbing.blob(str(arena.outside).encode())
    tree = plumbing.tree(("120000", b"l", link), ("40000", b"l", inner))
    plumbing.publish(tree)
    keep = (arena.outside / "f").read_bytes()
    naive_checkout(arena, arena.remote, arena.root / "naive")
    assert (arena.outside / "f").read_bytes() == b"evil", "void"
    (arena.outside / "f").write_bytes(keep)
    before = arena.read_canaries()
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        arena.workbench.clone(str(arena.remote))
    inside = Plumbing(arena, arena.cache)
    inner = inside.tree(("100644", b"f", inside.blob(b"evil")))
    tree = inside.tree(("120000", b"l", inside.blob(str(arena.outside).encode())), ("40000", b"l", inner))
    commit = inside.publish(tree, "refs/remotes/origin/evil")
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        arena.workbench.create_task(arena.repo_id, base_branch=commit)
    assert arena.read_canaries() == before


UNWRITABLE = {
    "long name": lambda p: p.tree(("100644", b"n" * 300, p.blob(b"x"))),
    "long path": lambda p: p.nested_tree("/".join(["n" * 200] * 30), "100644", p.blob(b"x")),
    "link with NUL": lambda p: p.tree(("120000", b"l", p.blob(b"a\0b"))),
    "empty link": lambda p: p.tree(("120000", b"l", p.blob(b""))),
    "long link": lambda p: p.tree(("120000", b"l", p.blob(b"t" * 5000))),
}


@pytest.mark.one_git
@pytest.mark.parametrize("name", UNWRITABLE)
def test_e01_names_that_no_file_system_takes(arena: Arena, name: str) -> None:
    """Control: the naive writer dies of them."""
    Plumbing(arena, arena.remote).publish(UNWRITABLE[name](Plumbing(arena, arena.remote)))
    with pytest.raises((OSError, ValueError)):
        naive_checkout(arena, arena.remote, arena.root / "naive")
    with refused(ErrorCode.UNSAFE_REPOSITORY, ErrorCode.QUOTA_EXCEEDED):
        arena.workbench.clone(str(arena.remote))
        arena.workbench.create_task(arena.repo_id)
    assert [p.name for p in arena.worktree.parent.iterdir()] == [arena.task.id]


@pytest.mark.parametrize("name", [b".gitmodules", b".gitattributes", b".gitignore"])
def test_e04_control_files_as_links_are_not_followed(arena: Arena, name: bytes) -> None:
    """Control: a program that reads them by name reads the host's file."""
    (arena.outside / "rules").write_text("*\n")
    plumbing = Plumbing(arena, arena.remote)
    link = plumbing.blob(str(arena.outside / "rules").encode())
    plumbing.publish(plumbing.tree(("120000", name, link), ("100644", b"f.txt", plumbing.blob(b"f\n"))))
    naive_checkout(arena, arena.remote, arena.root / "naive")
    assert (arena.root / "naive" / name.decode()).read_text() == "*\n", "void"
    if name == b".gitmodules":
        with refused(ErrorCode.UNSAFE_REPOSITORY):
            arena.workbench.clone(str(arena.remote))
        return
    arena.new_task()
    (arena.worktree / "new").write_text("x")
    assert [c.path for c in arena.workbench.status(arena.task.id).changes] == ["new"]  # `*` would have hidden it


@pytest.mark.thorough  # the suite has it as the entry that ships, E06
@pytest.mark.one_git
def test_e06_git_bomb_is_refused_before_checkout(arena: Arena) -> None:
    """Control: `ls-tree -r` of the 7 objects does list a million paths."""
    plumbing = Plumbing(arena, arena.remote)
    oid = plumbing.tree(*[("100644", b"%d" % i, plumbing.blob(b"x")) for i in range(10)])
    for _ in range(5):
        oid = plumbing.tree(*[("40000", b"%d" % i, oid) for i in range(10)])
    plumbing.publish(oid)
    listing = arena.git("ls-tree", "-r", "--name-only", "main", cwd=arena.root, git_dir=arena.remote).stdout
    assert listing.count(b"\n") == 10**6, "void"
    started = time.monotonic()
    with refused(ErrorCode.QUOTA_EXCEEDED):
        arena.workbench.clone(str(arena.remote))
    assert time.monotonic() - started < 20 * slowness()
    assert not list((arena.home / "repositories" / "rooms").iterdir())


def zeros(remote: Path, arena: Arena, size: int) -> str:
    """A loose blob of zeros, written by us: git would take ten times as long."""
    import hashlib  # noqa: PLC0415

    digest, packer = hashlib.sha1(usedforsecurity=False), zlib.compressobj(1)
    path = remote / "objects" / "incoming"
    with path.open("wb") as stream:
        for chunk in (b"blob %d\0" % size, *[bytes(1 << 22)] * (size >> 22)):
            digest.update(chunk)
            stream.write(packer.compress(chunk))
        stream.write(packer.flush())
    oid = digest.hexdigest()
    (remote / "objects" / oid[:2]).mkdir(exist_ok=True)
    path.rename(remote / "objects" / oid[:2] / oid[2:])
    return oid


@pytest.mark.one_git
@pytest.mark.parametrize(("size", "copies"), [(516 * 1024**2, 1), (64 * 1024**2, 140)], ids=["one blob", "many paths"])
def test_e07_zip_bomb_is_refused_before_checkout(arena: Arena, size: int, copies: int) -> None:
    """Control: what git would write, by `ls-tree -l`. (The large one is put into the cache: a fetch is slow.)"""
    where, ref = (arena.cache, "refs/remotes/origin/bomb") if copies == 1 else (arena.remote, "refs/heads/bomb")
    oid = zeros(where, arena, size)
    plumbing = Plumbing(arena, where)
    plumbing.publish(plumbing.tree(*[("100644", b"f%03d" % i, oid) for i in range(copies)]), ref)
    listing = arena.require_git("ls-tree", "-l", ref, cwd=arena.root, git_dir=where)
    assert sum(int(line.split()[3]) for line in listing.splitlines()) > 500 * 1024**2, "void"
    if copies > 1:
        arena.workbench.clone(str(arena.remote))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        arena.workbench.create_task(arena.repo_id, base_branch="bomb")
    assert [p.name for p in arena.worktree.parent.iterdir()] == [arena.task.id]


MEMORY_PROBE = """
import sys
sys.path.insert(0, {checkout!r})
from pathlib import Path
from sandbox.workbench import Workbench
with Workbench(Path({home!r}), allow_file=True) as workbench:
    {body}
status = Path("/proc/self/status").read_text()  # not ru_maxrss: that one begins with its parent's
print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""


def peak_mib(arena: Arena, body: str, seconds: float = 60) -> int:
    """Peak memory of a controller of its own that does `body`; its own limit is 2 GiB."""
    program = MEMORY_PROBE.format(checkout=str(Path.cwd()), home=str(arena.home), body=body)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 * 1024**3, 2 * 1024**3))

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=seconds, check=False,
        preexec_fn=limit,
        env=arena.build_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


TYPED = "from sandbox.errors import SandboxError"


@pytest.mark.one_git
def test_e07_huge_readme_does_not_fill_the_controller(arena: Arena) -> None:
    """A variant: the orientation envelope shows 4 KB of the README; it must not load 128 MB for that.

    Control: reading the blob whole takes that much.
    """
    size = 128 * 1024**2
    oid = zeros(arena.remote, arena, size)
    plumbing = Plumbing(arena, arena.remote)
    plumbing.publish(plumbing.tree(("100644", b"README.md", oid)))
    assert int(arena.require_git("cat-file", "-s", oid, cwd=arena.root, git_dir=arena.remote)) == size, "void"
    assert peak_mib(arena, f"workbench.clone({str(arena.remote)!r})") < 100


@pytest.mark.one_git
def test_e07_ignore_files_do_not_fill_the_controller(arena: Arena) -> None:
    """A variant: one blob of 1 MB as the `.gitignore` of 300 directories. Control: 600 MB when all are read."""
    plumbing = Plumbing(arena, arena.remote)
    inner = plumbing.tree(("100644", b".gitignore", plumbing.blob(b"#" * (1 << 20))))
    plumbing.publish(plumbing.tree(*[("40000", b"%04d" % i, inner) for i in range(300)]))
    arena.new_task()
    listing = arena.require_git("ls-tree", "-r", "-l", "main", cwd=arena.root, git_dir=arena.remote)
    assert sum(int(line.split()[3]) for line in listing.splitlines()) > 3 * 10**8, "void"
    body = f"""
    {TYPED}
    try:
        workbench.status({arena.task.id!r})
    except SandboxError as error:
        assert error.code == "quota_exceeded", error.code
"""
    assert peak_mib(arena, body) < 200


@pytest.mark.one_git
@pytest.mark.parametrize(
    ("rules", "path"),
    [
        ("*a" * 40 + "b\n", "a" * 250),
        ("**/a/" * 30 + "b\n", "/".join(["a"] * 100) + "/c"),
        ("".join(f"*{i}*x*y\n" for i in range(80_000)), "z"),
    ],
    ids=["stars", "double stars", "many rules"],
)
def test_i07_ignore_rules_cannot_hang_the_controller(arena: Arena, rules: str, path: str) -> None:
    """The base commit's `.gitignore` and a guest's file name together: a backtracking match never ends.

    Control: the regular expression of the same rule on the same name takes exponential time (shown on a small one).
    """
    import re  # noqa: PLC0415

    started = time.monotonic()
    re.match("(?:[^/]*a){5}[^/]*b$", "a" * 60)
    assert time.monotonic() - started > 0.1, "void"
    plumbing = Plumbing(arena, arena.remote)
    entries = [("100644", b".gitignore", plumbing.blob(rules.encode())), ("100644", b"f.txt", plumbing.blob(b"f\n"))]
    plumbing.publish(plumbing.tree(*entries))
    arena.new_task()
    (arena.worktree / path).parent.mkdir(parents=True, exist_ok=True)
    (arena.worktree / path).write_text("x")
    body = f"""
    {TYPED}
    try:
        workbench.status({arena.task.id!r})
    except SandboxError as error:
        assert error.code == "quota_exceeded", error.code
"""
    assert peak_mib(arena, body, seconds=25) > 0


def noisy(arena: Arena, size: int) -> None:
    """A commit whose pack is as large as it looks."""
    plumbing = Plumbing(arena, arena.remote)
    plumbing.publish(plumbing.tree(("100644", b"f.txt", plumbing.blob(os.urandom(size)))))


@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
def test_e08_a_pack_past_the_limit_does_not_fill_the_disk(make_arena: Callable[..., Arena], partial: bool) -> None:
    """The same server, first clone and later fetch. Control: without the limit the same pack is all written."""
    size = 8 * 1024**2
    arena = make_arena()
    arena.git("config", "uploadpack.allowFilter", "true", cwd=arena.remote, git_dir=arena.remote)
    before = arena.workbench.clone(str(arena.remote), partial=partial).repository
    noisy(arena, size)
    strict = make_arena(settings={"remotes": {"max_fetch_bytes": 1024**2}})
    seed = Plumbing(strict, strict.remote)
    seed.publish(seed.tree(("100644", b"f.txt", seed.blob(b"small"))))
    strict.git("config", "uploadpack.allowFilter", "true", cwd=strict.remote, git_dir=strict.remote)
    clones = strict.home / "repositories" / "clones"
    assert strict.workbench.clone(str(strict.remote), partial=partial)
    kept = disk(clones)
    noisy(strict, size)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        strict.workbench.clone(str(strict.remote), partial=partial)
    assert disk(clones) < kept + 64 * 1024
    assert not list(clones.rglob("tmp_*"))
    with refused(ErrorCode.QUOTA_EXCEEDED):  # and as a first clone
        strict.workbench.clone(str(arena.remote), partial=partial)
    assert len(list(clones.iterdir())) == 1
    assert arena.workbench.clone(str(arena.remote), partial=partial).repository == before
    assert disk(arena.home / "repositories" / "clones") > size, "void"


def disk(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


HOSTILE_REFS = ["refs/heads/-x", "refs/heads/--upload-pack=touch", "refs/heads/`id`", "refs/heads/a'b\"c;d",
                "refs/heads/HEAD", "refs/heads/@", "refs/heads/refs/heads/main"]  # fmt: skip


def test_e09_hostile_ref_names_arrive_and_do_nothing(arena: Arena) -> None:
    """Control: the same name as a bare argument of plain git is an option."""
    payload = arena.script("e09")
    commit = arena.require_git("rev-parse", "main", cwd=arena.root, git_dir=arena.remote)
    packed = "".join(f"{commit} {ref}\n" for ref in [*HOSTILE_REFS, f"refs/heads/--upload-pack={payload}"])
    main = (arena.remote / "packed-refs").read_text() if (arena.remote / "packed-refs").exists() else ""
    (arena.remote / "packed-refs").write_text(main + packed)
    arena.require_mark(
        "e09", lambda: arena.git("ls-remote", f"--upload-pack={payload}", str(arena.remote), cwd=arena.root)
    )
    arena.new_task()
    refs = arena.require_git("for-each-ref", "--format=%(refname)", cwd=arena.root, git_dir=arena.cache).splitlines()
    assert "refs/remotes/origin/--upload-pack=touch" in refs
    for name in ("-x", "--upload-pack=touch", f"--upload-pack={payload}", "`id`", "a'b\"c;d", "@"):
        with refused(ErrorCode.INVALID_INPUT):
            arena.workbench.create_task(arena.repo_id, base_branch=name)
        with refused(ErrorCode.INVALID_INPUT):
            arena.workbench.run(str(arena.remote), name)
    assert arena.workbench.create_task(arena.repo_id, base_branch="refs/heads/main").base_commit == commit
    assert arena.marks() == set()


def test_e09_a_tag_cannot_pass_for_another_namespace(arena: Arena) -> None:
    """git completes names: `refs/remotes/origin/x` is also tried as `refs/tags/refs/remotes/origin/x`."""
    good = arena.require_git("rev-parse", "main", cwd=arena.root, git_dir=arena.remote)
    plumbing = Plumbing(arena, arena.remote)
    tree = plumbing.tree(("100644", b"evil", plumbing.blob(b"evil")))
    evil = plumbing.publish(tree, "refs/tags/refs/remotes/origin/release")
    marker = f"refs/sandbox/{arena.task.id}/pushed"
    plumbing.publish(tree, f"refs/tags/{marker}")
    arena.workbench.clone(str(arena.remote))
    name = "refs/remotes/origin/release"
    assert arena.require_git("rev-parse", "--verify", name, cwd=arena.root, git_dir=arena.cache) == evil, "void"
    with refused(ErrorCode.NOT_FOUND):
        arena.workbench.create_task(arena.repo_id, base_branch="release")
    (arena.worktree / "f.txt").write_text("mine\n")
    commit = arena.workbench.commit(arena.task.id, "x").commit
    assert arena.workbench.push(arena.task.id).commit == commit
    assert arena.require_git("rev-parse", "main", cwd=arena.root, git_dir=arena.remote) == good


def test_e10_revision_expressions(arena: Arena) -> None:
    """Control: each means something to git."""
    plumbing = Plumbing(arena, arena.remote)
    plumbing.publish(plumbing.tree(("100644", b"x", plumbing.blob(b"x"))), "refs/heads/evil")
    arena.workbench.clone(str(arena.remote))
    for text in (":/seed", "HEAD^{/seed}", "main..evil", "--all", "main^{tree}", "main:f.txt"):
        argv = ("rev-parse", text)
        assert arena.git(*argv, cwd=arena.root, git_dir=arena.remote).code == 0, f"void: {text}"
    for text in (":/seed", "@{-1}", "HEAD^{/seed}", "main..evil", "--all", "-evil", "main~1", "main^", "main:f.txt",
                 "a\nb", "main\n", "", "*", "refs/heads/*", "main lock", "x.lock", "0" * 39 + "\n"):  # fmt: skip
        with refused(ErrorCode.INVALID_INPUT, ErrorCode.NOT_FOUND) as caught:
            arena.workbench.run(str(arena.remote), text) if text else arena.workbench.run(str(arena.remote), " ")
        assert caught[0].code is ErrorCode.INVALID_INPUT or text == "x.lock", text


def test_e11_terminal_sequences_of_the_remote_stay_out_of_errors(arena: Arena) -> None:
    """A server's hook speaks. Control: git passes what it says to the terminal."""
    hook = arena.remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nprintf '\\033]0;pwned\\007\\033[31mred\\r plain-words' >&2; exit 1\n")
    hook.chmod(0o755)
    branch = f"{arena.task.branch}:refs/heads/x"
    raw = arena.git("push", str(arena.remote), branch, cwd=arena.root, git_dir=arena.cache).stderr
    assert b"\x1b" in raw, "void"
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(arena.root / "ca.pem"))
    with serving(Stub(arena.remote.parent), authority) as server:
        store(arena, f"127.0.0.1:{server.port}")
        arena.workbench = arena.open_workbench()
        repository = arena.workbench.clone(f"https://127.0.0.1:{server.port}/remote.git").repository
        task = arena.workbench.create_task(repository.id)
        (arena.home / "repositories" / "worktrees" / repository.id / task.id / "f.txt").write_text("mine\n")
        arena.workbench.commit(task.id, "x")
        with refused(ErrorCode.PUSH_REJECTED) as caught:
            arena.workbench.push(task.id)
    shown = str(caught[0].payload())
    assert "plain-words" in shown
    assert "\\x1b" not in shown
    assert "\x1b" not in caught[0].details
    assert "\a" not in caught[0].details


def test_e15_template_hooks_do_not_run_at_clone(make_arena: Callable[..., Arena]) -> None:
    arena = make_arena()
    template = arena.root / "template"
    (template / "hooks").mkdir(parents=True)
    payload = Path(arena.script("e15"))
    for name in ("post-checkout", "reference-transaction", "pre-push", "post-index-change"):
        (template / "hooks" / name).write_bytes(payload.read_bytes())
        (template / "hooks" / name).chmod(0o755)
    env = {"GIT_TEMPLATE_DIR": str(template)}
    arena.require_mark(
        "e15", lambda: arena.git("clone", "-q", str(arena.remote), str(arena.root / "c"), cwd=arena.root, env=env)
    )
    (arena.operator / ".gitconfig").write_text(f"[init]\n\ttemplateDir = {template}\n")
    os.environ["GIT_TEMPLATE_DIR"] = str(template)
    try:
        arena.new_task()
    finally:
        del os.environ["GIT_TEMPLATE_DIR"]
    arena.run_every_operation()
    assert arena.marks() == set()
    assert not (arena.cache / "hooks").exists()


def test_e16_smudge_filters_do_not_run_at_checkout(arena: Arena) -> None:
    """The operator has a driver that the repository names. Control: `worktree add` runs it."""
    payload = arena.script("e16", then="cat")
    (arena.operator / ".gitconfig").write_text(f'[filter "evil"]\n\tsmudge = {payload}\n\tclean = {payload}\n')
    plumbing = Plumbing(arena, arena.remote)
    attributes = plumbing.blob(b"* filter=evil ident eol=crlf working-tree-encoding=UTF-16\n")
    content = b"$Id$ one\ntwo\n"
    plumbing.publish(
        plumbing.tree(("100644", b".gitattributes", attributes), ("100644", b"f.txt", plumbing.blob(content)))
    )
    env = {"GIT_CONFIG_GLOBAL": str(arena.operator / ".gitconfig")}
    arena.require_mark(
        "e16", lambda: arena.git("clone", "-q", str(arena.remote), str(arena.root / "c"), cwd=arena.root, env=env)
    )
    assert (arena.root / "c" / "f.txt").read_bytes() != content
    arena.new_task()
    assert (arena.worktree / "f.txt").read_bytes() == content
    arena.run_every_operation()
    assert arena.marks() == set()


@pytest.mark.one_git
def test_e19_spellings_of_one_remote_share_one_cache(arena: Arena) -> None:
    """Control: as strings they all differ."""
    spellings = [str(arena.remote), f"file://{arena.remote}", f"{arena.remote}/", f"{arena.root}/x/../remote.git"]
    assert len(set(spellings)) == 4
    assert {arena.workbench.clone(s).repository.id for s in spellings} == {arena.repo_id}
    assert len(list((arena.home / "repositories" / "clones").iterdir())) == 1
    for bad in (
        "https://github.com/o/../r", "https://github.com/o/r?x", "https://u@h/o/r", "https://h/o/r#x", "http://h/o/r",
    ):  # fmt: skip
        with refused(ErrorCode.INVALID_INPUT):
            arena.workbench.clone(bad)


def test_e_failed_first_clone_leaves_nothing(make_arena: Callable[..., Arena]) -> None:
    arena = make_arena()
    plumbing = Plumbing(arena, arena.remote)
    plumbing.publish(plumbing.nested_tree("../x", "100644", plumbing.blob(b"evil")))
    with pytest.raises(SandboxError):
        arena.workbench.clone(str(arena.remote))
    assert list((arena.home / "repositories" / "clones").iterdir()) == []
    assert arena.workbench.repositories() == ()
