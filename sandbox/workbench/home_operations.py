"""Operations outside tasks. Each is written into the home's journal: the remote, host or file, never a secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sandbox.errors import SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.store.records import find_repository
from sandbox.workbench import usecases as use
from sandbox.workbench.controller.callers import clip_text
from sandbox.workbench.controller.journaling import Operation, record_home_operation, record_operation
from sandbox.workbench.controller.startup import ensure_recovered

if TYPE_CHECKING:  # a command loads the shapes that it uses (docs/adr/0003)
    from sandbox.models import (
        AttackReport,
        Bisection,
        BisectQuery,
        CloneResult,
        CredentialInfo,
        FetchResult,
        FlakyTest,
        ImageArchive,
        ImageInfo,
        Probe,
        ProfileCandidates,
        PushedReceipt,
        ReceiptKey,
        ReceiptQuestion,
        Reconciliation,
        ReleaseState,
        RemovedLayers,
        RemoveResult,
        ReplayResult,
        Repository,
        RepositoryUpdate,
        RunSummary,
        SignedBundle,
        SignedReceipt,
        Suggestion,
        Verification,
    )
    from sandbox.store import flaky_tests as flaky_records
    from sandbox.workbench.checks.callbacks import Watch
    from sandbox.workbench.checks.verify_options import VerifyOptions
    from sandbox.workbench.controller.services import Services
else:
    flaky_records = LazyModule("sandbox.store.flaky_tests")


def clone(services: Services, url: str, *, partial: bool) -> CloneResult:
    """As `repositories.clone.clone`."""
    remote = _safe_url(services, url)
    with record_home_operation(
        services, "clone", {"url": remote, "partial": partial}, facts={"remote": remote}
    ) as operation:
        result = use.clone.clone(services, url, partial=partial)
        operation.note(result.repository.id)
    return result


def fetch(services: Services, url: str, ref: str, subpath: str | None) -> FetchResult:
    """As `repositories.clone.fetch`."""
    remote = _safe_url(services, url)
    arguments = {"url": remote, "ref": ref, "subpath": subpath}
    with record_home_operation(
        services, "fetch", arguments, facts={"remote": remote, "ref": clip_text(ref)}
    ) as operation:
        result = use.clone.fetch(services, url, ref, subpath)
        operation.note(commit=result.commit_sha)
    return result


def detect_profiles(services: Services, url: str, ref: str) -> ProfileCandidates:
    """As `repositories.detection.detect_profiles`."""
    remote = _safe_url(services, url)
    facts = {"remote": remote, "ref": clip_text(ref)}
    with record_home_operation(services, "detect", {"url": remote, "ref": ref}, facts=facts) as operation:
        result = use.detection.detect_profiles(services, url, ref)
        operation.note(result.repo_id, commit=result.commit)
        fetches = use.wanted_packages.list_wanted_packages(services, result)
    return result.model_copy(update={"fetches": fetches})


def materialize(services: Services, repo_id: str) -> Repository:
    """As `repositories.clone.materialize`."""
    with record_home_operation(services, "materialize", {"repo_id": repo_id}, names=[repo_id]):
        return use.clone.materialize(services, repo_id)


def update_repository(services: Services, repo_id: str) -> RepositoryUpdate:
    """As `updates.update_repository`."""
    with record_home_operation(services, "update", {"repo_id": repo_id}, names=[repo_id]) as operation:
        result = use.updates.update_repository(services, repo_id)
        operation.note(commit=result.after or "")
    return result


def update_repositories(services: Services) -> tuple[RepositoryUpdate, ...]:
    """As `updates.update_all`."""
    with record_home_operation(services, "update", {"all": True}) as operation:
        results = use.updates.update_all(services)
        operation.note(*(result.repo_id for result in results))
    return results


def set_repository(services: Services, repo_id: str, values: Mapping[str, object], unset: Sequence[str]) -> Repository:
    """As `change_settings.change_settings`. The journal has the names of variables, not their values."""
    said = _name_variables(values)
    names = [repo_id, *(clip_text(f"{key}={value}") for key, value in said.items()), *(f"unset {n}" for n in unset)]
    arguments = {"repo_id": repo_id, "values": said, "unset": list(unset)}
    with record_home_operation(services, "repo-set", arguments, names=names):
        return use.change_settings.change_settings(services, repo_id, values, unset)


def _name_variables(values: Mapping[str, object]) -> dict[str, object]:
    """The settings with the names of variables in place of their values, also in projects."""
    return {
        name: sorted(value)
        if name == "env" and isinstance(value, Mapping)
        else _name_variables(value)
        if isinstance(value, Mapping)
        else value
        for name, value in values.items()
    }


def remove(services: Services, repo_id: str, *, discard: bool) -> RemoveResult:
    """As `remove_repository.remove`."""
    arguments = {"repo_id": repo_id, "discard": discard}
    facts = {"discard": _true_or_false(discard)}
    with record_home_operation(services, "remove", arguments, names=[repo_id], facts=facts) as operation:
        result = use.remove_repository.remove(services, repo_id, discard=discard)
        operation.note(remote=result.remote_url or "", lost=str(len(result.lost)))
    return result


def trust(services: Services, repo_id: str, sha256: str, by: str) -> Suggestion:
    """As `repositories.trust.trust`."""
    arguments = {"repo_id": repo_id, "sha256": sha256, "by": by}
    with record_home_operation(services, "trust", arguments, names=[repo_id, sha256, by]):
        return use.trust.trust(services, repo_id, sha256, by)


def bisect(services: Services, repo_id: str, query: BisectQuery, watch: Watch, options: VerifyOptions) -> Bisection:
    """As `checks.bisect.bisect`."""
    arguments = {"repo_id": repo_id, **query.model_dump(mode="json")}
    names = [repo_id, *(clip_text(name) for name in (query.good, query.bad))]
    with record_home_operation(services, "bisect", arguments, names=names) as operation:
        result = use.bisect.bisect(services, use.bisect.BisectQuestion(repo_id, query), watch, options)
        operation.note(commit=result.first_bad.commit if result.first_bad else "")
    return result


def forget_flaky_tests(services: Services, repo_id: str, test: str | None) -> tuple[FlakyTest, ...]:
    """As `store.flaky_tests.forget_flaky_tests`. Raises: `not_found`."""
    find_repository(services.home, repo_id)
    arguments = {"repo_id": repo_id, "test": test}
    with record_home_operation(services, "flaky-forget", arguments, names=[repo_id, clip_text(test or "")]):
        return flaky_records.forget_flaky_tests(services.home, repo_id, test)


def distrust(services: Services, repo_id: str) -> Suggestion:
    """As `repositories.trust.distrust`."""
    with record_home_operation(services, "distrust", {"repo_id": repo_id}, names=[repo_id]):
        return use.trust.distrust(services, repo_id)


def set_credential(services: Services, host: str, **fields: object) -> CredentialInfo:
    """As `credentials.store_credential`. The journal does not even contain a digest of the secret."""
    name = _host_only(host)
    with record_home_operation(services, "credential-set", {"host": name}, names=[name]) as operation:
        result = use.credentials.store_credential(
            services.credentials, services.settings.credentials, host=host, **fields
        )
        operation.note(kind=result.kind, store=result.store)
    return result


def remove_credential(services: Services, host: str) -> CredentialInfo:
    """As `credentials.remove`."""
    name = _host_only(host)
    with record_home_operation(services, "credential-remove", {"host": name}, names=[name]):
        return use.credentials.delete_credential(services.credentials, host)


def run(
    services: Services,
    url_and_ref: tuple[str, str],
    check_ids: Sequence[str],
    profile_name: str | None,
    watch: Watch,
    options: VerifyOptions,
) -> RunSummary:
    """As `verify.run_url`."""
    (url, ref), remote = url_and_ref, _safe_url(services, url_and_ref[0])
    arguments: dict[str, object] = {"url": remote, "ref": ref, "checks": list(check_ids), "profile": profile_name}
    if options.include_changes:
        arguments["include_changes"] = True
    if options.changed_since is not None:
        arguments["changed_since"] = options.changed_since
    if options.projects is not None:
        arguments["projects"] = {name: dict(project) for name, project in options.projects.items()}
    with record_home_operation(
        services, "run", arguments, facts={"remote": remote, "ref": clip_text(ref)}
    ) as operation:
        result = use.verify.run_url(services, (url, ref), check_ids, profile_name, watch, options)
        operation.note(*(f"{run.check_id} {run.verdict.value}" for run in result.runs))
        operation.note(
            commit=result.commit, tree=result.tree, profile=result.profile, verified=_true_or_false(result.verified)
        )
    return result


def launch_candidate(
    services: Services, repo_id: str, watch: Watch, options: VerifyOptions, expected_tree: str | None = None
) -> Verification:
    """As `launch_candidate.launch_candidate`, for a repository. Raises: also `not_found` for an expected tree."""
    with record_home_operation(services, "candidate", {"repo_id": repo_id}, names=[repo_id]) as operation:
        return operation(use.launch_candidate.launch_candidate(services, repo_id, watch, options, expected_tree))


def record_layers_build(
    services: Services, owner_id: str, arguments: Mapping[str, Any]
) -> AbstractContextManager[Operation]:
    """In the journal of the task, or of the home for a repository."""
    if owner_id.startswith("task-"):
        return record_operation(services, owner_id, "layers-build", arguments)
    ensure_recovered(services)  # the run of a controller that was killed may be asked for again
    given = {"repo_id": owner_id, **arguments}
    return record_home_operation(services, "layers-build", given, names=[owner_id])


def promote(
    services: Services,
    owner_id: str,
    wait_s: float | None,
    expected_commit: str | None,
    cancelled: Callable[[], bool],
) -> ReleaseState:
    """As `promote.promote`, in the journal of the task, or of the home for a repository."""
    is_task = owner_id.startswith("task-")
    with (
        record_operation(services, owner_id, "promote", {})
        if is_task
        else record_home_operation(services, "promote", {"repo_id": owner_id}, names=[owner_id])
    ) as operation:
        state = use.promote.promote(
            services, owner_id, expected_commit=expected_commit, wait_s=wait_s, cancelled=cancelled
        )
        operation.note(*_describe_state(state))
    return state


def change_release(
    services: Services, owner_id: str, operation_name: Literal["release-confirm", "release-rollback"]
) -> ReleaseState:
    """As `promote.confirm` or `promote.roll_back`. A task may be closed by now, so the home's journal gets it."""
    with record_home_operation(services, operation_name, {"owner_id": owner_id}, names=[owner_id]) as operation:
        change = use.promote.confirm if operation_name == "release-confirm" else use.promote.roll_back
        state: ReleaseState = change(services, owner_id)
        operation.note(*_describe_state(state))
    return state


