"""The policies and profiles in force: as shipped, with the operator's files applied."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.shipped_files import find_resources
from sandbox.workbench.controller.once import Once

if TYPE_CHECKING:
    import tomllib

    from sandbox import profiles as profile_files
    from sandbox.config import ProjectSettings, Settings
    from sandbox.engine import create_options
    from sandbox.policy import approvals as approval_policies
    from sandbox.policy import commit as commit_policies
    from sandbox.policy import container as container_policies
    from sandbox.policy import writes as path_policies
    from sandbox.policy.approvals import ApprovalPolicy
    from sandbox.policy.commit import CommitPolicy
    from sandbox.policy.container import EffectiveContainerPolicy
    from sandbox.policy.writes import PathPolicy
    from sandbox.profiles import Profile
else:  # loaded at first use: a listing needs none of them (docs/adr/0003)
    tomllib = LazyModule("tomllib")
    profile_files = LazyModule("sandbox.profiles")
    create_options = LazyModule("sandbox.engine.create_options")
    approval_policies = LazyModule("sandbox.policy.approvals")
    commit_policies = LazyModule("sandbox.policy.commit")
    container_policies = LazyModule("sandbox.policy.container")
    path_policies = LazyModule("sandbox.policy.writes")


@dataclass(frozen=True)
class Policies:
    """Each file is loaded at its first use, and once. `root`: of the home, with the operator's `policies` and
    `profiles`. `load_settings`: of the controller; None: as without a configuration file.
    """

    root: Path
    load_settings: Callable[[], Settings] | None = None
    once_lock: threading.RLock = field(default_factory=threading.RLock)  # see `Once`

    @Once
    def shipped_container(self) -> EffectiveContainerPolicy:
        """The container policy as shipped, for values that no operator's file can change."""
        return container_policies.load_container_policy(find_resources("policies"))

    @Once
    def container(self) -> EffectiveContainerPolicy:
        """The container policy in force: the shipped one with `$SANDBOX_HOME/policies/container.toml` applied."""
        shipped, own = self.shipped_container, self.root / "policies" / "container.toml"
        if not own.exists():
            return shipped
        return container_policies.merge_operator_container_policy(shipped, own, create_options.is_protected_variable)

    @Once
    def paths(self) -> PathPolicy:
        """The paths that edits may write: the shipped policy with `$SANDBOX_HOME/policies/paths.toml` applied."""
        return path_policies.load_path_policy(*self._find_files("paths.toml"))

    @Once
    def approvals(self) -> ApprovalPolicy:
        """The agent calls that need a person's decision: the shipped policy with the operator's file applied."""
        shipped, own = self._find_files("approvals.toml")
        policy = approval_policies.load_approval_policy(shipped, own)
        if policy.when is not None:
            approval_policies.require_known_flags(policy.when, [rule.name for rule in self.paths.rules], own)
        return policy

    def _find_files(self, name: str) -> tuple[Path, Path]:
        """The shipped file of a policy and the operator's, which may not exist."""
        return find_resources("policies") / name, self.root / "policies" / name

    @Once
    def commits(self) -> CommitPolicy:
        """The new files that a commit refuses by default: the shipped policy with the operator's file applied."""
        shipped = commit_policies.load_commit_policy(find_resources("policies"))
        own = self.root / "policies" / "commit.toml"
        return commit_policies.merge_operator_commit_policy(shipped, own) if own.exists() else shipped

    @Once
    def profiles(self) -> dict[str, Profile]:
        """Shipped profiles; a profile in `$SANDBOX_HOME/profiles/` replaces the shipped one of the same name."""
        folders = (find_resources("policies") / "profiles", self.root / "profiles")
        return profile_files.load_profiles(folders, self.workspace)

    @Once
    def profiles_digest(self) -> str:
        """A hash of the files that `profiles` reads; '' if one cannot be read."""
        shipped = find_resources("policies")
        folders = (shipped / "profiles", self.root / "profiles")
        files = (shipped / "container.toml", *(path for folder in folders for path in sorted(folder.glob("*.toml"))))
        try:
            hashed = [f"{path}={sha256(path.read_bytes()).hexdigest()}" for path in files]
        except OSError:
            return ""
        return sha256("\n".join(hashed).encode(errors="surrogateescape")).hexdigest()

    @Once
    def projects(self) -> Mapping[str, tuple[ProjectSettings, ...]]:
        """The projects that the configuration file declares, by repository."""
        settings = self.load_settings() if self.load_settings else None
        return {name: repository.project for name, repository in settings.repositories.items()} if settings else {}

    @property
    def workspace(self) -> PurePosixPath:
        """Where guests find the worktree: no operator's file can change it."""
        return PurePosixPath(self.shipped_container.container.mounts.workspace)

    @property
    def pristine_owner(self) -> tuple[int, int] | None:
        """uid and gid for the files of pristine checkouts; None when this process may not change owners."""
        return self._shipped_owner if os.geteuid() == 0 else None

    @Once
    def _shipped_owner(self) -> tuple[int, int]:
        """From the shipped file alone, which no operator's file changes: each short command asks for it."""
        user = tomllib.loads((find_resources("policies") / "container.toml").read_text(encoding="utf-8"))["user"]
        return user["uid"], user["gid"]
