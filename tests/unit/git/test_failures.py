"""Captured words of git to our codes, and the silence about anything else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import classify, is_transient, memory_error, out_of_memory_error, scrub

DATA = Path(__file__).parents[2] / "data" / "git-stderr"
SAMPLES = {
    "file-missing": ErrorCode.REMOTE_NOT_FOUND,
    "file-not-a-repository": ErrorCode.REMOTE_NOT_FOUND,
    "http-401": ErrorCode.AUTH_FAILED,
    "http-403": ErrorCode.AUTH_FAILED,
    "http-404": ErrorCode.REMOTE_NOT_FOUND,
    "http-429": ErrorCode.NETWORK_ERROR,
    "http-500": ErrorCode.NETWORK_ERROR,
    "http-503": ErrorCode.NETWORK_ERROR,
    "http-redirect": ErrorCode.NETWORK_ERROR,
    "https-connection-refused": ErrorCode.NETWORK_ERROR,
    "https-not-tls": ErrorCode.NETWORK_ERROR,
    "https-unknown-host": ErrorCode.NETWORK_ERROR,
    "https-untrusted-certificate": ErrorCode.NETWORK_ERROR,
    "ssh-connection-refused": ErrorCode.NETWORK_ERROR,
    "ssh-unknown-host": ErrorCode.NETWORK_ERROR,
    "ssh-hangs-up": ErrorCode.NETWORK_ERROR,
    "ssh-permission-denied": ErrorCode.AUTH_FAILED,
    "ssh-host-key-changed": ErrorCode.AUTH_FAILED,
    "ssh-github-no-repository": ErrorCode.REMOTE_NOT_FOUND,
    "ssh-gitlab-no-repository": ErrorCode.REMOTE_NOT_FOUND,
    "transport-not-allowed": ErrorCode.INVALID_INPUT,
    "fetch-other-algorithm": ErrorCode.ORIGIN_MISMATCH,
    "fetch-dotgit": ErrorCode.UNSAFE_REPOSITORY,
    **dict.fromkeys((path.stem for path in DATA.glob("*/damaged-*")), ErrorCode.REMOTE_BROKEN),
    "disk-full-fetch": ErrorCode.QUOTA_EXCEEDED,
    "disk-full-import": ErrorCode.QUOTA_EXCEEDED,
    "disk-full-object": ErrorCode.QUOTA_EXCEEDED,
    "askpass-noexec": ErrorCode.INTERNAL,
    "internal-bad-object": ErrorCode.INTERNAL,
    "internal-bad-revision": ErrorCode.INTERNAL,
    "internal-broken-config": ErrorCode.INTERNAL,
    "lock-exists": ErrorCode.CONFLICT,
    "internal-no-git-dir": ErrorCode.INTERNAL,
    "internal-unknown-option": ErrorCode.INTERNAL,
    "internal-usage": ErrorCode.INTERNAL,
}


FILES = [path for path in sorted(DATA.glob("*/*.txt")) if not path.name.startswith("push-")]  # those: rejections


def test_a_program_that_may_not_run_is_no_refused_credential() -> None:
    """It stands beside git's words for a missing one. Control: these alone are that."""
    said = (DATA / "2.39.5" / "askpass-noexec.txt").read_text()
    assert "noexec" in classify("fetch", 128, said).hint
    assert classify("fetch", 128, said.splitlines()[1]).code is ErrorCode.AUTH_FAILED


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_captured_failure_has_its_code(path: Path) -> None:
    error = classify("fetch", 128, path.read_text())
    assert error.code is SAMPLES[path.stem]
    assert error.hint or error.code in {ErrorCode.INTERNAL, ErrorCode.INVALID_INPUT}


def test_every_sample_is_there() -> None:
    assert {p.stem for p in FILES} == set(SAMPLES)


def test_a_server_that_was_killed_is_not_called_damaged() -> None:
    said = (DATA / "2.39.5" / "damaged-loose-blob-file.txt").read_text().replace("with error", "of signal 9")
    error = classify("fetch", 128, said)
    assert error.code is ErrorCode.NETWORK_ERROR
    assert is_transient(error)


OTHER_WORDS = (
    "error: packfile /home/me/clones/x/objects/pack/pack-1.pack does not match index",
    "fatal: bad config line 7 in file /home/me/clones/x/config",
    "fatal: out of memory",
    "error: unable to write file x",
    "titles, hassle",
    "fatal: unable to create '/x/index.lock'",
    "No space left on device",
    "remote: fatal: write error: No space left on device",
)


