"""The orientation envelope of a tree, kept by tree: a second fetch of a commit neither lists nor reads it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandbox.context.envelope import build_envelope
from sandbox.git.blobs import read_blobs
from sandbox.git.entries import TreeEntry
from sandbox.git.process import Git
from sandbox.models.context import Context, ContinuousIntegration
from sandbox.store.symbol_index import load_envelope, save_envelope
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.suggested import read_suggested_parts
from sandbox.workspaces.base_facts import BaseFacts


def describe_tree(
    services: Services,
    repo_id: str,
    git: Git,
    name: str,
    list_entries: Callable[[], Sequence[TreeEntry]],
    facts: BaseFacts,
) -> Context:
    """The envelope of these entries, which are listed only if it is not kept.

    `name`: of the tree, or of a part of it. `facts`: of the whole tree.
    """
    context = load_envelope(services.home, repo_id, name)
    if context is None:
        ci = _read_ci(services, repo_id, facts)
        context = build_envelope(list_entries(), lambda oids: list(read_blobs(git, oids)), ci)
        save_envelope(services.home, repo_id, name, context)
    return context


def _read_ci(services: Services, repo_id: str, facts: BaseFacts) -> ContinuousIntegration | None:
    """What CI files run and install, as data. None without such files."""
    found = read_suggested_parts(services, repo_id, facts)
    packages = tuple(dict.fromkeys(name for part in found.parts for name in part.packages))
    return ContinuousIntegration(runs=found.lines, packages=packages) if found.lines or packages else None
