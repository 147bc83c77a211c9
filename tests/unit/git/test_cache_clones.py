"""Cache clones and network git against real remotes: `file://`, and HTTP servers on the loopback."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from sandbox import retries
from sandbox.credentials import Credential
from sandbox.errors import ErrorCode
from sandbox.git import cache_clones, new_commits, objects, refs, transport
from sandbox.git.cache_clones import open_cache, refresh, resolve_commit
from sandbox.git.contents import content_of
from sandbox.git.entries import REGULAR, TreeChange
from sandbox.git.failures import classify
from sandbox.git.process import Git, build_command_line
from sandbox.git.push.send import push
from sandbox.git.ssh_options import quote_path
from sandbox.git.transport import RemoteAccess, RemoteHead, network_access
from sandbox.remotes import parse_remote
from tests.unit.conftest import IDENTITY, Upstream, access_to, refused, run

SECRET = "hunter2-s3cr3t"


@pytest.fixture
def access(upstream: Upstream, tmp_path: Path) -> RemoteAccess:
    upstream.write("f", b"one\n")
    upstream.commit()
    return access_to(str(upstream.root), tmp_path / "known_hosts")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "clones" / "id"


def leftovers(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.parent.iterdir()) if cache.parent.exists() else []


# --- cache clones


def test_a_short_id_is_enough_if_one_commit_has_it(upstream: Upstream, cached: Callable[[Upstream], Git]) -> None:
    first, second = upstream.commit("one"), upstream.commit("two")
    upstream.git("branch", first[:9], second)
    git = cached(upstream)
    assert resolve_commit(git, second[:7], "main") == second
    assert resolve_commit(git, first[:8], "main") == first
    assert resolve_commit(git, first[:9], "main") == second, "a branch of that name goes first"
    tree = upstream.oid("HEAD^{tree}")
    for wrong in (tree[:12], first[:6], "f" * 12):
        with refused(ErrorCode.NOT_FOUND):
            resolve_commit(git, wrong, "main")


def test_a_first_clone_has_every_branch_and_tag_and_only_our_configuration(
    upstream: Upstream, access: RemoteAccess, cache: Path
) -> None:
    upstream.git("branch", "topic")
    upstream.git("tag", "v1")
    upstream.git("tag", "-a", "-m", "x", "v2")
    assert refresh(cache, access) == RemoteHead("main", upstream.oid("HEAD"))
    refs = run(["git", f"--git-dir={cache}", "for-each-ref", "--format=%(refname)"]).decode().split()
    assert refs == ["refs/remotes/origin/main", "refs/remotes/origin/topic", "refs/tags/v1", "refs/tags/v2"]
    config = (cache / "config").read_text()
    assert "bare = true" in config
    assert "remote" not in config
    assert not list(cache.glob("hooks/*"))
    assert leftovers(cache) == ["id"]


def test_a_refresh_follows_the_remote_and_forgets_what_it_dropped(
    upstream: Upstream, access: RemoteAccess, cache: Path
) -> None:
    upstream.git("branch", "topic")
    upstream.git("tag", "v1")
    refresh(cache, access)
    upstream.git("branch", "-D", "topic")
    upstream.write("f", b"rewritten\n")
    upstream.git("commit", "--quiet", "--all", "--amend", "-m", "rewritten")
    upstream.git("tag", "--force", "v1")
    assert refresh(cache, access).commit == upstream.oid("HEAD")
    git = open_cache(cache)
    assert refs.resolve_ref(git, "refs/remotes/origin/main") == upstream.oid("HEAD")
    assert refs.resolve_ref(git, "refs/tags/v1") == upstream.oid("v1")
    assert refs.resolve_ref(git, "refs/remotes/origin/topic") is None


def test_a_refresh_replaces_a_configuration_that_somebody_changed(access: RemoteAccess, cache: Path) -> None:
    refresh(cache, access)
    ours = (cache / "config").read_text()
    (cache / "config").write_text(ours + '[core]\n\tfsmonitor = "touch /tmp/x"\n')
    refresh(cache, access)
    assert (cache / "config").read_text() == ours


def test_a_configuration_is_whole_for_whoever_reads_it_meanwhile(access: RemoteAccess, cache: Path) -> None:
    """Control: what is right is not written at all."""
    refresh(cache, access)
    with (cache / "config").open("rb") as right:
        refresh(cache, access)
        assert os.fstat(right.fileno()).st_nlink == 1
    (cache / "config").write_text("[core]\n")
    with (cache / "config").open("rb") as reader:
        refresh(cache, access)
        assert reader.read() == b"[core]\n"
    assert "bare = true" in (cache / "config").read_text()


def test_a_clone_of_one_remote_never_passes_for_that_of_another(
    upstream: Upstream, access: RemoteAccess, cache: Path, tmp_path: Path
) -> None:
    """Whose ids read the same: the second one waited for the lock while the first was cloned, unregistered."""
    wished = time.time()
    refresh(cache, access)
    other = shutil.copytree(upstream.root, tmp_path / "other")
    elsewhere = access_to(str(other), tmp_path / "known_hosts")
    with refused(ErrorCode.ORIGIN_MISMATCH):
        refresh(cache, elsewhere, wished)
    assert refresh(cache, access, wished) == RemoteHead("main", upstream.oid("HEAD"))


def test_a_refresh_keeps_refs_of_our_own(upstream: Upstream, access: RemoteAccess, cache: Path) -> None:
    refresh(cache, access)
    git = open_cache(cache)
    for ref in ("refs/heads/space-agent/task-1-x", "refs/sandbox/task-1/pushed"):
        refs.move_ref(git, ref, upstream.oid("HEAD"), "0" * 40)
    refresh(cache, access)
    assert refs.resolve_ref(git, "refs/heads/space-agent/task-1-x") == upstream.oid("HEAD")
    assert refs.resolve_ref(git, "refs/sandbox/task-1/pushed") == upstream.oid("HEAD")


@pytest.mark.parametrize("step", ["read_remote_refs", "fetch"])
def test_a_clone_that_fails_at_any_step_leaves_nothing(
    step: str, access: RemoteAccess, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"sandbox.git.transport.{step}", interrupted)
    with pytest.raises(KeyboardInterrupt):
        refresh(cache, access)
    assert leftovers(cache) == []
    monkeypatch.undo()
    assert refresh(cache, access).branch == "main"


def test_what_a_killed_clone_left_is_swept_by_the_next(access: RemoteAccess, cache: Path) -> None:
    beside = cache.with_name(".id.incoming")
    beside.mkdir(parents=True)
    (beside / "HEAD").write_text("half")
    refresh(cache, access)
    assert leftovers(cache) == ["id"]


def test_a_failed_refresh_leaves_the_cache_as_it_was(upstream: Upstream, access: RemoteAccess, cache: Path) -> None:
    refresh(cache, access)
    upstream.git_dir.rename(upstream.root / "away")
    with refused(ErrorCode.REMOTE_NOT_FOUND):
        refresh(cache, access)
    assert resolve_commit(open_cache(cache), "main", "main")


def test_a_missing_remote_is_remote_not_found(tmp_path: Path, cache: Path) -> None:
    with refused(ErrorCode.REMOTE_NOT_FOUND) as caught:
        refresh(cache, access_to(str(tmp_path / "none"), tmp_path / "k"))
    assert str(tmp_path / "none") in caught.value.brief
    assert leftovers(cache) == []


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_path_that_is_no_repository_is_named_in_our_words(tmp_path: Path, cache: Path, kind: str) -> None:
    """git says it for networks: access rights, host names, and three attempts."""
    path = tmp_path / "there"
    path.touch() if kind == "file" else path.mkdir()
    with refused(ErrorCode.REMOTE_NOT_FOUND) as caught:
        refresh(cache, access_to(str(path), tmp_path / "k"))
    assert str(path) in caught.value.brief
    assert caught.value.details == ""
    assert ".git" in caught.value.hint


def test_an_empty_remote_is_not_found_with_a_hint(upstream: Upstream, tmp_path: Path, cache: Path) -> None:
    with refused(ErrorCode.NOT_FOUND) as caught:
        refresh(cache, access_to(str(upstream.root), tmp_path / "k"))
    assert "commit" in caught.value.hint
    assert leftovers(cache) == []


def test_the_only_branch_is_the_default_of_a_remote_that_names_another(
    upstream: Upstream, access: RemoteAccess, cache: Path
) -> None:
    """As of `git init --bare` and a push, where git's default is not the pushed branch."""
    upstream.git("symbolic-ref", "HEAD", "refs/heads/never-pushed")
    assert refresh(cache, access) == RemoteHead("main", upstream.oid("main"))
    upstream.git("branch", "space-agent/1-work", "main")  # the remote has it once a task is sent
    upstream.git("branch", "dev", "main")
    assert refresh(cache, access).branch == "main", "the default of the clone"
    with refused(ErrorCode.NOT_FOUND) as caught:
        refresh(cache.with_name("another"), access)
    assert "no default branch" in caught.value.brief
    assert caught.value.details == "2 branches: dev, main"