@pytest.mark.parametrize("text", ["", "\n", *OTHER_WORDS])
def test_unknown_words_are_internal_never_a_guess(text: str) -> None:
    error = classify("fetch", 3, text)
    assert error.code is ErrorCode.INTERNAL
    assert error.brief == "git fetch failed with exit code 3"


@pytest.mark.parametrize(
    ("sample", "transient"),
    [
        ("http-500", True),
        ("http-503", True),
        ("ssh-connection-refused", True),
        ("https-unknown-host", True),
        ("https-untrusted-certificate", False),
        ("https-not-tls", False),
        ("http-redirect", False),
        ("http-404", False),
        ("http-401", False),
        ("fetch-dotgit", False),
        ("damaged-*", False),
        ("lock-exists", False),
    ],
)
def test_only_a_failing_network_is_worth_another_try(sample: str, transient: bool) -> None:
    errors = [classify("fetch", 128, path.read_text()) for path in DATA.glob(f"*/{sample}.txt")]
    assert {is_transient(error) for error in errors} == {transient}


@pytest.mark.parametrize(
    "text",
    [
        "fatal: unable to access 'https://user:hunter2@host/o/r/': x",
        "https://hunter2@host/x",
        "ssh://git:hunter2@host:22/x http://a:hunter2@b/",
        "https://user:hun%40hunter2@host/o/r",
    ],
)
def test_f08_user_information_is_scrubbed(text: str) -> None:
    assert "hunter2" not in scrub(text)
    assert "hunter2" not in classify("fetch", 128, text).details
    assert "***@host" in scrub(text)


def test_e11_escape_sequences_of_a_server_are_scrubbed() -> None:
    text = scrub("remote: \x1b[31mred\x1b]0;title\x07 \u202egnp\r\nnext\tx")
    assert text == "remote: \ufffd[31mred\ufffd]0;title\ufffd \ufffdgnp\nnext\tx"


@given(st.text())
def test_scrubbed_text_has_no_control_characters_and_stays_so(text: str) -> None:
    clean = scrub(text)
    assert all(c in "\n\t" or c.isprintable() for c in clean)
    assert scrub(clean) == clean


def test_details_are_bounded() -> None:
    assert len(classify("fetch", 1, "x" * 100_000).details) <= 4000


# --- what a fetch may use, what a remote does not have


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("error: index-pack died of signal 25\nfatal: index-pack failed", ErrorCode.QUOTA_EXCEEDED),
        ("fatal: write error: File too large\nfatal: index-pack failed", ErrorCode.QUOTA_EXCEEDED),
        ("fatal: Out of memory, realloc failed (tried to allocate 536870912 bytes)", ErrorCode.QUOTA_EXCEEDED),
        ("fatal: inflateInit: out of memory (no message)", ErrorCode.QUOTA_EXCEEDED),
        ("fatal: remote error: upload-pack: not our ref 343f9d66d72b143214c8e3bf4426153ccfdf6782", ErrorCode.NOT_FOUND),
        ("error: Server does not allow request for unadvertised object 343f9d66", ErrorCode.NOT_FOUND),
        ("error: cannot lock ref 'a': Unable to create '/x/a.lock': File name too long", ErrorCode.UNSAFE_REPOSITORY),
        ("error: cannot lock ref 'a/b': 'a' exists; cannot create 'a/b'", ErrorCode.UNSAFE_REPOSITORY),
        ("error: cannot lock ref 'a': Unable to create '/o'neil/a.lock': File exists.", ErrorCode.CONFLICT),
        ("remote: error: cannot lock ref 'a': Unable to create '/x/a.lock': File exists.", ErrorCode.INTERNAL),
        ("error: index-pack died of signal 9\nfatal: index-pack failed", ErrorCode.UNSAFE_REPOSITORY),
        ("remote: fatal: Out of memory, malloc failed", ErrorCode.INTERNAL),
    ],
)
def test_limits_and_refusals_have_their_codes(said: str, code: ErrorCode) -> None:
    assert classify("fetch", 128, said).code is code


