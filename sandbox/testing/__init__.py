"""For packages that add a backend or a kind of workspace: docs/python.md#testing-a-backend, docs/workspaces.md.

pytest runs the contracts; to import them, this package is enough.
"""

from sandbox.testing.executor_contract import ExecutorContract, ExecutorRig
from sandbox.testing.workspace_contract import WorkspaceContract, WorkspaceRig

__all__ = ["ExecutorContract", "ExecutorRig", "WorkspaceContract", "WorkspaceRig"]
