"""Captured words of git to our codes, and the silence about anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ErrorCode
from sandbox.git.classify import classify, is_transient, scrub

DATA = Path(__file__).parents[1] / "data" / "git-stderr"
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
    "push-stale-lease": ErrorCode.PUSH_REJECTED,
    "push-lease-exists": ErrorCode.PUSH_REJECTED,
    "push-non-fast-forward": ErrorCode.PUSH_REJECTED,
    "push-hook-declined": ErrorCode.PUSH_REJECTED,
    "fetch-dotgit": ErrorCode.UNSAFE_REPOSITORY,
    "internal-bad-object": ErrorCode.INTERNAL,
    "internal-bad-revision": ErrorCode.INTERNAL,
    "internal-broken-config": ErrorCode.INTERNAL,
    "internal-lock": ErrorCode.INTERNAL,
    "internal-no-git-dir": ErrorCode.INTERNAL,
    "internal-unknown-option": ErrorCode.INTERNAL,
    "internal-usage": ErrorCode.INTERNAL,
}


@pytest.mark.parametrize("path", sorted(DATA.glob("*/*.txt")), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_captured_failure_has_its_code(path: Path) -> None:
    error = classify("fetch", 128, path.read_text())
    assert error.code is SAMPLES[path.stem]
    assert error.hint or error.code in {ErrorCode.INTERNAL, ErrorCode.INVALID_INPUT}


def test_every_sample_is_there() -> None:
    assert {p.stem for p in DATA.glob("*/*.txt")} == set(SAMPLES)


OTHER_WORDS = (
    "fatal: out of memory",
    "error: unable to write file x",
    "titles, hassle",
    "fatal: unable to create '/x/index.lock'",
    "No space left on device",
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
        ("push-stale-lease", False),
        ("fetch-dotgit", False),
        ("internal-lock", False),
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