@pytest.mark.parametrize(
    "said",
    [
        "fatal: Out of memory, malloc failed",
        "x\nerror: Out of memory, realloc failed",
        "fatal: inflateInit: out of memory (no message)",
        "error: inflate: out of memory (no message)",
        "fatal: deflateInit2: out of memory (no message)",
    ],
)
def test_s09_a_local_git_that_is_refused_memory_names_the_command(said: str) -> None:
    error = memory_error("cat-file", said)
    assert error is not None
    assert error.code is ErrorCode.QUOTA_EXCEEDED
    assert "cat-file" in error.brief


@pytest.mark.parametrize("said", ["", "fatal: out of memory", "remote: fatal: Out of memory, malloc failed"])
def test_other_words_say_nothing_about_memory(said: str) -> None:
    assert memory_error("cat-file", said) is None


# --- worth another try


@pytest.mark.parametrize(
    "said",
    [
        "fatal: unable to access 'https://h/o/r/': The requested URL returned error: 429",
        "fatal: unable to access 'https://h/o/r/': GnuTLS recv error (-54): Error in the pull function.",
        "fatal: unable to access 'https://h/o/r/': GnuTLS recv error (-110): "
        "The TLS connection was non-properly terminated.",
        "fatal: unable to access 'https://h/o/r/': GnuTLS, handshake failed: Error in the push function.",
        "error: RPC failed; curl 56 GnuTLS recv error (-9): Error decoding the received TLS packet.\n"
        "fatal: early EOF\nfatal: fetch-pack: invalid index-pack output",
        "fatal: unable to access 'https://h/o/r/': OpenSSL SSL_read: Connection reset by peer, errno 104",
    ],
    ids=["429", "gnutls-pull", "gnutls-terminated", "gnutls-handshake", "gnutls-mid-pack", "openssl-reset"],
)
def test_a_slow_down_and_a_broken_tls_stream_are_worth_another_try(said: str) -> None:
    error = classify("fetch", 128, said)
    assert error.code is ErrorCode.NETWORK_ERROR
    assert is_transient(error)


def test_429_says_to_wait_and_its_neighbours_are_not_tried_again() -> None:
    assert "limits the rate" in classify("fetch", 128, f"{ACCESS}: The requested URL returned error: 429").brief
    for status in (418, 428, 430, 451):
        assert not is_transient(classify("fetch", 128, f"{ACCESS}: The requested URL returned error: {status}"))


def test_whether_to_try_again_is_not_read_from_the_details() -> None:
    error = classify("fetch", 128, f"{ACCESS}: Connection refused")
    assert is_transient(error.with_details("certificate"))
    assert not is_transient(SandboxError(ErrorCode.NETWORK_ERROR, "no failure of git"))


@pytest.mark.parametrize(
    "said",
    [
        "server certificate verification failed. CAfile: none CRLfile: none",
        "GnuTLS, handshake failed: An unexpected TLS packet was received.",
        "OpenSSL/3.0.15: error:0A00010B:SSL routines::wrong version number",
    ],
)
def test_a_wrong_certificate_or_protocol_is_not(said: str) -> None:
    error = classify("fetch", 128, f"{ACCESS}: {said}")
    assert error.code is ErrorCode.NETWORK_ERROR
    assert not is_transient(error)


# --- quoted names decide nothing

ACCESS = "fatal: unable to access 'https://h/o/r/'"
LOUD = "certificate-redirect-fsck-timed out-repository not found-returned error: 404-stale info-permission denied ("


@pytest.mark.parametrize(
    ("frame", "code", "transient"),
    [
        ("fatal: unable to access 'https://h/o/{}/': Connection refused", ErrorCode.NETWORK_ERROR, True),
        ("fatal: unable to access 'https://h/o/{}/': returned error: 500", ErrorCode.NETWORK_ERROR, True),
        ("fatal: unable to access 'https://h/o/{}/': returned error: 401", ErrorCode.AUTH_FAILED, False),
        ("fatal: '{}' does not appear to be a git repository", ErrorCode.REMOTE_NOT_FOUND, False),
        ("fatal: unable to create '/x/{}/index.lock'", ErrorCode.INTERNAL, False),
    ],
)
def test_quoted_names_decide_nothing(frame: str, code: ErrorCode, transient: bool) -> None:
    error = classify("fetch", 128, frame.format(LOUD))
    assert error.code is code
    assert is_transient(error) is transient
    assert LOUD in error.details  # control: it was there to be read


def test_the_same_words_without_quotes_do_decide() -> None:
    assert classify("fetch", 128, f"fatal: {LOUD}").code is not ErrorCode.INTERNAL


