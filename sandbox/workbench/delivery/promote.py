"""Use-cases on releases: put a candidate that passed in use, confirm it, switch back, list.

We never start what is promoted: the application's own launcher does, and confirms. What is not confirmed in time is
switched back by the controller that waits, or after its death by the next one (docs/adr/0112).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandbox.checks.host_libraries import find_missing
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Verdict
from sandbox.models.checks import ReleaseRule
from sandbox.models.releases import ReleaseManifest, ReleaseState
from sandbox.store.candidates import find_candidate
from sandbox.store.records import find_repository, find_task
from sandbox.store.release_folder import (
    Releases,
    list_release_owners,
    open_releases,
    staged_release,
    write_release_file,
)
from sandbox.store.verdicts import find_last_run
from sandbox.text import format_utc
from sandbox.workbench.checks.launch_candidate import CandidateSource, find_source
from sandbox.workbench.checks.tree_bindings import bind_launch
from sandbox.workbench.controller import release_watch
from sandbox.workbench.controller.disk_admission import Demand, Writer
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import TreeSource
from sandbox.workbench.tasks.approved_state import ASK_AGAIN, describe_owner, join_state, require_approved_state
from sandbox.workbench.tasks.status import count_uncommitted

_CHUNK = 1 << 20
_SHOWN_CHARS = 300


@dataclass(frozen=True)
class Promotable:
    """A candidate that may become a release: its files, kept by us since its room, and what they are. `commit`: the
    last one of the task; the candidate may be of another one with the same tree.
    """

    commit: str
    rule: ReleaseRule
    files: Path
    manifest: ReleaseManifest


def find_promotable(services: Services, owner_id: str) -> Promotable:
    """The candidate of the last commit, if it may become a release on this host.

    Raises: as `find_source` and `bind_launch`; `invalid_input` for a profile without `[promote]`; `gate_closed`
    without a candidate that passed, or without the artifacts that are asked for; `policy_violation` for what this host
    cannot run.
    """
    source = find_source(services, owner_id)
    rule = source.profile.release
    if rule is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The profile '{source.profile.full_name}' does not say what a release has",
            hint="Give it a table [promote]: docs/applications.md shows one.",
        )
    files, manifest = _find_passed(services, source)
    if manifest.artifacts != rule.artifacts:
        raise SandboxError(
            ErrorCode.GATE_CLOSED,
            f"The candidate of tree {source.tree[:12]} has the artifacts of an earlier [promote] of the profile",
            details=f"kept: {_list_artifacts(manifest.artifacts)}\nasked for now: {_list_artifacts(rule.artifacts)}",
            hint=f"sandbox candidate {source.owner} --no-cache",
        )
    if manifest.problem:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The artifacts of tree {source.tree[:12]} cannot be a release",
            details=manifest.problem,
            hint="Change the build or [promote] of the profile, and launch the candidate again.",
        )
    if missing := find_missing(manifest):
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"This host lacks what the release needs: {', '.join(map(ascii, missing))[:300]}",
            hint="Install the libraries on this host, or let the build add them to the release.",
            data={"missing": list(missing)},
        )
    return Promotable(source.commit, rule, files, manifest)


def _list_artifacts(artifacts: tuple[str, ...]) -> str:
    return ", ".join(map(ascii, artifacts))[:_SHOWN_CHARS] or "not known"


def _find_passed(services: Services, source: CandidateSource) -> tuple[Path, ReleaseManifest]:
    binding = bind_launch(services, source.profile, TreeSource(source.repo_id, source.git, source.tree, source.commit))
    run = find_last_run(services.home, binding)
    if run is None or run.verdict is not Verdict.PASSED:
        raise SandboxError(
            ErrorCode.GATE_CLOSED,
            f"No candidate of tree {source.tree[:12]} has passed",
            hint=f"sandbox candidate {source.owner}",
        )
    found = find_candidate(services.home, source.repo_id, binding.key)
    if found is None:
        raise SandboxError(
            ErrorCode.GATE_CLOSED,
            f"The artifacts of the candidate of tree {source.tree[:12]} are not kept any more",
            hint=f"sandbox candidate {source.owner} --no-cache",
        )
    return found


def promote(
    services: Services,
    owner_id: str,
    *,
    expected_commit: str | None = None,
    wait_s: float | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> ReleaseState:
    """Make the candidate of the last commit the release in use, and wait until it is confirmed or switched back, for at
    most `wait_s` seconds. A thread of this controller goes on waiting after that.

    `expected_commit`: the commit that was approved, or the state of `find_promotion_state`. Raises: as
    `find_promotable`; `stale_hash` for another commit; `conflict` for other artifacts than those that were approved, or
    another release in use, and while another promotion waits for its confirmation; `unsafe_path`, `quota_exceeded`,
    `internal` for changed artifacts.
    """
    uncommitted = _count_uncommitted(services, owner_id)
    state = _promote(services, owner_id, expected_commit, watched=wait_s is not None)
    if state.pending is not None:
        state = release_watch.wait_for_confirmation(services, state.repo_id, wait_s, cancelled)
    return state.model_copy(update={"uncommitted": uncommitted})


def _promote(services: Services, owner_id: str, expected_commit: str | None, *, watched: bool) -> ReleaseState:
    found = find_promotable(services, owner_id)
    manifest = found.manifest
    if expected_commit is not None and found.commit != expected_commit.partition(" ")[0]:
        raise SandboxError(
            ErrorCode.STALE_HASH, "The task has another commit than the one that was approved", hint="Ask again."
        )
    repo_id = manifest.repo_id
    size = Demand(sum(file.size for file in manifest.files), len(manifest.files))
    with open_releases(services.home, repo_id) as releases:
        _require_ready(services, owner_id, found, expected_commit, releases)
    with services.disk.admit(Writer.CHECKOUT, size), staged_release(services.home, repo_id) as staged:
        _copy_kept(services, found, staged)
        with open_releases(services.home, repo_id) as releases:
            _require_ready(services, owner_id, found, expected_commit, releases)
            name = releases.publish(staged, manifest)
            if name == releases.state.current:
                return releases.state
            releases.promote(name, datetime.now(UTC) + timedelta(seconds=found.rule.confirm_s))
        state = releases.state
    if watched:
        release_watch.watch_release(services, repo_id)
    return state


def _count_uncommitted(services: Services, owner_id: str) -> int | None:
    return count_uncommitted(services, find_task(services.home, owner_id)) if owner_id.startswith("task-") else None


def _require_ready(
    services: Services, owner_id: str, found: Promotable, expected_commit: str | None, releases: Releases
) -> None:
    """Before the files are copied, without the lock; and once they are, under the lock that the switch needs.

    Raises: `conflict` while another release waits, or for another state than the one that was approved.
    """
    releases.settle()
    _require_none_pending(releases)
    current = releases.state.current
    require_approved_state(
        "commit", found.commit, expected_commit, lambda _: _find_facts(services, owner_id, found, current)
    )


def find_promotion_state(services: Services, owner_id: str, found: Promotable, current: str) -> str:
    """What a person approves about a promotion: the commit, the whole manifest with the digest of each file, and the
    release in use: `current`, by its name. Raises: as `describe_owner`.
    """
    return join_state(found.commit, _find_facts(services, owner_id, found, current))


def _find_facts(services: Services, owner_id: str, found: Promotable, current: str) -> dict[str, str | bool | None]:
    """A candidate is found by what its verdict is bound to, and one tree can be built twice: with other files."""
    manifest = hashlib.sha256(found.manifest.model_dump_json().encode()).hexdigest()
    return {**describe_owner(services.home, owner_id), "artifacts": manifest, "instead_of": current}


def _copy_kept(services: Services, found: Promotable, staged: Path) -> None:
    """As `_copy`. Raises: also `conflict` when another run of the candidate replaced the files meanwhile."""
    manifest = found.manifest
    try:
        _copy(found, staged)
    except (SandboxError, OSError) as error:
        now = find_candidate(services.home, manifest.repo_id, manifest.key)
        if now is not None and now[1] == manifest:
            raise
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"Another run replaced the artifacts of the candidate of tree {manifest.tree[:12]}, or removed them",
            hint=ASK_AGAIN,
        ) from error


def _require_none_pending(releases: Releases) -> None:
    pending, repo_id = releases.state.pending, releases.state.repo_id
    if pending is not None:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"Release {pending.release[:12]} waits for its confirmation until {format_utc(pending.until)}",
            hint=f"Confirm it, with `sandbox promote --confirm {repo_id}`; put the one before in use again, with "
            f"`sandbox promote --rollback {repo_id}`; or wait.",
        )


def _copy(found: Promotable, staged: Path) -> None:
    """Copy what was kept, and compare it with the manifest. Raises: `internal` for a difference."""
    for file in found.manifest.files:
        digest = hashlib.sha256()
        chunks = _read_chunks(found.files / file.path, digest.update)
        write_release_file(staged, file.path, chunks, executable=file.executable)
        if f"sha256:{digest.hexdigest()}" != file.sha256:
            raise SandboxError(
                ErrorCode.INTERNAL,
                f"The kept artifact {file.path!a} is not what passed",
                hint="Another program changed the home. Launch the candidate again, with --no-cache.",
            )


def _read_chunks(path: Path, seen: Callable[[bytes], None]) -> Iterator[bytes]:
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            seen(chunk)
            yield chunk


def wait_release(
    services: Services, owner_id: str, wait_s: float | None, cancelled: Callable[[], bool]
) -> ReleaseState:
    """As `release_watch.wait_for_confirmation`, of a repository or of a task's."""
    return release_watch.wait_for_confirmation(services, _repo_of(services, owner_id), wait_s, cancelled)


