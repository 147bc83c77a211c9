"""Facts of a commit as variables of its checks, computed on the host: a guest sees no git data.

A verdict is bound to a tree, and these facts are of a commit. So they are part of the key, as every variable of a check
is, and only checks that ask for them get them: other verdicts hold for each commit with the same tree (docs/adr/0071).
"""

from __future__ import annotations

from collections.abc import Collection

from sandbox.environment_names import COMMIT, DESCRIBE, VERSION_VARIABLES
from sandbox.git.describe import CommitDescription, describe_commit
from sandbox.git.process import Git
from sandbox.profiles import Profile, project_of


def add_git_facts(profile: Profile, git: Git, commit: str) -> Profile:
    """The profile with facts of the commit for each check of a project that asks for them. Variables of a check go
    first. Raises: as `describe_commit`.
    """
    asking = {part.project_name for part in (profile, *profile.project_parts) if part.git_facts}
    if not any(project_of(check.id) in asking for check in profile.checks):
        return profile
    described = describe_commit(git, commit)
    checks = (
        check.model_copy(update={"env": list_variables(described, check.env) | check.env})
        if project_of(check.id) in asking
        else check
        for check in profile.checks
    )
    return profile.model_copy(update={"checks": tuple(checks)})


def list_variables(described: CommitDescription, given: Collection[str] = ()) -> dict[str, str]:
    """The variables by name, but those that are given: ours, and those that tools read instead of asking git. The names
    of the latter are in one of ours, as the check of a Python project keeps them from its tests. Pure.

    setuptools-scm reads the first for hatch-vcs too, which names no project to it; versioneer reads none.
    """
    tools = [
        "SETUPTOOLS_SCM_PRETEND_VERSION",
        "PBR_VERSION",
        "PDM_BUILD_SCM_VERSION",
        "POETRY_DYNAMIC_VERSIONING_BYPASS",
        "UV_DYNAMIC_VERSIONING_BYPASS",
    ]
    facts = {
        COMMIT: described.commit,
        DESCRIBE: described.described,
        "SOURCE_DATE_EPOCH": str(described.time_s),
        VERSION_VARIABLES: ",".join(name for name in tools if name not in given),
        **dict.fromkeys(tools, described.version),
    }
    return {name: value for name, value in facts.items() if name not in given}
