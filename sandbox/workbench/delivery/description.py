"""The facts that a pull request states about a task, gathered from the task's record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sandbox import images
from sandbox.config import ContainerSettings
from sandbox.errors import SandboxError
from sandbox.forges.body import BodyFacts, Provenance, RoomProvenance
from sandbox.gate import DeliveryStep, needs_verification
from sandbox.git.log import list_subjects
from sandbox.models import DiffFile, Task
from sandbox.models.words import LAUNCH
from sandbox.profiles import Profile
from sandbox.version import __version__
from sandbox.workbench.checks import gate
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.controller.profile_images import describe_image_choice
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery.intermediate_files import find_intermediate_paths, find_paths_below_base
from sandbox.workbench.delivery.risks import find_risky_files, find_risky_paths
from sandbox.workbench.repositories.commit_facts import load_facts
from sandbox.workbench.repositories.commit_settings import complete_settings
from sandbox.workbench.repositories.repository_settings import choose_profile, read_settings
from sandbox.workbench.tasks import status
from sandbox.workbench.tasks.impact import describe_files

if TYPE_CHECKING:
    from sandbox.config import Settings


def gather_facts(
    services: Services,
    task: Task,
    caller_text: str | None = None,
    *,
    trusted: bool = False,
    tree_gate: gate.TreeGate | None = None,
) -> BodyFacts:
    """Facts about the task's last commit. `caller_text`: text of the caller; `trusted`: it comes from a person.
    `tree_gate`: the gate as the caller has seen it.

    Without an engine the verdicts are unknown, and the facts say so. Raises: as reading the cache clone.
    """
    _, git = services.repositories.open(task.repo_id)
    tree_gate = tree_gate or gate.TreeGate(services, task)
    files = status.list_committed_files(services.repositories, task)
    profile = tree_gate.profile
    known = tree_gate.try_verdicts()
    ran = {**known.runs, **({LAUNCH: known.candidate} if profile.launch is not None else {})}
    comparison = None if known.unknown else tree_gate.try_comparison()
    return BodyFacts(
        prompt=task.prompt,
        caller_text=caller_text,
        trusted=trusted,
        commits=list_subjects(git, task.base_commit, task.head_commit),
        files=files,
        runs=tuple(run for run in ran.values() if run is not None),
        missing=tuple(name for name in known.missing if name != gate.BASE and ran.get(name) is None),
        tree=tree_gate.tree,
        head=task.head_commit,
        verified=known.verified,
        base_refusal=known.base_refusal,
        unknown_reason=known.unknown,
        gate=_describe_gate(services.settings, known.verified, comparison is not None and tree_gate.compared_well),
        risks=_find_risks(services.repositories, services.policies, task, files),
        profile=profile.full_name,
        provenance=_provenance(services, task, profile, known.setups),
        impact=describe_files(profile, files),
        comparison=comparison,
    )


def _provenance(services: Services, task: Task, profile: Profile, setups: Mapping[str, GuestSetup]) -> Provenance:
    parts = {part.project_name: part for part in profile.parts if part.project_name in setups}
    return Provenance(
        rooms=tuple(
            RoomProvenance(
                project=name,
                image=describe_image_choice(services.settings, part),
                image_digest=setups[name].image_digest,
                wheelhouse=_wheelhouse(services, setups[name]),
                runtime=setups[name].runtime,
            )
            for name, part in parts.items()
        ),
        version=__version__,
        command=_reproduce_command(services, task, profile, setups),
    )


def _wheelhouse(services: Services, setup: GuestSetup) -> str:
    """Digest of the wheelhouse; empty when there is none, or when the engine does not answer any more."""
    try:
        return images.read_wheelhouse_digest(services.image_build_context, setup.image_digest)
    except SandboxError:
        return ""


def _reproduce_command(
    services: Services, task: Task, profile: Profile, setups: Mapping[str, GuestSetup]
) -> tuple[str, ...]:
    """The command with which a reviewer gets the same verdicts on their own host.

    It names the profile if the commit alone would select another one: a task keeps the profile of its base.
    """
    repository, git = services.repositories.open(task.repo_id)
    words = ["sandbox", "run", repository.remote_url, "--ref", task.head_commit]
    chosen = read_settings(services.home, services.policies, task.repo_id)
    facts = load_facts(services.home, services.policies, task.repo_id, git, task.head_commit)
    chosen = complete_settings(services.home, services.policies, task.repo_id, facts, chosen)
    if task.profile or choose_profile(services.policies, facts, chosen).name != profile.name:
        words += ["--profile", profile.name]
    if profile.folder:
        words += ["--subpath", profile.folder]
    used = {part.project_name: part.name for part in profile.project_parts}
    for name, project in chosen.projects.items():
        if name in used:
            words += ["--project", f"{name}={project.subpath or '.'}:{used[name]}"]
    runtimes = {setup.runtime for setup in setups.values()} - {ContainerSettings().runtime}
    if len(runtimes) == 1:
        words += ["--runtime", *runtimes]
    return tuple(words)


def _find_risks(
    repositories: RegisteredRepositories, policies: Policies, task: Task, files: Sequence[DiffFile]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Risky files of the whole change, those that one commit added and a later commit removed, and those that come with
    a base that the remote does not have.
    """
    below = find_risky_paths(policies, task, find_paths_below_base(repositories, task))
    earlier = find_risky_paths(policies, task, find_intermediate_paths(repositories, task, files))
    return (
        *find_risky_files(policies, task, files),
        *((path, (*flags, "in an earlier commit")) for path, flags in earlier),
        *((path, (*flags, "below the base")) for path, flags in below),
    )


def _describe_gate(settings: Settings, verified: bool | None, compared_well: bool) -> str:
    """What the setting `gate.require` demands of a pull request, and whether the tree fulfils it. `compared_well`: its
    comparison with the base opens a gate that takes one.
    """
    require = settings.gate.require
    steps = [
        words
        for step, words in ((DeliveryStep.DRAFT_PR, "a draft"), (DeliveryStep.READY_PR, "a request that is ready"))
        if needs_verification(step, require)
    ]
    if not steps:
        return "The gate demands no verification of pull requests."
    if settings.gate.accept == "no-new-failures" and verified is False:
        verified = compared_well
    state = {True: "satisfied", False: "not satisfied", None: "unknown"}[verified]
    return f"The gate demands it of {' and of '.join(steps)}: {state}."