@pytest.mark.parametrize("is_head", [True, False], ids=["HEAD names it", "it is the only one"])
def test_a_default_branch_that_we_cannot_use_is_the_remotes(
    upstream: Upstream, access: RemoteAccess, monkeypatch: pytest.MonkeyPatch, is_head: bool
) -> None:
    """The user has given no name that could be mended."""
    name, oid = "release(2.x)", upstream.oid("main")
    head = [(f"ref: refs/heads/{name}", "HEAD"), (oid, "HEAD")] if is_head else []
    monkeypatch.setattr(transport, "list_refs", lambda *_, **__: [*head, (oid, f"refs/heads/{name}")])
    with refused(ErrorCode.UNSAFE_REPOSITORY) as caught:
        transport.read_remote_refs(Git(upstream.git_dir), access)
    assert "default branch" in caught.value.brief
    assert name in caught.value.details
    assert "Choose another default branch" in caught.value.hint


def test_a_detached_head_is_the_branch_at_its_commit(upstream: Upstream, access: RemoteAccess, cache: Path) -> None:
    upstream.git("branch", "aaa")
    upstream.git("checkout", "--quiet", "--detach")
    assert refresh(cache, access) == RemoteHead("main", upstream.oid("HEAD"))
    upstream.git("branch", "-D", "main")
    assert refresh(cache, access).branch == "aaa"