def _describe_state(state: ReleaseState) -> tuple[str, ...]:
    last = state.history[-1].event.value if state.history else "unchanged"
    return (f"{last} {state.current or 'none'}",)


def export_receipt(
    services: Services, subject: str | RunSummary, signing_key: Path | None, *, provenance: bool
) -> SignedReceipt:
    """As `signed_receipts.export_task`, `export_run` or `export_summary`, or `export_provenance`. The journal has the
    receipt's digest and key.
    """
    named = subject if isinstance(subject, str) else subject.repository.id
    arguments: dict[str, object] = {"subject": named} | ({"provenance": True} if provenance else {})
    with record_home_operation(services, "receipt-export", arguments, names=[clip_text(named)]) as operation:
        result = _export(services, subject, signing_key, provenance=provenance)
        operation.note(receipt=result.receipt.digest, key=result.receipt.keyid, tree=result.receipt.tree)
    return result


def _export(
    services: Services, subject: str | RunSummary, signing_key: Path | None, *, provenance: bool
) -> SignedReceipt:
    if not isinstance(subject, str):
        return use.signed_receipts.export_summary(services, subject, signing_key)
    if provenance:
        return use.artifact_provenance.export_provenance(services, subject, signing_key)
    export = use.signed_receipts.export_run if subject.startswith("run-") else use.signed_receipts.export_task
    return export(services, subject, signing_key)


