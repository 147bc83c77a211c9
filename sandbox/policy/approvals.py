"""Which tool calls of an agent need approval. Source: `policies/approvals.toml`, overridden by the operator's file."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.document_errors import describe_errors, parse_toml
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Risk

SendingTool = Literal["space_repo_push", "space_repo_open_pr"]


ALWAYS_ASKED = frozenset({"space_repo_promote"})
"""Tools of which a person approves every call, whatever the policy and the command line say: a promoted program runs on
the host."""

ALWAYS_ASKED_WITH = {
    "space_repo_create_task": "profile",
    "space_repo_fork_task": "profile",
    "space_repo_sync": "profile",
    "space_repo_checkout": "profile",
}
"""As `ALWAYS_ASKED`, for calls that give this argument: with another profile a task asks for other checks. Only the
first tool has such an argument: it is added to a call by which a task gets, or takes to another base, a profile that
was chosen for a task (`CONTINUING`).
"""

CONTINUING = {
    "space_repo_create_task": "from_snapshot",
    "space_repo_fork_task": "task_id",
    "space_repo_sync": "task_id",
    "space_repo_checkout": "task_id",
}
"""Tools that give a task the profile of the task that this argument names, or that has this snapshot; or keep it on
another base.
"""

TOOL_NAMES = (
    "space_agent_request_tool_approval",
    *(f"space_repo_{name}" for name in (
        "apply_patch", "candidate", "checkout", "clean", "clone", "close_task", "commit", "create_task",
        "delete_file", "diff", "edit_file", "explore", "fetch", "fork_task", "impact", "list", "list_checks",
        "list_snapshots", "list_tasks", "map", "open_pr", "pr_status", "prepare", "promote", "push",
        "read_file", "read_log", "rename_file", "restore", "run_check", "search", "snapshot", "status",
        "stop_run", "sync", "test_results", "update", "verify", "wait_run", "write_file",
    )),
)  # fmt: skip
"""The tools of `sandbox/agent/tools.py`: a decision about another name is a mistake."""


def is_always_asked(tool: str, arguments: Mapping[str, object]) -> bool:
    """Whether a person approves this call, whatever the policy and the command line say. Pure."""
    given = ALWAYS_ASKED_WITH.get(tool)
    return tool in ALWAYS_ASKED or (given is not None and arguments.get(given) is not None)


class Decision(StrEnum):
    """What happens to a call. A missing decision is `deny`."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


FLAG_GROUPS = {"policy": frozenset({"git-control", "review", "agents", "sandbox"})}
"""Names that stand for several rules of `paths.toml` in `[when] flags`. `policy`: what decides about git, review, the
agents of the project's developers, and checks."""


class DiffRule(BaseModel):
    """Decides about tools that send a commit by what the commit changes: a person is asked about a change to a path
    with one of these flags, any other is allowed.

    `flags`: names of rules of `paths.toml`, or of `FLAG_GROUPS`. `verified`: a person is also asked about a tree that
    did not pass every check in clean rooms. `tools`: which tools it decides about.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    flags: tuple[str, ...] = Field(min_length=1)
    verified: bool = True
    tools: tuple[SendingTool, ...] = ("space_repo_push", "space_repo_open_pr")

    @property
    def rules(self) -> frozenset[str]:
        """The names of the rules that `flags` stand for."""
        return frozenset(name for flag in self.flags for name in FLAG_GROUPS.get(flag, {flag}))


class ApprovalPolicy(BaseModel):
    """`tools` takes precedence over `risk`. `expires_s`: lifetime of a request, and of an approval for one call.

    `always_expires_s`: lifetime of an approval for a tool within a task or repository. `when`: takes precedence over
    both, except over `deny`; None: no call is decided by its diff.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    expires_s: float = Field(default=3600.0, gt=0, le=30 * 86_400)
    always_expires_s: float = Field(default=604_800.0, gt=0, le=365 * 86_400)
    risk: dict[Risk, Decision] = Field(default_factory=dict)
    tools: dict[str, Decision] = Field(default_factory=dict)
    when: DiffRule | None = None

    def decide(self, tool: str, risk: Risk) -> Decision:
        """Decide about a call of one tool, without its diff: `ask` if that decides. Pure."""
        found = self.tools.get(tool, self.risk.get(risk, Decision.DENY))
        asks = tool in ALWAYS_ASKED or self.find_diff_rule(tool) is not None
        return Decision.ASK if found is Decision.ALLOW and asks else found

    def find_diff_rule(self, tool: str) -> DiffRule | None:
        """The rule that decides about this tool by what it sends. Pure."""
        return self.when if self.when is not None and tool in self.when.tools else None

    @property
    def version(self) -> str:
        """A hash of the whole policy: an approval under another version is not valid."""
        return hashlib.sha256(self.model_dump_json(exclude_none=True).encode()).hexdigest()[:16]


def load_approval_policy(shipped: Path, operator_file: Path) -> ApprovalPolicy:
    """Load both files, merged by key; the operator's may be missing. Raises: `policy_violation` for an invalid file,
    also for a decision about a tool that does not exist.
    """
    merged: dict[str, object] = {}
    for path in (shipped, operator_file):
        for key, value in _read(path, required=path == shipped).items():
            before = merged.get(key)
            merged[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    used = operator_file if operator_file.exists() else shipped
    try:
        policy = ApprovalPolicy.model_validate(merged)
    except ValidationError as error:
        raise _unusable(used, describe_errors(error, ApprovalPolicy)) from error
    _require_known_tools(policy, used)
    return policy


def _require_known_tools(policy: ApprovalPolicy, path: Path) -> None:
    unknown = sorted(policy.tools.keys() - {*TOOL_NAMES})
    if unknown:
        raise _unusable(path, "\n".join(map(_describe_unknown_tool, unknown)))


def _describe_unknown_tool(name: str) -> str:
    near = difflib.get_close_matches(name[:100], TOOL_NAMES, 1)
    return f"tools.{name[:100]}: there is no such tool{f'; did you mean {near[0]}?' if near else ''}"


def require_known_flags(rule: DiffRule, known: Iterable[str], path: Path) -> None:
    """Raises: `policy_violation` for a flag that no rule has: a path would never get it."""
    names = {*known, *FLAG_GROUPS}
    unknown = sorted(set(rule.flags) - names)
    if unknown:
        known_names = ", ".join(sorted(names))
        raise _unusable(path, f"when.flags: {', '.join(unknown)} is no rule of paths.toml; known: {known_names}")


def _read(path: Path, *, required: bool) -> dict[str, object]:
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if required:
            raise _unusable(path, describe_errors(error)) from error
        return {}
    except (OSError, ValueError) as error:
        raise _unusable(path, describe_errors(error)) from error


def _unusable(path: Path, details: str) -> SandboxError:
    return SandboxError(
        ErrorCode.POLICY_VIOLATION,
        f"The approval policy {path} cannot be used",
        details=details,
        hint="docs/agents.md lists its keys.",
    )