def test_a_detached_head_behind_its_branch_keeps_its_commit(
    upstream: Upstream, access: RemoteAccess, cache: Path
) -> None:
    first = upstream.oid("HEAD")
    upstream.write("later", b"two\n")
    upstream.commit()
    upstream.git("checkout", "--quiet", "--detach", first)
    assert refresh(cache, access) == RemoteHead("main", first)


def test_an_unknown_ref_is_answered_with_the_names_there_are(
    upstream: Upstream, access: RemoteAccess, cache: Path
) -> None:
    upstream.git("branch", "release")
    upstream.git("tag", "v1")
    refresh(cache, access)
    with refused(ErrorCode.NOT_FOUND) as caught:
        resolve_commit(open_cache(cache), "mian", "main")
    assert sorted(caught.value.details.removeprefix("Known: ").split(", ")) == ["main", "release", "v1"]
    for number in range(15):
        upstream.git("branch", f"b{number}")
    refresh(cache, access)
    with refused(ErrorCode.NOT_FOUND) as caught:
        resolve_commit(open_cache(cache), "mian", "main")
    assert len(caught.value.details.split(", ")) == 13
    assert caught.value.details.endswith(", ...")


def test_a_head_on_no_branch_is_its_commit(upstream: Upstream, access: RemoteAccess, cache: Path) -> None:
    upstream.git("checkout", "--quiet", "--detach")
    upstream.git("branch", "-D", "main")
    lost = upstream.commit()
    assert refresh(cache, access) == RemoteHead("HEAD", lost)
    assert resolve_commit(open_cache(cache), "HEAD", "HEAD") == lost


def test_opening_a_missing_cache_is_not_found(cache: Path) -> None:
    with refused(ErrorCode.NOT_FOUND):
        open_cache(cache)


@pytest.mark.parametrize("name", [".git", "..", ".GIT", ".g\u200cit", "git~1"])
def test_e01_e02_e03_hostile_tree_entries_are_refused_at_fetch(
    name: str, upstream: Upstream, access: RemoteAccess, cache: Path
) -> None:
    blob = upstream.git("hash-object", "-w", "--stdin", stdin=b"x").decode().strip()
    inner = upstream.git("mktree", stdin=f"100644 blob {blob}\tconfig\n".encode()).decode().strip()
    tree = upstream.git("mktree", stdin=f"040000 tree {inner}\t{name}\n".encode()).decode().strip()
    commit = upstream.git("commit-tree", tree, stdin=b"x").decode().strip()
    upstream.git("update-ref", "refs/heads/evil", commit)
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        refresh(cache, access)
    assert leftovers(cache) == []


def test_e09_hostile_branch_names_of_a_remote_do_not_harm_the_clone(
    upstream: Upstream, access: RemoteAccess, cache: Path
) -> None:
    head = upstream.oid("HEAD")
    for name in ("refs/heads/-x", "refs/heads/--upload-pack=touch", "refs/heads/`id`", "refs/heads/refs/heads/main"):
        upstream.git("update-ref", name, head)
    assert refresh(cache, access).branch == "main"


