"""`.tool-versions` (asdf) and `mise.toml`: versions of tools, variables, tasks."""

from __future__ import annotations

from sandbox.policy import untrusted_toml
from sandbox.suggestions.draft import JobStep, SuggestionDraft

_REASON = "images have the versions of Debian; another image is yours to choose"
MAX_LINES = 200


def read_tool_versions(draft: SuggestionDraft, text: str) -> None:
    """Note each tool: which image has it is the operator's choice."""
    for line in text.split("\n")[:MAX_LINES]:
        if words := line.partition("#")[0].split():
            draft.note(" ".join(words), _REASON)


def read_mise(draft: SuggestionDraft, text: str) -> None:
    """Note the tools, add variables and tasks. Raises: ValueError for no valid TOML."""
    document = untrusted_toml.loads(text)
    for name, version in _items(document.get("tools")):
        draft.note(f"{name} {version if isinstance(version, str) else ''}".strip(), _REASON)
    for name, value in _items(document.get("env")):
        if name == "_":
            draft.note("env._", "files and programs that set variables are not read")
        else:
            draft.add_variable(name, value)
    for name, task in _items(document.get("tasks")):
        table = task if isinstance(task, dict) else {"run": task}
        step = JobStep(name, str(table.get("dir", ".")), draft.read_variables(table.get("env")))
        run = table.get("run", [])
        for script in run if isinstance(run, list) else [run]:
            draft.add_script(script, step)


def _items(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, dict) else []
