"""Cache clones and network git against real remotes: `file://`, and HTTP servers on the loopback."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import SecretStr

from sandbox.credentials import Credential
from sandbox.errors import ErrorCode
from sandbox.git import objects, transport
from sandbox.git.cache import open_cache, refresh, resolve_commit
from sandbox.git.process import Git, command_line
from sandbox.git.transport import Access, RemoteHead, granted
from sandbox.remotes import parse_remote
from tests.unit.conftest import IDENTITY, Upstream, access_to, refused, run

SECRET = "hunter2-s3cr3t"


@pytest.fixture
def access(upstream: Upstream, tmp_path: Path) -> Access:
    upstream.write("f", b"one\n")
    upstream.commit()
    return access_to(str(upstream.root), tmp_path / "known_hosts")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "clones" / "id"


def leftovers(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.parent.iterdir()) if cache.parent.exists() else []


# --- cache clones


def test_a_first_clone_has_every_branch_and_tag_and_only_our_configuration(
    upstream: Upstream, access: Access, cache: Path
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
    upstream: Upstream, access: Access, cache: Path
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
    assert objects.resolve_ref(git, "refs/remotes/origin/main") == upstream.oid("HEAD")
    assert objects.resolve_ref(git, "refs/tags/v1") == upstream.oid("v1")
    assert objects.resolve_ref(git, "refs/remotes/origin/topic") is None


def test_a_refresh_replaces_a_configuration_that_somebody_changed(access: Access, cache: Path) -> None:
    refresh(cache, access)
    ours = (cache / "config").read_text()
    (cache / "config").write_text(ours + '[core]\n\tfsmonitor = "touch /tmp/x"\n')
    refresh(cache, access)
    assert (cache / "config").read_text() == ours


def test_a_refresh_keeps_refs_of_our_own(upstream: Upstream, access: Access, cache: Path) -> None:
    refresh(cache, access)
    git = open_cache(cache)
    for ref in ("refs/heads/space-agent/task-1-x", "refs/sandbox/task-1/pushed"):
        objects.move_ref(git, ref, upstream.oid("HEAD"), "0" * 40)
    refresh(cache, access)
    assert objects.resolve_ref(git, "refs/heads/space-agent/task-1-x") == upstream.oid("HEAD")
    assert objects.resolve_ref(git, "refs/sandbox/task-1/pushed") == upstream.oid("HEAD")


@pytest.mark.parametrize("step", ["remote_head", "fetch"])
def test_a_clone_that_fails_at_any_step_leaves_nothing(
    step: str, access: Access, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"sandbox.git.cache.{step}", interrupted)
    with pytest.raises(KeyboardInterrupt):
        refresh(cache, access)
    assert leftovers(cache) == []
    monkeypatch.undo()
    assert refresh(cache, access).branch == "main"


def test_what_a_killed_clone_left_is_swept_by_the_next(access: Access, cache: Path) -> None:
    beside = cache.with_name(".id.incoming")
    beside.mkdir(parents=True)
    (beside / "HEAD").write_text("half")
    refresh(cache, access)
    assert leftovers(cache) == ["id"]


def test_a_failed_refresh_leaves_the_cache_as_it_was(upstream: Upstream, access: Access, cache: Path) -> None:
    refresh(cache, access)
    upstream.git_dir.rename(upstream.root / "away")
    with refused(ErrorCode.REMOTE_NOT_FOUND):
        refresh(cache, access)
    assert resolve_commit(open_cache(cache), "main", "main")


def test_a_missing_remote_is_remote_not_found(tmp_path: Path, cache: Path) -> None:
    with refused(ErrorCode.REMOTE_NOT_FOUND) as caught:
        refresh(cache, access_to(str(tmp_path / "none"), tmp_path / "k"))
    assert caught.value.hint
    assert leftovers(cache) == []


def test_an_empty_remote_is_not_found_with_a_hint(upstream: Upstream, tmp_path: Path, cache: Path) -> None:
    with refused(ErrorCode.NOT_FOUND) as caught:
        refresh(cache, access_to(str(upstream.root), tmp_path / "k"))
    assert "commit" in caught.value.hint
    assert leftovers(cache) == []


def test_a_detached_head_is_the_branch_at_its_commit(upstream: Upstream, access: Access, cache: Path) -> None:
    upstream.git("branch", "aaa")
    upstream.git("checkout", "--quiet", "--detach")
    assert refresh(cache, access) == RemoteHead("main", upstream.oid("HEAD"))
    upstream.git("branch", "-D", "main")
    assert refresh(cache, access).branch == "aaa"


def test_a_head_on_no_branch_says_so(upstream: Upstream, access: Access, cache: Path) -> None:
    upstream.git("checkout", "--quiet", "--detach")
    upstream.commit()
    with refused(ErrorCode.NOT_FOUND) as caught:
        refresh(cache, access)
    assert "--ref" in caught.value.hint


def test_opening_a_missing_cache_is_not_found(cache: Path) -> None:
    with refused(ErrorCode.NOT_FOUND):
        open_cache(cache)


@pytest.mark.parametrize("name", [".git", "..", ".GIT", ".g\u200cit", "git~1"])
def test_e01_e02_e03_hostile_tree_entries_are_refused_at_fetch(
    name: str, upstream: Upstream, access: Access, cache: Path
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
    upstream: Upstream, access: Access, cache: Path
) -> None:
    head = upstream.oid("HEAD")
    for name in ("refs/heads/-x", "refs/heads/--upload-pack=touch", "refs/heads/`id`", "refs/heads/refs/heads/main"):
        upstream.git("update-ref", name, head)
    assert refresh(cache, access).branch == "main"


# --- naming commits


@pytest.fixture
def tagged(upstream: Upstream, access: Access, cache: Path) -> Git:
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


def test_an_abbreviated_id_is_no_name(tagged: Git, upstream: Upstream) -> None:
    with refused(ErrorCode.NOT_FOUND):
        resolve_commit(tagged, upstream.oid("HEAD")[:10], "main")


# --- push


@pytest.fixture
def work(upstream: Upstream, access: Access, cache: Path) -> tuple[Git, str]:
    """A cache clone and a commit in it that the remote does not have."""
    refresh(cache, access)
    git = open_cache(cache)
    base = upstream.oid("HEAD")
    tree = objects.build_tree(git, base, [objects.TreeChange(b"new", objects.REGULAR, b"x")])
    return git, objects.commit_tree(git, tree, base, "x\n", IDENTITY)


def test_a_push_sends_exactly_one_commit_to_one_new_branch(
    work: tuple[Git, str], access: Access, upstream: Upstream
) -> None:
    git, commit = work
    before = upstream.git("for-each-ref")
    transport.push(git, access, commit, "space-agent/x", None)
    assert transport.remote_branch(git, access, "space-agent/x") == commit
    assert upstream.git("for-each-ref").replace(f"{commit} commit\trefs/heads/space-agent/x\n".encode(), b"") == before
    transport.push(git, access, commit, "space-agent/x", commit)


def test_o07_a_branch_that_exists_already_is_not_overwritten(
    work: tuple[Git, str], access: Access, upstream: Upstream
) -> None:
    git, commit = work
    upstream.git("branch", "space-agent/x")
    with refused(ErrorCode.PUSH_REJECTED) as caught:
        transport.push(git, access, commit, "space-agent/x", None)
    assert "stale info" in caught.value.details
    assert upstream.oid("space-agent/x") == upstream.oid("HEAD")


def test_f16_a_branch_that_moved_is_not_overwritten(work: tuple[Git, str], access: Access, upstream: Upstream) -> None:
    git, commit = work
    upstream.git("branch", "space-agent/x")
    with refused(ErrorCode.PUSH_REJECTED):
        transport.push(git, access, commit, "space-agent/x", commit)


def test_a_hook_that_says_no_is_push_rejected_with_its_words(
    work: tuple[Git, str], access: Access, upstream: Upstream
) -> None:
    git, commit = work
    upstream.git("config", "receive.denyCurrentBranch", "refuse")
    with refused(ErrorCode.PUSH_REJECTED) as caught:
        transport.push(git, access, commit, "main", upstream.oid("HEAD"))
    assert "branch is currently checked out" in caught.value.details


@pytest.mark.parametrize("branch", [":main", "+main", "a:b", "-x", "HEAD^", ""])
def test_f16_a_branch_is_never_a_refspec(branch: str, work: tuple[Git, str], access: Access) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        transport.push(work[0], access, work[1], branch, None)


def test_only_a_commit_is_pushed(work: tuple[Git, str], access: Access) -> None:
    git, commit = work
    for oid in (objects.tree_of(git, commit), "1" * 40, "main"):
        with refused(ErrorCode.NOT_FOUND):
            transport.push(git, access, oid, "x", None)


# --- credentials in transport


def with_secret(url: str, tmp_path: Path) -> Access:
    credential = Credential(host="*", username="bot", secret=SecretStr(SECRET))
    return Access(parse_remote(url, allow_http=True), credential, tmp_path / "known_hosts", {})


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("https://git.example.org/o/r", "git.example.org"),
        ("https://git.example.org:8443/o/r", "git.example.org:8443"),
        ("https://[::1]:8443/o/r", "[::1]:8443"),
    ],
)
def test_f13_askpass_answers_two_questions_of_one_host(url: str, authority: str, tmp_path: Path) -> None:
    with granted(with_secret(url, tmp_path)) as grant:
        ask = _asker(grant.env, grant.fds)
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
    with granted(with_secret("https://git.example.org/o/r", tmp_path)) as grant:
        argv = command_line(tmp_path, ["fetch"], {}, grant)
        script = Path(grant.env["GIT_ASKPASS"])
        assert SECRET not in f"{argv} {grant!r} {script.read_text()}"
        assert script.stat().st_mode & 0o077 == 0
        fd = grant.fds[0]
        assert "/memfd:" in str(Path(f"/proc/self/fd/{fd}").readlink())
    assert not script.parent.exists()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_ssh_reads_no_configuration_and_forwards_nothing(tmp_path: Path) -> None:
    key = Credential(host="*", ssh_key=tmp_path / "a key")
    remote = parse_remote("git@host:o/r")
    with granted(Access(remote, key, tmp_path / "known_hosts", {"SSH_AUTH_SOCK": "/agent"})) as grant:
        command = grant.env["GIT_SSH_COMMAND"]
    for part in ("-F /dev/null", "-a -x", "BatchMode=yes", "StrictHostKeyChecking=accept-new", "ProxyCommand=none"):
        assert part in command
    for part in ("PermitLocalCommand=no", "GlobalKnownHostsFile=/dev/null", f"-i '{tmp_path}/a key'", "IdentitiesOnly"):
        assert part in command
    assert f"UserKnownHostsFile={tmp_path}/known_hosts" in command
    assert grant.env["SSH_AUTH_SOCK"] == "/agent"


class Heard:
    """What an HTTP server was asked, and with which credentials."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.authorizations: list[str] = []


