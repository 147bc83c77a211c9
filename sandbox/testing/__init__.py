"""The contract suite of executors, for packages that add a backend: docs/python.md#testing-a-backend.

pytest runs `ExecutorContract`; to import it, this package is enough.
"""

from sandbox.testing.executor_contract import ExecutorContract, ExecutorRig

__all__ = ["ExecutorContract", "ExecutorRig"]
