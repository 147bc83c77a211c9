"""What a registry answered instead of a package, as an error: told apart from a package that it does not have."""

from __future__ import annotations

import re

from sandbox.errors import ErrorCode, SandboxError

_LINE = re.compile(r"(0|[45][0-9]{2}) ((?:@[A-Za-z0-9~._-]{1,100}/)?[A-Za-z0-9~._-]{1,214})?")
_MIRROR = "name a mirror of yours that gives it to all in [registries] (docs/dependencies.md, Which registries)."
_REFUSALS = {
    401: ("registry_credentials", "asks for credentials", f"None are sent to a registry: {_MIRROR}"),
    403: ("registry_forbidden", "forbids it", f"Its operator decides what it gives away: ask for it, or {_MIRROR}"),
    451: ("registry_withheld", "withholds it for legal reasons", f"Ask for another package, or {_MIRROR}"),
}
_TROUBLE = "It may have the package: try again later. `sandbox doctor` shows which registries answer."


def explain_answer(line: str, layer: str, details: str) -> SandboxError | None:
    """The error for a line of a fetch, `STATUS NAME`, with 0 for no answer; None for a line of another form, which no
    fetch of ours writes.

    `network_error` with a reason: checks run without the layer, and a later command asks again.
    """
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    status, package = int(found[1]), found[2] or "a package"
    trouble = "answers with an error" if status else "does not answer"
    reason, said, hint = _REFUSALS.get(status, ("registry_trouble", trouble, _TROUBLE))
    answer = f"the registry {said} (HTTP {status})" if status else f"the registry {said}"
    brief = f"The packages of layer {layer} could not be fetched: asked for {package}, {answer}"
    details = f"{answer}\n{details}"  # its first line is shown: npm's own may be of another package
    return SandboxError(ErrorCode.NETWORK_ERROR, brief, details=details, hint=hint, reason=reason)
