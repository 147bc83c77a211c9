"""The environment variables with our prefix that are no settings: those of the program itself, and those that we give
to other programs. A hook or a check that runs `sandbox` has the latter in its environment.
"""

from __future__ import annotations

PREFIX = "SANDBOX_"

HOME, DEBUG, LOG = "SANDBOX_HOME", "SANDBOX_DEBUG", "SANDBOX_LOG"

COMMIT, DESCRIBE, VERSION_VARIABLES = "SANDBOX_COMMIT", "SANDBOX_DESCRIBE", "SANDBOX_VERSION_VARIABLES"
"""Given to checks."""

HOOK_FACTS = {
    fact: f"SANDBOX_WORKSPACE_{fact.upper()}"
    for fact in ("id", "kind", "tenant", "repo", "remote", "branch", "start", "root")
}
"""What a hook gets to know of a workspace, with its variable."""

_READ_IN_IMAGES = (
    "SANDBOX_DISPLAY_SIZE",
    "SANDBOX_NODE_LAYER",
    "SANDBOX_NODE_REPORT",
    "SANDBOX_NODE_INSTALL_TIMEOUT",
)
"""By the programs of our images, if a check sets them."""

OF_THE_PROGRAM = frozenset({HOME, DEBUG, LOG})
_NO_SETTINGS = OF_THE_PROGRAM.union((COMMIT, DESCRIBE, VERSION_VARIABLES), HOOK_FACTS.values(), _READ_IN_IMAGES)


def may_be_setting(name: str) -> bool:
    """Whether a variable sets a key, or looks as if it should."""
    return name.upper().startswith(PREFIX) and name not in _NO_SETTINGS