# --- naming commits


@pytest.fixture
def tagged(upstream: Upstream, access: RemoteAccess, cache: Path) -> Git:
    upstream.git("branch", "feature/x")
    upstream.write("f", b"two\n")
    upstream.commit()
    upstream.git("tag", "-a", "-m", "x", "v1")
    refresh(cache, access)
    return open_cache(cache)


@pytest.mark.parametrize("ref", ["HEAD", "main", "v1", "feature/x"])
def test_head_branches_and_tags_name_their_commit(ref: str, tagged: Git, upstream: Upstream) -> None:
    assert resolve_commit(tagged, ref, "main") == upstream.oid(f"{ref}^{{commit}}")


def test_a_full_commit_id_names_itself_and_no_other_object(tagged: Git, upstream: Upstream) -> None:
    first = upstream.oid("HEAD~1")
    assert resolve_commit(tagged, first, "main") == first
    for other in (upstream.oid("HEAD^{tree}"), upstream.oid("HEAD:f"), "1" * 40):
        with refused(ErrorCode.NOT_FOUND):
            resolve_commit(tagged, other, "main")


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("none", ErrorCode.NOT_FOUND),
        ("HEAD~1", ErrorCode.INVALID_INPUT),
        ("main^{tree}", ErrorCode.INVALID_INPUT),
        ("@{-1}", ErrorCode.INVALID_INPUT),
        (":/two", ErrorCode.INVALID_INPUT),
        ("--all", ErrorCode.INVALID_INPUT),
        ("main..v1", ErrorCode.INVALID_INPUT),
        ("", ErrorCode.INVALID_INPUT),
        ("main\n", ErrorCode.INVALID_INPUT),
        ("refs/remotes/origin/main", ErrorCode.NOT_FOUND),
    ],
)
def test_e10_a_revision_expression_is_no_name(ref: str, code: ErrorCode, tagged: Git) -> None:
    with refused(code):
        resolve_commit(tagged, ref, "main")


# --- push


@pytest.fixture
def work(upstream: Upstream, access: RemoteAccess, cache: Path) -> tuple[Git, str]:
    """A cache clone and a commit in it that the remote does not have."""
    refresh(cache, access)
    git = open_cache(cache)
    base = upstream.oid("HEAD")
    tree = new_commits.build_tree(git, base, [TreeChange(b"new", REGULAR, content_of(b"x"))])
    return git, new_commits.commit_tree(git, tree, base, "x\n", IDENTITY)


def test_a_push_sends_exactly_one_commit_to_one_new_branch(
    work: tuple[Git, str], access: RemoteAccess, upstream: Upstream
) -> None:
    git, commit = work
    before = upstream.git("for-each-ref")
    push(git, access, commit, "space-agent/x", None)
    assert transport.find_remote_branch(git, access, "space-agent/x") == commit
    assert upstream.git("for-each-ref").replace(f"{commit} commit\trefs/heads/space-agent/x\n".encode(), b"") == before
    push(git, access, commit, "space-agent/x", commit)


def test_o07_a_branch_that_exists_already_is_not_overwritten(
    work: tuple[Git, str], access: RemoteAccess, upstream: Upstream
) -> None:
    git, commit = work
    upstream.git("branch", "space-agent/x")
    with refused(ErrorCode.PUSH_REJECTED) as caught:
        push(git, access, commit, "space-agent/x", None)
    assert "stale info" in caught.value.details
    assert upstream.oid("space-agent/x") == upstream.oid("HEAD")


def test_f16_a_branch_that_moved_is_not_overwritten(
    work: tuple[Git, str], access: RemoteAccess, upstream: Upstream
) -> None:
    git, commit = work
    upstream.git("branch", "space-agent/x")
    with refused(ErrorCode.PUSH_REJECTED):
        push(git, access, commit, "space-agent/x", commit)


def test_a_hook_that_says_no_is_push_rejected_with_its_words(
    work: tuple[Git, str], access: RemoteAccess, upstream: Upstream
) -> None:
    git, commit = work
    upstream.git("config", "receive.denyCurrentBranch", "refuse")
    with refused(ErrorCode.PUSH_REJECTED) as caught:
        push(git, access, commit, "main", upstream.oid("HEAD"))
    assert "branch is currently checked out" in caught.value.details


@pytest.mark.parametrize("branch", [":main", "+main", "a:b", "-x", "HEAD^", ""])
def test_f16_a_branch_is_never_a_refspec(branch: str, work: tuple[Git, str], access: RemoteAccess) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        push(work[0], access, work[1], branch, None)


