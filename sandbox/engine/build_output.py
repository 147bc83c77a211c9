"""Output of an image build: lines that are safe to show, and the cause of a failure. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.errors import ErrorCode, SandboxError
from sandbox.text import neutralise

_LINE_CHARS = 500
_NETWORK_SIGNS = (
    "temporary failure resolving",
    "could not resolve",
    "name or service not known",
    "failed to establish a new connection",
    "connection timed out",
    "connection refused",
    "network is unreachable",
    "certificate verify failed",
)


def plain_lines(text: str) -> list[str]:
    """Non-empty lines of build output, without terminal sequences, at most 500 characters each."""
    lines = (line.rstrip()[:_LINE_CHARS] for line in neutralise(text).splitlines())
    return [line for line in lines if line]


def build_error(tag: str, tail: Iterable[str], failure: str) -> SandboxError:
    """Classify a failed build. The engine gives no code for the cause, only the output of the failed step."""
    details = "\n".join([*tail, *plain_lines(failure)])
    if any(sign in details.lower() for sign in _NETWORK_SIGNS):
        return SandboxError(
            ErrorCode.NETWORK_ERROR,
            f"The image '{tag}' could not be built: a download failed",
            details=details,
            hint="Check images.build_network, images.ca_bundle and the proxy variables, then build again; completed "
            "steps are kept.",
        )
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The image '{tag}' could not be built",
        details=details,
        hint="The last lines above name the step of its Dockerfile that failed.",
    )
