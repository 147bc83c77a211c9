"""Artifacts of runs on another host, through the store of the shared verdict cache.

artifact-part-SHA256   8 MiB of an artifact, addressed by its content

The home that has the run puts the parts there when it is asked to, and says their digests; the one that asks reads
them, and holds the whole against the hash in the run's list of artifacts. So the store itself is not trusted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.artifact_lists import Artifact
from sandbox.store.shared_store import SharedStore, open_store
from sandbox.workbench.checks import collected_artifacts
from sandbox.workbench.checks.shared_parts import PART_BYTES, ChangedPartError, PartWriter, read_parts
from sandbox.workbench.controller.services import Services

_KIND = "artifact"


def share_artifact(services: Services, run_id: str, path: str) -> tuple[str, ...]:
    """Put an artifact into the store; the digests of its parts. None of them if this home shares no artifacts.

    Raises: as `read_artifact`; `network_error` if the store cannot be written.
    """
    store = _open(services)
    if store is None or not services.settings.cache.write:
        return ()
    parts = PartWriter(store, _KIND)
    try:
        for chunk in collected_artifacts.read_artifact(services.home, run_id, path):
            parts.write(chunk)
        return parts.finish()
    except OSError as error:
        raise _store_error(f"The artifact {path[:200]!a} cannot be shared", error) from error


def read_shared_artifact(services: Services, artifact: Artifact, parts: Sequence[str]) -> Iterator[bytes]:
    """An artifact that another home has put into the store; the last chunk comes only if all of it has its hash.

    Raises: `invalid_input` without a store; `network_error` if it cannot be read; `internal` for other content.
    """
    store = _open(services)
    if store is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The artifact {artifact.path[:200]!a} is in a shared store, and this home has none",
            hint="Set cache.url to the store of the workers, and cache.artifacts (docs/cluster.md).",
        )
    if artifact.size > collected_artifacts.MOST_BYTES_OF_RUN or len(parts) != -(-artifact.size // PART_BYTES):
        raise _changed_error(artifact, "It has another size than its parts, or is too large.")
    digest, held = hashlib.sha256(), b""
    try:
        for part in read_parts(store, _KIND, parts):
            digest.update(part)
            if held:
                yield held
            held = part
    except ChangedPartError as error:
        raise _changed_error(artifact, str(error)) from error
    except OSError as error:
        raise _store_error(f"The artifact {artifact.path[:200]!a} cannot be read", error) from error
    if f"sha256:{digest.hexdigest()}" != artifact.sha256:
        raise _changed_error(artifact, "It has another hash than in the list of its run.")
    yield held


def shares_artifacts(services: Services) -> bool:
    """Whether this home reads artifacts of other homes from a store."""
    return bool(services.settings.cache.url and services.settings.cache.artifacts)


def _open(services: Services) -> SharedStore | None:
    return open_store(services.settings.cache.url) if shares_artifacts(services) else None


def _changed_error(artifact: Artifact, details: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The shared artifact {artifact.path[:200]!a} was changed",
        details=details,
        hint="Look who may write to the store of cache.url.",
    )


def _store_error(brief: str, error: OSError) -> SandboxError:
    return SandboxError(
        ErrorCode.NETWORK_ERROR,
        brief,
        details=str(error)[:500],
        hint="Look whether the store of cache.url can be reached from here, then ask again.",
    )