def test_only_a_commit_is_pushed(work: tuple[Git, str], access: RemoteAccess) -> None:
    git, commit = work
    for oid in (objects.tree_of(git, commit), "1" * 40, "main"):
        with refused(ErrorCode.NOT_FOUND):
            push(git, access, oid, "x", None)


# --- credentials in transport


def with_secret(url: str, tmp_path: Path) -> RemoteAccess:
    credential = Credential(host="*", username="bot", secret=SecretStr(SECRET))
    return RemoteAccess(parse_remote(url, allow_http=True), credential, tmp_path / "known_hosts", {})


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("https://git.example.org/o/r", "git.example.org"),
        ("https://git.example.org:8443/o/r", "git.example.org:8443"),
        ("https://[::1]:8443/o/r", "[::1]:8443"),
    ],
)
def test_f13_askpass_answers_two_questions_of_one_host(url: str, authority: str, tmp_path: Path) -> None:
    with network_access(with_secret(url, tmp_path)) as network:
        ask = _asker(network.env, network.fds)
        assert ask(f"Username for 'https://{authority}': ") == b"bot\n"
        assert ask(f"Password for 'https://bot@{authority}': ") == SECRET.encode() + b"\n"
        for other in (
            "Username for 'https://evil.example': ",
            f"Username for 'http://{authority}': ",
            f"Password for 'https://bot@{authority}.evil': ",
            f"Password for 'https://bot@evil/{authority}': ",
            "",
            "Password: ",
        ):
            assert ask(other) is None


def _asker(env: Mapping[str, str], fds: tuple[int, ...]) -> Callable[[str], bytes | None]:
    def ask(prompt: str) -> bytes | None:
        argv = ["/bin/sh", env["GIT_ASKPASS"], prompt]
        done = subprocess.run(argv, env=env, pass_fds=fds, capture_output=True, check=False)
        return done.stdout if done.returncode == 0 else None

    return ask


def test_f09_the_secret_is_in_no_argument_variable_setting_or_file(tmp_path: Path) -> None:
    with network_access(with_secret("https://git.example.org/o/r", tmp_path)) as network:
        argv = build_command_line(tmp_path, ["fetch"], {}, network).through_env()
        script = Path(network.env["GIT_ASKPASS"])
        assert SECRET not in f"{argv} {network!r} {script.read_text()}"
        assert script.stat().st_mode & 0o077 == 0
        fd = network.fds[0]
        assert "/memfd:" in str(Path(f"/proc/self/fd/{fd}").readlink())
    assert not script.parent.exists()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_ssh_reads_no_configuration_and_forwards_nothing(tmp_path: Path) -> None:
    key = Credential(host="*", ssh_key=tmp_path / "a key")
    (tmp_path / "a key").touch()
    remote = parse_remote("git@host:o/r")
    with network_access(RemoteAccess(remote, key, tmp_path / "known_hosts", {"SSH_AUTH_SOCK": "/agent"})) as network:
        command = network.env["GIT_SSH_COMMAND"]
    for part in ("-F /dev/null", "-a -x", "BatchMode=yes", "StrictHostKeyChecking=accept-new", "ProxyCommand=none"):
        assert part in command
    for part in ("PermitLocalCommand=no", "GlobalKnownHostsFile=/dev/null", "IdentitiesOnly=yes"):
        assert part in command
    words = shlex.split(command)
    assert f'UserKnownHostsFile="{tmp_path}/known_hosts"' in words
    assert f'IdentityFile="{tmp_path}/a key"' in words
    assert network.env["SSH_AUTH_SOCK"] == "/agent"


def test_ssh_reads_our_files_in_a_folder_with_any_ordinary_name(tmp_path: Path) -> None:
    """ssh splits the names of such files at spaces, and replaces `%h` with the host's name."""
    assert quote_path(Path("/my 100%home/known_hosts")) == '"/my 100%%home/known_hosts"'
    asked = ("ssh", "-F", "/dev/null", "-G", "-o", f"UserKnownHostsFile={quote_path(tmp_path / 'my 100%home/k')}", "h")
    shown = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=10).stdout
    assert f"userknownhostsfile {tmp_path}/my 100%home/k\n" in shown.replace("%%", "%"), "some versions expand it first"


