"""What the files of a commit suggest for its checks, and what of it the operator trusts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.files.tree import sha256_of
from sandbox.lazy_module import LazyModule
from sandbox.profiles import SUGGESTIONS, Profile
from sandbox.profiles.suggested_checks import add_suggested_file, add_suggested_parts
from sandbox.store.trust import is_trusted, trusts_anything
from sandbox.suggestions.suggesting_files import SUGGESTING_FILES, is_workflow
from sandbox.workbench.controller.services import Services
from sandbox.workspaces.base_facts import BaseFacts

if TYPE_CHECKING:
    from sandbox.engine import create_options
    from sandbox.suggestions import reading
else:  # loaded when a repository has something to read (docs/adr/0003)
    create_options = LazyModule("sandbox.engine.create_options")
    reading = LazyModule("sandbox.suggestions.reading")


def add_trusted_suggestions(services: Services, repo_id: str, profile: Profile, facts: BaseFacts) -> Profile:
    """The profile with what the commit suggests and the operator trusts. Costs one stat without any trust.

    Raises: `invalid_input` for a trusted suggestion that cannot be used.
    """
    if not trusts_anything(services.home, repo_id):
        return profile
    content = facts.marker(SUGGESTIONS)
    if content is not None and is_trusted(services.home, repo_id, sha256_of(content)):
        profile = add_suggested_file(profile, content, services.policies.workspace)
    parts = read_suggested_parts(services, repo_id, facts).parts
    return add_suggested_parts(profile, (part for part in parts if part.trusted))


def read_suggested_parts(services: Services, repo_id: str, facts: BaseFacts) -> reading.Suggestions:
    """What files other than `SUGGESTIONS` suggest, with the trust in each part."""
    paths = [path for path in facts.markers if path in SUGGESTING_FILES or is_workflow(path)]
    files = {path: content for path in paths if (content := facts.marker(path)) is not None}
    found = reading.read_suggestions(files, create_options.is_protected_variable)
    parts = (
        part.model_copy(update={"trusted": is_trusted(services.home, repo_id, part.sha256)}) for part in found.parts
    )
    return found.model_copy(update={"parts": tuple(parts)})
