"""The contract suite of executors, for packages that add a backend: docs/python.md#testing-a-backend.

`ExecutorContract` needs pytest to run, and nothing but this package to import.
"""

from sandbox.testing.executor_contract import ExecutorContract, ExecutorRig

__all__ = ["ExecutorContract", "ExecutorRig"]