@contextmanager
def http_server(status: int, headers: dict[str, str]) -> Iterator[tuple[str, Heard]]:
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
        transport.remote_head(Git(upstream.git_dir), access_to(f"{url}/o/r", tmp_path / "k"))
    assert heard.paths == ["/o/r.git/info/refs?service=git-upload-pack"]


def test_a_secret_is_never_sent_over_plain_http(upstream: Upstream, tmp_path: Path) -> None:
    challenge = {"WWW-Authenticate": 'Basic realm="x"'}
    with http_server(401, challenge) as (url, heard), refused(ErrorCode.AUTH_FAILED) as caught:
        transport.remote_head(Git(upstream.git_dir), with_secret(f"{url}/o/r", tmp_path))
    assert heard.paths
    assert not heard.authorizations
    assert SECRET not in f"{caught.value.brief} {caught.value.details}"


def test_f06_a_redirect_to_another_host_is_not_followed(upstream: Upstream, tmp_path: Path) -> None:
    with http_server(404, {}) as (evil, stolen), http_server(302, {"Location": f"{evil}/x"}) as (url, heard):
        with refused(ErrorCode.NETWORK_ERROR):
            transport.remote_head(Git(upstream.git_dir), with_secret(f"{url}/o/r", tmp_path))
        assert (len(heard.paths), stolen.paths) == (1, [])


def test_a_read_is_repeated_while_the_network_fails_and_says_so(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _seconds: None)
    with http_server(503, {}) as (url, heard), refused(ErrorCode.NETWORK_ERROR) as caught:
        transport.remote_head(Git(upstream.git_dir), access_to(f"{url}/o/r", tmp_path / "k"))
    assert len(heard.paths) == transport.ATTEMPTS > 1
    assert f"tried {transport.ATTEMPTS} times" in caught.value.details


def test_a_push_is_sent_once(work: tuple[Git, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _seconds: None)
    with http_server(503, {}) as (url, heard), refused(ErrorCode.NETWORK_ERROR):
        transport.push(work[0], access_to(f"{url}/o/r", tmp_path / "k"), work[1], "x", None)
    assert len(heard.paths) == 1
