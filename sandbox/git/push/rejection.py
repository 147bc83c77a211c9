"""Why a remote rejected a push. Pure: from the output of git and the server to a typed error.

Theory. `push --porcelain` prints one line for our branch on stdout: whether it was rejected, and the reason in
parentheses. That line decides that the push was rejected. The typed reason also depends on the server's text, which git
prints after `remote: `. A hook can write anything there, so this text only chooses between reasons of one error code.
Whether credentials were refused or the network failed is read only from git's own lines.
Samples: tests/data/git-stderr.
"""

from __future__ import annotations

import re

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import classify, scrub
from sandbox.git.process import CUT_MARK
from sandbox.git.push.reasons import PushReason, PushRejected

_DETAILS_CHARS = 3800
_CUT = "\n[...]\n"
_SERVER_LINE = re.compile(r"^remote:[ \t]?(.*)$", re.MULTILINE)
_OWN_LINE = re.compile(rf"^(?!remote:|{re.escape(CUT_MARK)}).*$", re.MULTILINE)
_UNREPORTED = re.compile(r"^!\t[^\n]*\[remote failure\]", re.MULTILINE)
_FORBIDDEN = re.compile(r"returned error: 403\b")
_NO_GIT = re.compile(r"^fatal: Could not read from remote repository", re.MULTILINE)
_NO_WRITE = re.compile(
    r"^(?:ERROR: )?(?:Permission to .* denied to |The key you are authenticating with has been marked as read only"
    r"|You are not allowed to (?:push|upload) code|This deploy key does not have write access)",
    re.MULTILINE,
)

_Rules = tuple[tuple[re.Pattern[str], PushReason], ...]


def _compile_rules(*rows: tuple[str, PushReason]) -> _Rules:
    return tuple((re.compile(pattern, re.MULTILINE), reason) for pattern, reason in rows)


# The text in parentheses on our branch's line: from git (send-pack.c, receive-pack.c), or from a forge.
_STATUS_RULES = _compile_rules(
    (
        r"^(stale info|incorrect old value provided|reference (already exists|does not exist))$",
        PushReason.BRANCH_MOVED,
    ),
    (r"^(non-fast-forward|fetch first|needs force)$", PushReason.NON_FAST_FORWARD),
    (r"^protected branch hook declined$", PushReason.PROTECTED_BRANCH),
    (r"^refusing to allow .* without `workflows?` (scope|permission)$", PushReason.WORKFLOW_SCOPE),
    (r"^push declined due to email privacy restrictions$", PushReason.REPOSITORY_RULES),
    (r"^(shallow update not allowed|missing necessary objects|bad pack)$", PushReason.MISSING_OBJECTS),
)
_LOCK_RULES = _compile_rules(
    (r"^error: cannot lock ref .*: (is at |reference |unable to resolve reference )", PushReason.BRANCH_MOVED)
)
_UNPACK_RULES = _compile_rules(
    (r"^fatal: pack exceeds maximum allowed size", PushReason.TOO_LARGE),
    (r"^fatal: fsck error|^error: object [0-9a-f]+: \w+: ", PushReason.UNSAFE_OBJECTS),
    (r"^(fatal|error): .*(No space left on device|Disk quota exceeded)", PushReason.QUOTA),
)
_RULESET_RULES = _compile_rules(
    (r"^- GITHUB PUSH PROTECTION$|^ *- Push cannot contain secrets", PushReason.LEAK),
    (r"^- (Cannot (update|create|force-push to) this|Changes must be made through)", PushReason.PROTECTED_BRANCH),
    (r"", PushReason.REPOSITORY_RULES),
)
_HOOK_RULES = _compile_rules(
    (r"^error: GH001: |^error: File .* exceeds GitHub's file size limit", PushReason.TOO_LARGE),
    (r"^(GitLab: |ERROR: )?You are attempting to check in one or more blobs which exceed", PushReason.TOO_LARGE),
    (r"^GitLab: File .* is larger than the allowed size of", PushReason.TOO_LARGE),
    (r"^error: GH009: |^(GitLab: )?PUSH BLOCKED: Secrets detected in code changes", PushReason.LEAK),
    (r"^error: GH006: |^GitLab: You are not allowed to .*protected branch", PushReason.PROTECTED_BRANCH),
    (r"^error: GH0(07|13): |^GitLab: (Commit |Author |Committer |Branch name )", PushReason.REPOSITORY_RULES),
    (r"^error: GH008: ", PushReason.MISSING_OBJECTS),
    (r"^GitLab: Your push has been rejected, because this repository has exceeded its size limit", PushReason.QUOTA),
    (r"", PushReason.HOOK_DECLINED),
)
# Which rules apply to the server's text, by our branch's status. For other statuses the server's text is ignored.
_SERVER_TEXT_RULES = (
    (re.compile(r"^(pre-receive hook|hook|update hook) declined$"), _HOOK_RULES),
    (re.compile(r"^push declined due to repository rule violations$"), _RULESET_RULES),
    (re.compile(r"^unpacker error$"), _UNPACK_RULES),
    (re.compile(r"^failed to update ref$"), _LOCK_RULES),
)
# The server refused access before any data was sent, and gave a reason.
_ACCESS_RULES = _compile_rules(
    (
        r"^(ERROR: )?(This repository was archived so it is read-only|mirror repository is read-only"
        r"|The repository is temporarily read-only|You can't push code to a read-only GitLab instance)",
        PushReason.READ_ONLY,
    ),
)
_CLIENT_RULES = _compile_rules((r"^error: RPC failed; .*\b413\b", PushReason.TOO_LARGE))


