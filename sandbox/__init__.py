"""Space Sandbox: edit, build, test and turn untrusted code into pull requests, safely."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.workbench import Workbench

__version__ = "0.1.0"
__all__ = ["Workbench", "__version__"]


def __getattr__(name: str) -> Any:
    """Load the workbench on first use, so that importing `sandbox` stays cheap."""
    if name == "Workbench":
        from sandbox.workbench import Workbench  # noqa: PLC0415 - lazy on purpose, see above

        return Workbench
    raise AttributeError(name)
