"""What operations on repositories answer."""

from __future__ import annotations

from sandbox.models.context import Context
from sandbox.models.ids import ObjectId, RepoId
from sandbox.models.model import HostPath, Model
from sandbox.models.remarks import Remark
from sandbox.models.repositories import Repository


class CloneResult(Model):
    """The answer of `repo clone`. `advice`: what was seen that decides whether its checks can run. `protocol`: what the
    remote was reached over, if that is not the protocol of its URL.
    """

    repository: Repository
    context: Context
    protocol: str = ""
    advice: tuple[Remark, ...] = ()


class RepositoryUpdate(Model):
    """The answer of `repo update` for one repository. `before`, `after`: the head of the default branch, None if it is
    unknown. `default_before`: its name, if the default branch was another one. `rewritten`: branches that no longer
    have what was fetched of them before. `error`: why the remote could not be asked, with `--all`.
    """

    repo_id: RepoId
    default_branch: str
    before: ObjectId | None = None
    after: ObjectId | None = None
    default_before: str | None = None
    rewritten: tuple[str, ...] = ()
    error: str = ""


class RemoveResult(Model):
    """The answer of `repo remove`. `lost`: describes the work that existed only here and was deleted. `releases`: the
    directory of its releases, which stay; None without any.
    """

    repo_id: RepoId
    remote_url: str | None
    lost: tuple[str, ...]
    releases: HostPath | None = None
