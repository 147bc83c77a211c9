"""Operations outside tasks. Each is written into the home's journal: the remote, host or file, never a secret."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError
from sandbox.workbench import usecases as use
from sandbox.workbench.controller.callers import clipped
from sandbox.workbench.controller.journaling import recorded_at_home

if TYPE_CHECKING:  # a command loads the shapes that it uses (docs/adr/0003)
    from sandbox.models import (
        AttackReport,
        CloneResult,
        CredentialInfo,
        FetchResult,
        Probe,
        Reconciliation,
        Repository,
        RepositoryRemoval,
        RunSummary,
        Suggestion,
    )
    from sandbox.workbench.checks.callbacks import Watch
    from sandbox.workbench.checks.verify_options import VerifyOptions
    from sandbox.workbench.controller.services import Parts


def clone(services: Parts, url: str, *, partial: bool) -> CloneResult:
    """As `repositories.clone.clone`."""
    remote = _remote(services, url)
    with recorded_at_home(services, "clone", {"url": remote, "partial": partial}, facts={"remote": remote}) as operation:
        result = use.clone.clone(services, url, partial=partial)
        operation.note(result.repository.id)
    return result


def fetch(services: Parts, url: str, ref: str, subpath: str | None) -> FetchResult:
    """As `repositories.clone.fetch`."""
    remote = _remote(services, url)
    arguments = {"url": remote, "ref": ref, "subpath": subpath}
    with recorded_at_home(services, "fetch", arguments, facts={"remote": remote, "ref": clipped(ref)}) as operation:
        result = use.clone.fetch(services, url, ref, subpath)
        operation.note(commit=result.commit_sha)
    return result


def materialize(services: Parts, repo_id: str) -> Repository:
    """As `repositories.clone.materialize`."""
    with recorded_at_home(services, "materialize", {"repo_id": repo_id}, names=[repo_id]):
        return use.clone.materialize(services, repo_id)


def remove(services: Parts, repo_id: str, *, discard: bool) -> RepositoryRemoval:
    """As `remove_repository.remove`."""
    arguments = {"repo_id": repo_id, "discard": discard}
    facts = {"discard": _word(discard)}
    with recorded_at_home(services, "remove", arguments, names=[repo_id], facts=facts) as operation:
        result = use.remove_repository.remove(services, repo_id, discard=discard)
        operation.note(remote=result.remote_url or "", lost=str(len(result.lost)))
    return result


def trust(services: Parts, repo_id: str, sha256: str, by: str) -> Suggestion:
    """As `repositories.trust.trust`."""
    arguments = {"repo_id": repo_id, "sha256": sha256, "by": by}
    with recorded_at_home(services, "trust", arguments, names=[repo_id, sha256, by]):
        return use.trust.trust(services, repo_id, sha256, by)


def distrust(services: Parts, repo_id: str) -> Suggestion:
    """As `repositories.trust.distrust`."""
    with recorded_at_home(services, "distrust", {"repo_id": repo_id}, names=[repo_id]):
        return use.trust.distrust(services, repo_id)


def set_credential(services: Parts, host: str, **fields: object) -> CredentialInfo:
    """As `credentials.put`. The journal does not even contain a digest of the secret."""
    name = _host_only(host)
    with recorded_at_home(services, "credential-set", {"host": name}, names=[name]) as operation:
        result = use.credentials.put(services, host=host, **fields)
        operation.note(kind=result.kind, store=result.store)
    return result


def remove_credential(services: Parts, host: str) -> CredentialInfo:
    """As `credentials.remove`."""
    name = _host_only(host)
    with recorded_at_home(services, "credential-remove", {"host": name}, names=[name]):
        return use.credentials.remove(services, host)


def run(
    services: Parts,
    place: tuple[str, str],
    wanted: Sequence[str],
    profile_name: str | None,
    watch: Watch,
    options: VerifyOptions,
) -> RunSummary:
    """As `verify.run_url`."""
    (url, ref), remote = place, _remote(services, place[0])
    arguments = {"url": remote, "ref": ref, "checks": list(wanted), "profile": profile_name}
    with recorded_at_home(services, "run", arguments, facts={"remote": remote, "ref": clipped(ref)}) as operation:
        result = use.verify.run_url(services, (url, ref), wanted, profile_name, watch, options)
        operation.note(*(f"{run.check_id} {run.verdict.value}" for run in result.runs))
        operation.note(commit=result.commit, tree=result.tree, profile=result.profile, verified=_word(result.verified))
    return result


def collect(services: Parts, *, dry_run: bool) -> Reconciliation:
    """As `reconciling.collect`. A dry run has no effect and is not journaled."""
    if dry_run:
        return use.reconciling.collect(services, dry_run=True)
    with recorded_at_home(services, "gc", {}) as operation:
        result = use.reconciling.collect(services)
        operation.note(**_leftovers(result))
    return result


def forget(services: Parts, refs: Sequence[str]) -> Reconciliation:
    """As `reconciling.forget`."""
    with recorded_at_home(services, "gc-forget", {"refs": list(refs)}) as operation:
        result = use.reconciling.forget(services, refs)
        operation.note(**_leftovers(result))
    return result


def doctor(services: Parts) -> tuple[Probe, ...]:
    """As `controller.doctor.doctor`. Never raises, even if the home cannot be written."""
    probes = use.doctor.doctor(services)
    facts = {probe.name: probe.level.value for probe in probes}
    with suppress(SandboxError, OSError), recorded_at_home(services, "doctor", {}, facts=facts):
        pass
    return probes


def note_attacks(services: Parts, report: AttackReport) -> None:
    """Record the results of the attacks on this host: the counts, and each attack that was not held off."""
    counts = {"safe": _word(report.safe), "held": str(report.held), "got_through": str(report.got_through)}
    others = {result.id: result.outcome.value for result in report.results if result.outcome.value != "held"}
    with recorded_at_home(services, "doctor-attack", {}, facts={**counts, **others}):
        pass


def _remote(services: Parts, url: str) -> str:
    """The URL without credentials; empty for a refused URL, which may contain some."""
    try:
        return clipped(services.remote(url).url)
    except SandboxError:
        return ""


def _host_only(host: str) -> str:
    """The host without a user name and password, if a URL was given instead of a host."""
    return host.rpartition("@")[2]


def _leftovers(result: Reconciliation) -> dict[str, str]:
    """The action for each leftover, by number."""
    done = (f"{left.action.value} {left.kind} {clipped(left.name)}" for left in result.leftovers)
    return {str(number): text for number, text in enumerate(done, start=1)}


def _word(value: bool) -> str:
    return "true" if value else "false"
