"""The SLSA provenance of artifacts that a clean room built: https://slsa.dev/provenance/v1.

`externalParameters` is what the profile and the caller chose, `internalParameters` what the sandbox chose and measured,
`resolvedDependencies` the tree and the image. The builder is the home, named by the key that signs: who trusts the key
trusts the builder.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sandbox.models.receipts import Receipt, ReceiptArtifact, ReceiptCheck, ReceiptRefusal, Statement
from sandbox.receipts.receipt_refusals import refusal_error

PROVENANCE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:space-sandbox:clean-room:v1"
BUILDER = "urn:space-sandbox:home:"  # and the id of its key
_OWN = {"version", "left_out", "signed_at"}


def write_provenance(receipt: Receipt) -> Statement:
    """The statement but for its type: of the artifacts of one check."""
    (check,) = receipt.checks
    chosen = {"check": check.id, "definition": check.definition.model_dump(mode="json"), "source": receipt.source}
    measured = check.model_dump(mode="json", exclude={"id", "definition"})
    ended_at = check.started_at + timedelta(seconds=check.wall_time_s)
    return {
        "subject": [_describe_artifact(artifact) for artifact in receipt.artifacts],
        "predicateType": PROVENANCE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": chosen,
                "internalParameters": {**measured, "receipt": receipt.model_dump(mode="json", include=_OWN)},
                "resolvedDependencies": [_describe_source(receipt), _describe_image(check)],
            },
            "runDetails": {
                "builder": {
                    "id": f"{BUILDER}{receipt.keyid}",
                    "version": {"space-sandbox": receipt.product_version},
                },
                "metadata": {
                    "invocationId": check.run_id,
                    "startedOn": check.started_at.isoformat().replace("+00:00", "Z"),
                    "finishedOn": ended_at.isoformat().replace("+00:00", "Z"),
                },
            },
        },
    }


def _describe_artifact(artifact: ReceiptArtifact) -> dict[str, Any]:
    return {"name": artifact.path, "digest": {"sha256": artifact.sha256.removeprefix("sha256:")}}


def _describe_source(receipt: Receipt) -> dict[str, Any]:
    digest = {"gitTree": receipt.tree} | ({} if receipt.commit is None else {"gitCommit": receipt.commit})
    where = {"uri": f"git+{receipt.source}"} if "://" in receipt.source else {}
    return {"name": "source", "digest": digest, **where}


def _describe_image(check: ReceiptCheck) -> dict[str, Any]:
    return {"name": "image", "digest": {"sha256": check.image_digest.removeprefix("sha256:")}}


def read_provenance(document: Statement) -> Receipt:
    """The receipt that a statement was written from, if writing it again gives the same.

    Raises: `receipt_refused` (`downgraded`) for another kind of build; KeyError, TypeError, ValueError, AttributeError
    for what is no provenance of ours.
    """
    definition, details = (document["predicate"][name] for name in ("buildDefinition", "runDetails"))
    own = dict(definition["internalParameters"])
    said = own.pop("receipt")
    if definition["buildType"] != BUILD_TYPE or said["version"] != 1:
        raise refusal_error(ReceiptRefusal.DOWNGRADED, "not the provenance of a clean room of version 1")
    chosen, source = definition["externalParameters"], definition["resolvedDependencies"][0]["digest"]
    return Receipt(
        **said,
        tree=source["gitTree"],
        commit=source.get("gitCommit"),
        source=chosen["source"],
        checks=(ReceiptCheck(id=chosen["check"], definition=chosen["definition"], **own),),
        artifacts=tuple(
            ReceiptArtifact(path=each["name"], sha256=f"sha256:{each['digest']['sha256']}")
            for each in document["subject"]
        ),
        product_version=details["builder"]["version"]["space-sandbox"],
        keyid=details["builder"]["id"].removeprefix(BUILDER),
    )
