"""Classify git failures. git has no codes for them, so this reads its messages (C locale); samples in tests/data."""

from __future__ import annotations

import re
from functools import cache

from sandbox.errors import DISK_FULL, DISK_FULL_HINT, ErrorCode, SandboxError
from sandbox.lazy_pattern import lazy_pattern

_PERMANENT = lazy_pattern(
    r"certificate|unexpected tls packet|wrong version number|\bredirect|fatal: remote error:|is this a git repository"
    r"|(returned error:|tunnel failed, response) (3|4(?!29))",
    re.IGNORECASE,
)
_QUOTED = lazy_pattern(r"(?<!\w)'[^'\n]*'")  # git quotes URLs and paths; their words are no evidence of the failure
_USERINFO = lazy_pattern(r"(?<=://)[^/@\s]+@")
_NO_MEMORY = r"^(fatal|error): (out of memory, \w+ failed|(in|de)flate\w*: out of memory)"  # the second is zlib's
_FETCH_NEEDS_MORE = lazy_pattern(
    rf"{_NO_MEMORY}|^remote: (fatal|error): out of memory|pack-objects died of signal"
    r"|unable to create thread|cannot create async thread",
    re.IGNORECASE | re.MULTILINE,
)
_FETCH_NEEDED_MORE = "The remote's answer needs more memory than git may use"
_FETCH_MEMORY_HINT = (
    "The remote advertises too many refs, or sends too many objects, or too large ones. For a repository that you "
    "trust, raise `remotes.max_fetch_memory_bytes` in config.toml."
)
_NOT_GIT = r"not valid: is this a git repository\?"
NOT_GIT = lazy_pattern(_NOT_GIT)
"""git's words for an answer with several lines that are not of its protocol; one line it takes for no refs."""
_REF_MOVED = r"^error: cannot lock ref '': is at [0-9a-f]+ but expected [0-9a-f]+"
_WALKS = {"describe", "fsck", "merge-base", "rev-list"}  # what they hold is commits, not contents of files
_LONG_HISTORY_HINT = (
    "The history of the repository has too many commits or objects. If you trust it, a fetch and the check of a clone "
    "may use more memory: `remotes.max_fetch_memory_bytes` in config.toml."
)
_LARGE_FILE_HINT = (
    "The repository stores a file, or one that it is a difference of, that is too large to read. Such files belong "
    "outside git's objects, for example in Git LFS."
)
_DAMAGED = "The remote's repository is damaged"
_DAMAGED_HINT = "Trying again does not help. Its operator must repair it; `git fsck` there names the broken objects."

