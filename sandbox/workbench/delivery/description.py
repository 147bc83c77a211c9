"""The facts that a pull request states about a task, gathered from the task's record."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox import images
from sandbox.config import ContainerSettings
from sandbox.errors import SandboxError
from sandbox.forges.body import Facts, Provenance
from sandbox.gate import Step, required
from sandbox.git.log import subjects
from sandbox.git.objects import tree_of
from sandbox.models import DiffFile, Task
from sandbox.profiles import Profile
from sandbox.version import __version__
from sandbox.workbench.checks import gate
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.controller.profile_images import image_reference
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.delivery.intermediate_files import passing
from sandbox.workbench.delivery.risks import flagged, flagged_paths
from sandbox.workbench.repositories.clone import cache_of
from sandbox.workbench.repositories.commit_facts import profile_of
from sandbox.workbench.repositories.profile_checks import task_profile
from sandbox.workbench.tasks import status


def facts(services: Parts, task: Task, given: str | None = None, *, trusted: bool = False) -> Facts:
    """Facts about the task's last commit. `caller_text`: text of the caller; `trusted`: it comes from a person.

    Without an engine the verdicts are unknown, and the facts say so. Raises: as reading the cache clone.
    """
    _, git = cache_of(services, task.repo_id)
    tree = tree_of(git, task.head_commit)
    files = status.committed(services, task)
    profile = task_profile(services, task)
    known = gate.known_if_any(services, profile, tree)
    return Facts(
        prompt=task.prompt,
        given=given,
        trusted=trusted,
        commits=subjects(git, task.base_commit, task.head_commit),
        files=files,
        runs=tuple(run for run in known.said.values() if run is not None),
        missing=tuple(name for name, run in known.said.items() if run is None),
        tree=tree,
        head=task.head_commit,
        verified=known.verified,
        unknown=known.unknown,
        gate=_gate(services, known.verified),
        risks=_risks(services, task, files),
        profile=profile.name,
        provenance=_provenance(services, task, profile, known.made),
    )


def _provenance(services: Parts, task: Task, profile: Profile, made: GuestSetup | None) -> Provenance:
    return Provenance(
        image=image_reference(services, profile) if made else "",
        image_digest=made.image_digest if made else "",
        wheelhouse=_wheelhouse(services, made),
        runtime=made.runtime if made else "",
        version=__version__,
        command=_again(services, task, profile, made),
    )


def _wheelhouse(services: Parts, made: GuestSetup | None) -> str:
    """Digest of the wheelhouse; empty when there is none, or when the engine does not answer any more."""
    try:
        return images.wheelhouse_of(services.image_site, made.image_digest) if made else ""
    except SandboxError:
        return ""


def _again(services: Parts, task: Task, profile: Profile, made: GuestSetup | None) -> tuple[str, ...]:
    """The command with which a reviewer gets the same verdicts on their own host.

    It names the profile if the commit alone would select another one: a task keeps the profile of its base.
    """
    repository, git = cache_of(services, task.repo_id)
    words = ["sandbox", "run", repository.remote_url, "--ref", task.head_commit]
    if profile_of(services, task.repo_id, git, task.head_commit).name != profile.name:
        words += ["--profile", profile.name]
    if made is not None and made.runtime != ContainerSettings().runtime:
        words += ["--runtime", made.runtime]
    return tuple(words)


def _risks(services: Parts, task: Task, files: Sequence[DiffFile]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Risky files of the whole change, and risky files that one commit added and a later commit removed."""
    earlier = flagged_paths(services, task, passing(services, task, files))
    return (*flagged(services, task, files), *((path, (*flags, "in an earlier commit")) for path, flags in earlier))


def _gate(services: Parts, verified: bool | None) -> str:
    """What the setting `gate.require` demands of a pull request, and whether the tree fulfils it."""
    require = services.settings.gate.require
    steps = [
        words
        for step, words in ((Step.DRAFT_PR, "a draft"), (Step.READY_PR, "a request that is ready"))
        if required(step, require)
    ]
    if not steps:
        return "The gate demands no verification of pull requests."
    state = {True: "satisfied", False: "not satisfied", None: "unknown"}[verified]
    return f"The gate demands it of {' and of '.join(steps)}: {state}."
