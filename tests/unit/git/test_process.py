"""Nothing but our arguments decides what git does, and nothing of it outlives its deadline."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.memory_limits import SMALL
from sandbox.git.process import (
    CUT_MARK,
    SAFE_PATH,
    CommandLine,
    Git,
    LineSplitter,
    NetworkAccess,
    ResourceLimits,
    build_command_line,
    git_executable,
    git_version,
)
from sandbox.memory import TRANSFER_BYTES, MemoryBudget
from tests.unit.conftest import Upstream, refused

ENVIRONMENT = {
    "PATH": SAFE_PATH,
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PROTOCOL_FROM_USER": "0",
}
BELT = (
    "core.hooksPath=/dev/null",
    "hook.reference-transaction.enabled=false",
    "hook.post-index-change.enabled=false",
    "hook.pre-push.enabled=false",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.sshCommand=/bin/false",
    "core.pager=cat",
    "core.editor=/bin/false",
    "core.alternateRefsCommand=/bin/false",
    "safe.bareRepository=explicit",
    "protocol.allow=never",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "fetch.recurseSubmodules=false",
    "push.recurseSubmodules=no",
    "push.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "log.showSignature=false",
    "credential.helper=",
    "http.followRedirects=false",
    "http.proxy=",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=30",
    "transfer.fsckObjects=true",
    "fetch.fsckObjects=true",
    "fetch.fsck.badTimezone=ignore",
    "fetch.fsck.missingSpaceBeforeDate=ignore",
    "fetch.fsck.zeroPaddedFilemode=ignore",
    "transfer.bundleURI=false",
    "fetch.writeCommitGraph=false",
    "pack.windowMemory=32m",
)
GIT_DIR = Path("/srv/clone")


def parsed(command: CommandLine) -> tuple[dict[str, str], list[str], list[str]]:
    """Variables, configuration and the rest of a command line."""
    start = command.argv.index(git_executable())
    variables = dict(command.environment)
    rest, config = list(command.argv[start + 1 :]), []
    while rest[0] == "-c":
        config.append(rest[1])
        rest = rest[2:]
    return variables, config, rest


@pytest.mark.parametrize(("name", "value"), ENVIRONMENT.items(), ids=ENVIRONMENT)
def test_the_environment_holds_each_variable_of_the_belt(name: str, value: str) -> None:
    assert parsed(build_command_line(GIT_DIR, ["version"], {}, None))[0][name] == value


def test_the_environment_holds_nothing_else() -> None:
    assert set(parsed(build_command_line(GIT_DIR, ["version"], {}, None))[0]) == set(ENVIRONMENT)


@pytest.mark.parametrize("item", BELT)
@pytest.mark.parametrize(
    "network", [None, NetworkAccess("https", config=("http.sslCAInfo=/x",))], ids=["local", "network"]
)
def test_every_command_carries_each_setting_of_the_belt(item: str, network: NetworkAccess | None) -> None:
    assert item in parsed(build_command_line(GIT_DIR, ["version"], {}, network))[1]


def test_a_grant_opens_one_protocol_and_adds_its_own_settings_last() -> None:
    network = NetworkAccess("https", env={"GIT_ASKPASS": "/ask"}, config=("http.sslCAInfo=/ca",))
    variables, config, rest = parsed(build_command_line(GIT_DIR, ["fetch", "x"], {"GIT_INDEX_FILE": "/i"}, network))
    assert (variables["GIT_ALLOW_PROTOCOL"], variables["GIT_ASKPASS"]) == ("https", "/ask")
    assert variables["GIT_INDEX_FILE"] == "/i"
    assert config[-2:] == ["protocol.https.allow=always", "http.sslCAInfo=/ca"]
    assert [c for c in config if c.startswith("protocol.")] == ["protocol.allow=never", "protocol.https.allow=always"]
    assert rest == ["--git-dir=/srv/clone", "fetch", "x"]


def test_the_arguments_come_after_an_explicit_git_dir() -> None:
    assert parsed(build_command_line(GIT_DIR, ["log", "-1"], {}, None))[2] == ["--git-dir=/srv/clone", "log", "-1"]


@pytest.mark.parametrize(
    ("args", "env"), [(["log", "a\0b"], {}), (["log"], {"GIT_INDEX_FILE": "a\0b"})], ids=["argument", "variable"]
)
def test_g15_a_nul_byte_is_invalid_input(args: list[str], env: dict[str, str]) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        build_command_line(GIT_DIR, args, env, None)


def test_q03_git_is_found_on_the_fixed_path_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    git_executable.cache_clear()
    assert Path(git_executable()).parent != tmp_path


# --- Q01: with each of these in the environment plain git runs a command or writes a file; ours does not.


def _fires(marker: Path, _home: Path) -> dict[str, str]:
    return {"GIT_EXTERNAL_DIFF": f"touch {marker}; :"}


def _counted(marker: Path, _home: Path) -> dict[str, str]:
    return {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "diff.external", "GIT_CONFIG_VALUE_0": f"touch {marker}; :"}


def _parameters(marker: Path, _home: Path) -> dict[str, str]:
    return {"GIT_CONFIG_PARAMETERS": f"'diff.external'='touch {marker}; :'"}


def _config_file(variable: str, name: str = "config") -> Callable[[Path, Path], dict[str, str]]:
    def make(marker: Path, home: Path) -> dict[str, str]:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'[diff]\n\texternal = "touch {marker}; :"\n')
        value = {"HOME": home, "XDG_CONFIG_HOME": home}.get(variable, path)
        return {"GIT_CONFIG_NOSYSTEM": "0", variable: str(value)}

    return make


def _trace(variable: str) -> Callable[[Path, Path], dict[str, str]]:
    return lambda marker, _home: {variable: str(marker)}


HOSTILE = {
    "GIT_EXTERNAL_DIFF": _fires,
    "GIT_CONFIG_COUNT": _counted,
    "GIT_CONFIG_PARAMETERS": _parameters,
    "GIT_CONFIG_GLOBAL": _config_file("GIT_CONFIG_GLOBAL"),
    "GIT_CONFIG_SYSTEM": _config_file("GIT_CONFIG_SYSTEM"),
    "HOME": _config_file("HOME", ".gitconfig"),
    "XDG_CONFIG_HOME": _config_file("XDG_CONFIG_HOME", "git/config"),
    "GIT_TRACE": _trace("GIT_TRACE"),
    "GIT_TRACE2": _trace("GIT_TRACE2"),
    "GIT_TRACE2_EVENT": _trace("GIT_TRACE2_EVENT"),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_q01_a_hostile_environment_moves_plain_git_and_not_ours(
    make: Callable[[Path, Path], dict[str, str]], upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.write("f", b"one\n")
    upstream.commit()
    upstream.write("f", b"two\n")
    upstream.commit()
    args = ["diff", "--ext-diff", upstream.oid("HEAD~1"), upstream.oid("HEAD")]
    control, marker = tmp_path / "control", tmp_path / "marker"
    for name, value in make(control, tmp_path / "hostile").items():
        monkeypatch.setenv(name, value)
    upstream.git(*args)
    assert control.exists(), "the positive control did not fire: this test proves nothing"
    for name, value in make(marker, tmp_path / "hostile").items():
        monkeypatch.setenv(name, value)
    assert b"+two" in Git(upstream.git_dir).run(*args)
    assert not marker.exists()


def test_q01_objects_of_another_repository_cannot_be_lent(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Upstream(upstream.root.parent / "other")
    other.root.mkdir()
    other.git("init", "--quiet")
    secret = other.git("hash-object", "-w", "--stdin", stdin=b"TOPSECRET").decode().strip()
    monkeypatch.setenv("GIT_ALTERNATE_OBJECT_DIRECTORIES", str(other.git_dir / "objects"))
    assert upstream.git("cat-file", "blob", secret) == b"TOPSECRET"
    assert Git(upstream.git_dir).attempt("cat-file", "-e", secret).code != 0


SSH_URL = "ssh://git@127.0.0.1:9/o/r.git"


def ssh(command: str) -> NetworkAccess:
    """Network access whose ssh is a shell command: the way to a real child of git that does as we like."""
    return NetworkAccess("ssh", env={"GIT_SSH_COMMAND": f"{command}; :", "GIT_SSH_VARIANT": "ssh"})


def test_nothing_of_our_environment_reaches_a_child(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LEAKED_SECRET", "GIT_SSH", "GIT_PROXY_COMMAND", "LD_PRELOAD_X", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "leak")
    out = tmp_path / "env"
    Git(upstream.git_dir).attempt("ls-remote", "--", SSH_URL, network=ssh(f"env > {out}"))
    names = {line.split("=", 1)[0] for line in out.read_text().splitlines()}
    added_by_git_and_sh = {"GIT_DIR", "GIT_PREFIX", "GIT_PROTOCOL", "GIT_CONFIG_PARAMETERS", "GIT_EXEC_PATH", "_"}
    added_by_git_and_sh |= {"PWD", "OLDPWD", "SHLVL"}
    assert "PATH" in names
    assert names - added_by_git_and_sh <= {*ENVIRONMENT, "GIT_SSH_COMMAND", "GIT_SSH_VARIANT"}


def test_nothing_of_our_environment_reaches_a_local_command(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAKED_SECRET", "leak")
    shown = ("-c", "alias.variables=!env", "variables")
    assert b"LEAKED_SECRET=leak" in upstream.git(*shown), "the positive control did not fire: this test proves nothing"
    names = {line.split("=", 1)[0] for line in Git(upstream.git_dir).run(*shown).decode().splitlines()}
    added_by_git_and_sh = {"GIT_DIR", "GIT_PREFIX", "GIT_CONFIG_PARAMETERS", "GIT_EXEC_PATH", "_", "PWD", "SHLVL"}
    assert "PATH" in names
    assert names - added_by_git_and_sh <= set(ENVIRONMENT)


def test_a_git_that_cannot_be_started_is_typed(upstream: Upstream, tmp_path: Path) -> None:
    with refused(ErrorCode.INTERNAL):
        Git(upstream.git_dir, working_directory=str(tmp_path / "missing")).run("version")


def test_a_git_that_gets_no_descriptor_is_a_shortage_of_the_host(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        Git(upstream.git_dir).run("version")


def test_q04_a_child_inherits_the_standard_streams_and_granted_descriptors_only(
    upstream: Upstream, tmp_path: Path
) -> None:
    out = tmp_path / "fds"
    leak, granted = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        network = ssh(f"ls -l /proc/$$/fd > {out}")
        env = dict(network.env)
        for fds, expected in (((), 0), ((granted,), 1)):
            Git(upstream.git_dir).attempt("ls-remote", "--", SSH_URL, network=NetworkAccess("ssh", env=env, fds=fds))
            assert out.read_text().count(f"-> {tmp_path}\n") == expected
    finally:
        os.close(leak)
        os.close(granted)


def test_stdin_is_closed_unless_given(upstream: Upstream) -> None:
    git = Git(upstream.git_dir)
    empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert git.run("hash-object", "--stdin").decode().strip() == empty
    assert git.run("hash-object", "--stdin", stdin=b"x").decode().strip() != empty


def test_no_signal_goes_to_the_id_of_a_git_that_was_reaped(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have given it to another process. Control: what git leaves is killed, below."""
    kill, seen = os.killpg, list[bool]()

    def watched(pid: int, number: int) -> None:
        seen.append(Path(f"/proc/{pid}").exists())
        kill(pid, number)

    monkeypatch.setattr(os, "killpg", watched)
    git = Git(upstream.git_dir)
    git.run("version")
    with git.stream("version") as process:
        process.close()
        process.close()
    with pytest.raises(KeyboardInterrupt), git.stream("cat-file", "--batch"):
        raise KeyboardInterrupt
    assert len(seen) >= 3
    assert all(seen)