# A server can print the first of two words again and again. So it is looked for once in a line, `^(?>.*?WORD)`: to
# search for the second one after each of them would be quadratic.
_RULES = (
    (
        r"^(fatal|error): [^\n]*(no space left on device|out of diskspace|disk quota exceeded)",
        ErrorCode.QUOTA_EXCEEDED,
        DISK_FULL,
        DISK_FULL_HINT,
    ),
    (
        # SIGXFSZ, EFBIG: see `process.ResourceLimits`
        r"died of signal 25\b|file size limit exceeded|file too large",
        ErrorCode.QUOTA_EXCEEDED,
        "The remote sent more bytes than allowed",
        "The received data was deleted.",
    ),
    (
        _NO_MEMORY,
        ErrorCode.QUOTA_EXCEEDED,
        _FETCH_NEEDED_MORE,
        _FETCH_MEMORY_HINT,
    ),
    (
        r"^fatal: mismatched algorithms: client",
        ErrorCode.ORIGIN_MISMATCH,
        "The remote and our clone use different object formats",
        "The repository was created again on the remote: `sandbox repo remove` it here, then clone it again.",
    ),
    (
        # Out of memory, or the server stopped: git then also prints `possible corruption`.
        r"pack-objects died of signal",
        ErrorCode.NETWORK_ERROR,
        "The remote's server stopped while it was sending",
        "Try again. If it fails again, the server's operator must look into it.",
    ),
    (
        # The server's working directory is its repository, so its paths begin with `./`; ours never do.
        r"repository corruption on the remote side"
        r"|^remote: fatal: (bad tree object|unable to read [0-9a-f]{40}|loose object|packed object)"
        r"|(stored )?in \./objects/|(packfile|index file|object file) \./objects/"
        r"|^(?>.*?(?:bad config|unexpected line)).* in (file )?\./|pack has bad object at offset|not our ref 0{40}",
        ErrorCode.REMOTE_BROKEN,
        _DAMAGED,
        _DAMAGED_HINT,
    ),
    (
        r"^fatal: (unterminated|unexpected) line in [^\n]*/packed-refs\b",
        ErrorCode.INTERNAL,
        "The list of refs of the cache clone is damaged",
        "`sandbox repo clone URL` names the line, and how to repair it.",
    ),
    (
        r"not our ref|does not allow request for unadvertised object",
        ErrorCode.NOT_FOUND,
        "The remote does not send an object that we requested",
        "Its history may have changed. If it does not serve partial clones, clone it without --partial.",
    ),
    (
        _NOT_GIT,
        ErrorCode.NETWORK_ERROR,
        "The server's answer is of no git repository",
        "Check the URL: the server, or a proxy before it, answers it with other data.",
    ),
    (
        r"detected dubious ownership",
        ErrorCode.UNSAFE_REPOSITORY,
        "The local repository belongs to another user, so git does not read it",
        "Run the command as its owner, change the files' owner to your user, or use the repository's network URL.",
    ),
    (
        r"host key verification failed|remote host identification has changed",
        ErrorCode.AUTH_FAILED,
        "The remote's SSH host key has changed",
        "Verify the new key with the server's operator, then remove the old line from known_hosts in the home.",
    ),
    (
        r"cannot exec ''?: permission denied",
        ErrorCode.INTERNAL,
        "git could not run the program that hands it the credential",
        "The temporary directory is mounted with `noexec`. Mount it with `exec`, or set TMPDIR to another directory.",
    ),
    (
        r"permission denied \(|authentication failed|invalid credentials|could not read (username|password)"
        r"|terminal prompts disabled|returned error: 40[13]\b|unable to read askpass",
        ErrorCode.AUTH_FAILED,
        "The remote refused our credentials",
        "Store a credential for this host in credentials.toml of the sandbox home; see docs/credentials.md.",
    ),
    (
        r"^(?>.*?repository )(.* )?not found|could not be found|does not appear to be a git repository"
        r"|returned error: 404\b|does not exist|not found: did you run git update-server-info",
        ErrorCode.REMOTE_NOT_FOUND,
        "The remote has no such repository, or hides it from these credentials",
        "Check owner and name. A private repository also needs a credential.",
    ),
    (
        r"operation timed out|connection timed out|timed out|operation too slow",
        ErrorCode.TIMEOUT,
        "The remote did not answer in time",
        "Try again. Check the network between this host and the remote.",
    ),
    (
        r"returned error: 429\b",
        ErrorCode.NETWORK_ERROR,
        "The remote limits the rate of our requests",
        "Wait, then try again. A credential often raises the limit.",
    ),
    *(
        (rf"returned error: {status}\b", ErrorCode.NETWORK_ERROR, f"{brief} (HTTP {status})", hint)
        for status, brief, hint in (
            (400, "The remote's server takes our request for malformed", "Check the URL, and a proxy on the way."),
            (402, "The remote's server demands a payment", "Its web page says what for."),
            (410, "The remote's server no longer has the repository", "If it has moved, use its new URL."),
            (451, "The remote's server must not send it for legal reasons", "Its web page may name them."),
        )
    ),
    (
        r"returned error: 4(?!0[134])\d\d\b",
        ErrorCode.NETWORK_ERROR,
        "The remote's server refused the request",
        "The details have the HTTP status. Check the URL, and a proxy on the way.",
    ),
    (
        r"returned error: 3\d\d\b|\bredirect",
        ErrorCode.NETWORK_ERROR,
        "The remote answered with a redirect, which is not followed",
        "If the repository has moved, use its new URL.",
    ),
    (
        r"certificate (has|is) expired|expired certificate|certificate .*\bexpired",
        ErrorCode.NETWORK_ERROR,
        "The remote's TLS certificate has expired",
        "The server's operator must renew it. Check this host's clock, too.",
    ),
    (
        r"certificate",
        ErrorCode.NETWORK_ERROR,
        "The remote's TLS certificate is not trusted: expired, for another host name, or of an unknown authority",
        "Check the host name and the certificate's dates. A private CA needs ca_file in credentials.toml.",
    ),
    (
        r"could not resolve|connection refused|connection reset|network is unreachable|no route to host"
        r"|early eof|unexpected disconnect|\bssl|gnutls|\btls\b|the remote end hung up|unable to access"
        r"|returned error: 5\d\d|kex_exchange_identification|could not read from remote repository",
        ErrorCode.NETWORK_ERROR,
        "The remote could not be reached",
        "Check host name and port, and the network between this host and the remote.",
    ),
    (
        r"^(?>.*?transport ').*' not allowed|^(?>.*?protocol ).* is not supported",
        ErrorCode.INVALID_INPUT,
        "This transport is not allowed",
        "",
    ),
    (
        r"unable to create '': file name too long|'' exists; cannot create ''",
        ErrorCode.UNSAFE_REPOSITORY,
        "The remote has branch or tag names that cannot be stored",
        "A name is too long, or is a directory of another name.",
    ),
    (
        r"^(?>(fatal|error): .*?unable to create ('|file /)).*: file exists",
        ErrorCode.CONFLICT,
        "A file of the repository is locked: another git process changes it, or was killed while it did",
        "Repeat the command. `sandbox gc` removes the lock that a killed process left, when it is eleven minutes old.",
    ),
    (
        _REF_MOVED,
        ErrorCode.CONFLICT,
        "A branch of the cache clone moved while it was fetched: a push or another fetch moved it",
        "Repeat the command.",
    ),
    (
        r"fsck|invalid path|bad tree|broken link|^(?>.*?index-pack).*(failed|abort)",
        ErrorCode.UNSAFE_REPOSITORY,
        "The remote sent objects that git refuses as unsafe",
        "The repository contains malformed or hostile objects. It cannot be used.",
    ),
    (
        r"^fatal: remote error:",  # after what servers say in known words
        ErrorCode.NETWORK_ERROR,
        "The remote's server answered with an error",
        "The details have its words.",
    ),
)