@pytest.mark.parametrize("name", ['a"b', "a${HOME}b", "a\\b"])
def test_ssh_is_not_started_with_a_file_that_it_would_read_elsewhere(tmp_path: Path, name: str) -> None:
    access = RemoteAccess(parse_remote("git@host:o/r"), None, tmp_path / name / "known_hosts", {})
    with refused(ErrorCode.INVALID_INPUT), network_access(access):
        pass


class Heard:
    """What an HTTP server was asked, and with which credentials."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.authorizations: list[str] = []


@contextmanager
def http_server(status: int, headers: dict[str, str], body: bytes = b"") -> Iterator[tuple[str, Heard]]:
    heard = Heard()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.paths.append(self.path)
            if "Authorization" in self.headers:
                heard.authorizations.append(self.headers["Authorization"])
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "code"),
    [(404, ErrorCode.REMOTE_NOT_FOUND), (403, ErrorCode.AUTH_FAILED), (410, ErrorCode.NETWORK_ERROR)],
)
def test_an_http_status_is_a_typed_error(status: int, code: ErrorCode, upstream: Upstream, tmp_path: Path) -> None:
    with http_server(status, {}) as (url, heard), refused(code):
        transport.read_remote_refs(Git(upstream.git_dir), access_to(f"{url}/o/r", tmp_path / "k"))
    assert heard.paths == ["/o/r.git/info/refs?service=git-upload-pack"]


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "TEXT/HTML", "application/xhtml+xml", "text/plain"])
@pytest.mark.parametrize("body", [b"", b"<html>sign in</html>", b"<!DOCTYPE html>\n<html>sign in</html>\n"])
def test_a_page_for_people_is_no_empty_repository(upstream: Upstream, tmp_path: Path, kind: str, body: bytes) -> None:
    """Control: the same answer, of another type, is one without commits, or not of git."""
    is_page = kind != "text/plain"
    code = ErrorCode.NETWORK_ERROR if is_page or b"\n" in body else ErrorCode.NOT_FOUND
    with http_server(200, {"Content-Type": kind}, body) as (url, _), refused(code) as caught:
        transport.read_remote_refs(Git(upstream.git_dir), access_to(f"{url}/o/r", tmp_path / "k"))
    assert ("sign-in" in caught.value.hint) is is_page


def test_a_redirect_that_is_not_followed_is_named_without_its_query(upstream: Upstream, tmp_path: Path) -> None:
    place = {"Location": "https://moved.example/o/r.git?state=s3cr3t"}
    with http_server(302, place) as (url, _), refused(ErrorCode.NETWORK_ERROR) as caught:
        transport.read_remote_refs(Git(upstream.git_dir), access_to(f"{url}/o/r", tmp_path / "k"))
    assert "https://moved.example/o/r.git" in caught.value.details
    assert "s3cr3t" not in caught.value.details


def test_a_secret_is_never_sent_over_plain_http(upstream: Upstream, tmp_path: Path) -> None:
    challenge = {"WWW-Authenticate": 'Basic realm="x"'}
    with http_server(401, challenge) as (url, heard), refused(ErrorCode.AUTH_FAILED) as caught:
        transport.read_remote_refs(Git(upstream.git_dir), with_secret(f"{url}/o/r", tmp_path))
    assert heard.paths
    assert not heard.authorizations
    assert SECRET not in f"{caught.value.brief} {caught.value.details}"


def test_f06_a_redirect_to_another_host_is_not_followed(upstream: Upstream, tmp_path: Path) -> None:
    with http_server(404, {}) as (evil, stolen), http_server(302, {"Location": f"{evil}/x"}) as (url, heard):
        with refused(ErrorCode.NETWORK_ERROR):
            transport.read_remote_refs(Git(upstream.git_dir), with_secret(f"{url}/o/r", tmp_path))
        assert (len(heard.paths), stolen.paths) == (1, [])


def test_a_remote_without_an_answer_is_named_while_a_command_waits(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Control: one that answers in time is not."""
    access = replace(access_to("http://127.0.0.1:1/o/r", tmp_path / "k"), timeout_s=0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent, caplog.at_level(logging.WARNING):
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/o/r"
        access = replace(access, remote=access_to(url, tmp_path / "k").remote)
        for silence_s, expected in ((10.0, False), (0.01, True)):
            monkeypatch.setattr(transport, "_SILENCE_S", silence_s)
            with refused(ErrorCode.TIMEOUT):
                transport.read_remote_refs(Git(upstream.git_dir), access)
            assert ("still waiting for 127.0.0.1" in caplog.text) is expected


def test_a_read_is_repeated_while_the_network_fails_and_says_so(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _seconds: None)
    with http_server(503, {}) as (url, heard), refused(ErrorCode.NETWORK_ERROR) as caught:
        transport.read_remote_refs(Git(upstream.git_dir), access_to(f"{url}/o/r", tmp_path / "k"))
    assert len(heard.paths) == retries.ATTEMPTS > 1
    assert f"tried {retries.ATTEMPTS} times" in caught.value.details


@pytest.mark.parametrize(("seconds", "attempts"), [("2", 3), ("31", 1), ("86400", 1)])
def test_a_pause_that_the_server_asks_for_is_kept_or_named(
    seconds: str, attempts: int, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, sleep, ours = list[float](), time.sleep, threading.get_ident()

    def nap(pause_s: float) -> None:
        """Of this thread. Others, such as those that tests before left, sleep on."""
        slept.append(pause_s) if threading.get_ident() == ours else sleep(pause_s)

    monkeypatch.setattr("tenacity.nap.time.sleep", nap)
    with http_server(429, {"Retry-After": seconds}) as (url, heard), refused(ErrorCode.NETWORK_ERROR) as caught:
        transport.read_remote_refs(Git(upstream.git_dir), access_to(f"{url}/o/r", tmp_path / "k"))
    assert len(heard.paths) == attempts
    assert all(pause >= float(seconds) for pause in slept)
    assert len(slept) == attempts - 1
    assert (f"{seconds} s" in caught.value.hint) == (attempts == 1)


def test_a_push_is_sent_once(work: tuple[Git, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _seconds: None)
    with http_server(503, {}) as (url, heard), refused(ErrorCode.NETWORK_ERROR):
        push(work[0], access_to(f"{url}/o/r", tmp_path / "k"), work[1], "x", None)
    assert len(heard.paths) == 1


# --- what a remote may cost


def incoming(cache: Path) -> list[str]:
    return [p.name for p in (cache / "objects" / "pack").glob("tmp_*")]


@pytest.mark.slow
def test_e08_a_pack_past_the_limit_is_refused_and_leaves_nothing(
    upstream: Upstream, access: RemoteAccess, cache: Path
) -> None:
    upstream.write("noise", os.urandom(3_000_000))
    upstream.commit()
    small, large = (replace(access, max_fetch_bytes=size) for size in (1_000_000, 4_000_000))
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        refresh(cache, small)
    assert "max_fetch_bytes" in caught.value.hint
    assert leftovers(cache) == []
    assert refresh(cache, large).commit == upstream.oid("HEAD")  # control
    before = upstream.oid("HEAD")
    upstream.write("noise", os.urandom(3_000_000))
    upstream.commit()
    with refused(ErrorCode.QUOTA_EXCEEDED):
        refresh(cache, small)
    assert incoming(cache) == []
    assert resolve_commit(open_cache(cache), "main", "main") == before
    refresh(cache, large)
    assert resolve_commit(open_cache(cache), "main", "main") == upstream.oid("HEAD")


def test_e08_few_objects_are_held_to_the_limit_together(upstream: Upstream, access: RemoteAccess, cache: Path) -> None:
    """git would unpack so few into one file each; control: each alone is below the limit."""
    refresh(cache, access)
    for number in range(4):
        upstream.write(f"noise{number}", os.urandom(400_000))
    upstream.commit()
    with refused(ErrorCode.QUOTA_EXCEEDED):
        refresh(cache, replace(access, max_fetch_bytes=1_000_000))
    assert incoming(cache) == []


def test_p_an_unfinished_pack_is_removed_unless_somebody_writes_it(access: RemoteAccess, cache: Path) -> None:
    refresh(cache, access)
    packs = cache / "objects" / "pack"
    with (packs / "tmp_pack_held").open("wb"):
        for name in ("tmp_pack_held", "tmp_pack_old", "tmp_pack_new"):
            (packs / name).touch()
        for name in ("tmp_pack_held", "tmp_pack_old"):
            os.utime(packs / name, (0, 0))
        refresh(cache, access)
        assert sorted(incoming(cache)) == ["tmp_pack_held", "tmp_pack_new"]


@contextmanager
def advertising(refs: int, name: str) -> Iterator[str]:
    """An HTTP server whose list of refs is `refs` long, in protocol version 0."""

    def packet(text: bytes) -> bytes:
        return b"%04x" % (len(text) + 4) + text

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
            self.end_headers()
            oid = b"1" * 40
            with suppress(OSError):
                self.wfile.write(packet(b"# service=git-upload-pack\n") + b"0000")
                self.wfile.write(packet(oid + b" HEAD\0symref=HEAD:refs/heads/main agent=x\n"))
                for start in range(0, refs, 1000):
                    lines = ((oid + f" {name}{i:09}\n".encode()) for i in range(start, min(start + 1000, refs)))
                    self.wfile.write(b"".join(map(packet, lines)))
                self.wfile.write(packet(oid + b" refs/heads/main\n") + b"0000")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/o/r"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_list_of_refs_is_bounded_by_the_memory_of_git(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = Git(upstream.git_dir)
    with advertising(100_000, "refs/pull/" + "n" * 200) as url:
        assert (
            transport.read_remote_refs(git, access_to(url, tmp_path / "k")).head.branch == "main"
        )  # control: 20 MB of names
        monkeypatch.setattr(transport, "_REFS_MEMORY_BYTES", 24 * 1024**2)
        with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
            transport.read_remote_refs(git, access_to(url, tmp_path / "k"))
    assert "memory" in caught.value.brief


def test_an_endless_list_of_refs_ends(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_REFS_MEMORY_BYTES", 128 * 1024**2)
    with advertising(10**9, "refs/heads/" + "n" * 200) as url, refused(ErrorCode.QUOTA_EXCEEDED):
        transport.read_remote_refs(Git(upstream.git_dir), access_to(url, tmp_path / "k"))


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_REFS", 299), ("_ANSWER_BYTES", 10_000)], ids=["number", "bytes of the answer"]
)
def test_too_many_branches_are_refused_before_the_fetch(
    limit: str, value: int, upstream: Upstream, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with advertising(300, "refs/heads/x") as url:
        git, access = Git(upstream.git_dir), access_to(url, tmp_path / "k")
        assert transport.read_remote_refs(git, access).head.branch == "main"  # control
        monkeypatch.setattr(transport, limit, value)
        with refused(ErrorCode.QUOTA_EXCEEDED):
            refresh(cache, access)
    assert leftovers(cache) == []


@pytest.mark.slow
def test_two_thousand_branches_become_a_few_files(upstream: Upstream, access: RemoteAccess, cache: Path) -> None:
    head = upstream.oid("HEAD")
    names = [f"refs/heads/b{number:04}" for number in range(2000)]
    (upstream.git_dir / "packed-refs").write_text("".join(f"{head} {name}\n" for name in names))
    assert refresh(cache, access).branch == "main"
    assert sum(1 for p in cache.rglob("*") if p.is_file()) < 30
    assert resolve_commit(open_cache(cache), "b1999", "main") == head
    upstream.git("branch", "-D", "b0000")
    refresh(cache, access)
    assert refs.resolve_ref(open_cache(cache), "refs/remotes/origin/b0000") is None


@pytest.mark.parametrize("names", [["n" * 300], ["a", "a/b"]], ids=["long", "directory of another"])
def test_names_that_cannot_be_kept_are_a_typed_error(
    names: list[str], upstream: Upstream, access: RemoteAccess, cache: Path
) -> None:
    packed = sorted(f"refs/heads/{name}" for name in [*names, "main"])
    (upstream.git_dir / "packed-refs").write_text("".join(f"{upstream.oid('HEAD')} {name}\n" for name in packed))
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        refresh(cache, access)
    assert leftovers(cache) == []


def test_a_branch_that_a_push_moves_during_a_fetch_is_fetched_again(
    upstream: Upstream, access: RemoteAccess, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed as `internal`, and a check of all objects followed."""
    refresh(cache, access)
    new = upstream.commit("new")
    said = f"error: cannot lock ref 'refs/remotes/origin/main': is at {new} but expected {'1' * 40}\n"
    real, answers = transport._fetch_readable, [classify("fetch", 1, said)]

    def fetch(*of: Any, **options: Any) -> str:
        if answers:
            raise answers.pop()
        return real(*of, **options)

    monkeypatch.setattr(transport, "_fetch_readable", fetch)
    monkeypatch.setattr(cache_clones, "is_intact", lambda *_: pytest.fail("all objects were checked"))
    assert refresh(cache, access).commit == new
    answers += [classify("fetch", 1, said)] * 2
    upstream.commit("newer")
    with refused(ErrorCode.CONFLICT):
        refresh(cache, access)


def test_a_ref_that_is_damaged_is_not_one_that_moved() -> None:
    said = "error: cannot lock ref 'refs/x': unable to resolve reference 'refs/x': reference broken\n"
    assert classify("fetch", 1, said).code is ErrorCode.INTERNAL