def classify_rejection(ref: str, code: int, stderr: str, stdout: str) -> SandboxError:
    """The error for a failed `git push --porcelain` to one ref. The texts must already be free of secrets."""
    stderr = "\n".join(line.rstrip(" \t") for line in stderr.split("\n")).rstrip()  # padding makes patterns take n**2
    server, own = "\n".join(_SERVER_LINE.findall(stderr)), "\n".join(_OWN_LINE.findall(stderr))
    details = _cut_middle(scrub(f"{stderr}\n{stdout}"))
    status = _find_status(ref, stdout)
    if status is not None:
        return PushRejected(
            _first_match(_STATUS_RULES, status) or _find_server_reason(status, server) or PushReason.REFUSED,
            output=details,
        )
    if (reason := _first_match(_CLIENT_RULES, own)) is not None:
        return PushRejected(reason, output=details)
    error = (
        _unknown_result_error() if _UNREPORTED.search(stdout) else _classify_early_failure(code, stderr, server, own)
    )
    return error.with_details(details)


def _classify_early_failure(code: int, stderr: str, server: str, own: str) -> SandboxError:
    """No hook has run yet. Over ssh, a server that does not start git writes its own message to our stderr."""
    no_git = _NO_GIT.search(own) is not None
    turned_away = _classify_refused_access(f"{server}\n{own}") if no_git or _FORBIDDEN.search(own) else None
    return turned_away or classify("push", code, stderr if no_git else own)


def _find_status(ref: str, stdout: str) -> str | None:
    """The text in parentheses on our branch's line; None if no line says that the branch was rejected."""
    found = re.search(rf"^!\t[^\t\n]*:{re.escape(ref)}\t\[(?:remote )?rejected\](?: \((.*)\))?$", stdout, re.MULTILINE)
    return (found[1] or "") if found else None


def _find_server_reason(status: str, server: str) -> PushReason | None:
    return next((_first_match(rules, server) for pattern, rules in _SERVER_TEXT_RULES if pattern.search(status)), None)


def _first_match(rules: _Rules, text: str) -> PushReason | None:
    return next((reason for pattern, reason in rules if pattern.search(text)), None)


def _classify_refused_access(said: str) -> SandboxError | None:
    if (reason := _first_match(_ACCESS_RULES, said)) is not None:
        return PushRejected(reason)
    if _NO_WRITE.search(said):
        return SandboxError(
            ErrorCode.AUTH_FAILED,
            "These credentials may read the repository but not push to it",
            hint="Give the key or token write access, or store another one; see docs/credentials.md.",
        )
    return None


def _unknown_result_error() -> SandboxError:
    return SandboxError(ErrorCode.NETWORK_ERROR, "The remote did not report the result of the push")


def _cut_middle(text: str) -> str:
    """Keep both ends: a hook's text comes first, the deciding line comes last."""
    if len(text) <= _DETAILS_CHARS:
        return text
    kept = (_DETAILS_CHARS - len(_CUT)) // 2
    return f"{text[:kept]}{_CUT}{text[-kept:]}"