@cache
def _compile_rules() -> tuple[tuple[re.Pattern[str], ErrorCode, str, str], ...]:
    """(pattern, code, brief, hint); the first match wins. Compiled for the first failure (docs/adr/0089)."""
    return tuple(
        (re.compile(pattern, re.IGNORECASE | re.MULTILINE), code, brief, hint) for pattern, code, brief, hint in _RULES
    )


class GitFailure(SandboxError):
    """A git command failed. `transient`: the same command may succeed on another attempt."""

    def __init__(self, code: ErrorCode, brief: str, *, details: str, hint: str = "", transient: bool = False) -> None:
        super().__init__(code, brief, details=details, hint=hint)
        self.transient = transient


class OutOfMemory(GitFailure):
    """`quota_exceeded`: a local git command was refused memory. It may succeed with more."""


def classify(command: str, code: int, stderr: str) -> GitFailure:
    """The typed error for a failed git command. Pure. Unknown text gives `internal`, never a guess."""
    details = scrub(stderr)[:4000]
    said = _QUOTED.sub("''", stderr)
    for pattern, error_code, brief, hint in _compile_rules():
        if pattern.search(said):
            # The network failed, not a certificate or a rule.
            transient = error_code is ErrorCode.NETWORK_ERROR and not _PERMANENT.search(said)
            return GitFailure(error_code, brief, details=details, hint=hint, transient=transient)
    return GitFailure(ErrorCode.INTERNAL, f"git {command} failed with exit code {code}", details=details)


def describe_storage_failure(command: str, code: int, stderr: str) -> SandboxError:
    """The typed error for a local git that did not store objects. Pure."""
    found = classify(command, code, stderr)
    if found.code is ErrorCode.INTERNAL:
        return SandboxError(ErrorCode.INTERNAL, "git could not store the changed files", details=found.details)
    return found


def may_need_more_memory(stderr: str) -> bool:
    """Whether a fetch that failed may succeed with more memory: git, or a server on this host, was refused some. Pure.

    Only for what is repeated once: a hostile server can print these words.
    """
    return _FETCH_NEEDS_MORE.search(_QUOTED.sub("''", stderr)) is not None


def fetch_memory_error(stderr: str) -> GitFailure:
    """The error for a fetch, or a server of it on this host, that was refused memory. Pure."""
    details = scrub(stderr)[:4000]
    return GitFailure(ErrorCode.QUOTA_EXCEEDED, _FETCH_NEEDED_MORE, details=details, hint=_FETCH_MEMORY_HINT)


def memory_error(command: str, stderr: str) -> OutOfMemory | None:
    """`quota_exceeded` if a local git command was refused memory, else None. Pure."""
    if not re.search(_NO_MEMORY, stderr, re.IGNORECASE | re.MULTILINE):
        return None
    return out_of_memory_error(command, scrub(stderr)[:4000])


def out_of_memory_error(command: str, details: str) -> OutOfMemory:
    """The error for a local git command that needs more memory than it may use."""
    return OutOfMemory(
        ErrorCode.QUOTA_EXCEEDED,
        f"git {command} needs more memory than it may use",
        details=details,
        hint=_LONG_HISTORY_HINT if command in _WALKS else _LARGE_FILE_HINT,
    )


def damaged_remote_error(details: str) -> SandboxError:
    """`remote_broken` for a local repository in which we found the damage ourselves."""
    return SandboxError(ErrorCode.REMOTE_BROKEN, _DAMAGED, details=scrub(details), hint=_DAMAGED_HINT)


def is_moved_ref(error: SandboxError) -> bool:
    """Whether another process moved a ref between git's first look at it and its lock."""
    said = _QUOTED.sub("''", error.details or "")
    return error.code is ErrorCode.CONFLICT and re.search(_REF_MOVED, said, re.MULTILINE) is not None


def is_transient(error: BaseException) -> bool:
    """Whether the same command may succeed on another attempt."""
    return isinstance(error, GitFailure) and error.transient


def scrub(text: str) -> str:
    """Remove user information in URLs, and control characters."""
    visible = text.replace("\r\n", "\n")
    if not visible.replace("\n", "").replace("\t", "").isprintable():  # rare, and a hundred times as slow
        visible = "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in visible)
    return _USERINFO.sub("***@", visible)
