"""The submodules of a tree: find them, recursively, and fetch the commits that the tree pins.

Only for repositories that the operator opted in (`sandbox repo set REPO --submodules`). The choice names remotes, since
`.gitmodules` is text of the repository: a commit or a stranger's pull request that adds another remote is refused until
the operator looks again, so it cannot have our credentials fetch what it likes (docs/adr/0072).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.cache_clones import open_cache
from sandbox.git.gitmodules import Gitlink, list_submodules
from sandbox.git.objects import peel, tree_of
from sandbox.git.process import Git
from sandbox.models import Repository
from sandbox.policy.paths import show_path
from sandbox.remotes import Remote, resolve_relative_url
from sandbox.store.records import find_repository, list_repositories
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import choose_repo_id, fetch_whole_tree, update_cache
from sandbox.workbench.repositories.lfs import find_large_files
from sandbox.workbench.repositories.repository_settings import AddedFiles, read_settings
from sandbox.workspaces.added_trees import AddedTree, AddedTrees

MAX_DEPTH = 5
MAX_SUBMODULES = 200
"""How deep submodules may have submodules, and how many there may be in all."""


def find_submodules(
    services: Services, repo_id: str, git: Git, tree: str, wanted: AddedFiles | None = None
) -> AddedTrees:
    """The trees of the submodules of a tree; none if the repository was not opted in. Fetches commits that are missing.

    `wanted`: from which remotes, and from which of them with files of Git LFS; None: as the settings say now.

    Raises: `policy_violation` for a remote that the operator has not seen; `not_found` for a commit that its remote
    does not have; `unsafe_repository`; `invalid_input` for a URL; network errors.
    """
    chosen = read_settings(services.home, services.policies, repo_id) if wanted is None else wanted
    allowed = frozenset(chosen.submodules)
    if not allowed:
        return ()

    def admit(remote: Remote, link: Gitlink) -> None:
        if remote.url not in allowed:
            raise SandboxError(
                ErrorCode.POLICY_VIOLATION,
                f"The submodule {show_path(link.path)[:200]} comes from a remote that was not chosen for {repo_id}",
                details=remote.url,
                hint=f"The operator decides: `sandbox repo set {repo_id} --submodules` takes those of the default "
                "branch; `sandbox repo show` lists them.",
            )

    search = _Search(services, admit, None if wanted is None else wanted.submodules_with_lfs)
    return tuple(search.list_below(find_repository(services.home, repo_id), git, tree))


def choose_submodules(services: Services, repository: Repository, git: Git, tree: str) -> tuple[str, ...]:
    """The URLs of all submodules of a tree, after cloning each. Raises: as `find_submodules`, `not_found` for none."""
    urls: dict[str, None] = {}
    for _ in _Search(services, lambda remote, _: urls.setdefault(remote.url)).list_below(repository, git, tree):
        pass
    if not urls:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"The default branch of {repository.id} has no submodules",
            hint="A submodule is a folder of the tree with an address in .gitmodules.",
        )
    return tuple(sorted(urls))


@dataclass
class _Search:
    """One search through submodules. `admit`: called for each remote before it is used; may raise. `with_lfs`: files of
    Git LFS are wanted from these URLs; None: as the settings of each say now.
    """

    services: Services
    admit: Callable[[Remote, Gitlink], object]
    with_lfs: Collection[str] | None = None
    count: int = field(default=0)

    def list_below(
        self, parent: Repository, git: Git, tree: str, folder: bytes = b"", depth: int = 1
    ) -> Iterator[AddedTree]:
        """The submodules of a tree, each before its own."""
        for link in list_submodules(git, tree):
            self._require_bounds(link, depth)
            remote = self._parse(parent, link)
            self.admit(remote, link)
            repository, clone = self._open(remote, link)
            pinned = fetch_whole_tree(self.services, repository, clone, link.commit)
            wanted = None if self.with_lfs is None else remote.url in self.with_lfs
            large = find_large_files(self.services, repository.id, clone, [pinned], wanted=wanted)
            found = AddedTree(folder + link.path, clone, pinned, large)
            yield found
            yield from self.list_below(repository, clone, found.tree, found.folder + b"/", depth + 1)

    def _require_bounds(self, link: Gitlink, depth: int) -> None:
        self.count += 1
        if depth > MAX_DEPTH or self.count > MAX_SUBMODULES:
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED,
                f"More than {MAX_SUBMODULES} submodules, or more than {MAX_DEPTH} within each other",
                details=show_path(link.path)[:200],
            )

    def _parse(self, parent: Repository, link: Gitlink) -> Remote:
        """The remote of a submodule. A path of this host only where the parent is one and the settings allow it: a
        repository must not choose what is read of this host.
        """
        remotes = self.services.remotes
        base = remotes.parse_registered(parent.remote_url)
        try:
            remote = remotes.parse(resolve_relative_url(base, link.url))
        except SandboxError as error:
            raise error.with_details(f"The URL of the submodule {show_path(link.path)[:200]}") from error
        if remote.protocol == "file" and not (base.protocol == "file" and remotes.settings.remotes.allow_file):
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"The submodule {show_path(link.path)[:200]} is a path of this host, which is refused",
                hint="Use a network URL. For local repositories that name each other, set remotes.allow_file = true in "
                "the configuration.",
            )
        return remote

    def _open(self, remote: Remote, link: Gitlink) -> tuple[Repository, Git]:
        """The submodule's repository, with its commit: from the cache, else fetched."""
        home = self.services.home
        known = next((r for r in list_repositories(home) if r.id == choose_repo_id(home, remote)), None)
        if known is not None:
            git = self.services.repositories.open(known.id)[1]
            if peel(git, link.commit, "commit") == link.commit:
                return known, git
        updated = update_cache(self.services, remote.url)
        git = open_cache(updated.git.git_dir, self.services.settings.git.executable)
        if peel(git, link.commit, "commit") != link.commit:
            raise SandboxError(
                ErrorCode.NOT_FOUND,
                f"The submodule {show_path(link.path)[:200]} needs commit {link.commit[:12]}, which is on no branch or "
                "tag of its remote",
                details=remote.url,
                hint="Push the commit to the submodule's remote, or change the submodule in the parent repository.",
            )
        tree_of(git, link.commit)
        return updated.repository, git
