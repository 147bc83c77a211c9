"""Space Sandbox: edit, build and test untrusted code safely, and turn it into pull requests."""

from __future__ import annotations

from sandbox.version import __version__ as __version__

TYPE_CHECKING = False  # without `typing`, which costs a thin client a fifth of its start (docs/adr/0123)
if TYPE_CHECKING:
    from typing import Any

    from sandbox.checks.cancellation import Cancellation
    from sandbox.workbench import ExploreOptions, VerifyOptions, Watch, Workbench
    from sandbox.workspaces.current_workspace import bind_workspace, current_workspace, in_current_workspace

__all__ = [
    "Cancellation",
    "ExploreOptions",
    "VerifyOptions",
    "Watch",
    "Workbench",
    "__version__",
    "bind_workspace",
    "current_workspace",
    "in_current_workspace",
]


if not TYPE_CHECKING:  # else a type checker takes any name for one of this package

    def __getattr__(name: str) -> Any:
        """Load the workbench on first use, so that importing `sandbox` stays fast."""
        if name in {"ExploreOptions", "VerifyOptions", "Watch", "Workbench"}:
            from sandbox import workbench  # noqa: PLC0415 - lazy on purpose, see above

            return getattr(workbench, name)
        if name == "Cancellation":
            from sandbox.checks.cancellation import Cancellation  # noqa: PLC0415 - as above

            return Cancellation
        if name in {"bind_workspace", "current_workspace", "in_current_workspace"}:
            from sandbox.workspaces import current_workspace as module  # noqa: PLC0415 - as above

            return getattr(module, name)
        raise AttributeError(name)


def __dir__() -> list[str]:
    """All public names, for help and completion, including those not imported yet."""
    return sorted({*globals(), *__all__})