def replay_receipt(services: Services, content: bytes, question: ReceiptQuestion, watch: Watch) -> ReplayResult:
    """As `signed_receipts.replay`."""
    with record_home_operation(services, "receipt-replay", {"receipt": content}) as operation:
        result = use.signed_receipts.replay(services, content, question, watch)
        operation.note(receipt=result.receipt.digest, agrees=_true_or_false(result.agrees))
    return result


def push_receipt(services: Services, repo_id: str, content: bytes, question: ReceiptQuestion) -> PushedReceipt:
    """As `receipt_notes.push_receipt`."""
    with record_home_operation(services, "receipt-push", {"receipt": content}, names=[repo_id]) as operation:
        result = use.receipt_notes.push_receipt(services, repo_id, content, question)
        operation.note(receipt=result.receipt.digest, ref=result.ref, commit=result.notes_commit)
    return result


def sign_receipt(
    services: Services, content: bytes, identity_token: Path | None, trust_config: Path | None
) -> SignedBundle:
    """As `signed_receipts.sign`. The journal has who signed which receipt."""
    with record_home_operation(services, "receipt-sign", {}) as operation:
        result = use.signed_receipts.sign(services, content, identity_token, trust_config)
        operation.note(receipt=result.digest, identity=result.signer.identity, issuer=result.signer.issuer)
    return result


def rotate_receipt_key(services: Services) -> ReceiptKey:
    """As `signing.rotate`."""
    with record_home_operation(services, "receipt-rotate-key", {}) as operation:
        result = use.signing.rotate(services.home)
        operation.note(key=result.keyid)
    return result


def revoke_receipt_key(services: Services, keyid: str, reason: str) -> ReceiptKey:
    """As `signing.revoke`."""
    with record_home_operation(services, "receipt-revoke-key", {"keyid": keyid}, names=[clip_text(keyid)]) as operation:
        result = use.signing.revoke(services.home, keyid, reason)
        operation.note(key=result.keyid)
    return result


