"""Which tool calls of an agent need approval. Source: `policies/approvals.toml`, overridden by the operator's file."""

from __future__ import annotations

import hashlib
import tomllib
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Risk


class Decision(StrEnum):
    """What happens to a call. A missing decision is `deny`."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class ApprovalPolicy(BaseModel):
    """`tools` takes precedence over `risk`. `expires_s`: lifetime of a request, and of an approval for one call.

    `always_expires_s`: lifetime of an approval for a tool within a task or repository.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    expires_s: float = Field(default=3600.0, gt=0, le=30 * 86_400)
    always_expires_s: float = Field(default=604_800.0, gt=0, le=365 * 86_400)
    risk: dict[Risk, Decision] = Field(default_factory=dict)
    tools: dict[str, Decision] = Field(default_factory=dict)

    def decide(self, tool: str, risk: Risk) -> Decision:
        """Decide about a call of one tool. Pure."""
        return self.tools.get(tool, self.risk.get(risk, Decision.DENY))

    @property
    def version(self) -> str:
        """A hash of the whole policy: an approval under another version is not valid."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


def load_approval_policy(shipped: Path, operator_file: Path) -> ApprovalPolicy:
    """Load both files, merged by key; the operator's may be missing. Raises: `policy_violation` for an invalid file."""
    merged: dict[str, object] = {}
    for path in (shipped, operator_file):
        for key, value in _read(path, required=path == shipped).items():
            before = merged.get(key)
            merged[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    try:
        return ApprovalPolicy.model_validate(merged)
    except ValidationError as error:
        raise _unusable(operator_file if operator_file.exists() else shipped, error) from error


def _read(path: Path, *, required: bool) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if required:
            raise _unusable(path, error) from error
        return {}
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: Exception) -> SandboxError:
    return SandboxError(
        ErrorCode.POLICY_VIOLATION,
        f"The approval policy {path} cannot be used",
        details=describe_errors(error),
        hint="docs/agents.md lists its keys.",
    )