def test_what_git_leaves_in_its_group_is_killed_when_git_ends(upstream: Upstream, tmp_path: Path) -> None:
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nsleep 300 >/dev/null 2>&1 &\necho $!\n")
    program.chmod(0o755)
    left = int(Git(upstream.git_dir, str(program)).run("version"))
    ends_at = time.monotonic() + 10
    while is_running(left) and time.monotonic() < ends_at:
        time.sleep(0.01)
    assert not is_running(left)


def is_running(pid: int) -> bool:
    """Whether a process is alive: no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_q05_the_deadline_kills_git_and_all_its_children(upstream: Upstream, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    network = ssh(f"sleep 300 & echo $$ $! > {pids}; wait")
    started = time.monotonic()
    with refused(ErrorCode.TIMEOUT) as caught:
        Git(upstream.git_dir).run("ls-remote", "--", SSH_URL, network=network, deadline_s=0.5)
    assert time.monotonic() - started < 5 * slowness()
    assert "ls-remote" in caught.value.brief
    family = pids.read_text().split()
    assert len(family) == 2
    assert not [pid for pid in family if alive(pid)]


def alive(pid: str) -> bool:
    """Whether a process runs; a zombie does not. Waits shortly: SIGKILL is not synchronous."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                return False
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.01)
    return True


