"""Captured and known words about pushes to our reasons, and the silence of each recogniser about anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import classify, is_transient
from sandbox.git.process import CUT_MARK
from sandbox.git.push.reasons import PushReason, PushRejected
from sandbox.git.push.rejection import classify_rejection

DATA = Path(__file__).parents[3] / "data" / "git-stderr"
REF = "refs/heads/x"
MEGABYTE = 1_000_000
SAMPLES = {
    "push-deleted-meanwhile": PushReason.BRANCH_MOVED,
    "push-denied-non-fast-forward": PushReason.NON_FAST_FORWARD,
    "push-directory-conflict": PushReason.REFUSED,
    "push-fsck": PushReason.UNSAFE_OBJECTS,
    "push-full": PushReason.QUOTA,
    "push-gitea-mirror": PushReason.READ_ONLY,
    "push-github-archived": PushReason.READ_ONLY,
    "push-github-archived-ssh": PushReason.READ_ONLY,
    "push-github-email": PushReason.REPOSITORY_RULES,
    "push-github-large-file": PushReason.TOO_LARGE,
    "push-github-lfs": PushReason.MISSING_OBJECTS,
    "push-github-protected": PushReason.PROTECTED_BRANCH,
    "push-github-rules": PushReason.REPOSITORY_RULES,
    "push-github-rules-pull-request": PushReason.PROTECTED_BRANCH,
    "push-github-secret": PushReason.LEAK,
    "push-github-workflow-permission": PushReason.WORKFLOW_SCOPE,
    "push-github-workflow-scope": PushReason.WORKFLOW_SCOPE,
    "push-gitlab-large-blob": PushReason.TOO_LARGE,
    "push-gitlab-large-file": PushReason.TOO_LARGE,
    "push-gitlab-protected": PushReason.PROTECTED_BRANCH,
    "push-gitlab-protected-force": PushReason.PROTECTED_BRANCH,
    "push-gitlab-quota": PushReason.QUOTA,
    "push-gitlab-read-only": PushReason.READ_ONLY,
    "push-gitlab-rules": PushReason.REPOSITORY_RULES,
    "push-gitlab-secret": PushReason.LEAK,
    "push-hidden-ref": PushReason.REFUSED,
    "push-hook-declined-pre-receive": PushReason.HOOK_DECLINED,
    "push-hook-declined-update": PushReason.HOOK_DECLINED,
    "push-lease-exists": PushReason.BRANCH_MOVED,
    "push-made-meanwhile": PushReason.BRANCH_MOVED,
    "push-moved-meanwhile": PushReason.BRANCH_MOVED,
    "push-non-fast-forward": PushReason.NON_FAST_FORWARD,
    "push-proxy-too-large": PushReason.TOO_LARGE,
    "push-shallow": PushReason.MISSING_OBJECTS,
    "push-stale-lease": PushReason.BRANCH_MOVED,
    "push-too-large": PushReason.TOO_LARGE,
}
NO_WRITE = {
    "push-github-deploy-key-ssh", "push-github-no-permission", "push-github-no-permission-ssh",
    "push-gitlab-no-permission", "push-gitlab-no-permission-ssh",
}  # fmt: skip
FILES = sorted(DATA.glob("*/push-*.txt"))
SENDING = set(DATA.glob("*/damaged-*-http.txt"))
"""Over HTTP a damaged repository is noticed while it sends, and told in the server's words: a push brings nothing."""
OTHERS = sorted(set(DATA.glob("*/*.txt")) - set(FILES) - SENDING)
DENIALS = (
    "Authentication failed for 'https://h/'",
    "fatal: Authentication failed",
    "fatal: unable to access 'https://h/o/r/': The requested URL returned error: 403",
    "ERROR: Permission to o/r.git denied to x.\nfatal: Could not read from remote repository.",
    "Connection timed out\nearly EOF\nfatal: the remote end hung up unexpectedly",
    "Host key verification failed.",
)


def of(path: Path) -> SandboxError:
    """The error of a sample; the pushes in it went to several branches."""
    text = path.read_text()
    stdout = "".join(f"{line}\n" for line in text.splitlines() if line.startswith(("To ", "!\t", "Done")))
    ref = stdout.partition("\t")[2].partition("\t")[0].partition(":")[2] or REF
    return classify_rejection(ref, 1, text.replace(stdout, ""), stdout)


def told(*words: str, status: str = "pre-receive hook declined", ref: str = REF) -> SandboxError:
    """The error when the server prints these words, and its line about this ref has this status."""
    said = "".join(f"remote: {line}        \n" for text in words for line in text.split("\n"))
    return classify_rejection(ref, 1, f"{said}error: failed to push some refs to 'https://h/'\n", line(status, ref))


def line(status: str, ref: str = REF) -> str:
    return f"To https://h/o/r.git\n!\t{'1' * 40}:{ref}\t[remote rejected] ({status})\nDone\n"


def reason(error: SandboxError) -> PushReason:
    assert isinstance(error, PushRejected), (error.code, error.details)
    assert error.code is ErrorCode.PUSH_REJECTED
    return error.reason


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_known_refusal_has_its_reason(path: Path) -> None:
    error = of(path)
    assert error.hint
    assert not is_transient(error)
    assert error.details
    if path.stem in NO_WRITE:
        assert error.code is ErrorCode.AUTH_FAILED
    else:
        assert reason(error) is SAMPLES[path.stem]
        assert error.details.splitlines()[0] == f"reason: {SAMPLES[path.stem].value}"