def confirm(services: Services, owner_id: str) -> ReleaseState:
    """Confirm the pending release. Raises: `not_found` when none waits, also because it was switched back."""
    with open_releases(services.home, _repo_of(services, owner_id)) as releases:
        releases.settle()
        if releases.state.pending is None:
            raise SandboxError(
                ErrorCode.NOT_FOUND,
                f"No release of {releases.state.repo_id} waits for a confirmation",
                hint=f"sandbox promote --history {releases.state.repo_id}",
            )
        releases.confirm()
        return releases.state


def roll_back(services: Services, owner_id: str) -> ReleaseState:
    """Put the release before the one in use in use again; one that is pending is switched back.

    Raises: `not_found` without one before.
    """
    with open_releases(services.home, _repo_of(services, owner_id)) as releases:
        releases.settle()
        if releases.state.pending is not None:
            releases.switch_back()
        else:
            releases.roll_back()
        return releases.state


def read_releases(services: Services, owner_id: str) -> ReleaseState:
    """What is in use, what was before, and the history."""
    return release_watch.settle_release(services, _repo_of(services, owner_id))


def _repo_of(services: Services, owner_id: str) -> str:
    if owner_id.startswith("task-"):
        return find_task(services.home, owner_id, allow_closed=True).repo_id
    if owner_id in list_release_owners(services.home):  # also of a repository that was removed: one may be in use
        return owner_id
    return find_repository(services.home, owner_id).id