def test_the_deadline_ends_a_git_that_waits_for_input(upstream: Upstream) -> None:
    read_end, write_end = os.pipe()
    try:
        with (
            os.fdopen(read_end, "rb") as stdin,
            refused(ErrorCode.TIMEOUT),
            Git(upstream.git_dir).stream("cat-file", "--batch", stdin=stdin, deadline_s=0.3) as process,
        ):
            assert process.stdout.read(1) == b""
    finally:
        os.close(write_end)


@pytest.mark.parametrize("started", [0, 1])
def test_a_git_that_no_thread_can_watch_is_ended(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    """Else it goes on without a deadline. `started`: threads that the host has left."""
    processes: list[subprocess.Popen[bytes]] = []
    start, popen = threading.Thread.start, subprocess.Popen
    left = [start] * started

    def start_while_possible(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()(thread)

    def record(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(popen(*args, **options))
        return processes[-1]

    ends = os.pipe()
    with os.fdopen(ends[0], "rb") as silent, os.fdopen(ends[1], "wb"), monkeypatch.context() as host:
        host.setattr(threading.Thread, "start", start_while_possible)
        host.setattr(subprocess, "Popen", record)
        git = Git(upstream.git_dir)
        with refused(ErrorCode.QUOTA_EXCEEDED), git.stream("cat-file", "--batch", stdin=silent):
            pass
    assert [process.returncode for process in processes] == [-signal.SIGKILL]


def test_an_error_of_the_reader_does_not_hide_that_the_deadline_passed(upstream: Upstream) -> None:
    read_end, write_end = os.pipe()
    try:
        with (
            os.fdopen(read_end, "rb") as stdin,
            refused(ErrorCode.TIMEOUT),
            Git(upstream.git_dir).stream("cat-file", "--batch", stdin=stdin, deadline_s=0.3) as process,
        ):
            process.stdout.read(1)
            raise SandboxError(ErrorCode.NOT_FOUND, "what a parser says about a cut stream")
    finally:
        os.close(write_end)


def test_leaving_a_stream_early_ends_git_and_is_no_error(upstream: Upstream) -> None:
    read_end, write_end = os.pipe()
    started = time.monotonic()
    try:
        with (
            os.fdopen(read_end, "rb") as stdin,
            pytest.raises(ZeroDivisionError),
            Git(upstream.git_dir).stream("cat-file", "--batch", stdin=stdin, deadline_s=60),
        ):
            raise ZeroDivisionError
    finally:
        os.close(write_end)
    assert time.monotonic() - started < 5 * slowness()


def test_output_past_the_limit_is_refused(upstream: Upstream) -> None:
    upstream.write("f", b"x" * 1000)
    oid = upstream.commit() and upstream.oid("HEAD:f")
    git = Git(upstream.git_dir)
    with git.stream("cat-file", "blob", oid) as process:
        assert len(process.read_all(1000)) == 1000
    with refused(ErrorCode.QUOTA_EXCEEDED), git.stream("cat-file", "blob", oid) as process:
        process.read_all(999)


def test_stderr_is_kept_to_a_bound_and_never_blocks_git(upstream: Upstream) -> None:
    network = ssh("head -c 3000000 /dev/zero | tr '\\0' x >&2")
    started = time.monotonic()
    result = Git(upstream.git_dir).attempt("ls-remote", "--", SSH_URL, network=network, deadline_s=20)
    assert result.code != 0
    assert 1000 < len(result.stderr) <= 64 * 1024
    assert time.monotonic() - started < 2 * slowness()


@pytest.mark.parametrize("error", [OSError("the terminal is gone"), KeyError("a bug"), None], ids=repr)
def test_a_caller_that_raises_or_stalls_in_its_progress_does_not_stop_git(
    upstream: Upstream, error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    """None: it stalls. Control: each was called, and git said more than its pipe holds."""
    ended, lines = threading.Event(), list[str]()

    def report(line: str) -> None:
        lines.append(line)
        if error is not None:
            raise error
        ended.wait(60)

    network = replace(ssh("yes 'remote: a line of 30 characters' | head -n 10000 >&2; echo last >&2"), progress=report)
    started = time.monotonic()
    try:
        result = Git(upstream.git_dir).attempt("ls-remote", "--", SSH_URL, network=network, deadline_s=20)
        calls = len(lines)  # until it may go on
    finally:
        ended.set()
    assert time.monotonic() - started < 5 * slowness()
    assert "last" in result.stderr
    assert calls == 1
    assert ("a bug" in caplog.text) is isinstance(error, KeyError)


def test_a_failure_is_a_typed_error_and_an_attempt_is_an_answer(upstream: Upstream) -> None:
    git = Git(upstream.git_dir)
    assert git.attempt("rev-parse", "--verify", "--quiet", "refs/heads/none").code == 1
    with refused(ErrorCode.INTERNAL) as caught:
        git.run("cat-file", "-p", "0" * 40)
    assert "cat-file" in caught.value.brief


@pytest.mark.parametrize("protocol", ["file", "https", "ssh"])
def test_no_transport_works_without_a_grant(upstream: Upstream, protocol: str) -> None:
    url = f"file://{upstream.root}" if protocol == "file" else f"{protocol}://127.0.0.1:9/o/r"
    with refused(ErrorCode.INVALID_INPUT):
        Git(upstream.git_dir).run("ls-remote", "--", url)


def test_the_version_is_text_even_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert git_version(tmp_path).startswith("git version 2.")
    git_executable.cache_clear()
    monkeypatch.setattr("sandbox.git.process.shutil.which", lambda *_, **__: None)
    assert git_version(tmp_path) == ""
    monkeypatch.undo()
    git_executable.cache_clear()


# --- text of a remote that repeats our secret

SECRET = "hunter2-s3cr3t"


def hidden(text: str) -> str:
    return text.replace(SECRET, "***")


@pytest.mark.parametrize("pieces", [[3], [10], [14], [1] * 40, [20]], ids=str)
def test_lines_are_told_whole_however_they_arrive(pieces: list[int]) -> None:
    text = f"remote: {SECRET}\rremote: done\r\n\nrest".encode()
    lines, told, at = LineSplitter(), [], 0
    for length in [*pieces, len(text)]:
        told += lines.split(text[at : at + length])
        at += length
    assert told == [f"remote: {SECRET}", "remote: done"]


def test_a_line_past_the_limit_is_not_told_in_part() -> None:
    lines = LineSplitter()
    assert lines.split(b"x" * 9000) == []
    assert lines.split(b"y" * 9000 + b"\nnext\nz") == ["next"]
    assert lines.split(b"z" * 9000 + b"\n") == []
    assert lines.split(b"last\n") == ["last"]


def test_f11_a_secret_that_the_remote_repeats_is_redacted_in_progress_and_evidence(upstream: Upstream) -> None:
    """Control: without the redaction both have it."""
    for redact, shown in ((str, True), (hidden, False)):
        heard: list[str] = []
        slowly = f"printf 'remote: {SECRET[:5]}' >&2; printf '{SECRET[5:]}\\nend\\n' >&2; exit 1"
        network = replace(ssh(slowly), redact=redact, progress=heard.append)
        result = Git(upstream.git_dir).attempt("ls-remote", "--", SSH_URL, network=network, deadline_s=20)
        assert (SECRET in result.stderr) is shown
        assert "end" in result.stderr
        assert heard
        assert shown or SECRET[5:] not in "".join(heard)


@pytest.mark.parametrize("half", [3, 7, 13])
def test_f11_no_half_of_a_secret_is_left_where_the_beginning_is_cut_off(
    half: int, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: without the margin the second half is there, and no redaction knows it."""
    git, run = Git(upstream.git_dir), ("ls-remote", "--", SSH_URL)
    last = git.attempt(*run, network=ssh("exit 1")).stderr
    last_words = len(last)
    assert not last.startswith(CUT_MARK)
    fill = "head -c %d /dev/zero | tr '\\0' x >&2"
    words = f"{fill % 5000}; printf '{SECRET}' >&2; {fill % (64 * 1024 - last_words - half)}; exit 1"
    for margin, shown in ((0, True), (4096, False)):
        monkeypatch.setattr("sandbox.git.process._CUT_MARGIN", margin)
        stderr = git.attempt(*run, network=replace(ssh(words), redact=hidden), deadline_s=20).stderr
        assert len(stderr) > 32 * 1024
        assert stderr.startswith(CUT_MARK)  # a line whose beginning is not known is none of git's own
        assert (SECRET[-half:] in stderr) is shown


# --- the ceiling


SHOW_LIMITS = 'echo "$(ulimit -f) $(ulimit -d)"'


def test_the_ceiling_is_on_git_and_its_children(upstream: Upstream, tmp_path: Path) -> None:
    """Control: without it the child has our own limits."""
    ours = subprocess.run(["sh", "-c", SHOW_LIMITS], capture_output=True, check=True).stdout.decode().strip()
    assert ours != "1954 1048576"
    for ceiling, limits in ((None, ours), (ResourceLimits(1_000_000, 2**30), "1954 1048576")):
        out = tmp_path / "limits"
        network = replace(ssh(f"{SHOW_LIMITS} > {out}; exit 1"), limits=ceiling)
        Git(upstream.git_dir).attempt("ls-remote", "--", SSH_URL, network=network, deadline_s=20)
        assert out.read_text().strip() == limits


def test_a_host_with_lower_limits_keeps_them() -> None:
    """As inside a guest of ours: a ceiling above the hard limit does not end the command."""
    inner = ResourceLimits(2_000_000, 2**31).wrap(["sh", "-c", SHOW_LIMITS])
    done = subprocess.run(ResourceLimits(1_000_000, 2**30).wrap(inner), capture_output=True, check=True)
    assert done.stdout.decode().strip() == "1954 1048576"


@pytest.mark.parametrize(
    ("command", "most"),
    [
        (["cat-file", "--batch"], SMALL.limit_bytes),
        (["rev-list", "--stdin"], SMALL.limit_bytes),
        (["rev-list", "--objects", "--stdin"], TRANSFER_BYTES),
    ],
    ids=["reads", "walks", "walks-all"],
)
def test_s09_a_local_git_has_a_limit_on_its_memory(upstream: Upstream, command: list[str], most: int) -> None:
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb") as stdin, Git(upstream.git_dir).stream(*command, stdin=stdin) as process:
        limits = Path(f"/proc/{process._popen.pid}/limits").read_text()
        os.close(writes)  # until here git waited for input
    (line,) = (line for line in limits.splitlines() if line.startswith("Max data size"))
    assert line.split()[3:5] == [str(most)] * 2


def test_s09_a_denied_limit_is_a_typed_error_and_ends_git(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(resource, "prlimit", denied)
    with refused(ErrorCode.INTERNAL) as caught:
        Git(upstream.git_dir).run("version")
    assert "prlimit" in caught.value.hint


def test_s09_a_local_git_reserves_its_memory_and_returns_it(upstream: Upstream) -> None:
    budget = MemoryBudget(SMALL.reserved_bytes)
    git = Git(upstream.git_dir, budget=budget)
    with git.stream("version") as process:
        assert budget.free_bytes == 0
        with ThreadPoolExecutor(1) as other, refused(ErrorCode.TIMEOUT):
            other.submit(git.run, "version", deadline_s=0.1).result()
        assert process.stdout.read()
    assert git.run("version")
    assert budget.free_bytes == SMALL.reserved_bytes


OUT_OF_MEMORY = "error: Out of memory, malloc failed (tried to allocate 67108865 bytes)"


@pytest.mark.parametrize(("command", "calls"), [("ls-tree", 2), ("describe", 2), ("update-ref", 1)])
def test_s09_a_reading_command_with_too_little_memory_is_repeated_once_with_more(
    upstream: Upstream, tmp_path: Path, command: str, calls: int
) -> None:
    """A command that changes something is not."""
    program, count = tmp_path / "git", tmp_path / "count"
    program.write_text(f"#!/bin/sh\necho >> {count}\necho '{OUT_OF_MEMORY}' >&2\nexit 1\n")
    program.chmod(0o755)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        Git(upstream.git_dir, str(program)).run(command)
    assert count.read_text() == "\n" * calls


def test_s09_a_local_git_without_memory_is_a_typed_error_and_never_an_answer(
    upstream: Upstream, tmp_path: Path
) -> None:
    """Also for callers to which an exit code is an answer: the clone is not corrupt because git had no memory."""
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\necho '{OUT_OF_MEMORY}' >&2\nexit 1\n")
    program.chmod(0o755)
    git = Git(upstream.git_dir, str(program))
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        git.attempt("fsck")
    assert "67108865" in caught.value.details
    with refused(ErrorCode.QUOTA_EXCEEDED), git.stream("cat-file") as process:
        assert not process.stdout.read()
        raise SandboxError(ErrorCode.NOT_FOUND, "the reader's own error")
