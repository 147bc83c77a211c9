"""What tools return where the use-case returns something plainer than an object."""

from __future__ import annotations

from sandbox.models import ApprovalState, Check, Model, Repository, Task


class Repositories(Model):
    repositories: tuple[Repository, ...]


class OneTask(Model):
    task: Task


class Tasks(Model):
    """`truncated`: older ones are left out; name a repository to see its own."""

    tasks: tuple[Task, ...]
    truncated: bool = False


class Checks(Model):
    checks: tuple[Check, ...]


class RequestedApproval(Model):
    """`state` is `approved` when no person needs to be asked."""

    id: str
    state: ApprovalState
