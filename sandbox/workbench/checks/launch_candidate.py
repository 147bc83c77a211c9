"""Launch the application of a commit in a clean room and probe it: is this tree a candidate for a release?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from sandbox.checks.artifacts import collect_artifacts
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import objects
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.models import CheckRun, Verdict, Verification
from sandbox.models.releases import ReleaseManifest
from sandbox.models.words import LAUNCH
from sandbox.profiles import Profile
from sandbox.store.candidates import FILES, save_candidate, staged_candidate
from sandbox.store.records import find_task
from sandbox.store.verdicts import Binding
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.chains import is_verified
from sandbox.workbench.checks.check_order import order_checks
from sandbox.workbench.checks.clean_rooms import KeepArtifacts, VerifyRequest, run_in_rooms
from sandbox.workbench.checks.git_facts import add_git_facts
from sandbox.workbench.checks.verify_options import VerifyOptions
from sandbox.workbench.controller.disk_admission import Demand, Writer
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import TreeSource
from sandbox.workbench.repositories.profile_checks import load_owner_profile
from sandbox.workbench.tasks.approved_state import require_approved
from sandbox.workbench.tasks.lifecycle import require_approved_task
from sandbox.workbench.tasks.status import count_uncommitted


@dataclass(frozen=True)
class CandidateSource:
    """The commit of a task or repository, with the profile that says how to launch it."""

    owner: str
    repo_id: str
    git: Git
    commit: str
    base_commit: str
    profile: Profile

    @property
    def tree(self) -> str:
        return objects.tree_of(self.git, self.commit)


def find_source(services: Services, owner_id: str) -> CandidateSource:
    """The last commit of a task, or the head of a repository's default branch.

    Raises: `not_found`, `conflict` for a closed task, `invalid_input` for a profile without `[launch]`.
    """
    found = services.repositories.find_owner_commit(owner_id)
    git, commit = found.git, found.commit
    profile = add_git_facts(load_owner_profile(services, found), git, commit)
    source = CandidateSource(found.owner_id, found.repository.id, git, commit, found.base_commit, profile)
    if source.profile.launch is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The profile '{profile.full_name}' does not say how to launch an application",
            hint="Give it a table [launch]: docs/applications.md shows one.",
        )
    return source


def launch_candidate(
    services: Services, owner_id: str, watch: Watch, options: VerifyOptions, expected_tree: str | None = None
) -> Verification:
    """Build, launch and probe the application in one clean room, or answer from cached verdicts. The last run is that
    of the launch; `verified`: every check before it and every phase of it passed.

    `expected_tree`: the working state of a task that was approved. Raises: `conflict` for another one; as
    `find_source`, `order_checks` and `run_in_rooms`.
    """
    source = find_source(services, owner_id)
    if expected_tree is not None:
        _require_approved(services, source, expected_tree)
    profile, tree = source.profile.with_launch(), source.tree
    checks = order_checks(profile, [LAUNCH], services.policies.container.container)
    base_tree = objects.tree_of(source.git, source.base_commit)
    rooms = TreeSource(source.repo_id, source.git, tree, source.commit, base_tree)
    take = partial(_take_artifacts, services, source) if profile.release else None
    runs = run_in_rooms(services, rooms, VerifyRequest(profile, checks, source.owner, take), watch, options)
    found = Verification(runs=runs, verified=is_verified(runs, checks), tree=tree, commit=source.commit)
    if source.owner == source.repo_id:
        return found
    left_out = count_uncommitted(services, find_task(services.home, source.owner))
    return found.model_copy(update={"uncommitted": left_out})


def _require_approved(services: Services, source: CandidateSource, approved: str) -> None:
    task = find_task(services.home, source.owner)
    require_approved("commit", source.commit, task.head_commit)
    require_approved("base", source.base_commit, task.base_commit)
    require_approved_task(services, task, approved)


@contextmanager
def _take_artifacts(
    services: Services, source: CandidateSource, room: Path, binding: Binding
) -> Iterator[KeepArtifacts]:
    """Copy the artifacts of a room. What a release cannot have is a problem of the release, not of the candidate.

    Raises: `quota_exceeded` for a full disk.
    """
    rule = source.profile.release
    if rule is None:
        raise ValueError("the profile has no [promote]")
    demand = Demand(rule.max_bytes, rule.max_files)
    with services.disk.admit(Writer.CHECKOUT, demand), staged_candidate(services.home, source.repo_id) as staged:
        found: dict[str, object] = {}
        try:
            collected = collect_artifacts(room, rule, staged / FILES)
            found = {name: getattr(collected, name) for name in ("files", "libraries", "interpreters", "machines")}
        except SandboxError as error:
            found = {"problem": ": ".join(text for text in (error.brief, error.details) if text)}

        def keep(run: CheckRun) -> None:
            if run.verdict is not Verdict.PASSED:
                return
            manifest = ReleaseManifest.model_validate(
                {
                    "repo_id": source.repo_id,
                    "tree": binding.tree,
                    "commit": source.commit,
                    "key": binding.key,
                    "image_digest": binding.image_digest,
                    "run_id": run.run_id,
                    "created_at": datetime.now(UTC),
                    "artifacts": rule.artifacts,
                    **found,
                }
            )
            save_candidate(services.home, staged, manifest)

        yield keep
