"""How a worker says what it can do: in the identity under which it reads the queue of all workers.

Theory. Temporal lists who reads a queue, and forgets who stopped, so it is the directory of workers: there is no
state of ours to store, refresh or remove. An identity is a text of the reader's choice, of at most 1,000 bytes. Workers
with the same capabilities are a class; each class has a line of its own for tasks that require something.

Who reaches the server can announce anything, so an identity is read as hostile text.
"""

from __future__ import annotations

import hashlib
import json

from sandbox.config import ClusterSettings
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import WorkerInfo
from sandbox.models.workers import HostCapabilities

MAX_BYTES = 1000
"""Temporal's limit of an identity (`limit.maxIDLength`)."""


def encode(worker: WorkerInfo) -> str:
    """Raises: `invalid_input` for labels that are too long in all."""
    document = worker.model_dump(mode="json", exclude_defaults=True, exclude={"id"})
    text = f"{worker.id} {json.dumps(document, separators=(',', ':'), sort_keys=True)}"
    if len(text.encode()) > MAX_BYTES:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The labels of this worker are too long",
            details=f"What it announces has {len(text.encode())} bytes; {MAX_BYTES} are possible.",
            hint="Use fewer or shorter labels (cluster.labels, --label).",
        )
    return text


def decode(identity: str) -> WorkerInfo | None:
    """None for a text that no worker wrote. What a newer version says beside is left out."""
    name, _, text = identity.partition(" ")
    try:
        document = json.loads(text or "{}")
        found = document.get("capabilities")
        known = {key: document[key] for key in ("version", "slots") if key in document}
        if found is not None:
            ours = {key: value for key, value in found.items() if key in HostCapabilities.model_fields}
            known["capabilities"] = HostCapabilities.model_validate(ours)
            ClusterSettings.model_validate({"labels": ours.get("labels", {})})  # as an operator may set them
        return WorkerInfo(id=name, **known)
    except (ValueError, AttributeError, RecursionError):  # pydantic's errors are of values
        return None


def make_class_key(capabilities: HostCapabilities) -> str:
    """The same for workers that can do the same: `class-` and 16 hexadecimal digits."""
    text = json.dumps(capabilities.model_dump(mode="json"), sort_keys=True)
    return f"class-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
