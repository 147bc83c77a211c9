"""Receipts: signed statements of verdicts, the keys that sign them, and what a verification finds."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import AwareDatetime, Field

from sandbox.models.checks import Limits
from sandbox.models.ids import CheckId, ObjectId, Sha256
from sandbox.models.model import HostPath, Model
from sandbox.models.runs import Usage
from sandbox.models.service_rules import ServiceRun
from sandbox.models.words import Verdict


class ReceiptRefusal(StrEnum):
    """Why a receipt is refused: `reason` of the error `receipt_refused`."""

    MALFORMED = "malformed"  # truncated, too large, or not an envelope
    TAMPERED = "tampered"  # the signature of a trusted key does not fit the content
    WRONG_KEY = "wrong_key"  # no signature is by a trusted key
    REVOKED_KEY = "revoked_key"
    RETIRED_KEY = "retired_key"  # signed after its key was replaced
    WRONG_IDENTITY = "wrong_identity"  # the bundle is signed by another identity, or in the name of another issuer
    WRONG_BUNDLE = "wrong_bundle"  # for other bytes, of another Sigstore instance, or not in its log
    DOWNGRADED = "downgraded"  # another type or version of envelope, statement, predicate or receipt
    INCONSISTENT = "inconsistent"  # signed, but its parts contradict each other
    WRONG_TREE = "wrong_tree"
    WRONG_COMMIT = "wrong_commit"
    WRONG_ARTIFACT = "wrong_artifact"  # a file that the caller names is none of its artifacts
    WRONG_CHECKS = "wrong_checks"  # a check that the caller asks for is not in it


class ReceiptKey(Model):
    """A public Ed25519 key. `retired_at`: it was replaced: receipts until then stay valid. `revoked_at`: no receipt of
    it is valid, whenever it says that it was signed.
    """

    keyid: str = Field(pattern=r"^[0-9a-f]{64}$")
    public_key: str = Field(max_length=2000)
    created_at: AwareDatetime | None = None
    retired_at: AwareDatetime | None = None
    revoked_at: AwareDatetime | None = None
    reason: str = ""


class CheckDefinition(Model):
    """The definition of a check as it is in a receipt. `env`: only names, since values may be private. `shuffle_seed`:
    its tests ran in the order of this seed.
    """

    argv: tuple[str, ...]
    cwd: str
    env: tuple[str, ...]
    timeout_s: float
    limits: Limits
    requires: tuple[CheckId, ...]
    workspace: str
    arguments: tuple[str, ...] = ()
    shuffle_seed: int | None = None


class ReceiptCheck(Model):
    """One check of a receipt: what was asked, and what the guest did.

    `key`: digest of all that the verdict depends on, as in the verdict cache; `after`: that of the check before it in
    the same room. `policy`: digest of the container policy. `compiler_cache`: its compilers could take what other rooms
    had compiled, so it was not compiled from scratch. `submodules_with_lfs`: remotes of submodules that had their files
    of Git LFS, but for paths of the host. `packages_missing`: its guest lacked packages that the project asks for.
    `shared_by`: id of the key that signed the verdict's entry in a shared verdict cache: the signer of the receipt took
    it from there, and did not run the check. A statement without any of these last three has no such field, as before
    there was one: a statement that was signed then is the same when it is written again.
    """

    id: CheckId
    key: str = Field(pattern=r"^[0-9a-f]{64}$")
    after: str = Field(pattern=r"^([0-9a-f]{64})?$")
    key_version: int
    definition: CheckDefinition
    image_digest: str
    layers: tuple[str, ...]
    policy: str
    runtime: str
    platform: str
    services: tuple[ServiceRun, ...] = ()
    submodules: bool = False
    lfs: bool = False
    submodules_with_lfs: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    compiler_cache: bool = False
    packages_missing: bool = Field(default=False, exclude_if=lambda value: not value)
    shared_by: str = Field(default="", pattern=r"^([0-9a-f]{64})?$", exclude_if=lambda value: not value)
    guest_user: str | None = None
    run_id: str
    verdict: Verdict
    exit_code: int | None
    signal: int | None
    started_at: AwareDatetime
    wall_time_s: float
    usage: Usage
    tests: int | None = None  # of the guest's own report, as are the failures
    test_failures: int | None = None


class ReceiptArtifact(Model):
    """A file that a clean room built. `path`: in the repository; text of the guest."""

    path: str = Field(min_length=1)
    sha256: Sha256


class BundleSigner(Model):
    """Who signs with Sigstore: `identity`, such as the URL of a workflow or an email address, and the URL of the
    `issuer` of its tokens.
    """

    identity: str = Field(min_length=1, max_length=2000)
    issuer: str = Field(min_length=1, max_length=2000)


class SignedBundle(Model):
    """The Sigstore bundle of a receipt as JSON text, who signed it, and the receipt's digest."""

    bundle: str
    signer: BundleSigner
    digest: str