def collect(services: Services, *, dry_run: bool) -> Reconciliation:
    """As `reconciling.collect`. A dry run has no effect and is not journaled."""
    more = (use.moved_tasks.find_moved_tasks, use.moved_tasks.find_old_answers)
    if dry_run:
        with services.disk.use_reserve():
            return use.reconciling.collect(services, dry_run=True, more=more)
    with record_home_operation(services, "gc", {}) as operation:
        result = use.reconciling.collect(services, more=more)
        operation.note(**_describe_leftovers(result))
    return result


def keep_to_limits(services: Services) -> Reconciliation:
    """As `reconciling.keep_to_limits`. Journaled, as `gc`, only if there is something to remove: it is done often."""
    forecast = use.reconciling.keep_to_limits(services, dry_run=True)
    if not any(left.action == "removed" for left in forecast.leftovers):
        return forecast.model_copy(update={"dry_run": False})
    with record_home_operation(services, "gc", {"storage": True}) as operation:
        result = use.reconciling.keep_to_limits(services)
        operation.note(**_describe_leftovers(result))
    return result


def collect_layers(services: Services, *, dry_run: bool) -> Reconciliation:
    """As `reconciling.collect_layers`. A dry run has no effect and is not journaled."""
    if dry_run:
        return use.reconciling.collect_layers(services, dry_run=True)
    with record_home_operation(services, "layers-gc", {}) as operation:
        result = use.reconciling.collect_layers(services)
        operation.note(**_describe_leftovers(result))
    return result


def remove_layer(services: Services, key: str) -> RemovedLayers:
    """As `layer_list.remove`."""
    with record_home_operation(services, "layers-remove", {"key": key}, names=[clip_text(key)]):
        return use.layer_list.remove(services, key)


def remove_image(services: Services, name: str) -> ImageInfo:
    """As `sandbox.images.remove_derived`."""
    with record_home_operation(services, "images-remove", {"name": name}, names=[clip_text(name)]):
        return use.doctor.remove_image(services, name)


def import_images(
    services: Services, path: Path, progress: Callable[[str], None] | None, *, expected: str | None, replace: bool
) -> ImageArchive:
    """As `sandbox.images.imports`. The journal has the archive's digest and the images that came."""
    arguments = {"path": str(path), "expected": expected, "replace": replace}
    facts = {"replace": _true_or_false(replace)}
    with record_home_operation(
        services, "images-import", arguments, names=[clip_text(path.name)], facts=facts
    ) as operation:
        result = use.image_archives.import_images(services, path, progress, expected=expected, replace=replace)
        operation.note(*(f"{image.tag} {image.digest}" for image in result.images), archive=result.digest)
    return result


def share_images(services: Services, names: Sequence[str], progress: Callable[[str], None]) -> tuple[ImageArchive, ...]:
    """As `shared_images.share_images`. The journal has the digests of the archives."""
    shown = [clip_text(name) for name in names]
    with record_home_operation(services, "images-share", {"images": shown}, names=shown) as operation:
        result = use.shared_images.share_images(services, names, progress)
        operation.note(*(archive.digest for archive in result))
    return result


def forget(services: Services, refs: Sequence[str]) -> Reconciliation:
    """As `reconciling.forget`."""
    with record_home_operation(services, "gc-forget", {"refs": list(refs)}) as operation:
        result = use.reconciling.forget(services, refs)
        operation.note(**_describe_leftovers(result))
    return result


def doctor(services: Services) -> tuple[Probe, ...]:
    """As `controller.doctor.doctor`. Never raises, even if the home cannot be written."""
    probes = use.doctor.doctor(services)
    facts = {probe.name: probe.level.value for probe in probes}
    with suppress(SandboxError, OSError), record_home_operation(services, "doctor", {}, facts=facts):
        pass
    return probes


def record_attacks(services: Services, report: AttackReport) -> None:
    """Record the results of the attacks on this host: the counts, and each attack that was not held off."""
    counts = {"safe": _true_or_false(report.safe), "held": str(report.held), "got_through": str(report.got_through)}
    others = {result.id: result.outcome.value for result in report.results if result.outcome.value != "held"}
    with record_home_operation(services, "doctor-attack", {}, facts={**counts, **others}):
        pass


def _safe_url(services: Services, url: str) -> str:
    """The URL without credentials; empty for a refused URL, which may contain some."""
    try:
        return clip_text(services.remotes.parse(url).url)
    except SandboxError:
        return ""


def _host_only(host: str) -> str:
    """The host without a user name and password, if a URL was given instead of a host."""
    return host.rpartition("@")[2]


def _describe_leftovers(result: Reconciliation) -> dict[str, str]:
    """The action for each leftover, by number."""
    done = (f"{left.action.value} {left.kind} {clip_text(left.name)}" for left in result.leftovers)
    return {str(number): text for number, text in enumerate(done, start=1)}


def _true_or_false(value: bool) -> str:
    return "true" if value else "false"