@pytest.mark.parametrize("path", OTHERS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_push_that_never_began_fails_as_a_fetch_does(path: Path) -> None:
    text = path.read_text()
    assert classify_rejection(REF, 128, text, "").code is classify("push", 128, text).code


def test_every_sample_is_there_and_every_reason_but_those_that_only_asking_tells() -> None:
    assert {path.stem for path in FILES} == set(SAMPLES) | NO_WRITE
    assert set(PushReason) - set(SAMPLES.values()) == {PushReason.BRANCH_EXISTS, PushReason.BRANCH_DELETED}


@pytest.mark.parametrize("words", DENIALS)
@pytest.mark.parametrize("status", ["pre-receive hook declined", "unpacker error", "failed to update ref", "x"])
def test_a_hook_that_speaks_of_credentials_or_the_network_has_rejected_the_push(words: str, status: str) -> None:
    """Credentials would be asked for and sent once more, had they been refused."""
    assert told(words, status=status).code is ErrorCode.PUSH_REJECTED


@pytest.mark.parametrize("words", DENIALS)
def test_words_of_the_server_do_not_refuse_credentials_where_no_line_is_ours(words: str) -> None:
    said = "".join(f"remote: {text}\n" for text in words.splitlines())
    own = "error: failed to push some refs to 'https://h/'\n"
    assert classify_rejection(REF, 1, said + own, "").code is ErrorCode.INTERNAL
    half = f"{CUT_MARK}{words.splitlines()[-1]}\n{own}"  # the beginning is cut off: what a line began with is unknown
    assert classify_rejection(REF, 1, half, "").code is ErrorCode.INTERNAL


@given(st.lists(st.text() | st.sampled_from(DENIALS)), st.text(st.characters(exclude_characters="\n")))
def test_nothing_that_a_server_says_makes_a_rejected_push_anything_else(words: list[str], status: str) -> None:
    error = told("\n".join(words), status=status)
    assert error.code is ErrorCode.PUSH_REJECTED
    assert len(error.details) <= 4000
    assert all(c in "\n\t" or c.isprintable() for c in error.details)


@pytest.mark.slow
@pytest.mark.parametrize(
    "status", ["hook declined", "push declined due to repository rule violations", "unpacker error"]
)
@pytest.mark.parametrize("words", [" " * MEGABYTE + "x", "\n" * (MEGABYTE // 10), "a " * MEGABYTE, "'" * MEGABYTE])
def test_a_megabyte_of_nothing_is_read_in_time(words: str, status: str) -> None:
    """Control: any pattern that takes the square of it runs into the suite's time limit."""
    assert told(words, status=status).code is ErrorCode.PUSH_REJECTED
    assert classify_rejection(REF, 1, f"remote: {words}\n", "").code is ErrorCode.INTERNAL


def test_control_git_itself_says_that_credentials_were_refused() -> None:
    assert classify_rejection(REF, 128, f"{DENIALS[1]} for 'https://h/'\n", "").code is ErrorCode.AUTH_FAILED
    assert classify_rejection(REF, 128, f"{DENIALS[2]}\n", "").code is ErrorCode.AUTH_FAILED


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("see our policy on protected branches; GH006 and GH013 are GitHub's", "pre-receive hook declined"),
        ("no secrets, please: PUSH BLOCKED: Secrets detected in code changes", "pre-receive hook declined"),
        ("the file size limit is 100 MB, GH001: Large files", "hook declined"),
        ("this repository was archived so it is read-only", "hook declined"),
        ("not stale info, non-fast-forward, protected branch hook declined", "pre-receive hook declined"),
        ("refusing to allow x without `workflow` scope", "pre-receive hook declined"),
    ],
)
def test_a_hook_that_only_mentions_a_reason_is_a_hook_that_declined(words: str, status: str) -> None:
    assert reason(told(words, status=status)) is PushReason.HOOK_DECLINED


@pytest.mark.parametrize(
    "status",
    [
        "",
        "no",
        "protected branch hook declined here",
        "the info is stale info",
        "shallow update not allowed?",
        "denied",
    ],
)
def test_an_unknown_status_is_refused_whatever_a_hook_says(status: str) -> None:
    words = "error: GH001: x\nfatal: pack exceeds maximum allowed size\n- GITHUB PUSH PROTECTION"
    assert reason(told(words, status=status)) is PushReason.REFUSED


def test_only_the_line_of_our_branch_counts() -> None:
    other = line("protected branch hook declined", "refs/heads/other")
    assert classify_rejection(REF, 1, "", other).code is ErrorCode.INTERNAL
    assert reason(classify_rejection(REF, 1, "", other + line("stale info"))) is PushReason.BRANCH_MOVED
    assert classify_rejection(REF, 1, "", f"*\t{'1' * 40}:{REF}\t[new branch]\nDone\n").code is ErrorCode.INTERNAL


def test_a_server_that_says_nothing_about_the_branch_has_not_rejected_it() -> None:
    said = f"!\t{'1' * 40}:{REF}\t[remote failure] (remote failed to report status)\nDone\n"
    assert classify_rejection(REF, 1, "error: failed to push some refs to 'x'\n", said).code is ErrorCode.NETWORK_ERROR


def test_a_line_without_a_reason_is_a_refusal() -> None:
    assert reason(classify_rejection(REF, 1, "", f"!\t{'1' * 40}:{REF}\t[remote rejected]\n")) is PushReason.REFUSED


def test_details_are_bounded_and_keep_both_ends() -> None:
    details = told("first words", "x" * 100_000, "last words").details
    assert len(details) <= 4000
    assert "first words" in details
    assert "last words" in details
    assert "pre-receive hook declined" in details


def test_details_hold_no_control_characters_and_no_user_information() -> None:
    details = told("\x1b[31mred\x1b]0;title\x07 \u202egnp https://user:hunter2@host/").details
    assert all(c in "\n\t" or c.isprintable() for c in details)
    assert "hunter2" not in details
    assert "red" in details