class Receipt(Model):
    """The content of a receipt. `commit`: None for a tree that no commit was named for. `left_out`: checks of the
    profile that were not asked for, or came after one that failed in their room. `artifacts`: of the one check in
    `checks`; a receipt with them is their provenance.
    `digest`: of the envelope. `keyid`: of the key that signed it. `vouched_by`: who signed its Sigstore bundle, if one
    was verified; then the key was not, unless it is trusted, too.
    """

    version: Literal[1] = 1
    tree: ObjectId
    commit: ObjectId | None
    source: str = ""
    checks: tuple[ReceiptCheck, ...] = Field(min_length=1)
    left_out: tuple[str, ...] = ()
    artifacts: tuple[ReceiptArtifact, ...] = ()
    product_version: str
    signed_at: AwareDatetime
    digest: str = ""
    keyid: str = ""
    vouched_by: BundleSigner | None = None

    @property
    def passed(self) -> bool:
        """Whether each of its checks passed."""
        return all(check.verdict is Verdict.PASSED for check in self.checks)


class ReceiptQuestion(Model):
    """What a receipt is verified against. `keys`: files of trusted keys; none: the home's. `repository`: URL or
    directory that must have its commit, with its tree; `ref`: what there must have its tree. `checks`: must be in it.
    `artifacts`: files that it must be about, by their content. `bundle`: file with its Sigstore bundle, which
    `vouched_by` must have signed; then no key has to be trusted, and those in `keys` have to hold as well.
    `trust_config`: of a private Sigstore instance; None: of the settings, else the public one.
    """

    keys: tuple[HostPath, ...] = ()
    tree: str | None = None
    commit: str | None = None
    checks: tuple[str, ...] = ()
    artifacts: tuple[HostPath, ...] = ()
    repository: str | None = None
    ref: str | None = None
    bundle: HostPath | None = None
    vouched_by: BundleSigner | None = None
    trust_config: HostPath | None = None


class FoundReceipts(Model):
    """The receipts of a commit that came with its repository, in its git notes.

    `receipts`: those that hold, the one that was signed last first; `refused`: why the others do not. `envelope`: of
    the first.
    """

    commit: ObjectId
    tree: ObjectId
    receipts: tuple[Receipt, ...]
    refused: tuple[str, ...]
    envelope: str = ""


class PushedReceipt(Model):
    """The answer of `receipt push`: the ref of the remote, its new commit, and the receipt that was added."""

    ref: str
    notes_commit: ObjectId
    receipt: Receipt


class ReplayedCheck(Model):
    """One check of a receipt and of its replay. `differences`: fields of the question that are not the same here."""

    id: str
    before: Verdict
    now: Verdict | None
    same_question: bool
    differences: tuple[str, ...] = ()


class ReplayResult(Model):
    """The answer of `receipt replay`. `agrees`: each check of the receipt ran on its tree and has the same verdict, and
    each artifact the same content. `other_artifacts`: paths of those that are missing or differ.
    """

    receipt: Receipt
    checks: tuple[ReplayedCheck, ...]
    agrees: bool
    other_artifacts: tuple[str, ...] = ()


class SignedReceipt(Model):
    """A receipt with its envelope, as JSON text in one line."""

    receipt: Receipt
    envelope: str


Statement = dict[str, Any]
"""An in-toto Statement as JSON."""
