"""`.gitlab-ci.yml`: what its jobs install and run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandbox.suggestions import untrusted_yaml
from sandbox.suggestions.draft import JobStep, SuggestionDraft

_GLOBAL = frozenset(
    [
        "after_script",
        "before_script",
        "cache",
        "default",
        "image",
        "include",
        "pages",
        "services",
        "spec",
        "stages",
        "variables",
        "workflow",
    ]
)
_MAX_JOBS, _MAX_LINES, _MAX_DEPTH = 50, 200, 10


def read_gitlab_ci(draft: SuggestionDraft, text: str) -> None:
    """Add what the jobs suggest. Raises: ValueError for no valid YAML."""
    document = untrusted_yaml.loads(text)
    if not isinstance(document, dict):
        raise ValueError("no map of jobs")
    if "include" in document:
        draft.note("include", "other files are not read")
    default = document.get("default")
    common = {**document, **default} if isinstance(default, dict) else document
    _note_image(draft, "default", common)
    env = _read_variables(draft, document)
    jobs = [(name, job) for name, job in document.items() if name not in _GLOBAL and not name.startswith(".")]
    for name, job in jobs[:_MAX_JOBS]:
        if isinstance(job, dict):
            _read_job(draft, name, job, common, env)


def _read_job(
    draft: SuggestionDraft, name: str, job: Mapping[str, object], common: Mapping[str, object], env: dict[str, str]
) -> None:
    if job.get("when") == "manual":
        return draft.note(f"job {name}", "it runs only when a person starts it")
    if "extends" in job:
        draft.note(f"job {name}: extends", "what it takes from another job is not read")
    if "trigger" in job:
        return draft.note(f"job {name}", "it starts another pipeline")
    _note_image(draft, f"job {name}", job)
    step = JobStep(name, env={**env, **_read_variables(draft, job)})
    scripts = [job.get("before_script", common.get("before_script")), job.get("script")]
    lines = [line for script in scripts for line in _flatten(script)]
    if len(lines) > _MAX_LINES:
        return draft.note(f"job {name}", f"more than {_MAX_LINES} lines")
    if not all(isinstance(line, str) for line in lines):
        return draft.note(f"job {name}", "its script is not plain text")
    return draft.add_script("\n".join(map(str, lines)), step)


def _flatten(script: object, depth: int = 0) -> Iterator[object]:
    """A script is a text or a list, also of lists (which aliases give)."""
    if isinstance(script, list) and depth < _MAX_DEPTH:
        for each in script:
            yield from _flatten(each, depth + 1)
    elif script is not None:
        yield script


def _note_image(draft: SuggestionDraft, place: str, document: Mapping[str, object]) -> None:
    image = document.get("image")
    name = image.get("name") if isinstance(image, dict) else image
    draft.note_guests(place, name, document)


def _read_variables(draft: SuggestionDraft, document: Mapping[str, object]) -> dict[str, str]:
    """Variables are texts, or maps with a `value`."""
    items = document.get("variables")
    plain = {
        name: value.get("value", "") if isinstance(value, dict) else value
        for name, value in (items.items() if isinstance(items, dict) else ())
    }
    return draft.read_variables(plain)
