"""Error hints name commands, for people. For a model, replace them by the tool that does the same.

A model that runs the command in a shell of its own would bypass approval.
"""

from __future__ import annotations

import re

_TOOLS = {
    "repo clone": "space_repo_clone",
    "repo fetch": "space_repo_fetch",
    "repo list": "space_repo_list",
    "repo map": "space_repo_map",
    "task create": "space_repo_create_task",
    "task list": "space_repo_list_tasks",
    "task close": "space_repo_close_task",
    "task snapshot": "space_repo_snapshot",
    "task restore": "space_repo_restore",
    "task clean": "space_repo_clean",
    "task fork": "space_repo_fork_task",
    "file read": "space_repo_read_file",
    "file search": "space_repo_search",
    "file patch": "space_repo_apply_patch",
    "file edit": "space_repo_edit_file",
    "file write": "space_repo_write_file",
    "check list": "space_repo_list_checks",
    "check run": "space_repo_run_check",
    "check wait": "space_repo_wait_run",
    "check stop": "space_repo_stop_run",
    "check log": "space_repo_read_log",
    "status": "space_repo_status",
    "diff": "space_repo_diff",
    "commit": "space_repo_commit",
    "verify": "space_repo_verify",
    "push": "space_repo_push",
    "pr open": "space_repo_open_pr",
    "pr status": "space_repo_pr_status",
}
"""By command. Commands that are not here are only for people: `gc`, `credentials`, `images`, ..."""

_WORDS = "|".join(sorted(_TOOLS, key=len, reverse=True))
_QUOTED = re.compile(rf"`sandbox ({_WORDS})(?: (?![^`]*--discard)[^`]*)?`")
_PLAIN = re.compile(rf"(?<!`)\bsandbox ({_WORDS})(?![\w-])")


def for_agents(text: str) -> str:
    """Replace commands in a hint by their tools; a command in backquotes loses its options too. Pure."""
    quoted = _QUOTED.sub(lambda found: f"`{_TOOLS[found[1]]}`", text)
    return _PLAIN.sub(lambda found: _TOOLS[found[1]], quoted)
