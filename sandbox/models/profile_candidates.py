"""Which profiles a commit matches, and why."""

from __future__ import annotations

from sandbox.models.checks import Check
from sandbox.models.dependencies import RefusedEntry
from sandbox.models.ids import ObjectId, PackageName, RepoId
from sandbox.models.layers import LayerEcosystem
from sandbox.models.model import Model
from sandbox.models.remarks import Remark
from sandbox.models.service_rules import ServiceRule
from sandbox.models.suggestions import SuggestedPart, SuggestionNote


class ProfileCandidate(Model):
    """A profile that a commit matches. `weight`: the strongest evidence found; the candidate with the most is used.

    `why`: a text for each piece of evidence, `file` or `file: what was found in it`, which is text of the repository.
    `packages`: Debian packages that the image gets. `checks`, `services`: what would run, after the operator's settings
    and with the trusted suggestions of the repository for the profile that is used. `problem`: why the profile's file
    cannot be used.
    """

    name: str
    label: str
    image: str
    weight: int
    why: tuple[str, ...]
    packages: tuple[PackageName, ...] = ()
    checks: tuple[Check, ...]
    services: tuple[ServiceRule, ...] = ()
    problem: str = ""


class ProjectCandidate(Model):
    """A folder that holds a project. `used`: its checks run, since the operator declared it; else `name` is a proposal,
    '' if the folder's name gives none.
    """

    name: str
    subpath: str
    profile: str
    image: str
    checks: tuple[Check, ...]
    used: bool


class WantedPackages(Model):
    """Packages that the manifests of a commit ask for. `subpath`: where these are, '' for the top. `hosts`: of the
    registries, with ports; none if they cannot be used. `packages`: names and versions, without what those need.
    `refused`: entries that are not used. `asks_build`: a guest without a network asks the project's build for more.
    """

    ecosystem: LayerEcosystem
    subpath: str = ""
    hosts: tuple[str, ...]
    packages: tuple[str, ...]
    refused: tuple[RefusedEntry, ...] = ()
    asks_build: bool = False


class ProfileCandidates(Model):
    """The profiles that a commit matches, the one that is used first; `generic` alone if it matches none.

    `suggested`: what other files of the commit suggest, such as its CI. `notes`: what they ask for that cannot be used.
    `advice`: what decides whether checks can run, such as projects in folders. `projects`: all that are declared or
    were seen in folders. `missing_image`: that of the profile that is used, if the engine does not have it; '' also if
    no engine was asked. `missing_image_hint`: what to do about that, if the first check cannot build it.
    `fetches`: what a run would fetch for the profile that is used, if no layer has it.
    """

    repo_id: RepoId
    ref: str
    commit: ObjectId
    candidates: tuple[ProfileCandidate, ...]
    suggested: tuple[SuggestedPart, ...] = ()
    notes: tuple[SuggestionNote, ...] = ()
    advice: tuple[Remark, ...] = ()
    projects: tuple[ProjectCandidate, ...] = ()
    missing_image: str = ""
    missing_image_hint: str = ""
    fetches: tuple[WantedPackages, ...] = ()