@pytest.mark.parametrize(
    "word", ["repository ", "index-pack", "transport '", "protocol ", "bad config", "fatal: ", "'", "not "]
)
def test_s188_a_word_that_a_server_repeats_is_read_in_linear_time(word: str) -> None:
    """Some rules ask for a second word in the line: a search after each of the first would take 4 to 45 s here."""
    line = f"remote: {word * (256 * 1024 // len(word))}"
    started = time.process_time()
    assert classify("fetch", 128, line).code is ErrorCode.INTERNAL
    assert time.process_time() - started < slowness()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("repository of repository x not found", ErrorCode.REMOTE_NOT_FOUND),
        ("repository xnot found", ErrorCode.INTERNAL),
        ("repository\nnot found", ErrorCode.INTERNAL),
        ("x index-pack index-pack x failed", ErrorCode.UNSAFE_REPOSITORY),
        ("failed index-pack", ErrorCode.INTERNAL),
        ("transport 'a' is transport 'b' not allowed", ErrorCode.INVALID_INPUT),
        ("protocol a protocol b is not supported", ErrorCode.INVALID_INPUT),
        ("x bad config bad config line 1 in file ./config", ErrorCode.REMOTE_BROKEN),
        ("unexpected line in ./packed-refs", ErrorCode.REMOTE_BROKEN),
        ("bad config line 1 in file config", ErrorCode.INTERNAL),
    ],
)
def test_two_words_of_a_rule_are_in_one_line_and_in_order(line: str, code: ErrorCode) -> None:
    assert classify("fetch", 128, f"hint: x\n{line}\nhint: y").code is code


@pytest.mark.parametrize(
    "said", ["unterminated line in /a/o'neil/packed-refs: ", "unexpected line in /a/packed-refs: x"]
)
def test_damaged_refs_of_a_clone_name_the_way_out(said: str) -> None:
    """Control: those of the remote, which its own paths tell."""
    error = classify("rev-list", 128, f"fatal: {said}")
    assert (error.code, "`sandbox repo clone URL`" in error.hint) == (ErrorCode.INTERNAL, True)
    remote = classify("fetch", 128, "remote: fatal: unexpected line in ./packed-refs: x")
    assert remote.code is ErrorCode.REMOTE_BROKEN


@pytest.mark.parametrize(
    ("command", "word"), [("rev-list", "history"), ("describe", "history"), ("fsck", "history"), ("cat-file", "file")]
)
def test_a_command_without_memory_says_what_is_too_large(command: str, word: str) -> None:
    hint = out_of_memory_error(command, "").hint
    assert word in hint
    assert ("Git LFS" in hint) is (word == "file")


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("The requested URL returned error: 400", "HTTP 400"),
        ("The requested URL returned error: 402", "HTTP 402"),
        ("The requested URL returned error: 410", "HTTP 410"),
        ("The requested URL returned error: 451", "HTTP 451"),
        ("The requested URL returned error: 418", "refused the request"),
    ],
)
def test_a_status_of_a_server_that_answered_is_named(said: str, word: str) -> None:
    error = classify("ls-remote", 128, f"{ACCESS}: {said}")
    assert (error.code, is_transient(error)) == (ErrorCode.NETWORK_ERROR, False)
    assert word in error.brief
    assert "host name" not in error.hint


@pytest.mark.parametrize(
    ("said", "code", "brief"),
    [
        ("you must renew your licence", ErrorCode.NETWORK_ERROR, "The remote's server answered with an error"),
        (
            "Repository not found.",
            ErrorCode.REMOTE_NOT_FOUND,
            "The remote has no such repository, or hides it from these credentials",
        ),
    ],
)
def test_an_error_that_a_server_sends_as_text_is_its_own(said: str, code: ErrorCode, brief: str) -> None:
    """The packet `ERR` of git's protocol (gitprotocol-pack(5))."""
    error = classify("ls-remote", 128, f"fatal: remote error: {said}\n")
    assert (error.code, error.brief, is_transient(error)) == (code, brief, False)
    assert said in error.details


def test_an_answer_that_is_not_of_git_is_no_failure_of_ours() -> None:
    error = classify("ls-remote", 128, "fatal: https://h/o/r.git/info/refs not valid: is this a git repository?\n")
    assert (error.code, is_transient(error)) == (ErrorCode.NETWORK_ERROR, False)
    assert "no git repository" in error.brief
