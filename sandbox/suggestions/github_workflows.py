"""`.github/workflows/*.yml`: what the jobs of a workflow install and run."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.suggestions import untrusted_yaml
from sandbox.suggestions.draft import JobStep, SuggestionDraft

_MAX_JOBS, _MAX_STEPS = 50, 100
_HARMLESS_ACTIONS = ("actions/checkout", "actions/cache", "actions/upload-artifact", "actions/download-artifact")
_SHELLS = frozenset({"", "bash", "sh"})


def read_workflow(draft: SuggestionDraft, text: str) -> None:
    """Add what the jobs suggest. Raises: ValueError for no valid YAML."""
    document = untrusted_yaml.loads(text)
    if not isinstance(document, dict):
        raise ValueError("no map of jobs")
    env = draft.read_variables(document.get("env"))
    jobs = document.get("jobs")
    for name, job in list(jobs.items())[:_MAX_JOBS] if isinstance(jobs, dict) else ():
        if isinstance(job, dict):
            _read_job(draft, name, job, env, _working_directory(document, "."))


def _read_job(draft: SuggestionDraft, name: str, job: Mapping[str, object], env: dict[str, str], cwd: str) -> None:
    runner = str(job.get("runs-on", ""))
    if "windows" in runner or "macos" in runner:
        return draft.note(f"job {name}", "it runs on another system")
    if "uses" in job:
        return draft.note(f"job {name}: {job['uses']}", "a workflow of another file is not read")
    container = job.get("container")
    draft.note_guests(f"job {name}", container.get("image") if isinstance(container, dict) else container, job)
    step = JobStep(name, _working_directory(job, cwd), {**env, **draft.read_variables(job.get("env"))})
    steps = job.get("steps")
    for each in steps[:_MAX_STEPS] if isinstance(steps, list) else ():
        if isinstance(each, dict):
            _read_step(draft, each, step)
    return None


def _read_step(draft: SuggestionDraft, step: Mapping[str, object], job: JobStep) -> None:
    script, action = step.get("run"), step.get("uses")
    if isinstance(action, str):
        if not action.startswith(_HARMLESS_ACTIONS):
            draft.note(f"uses {action}", "an action is a program of others that needs a network")
        return None
    if "if" in step:
        return draft.note(str(step.get("name") or script), "it runs only under a condition")
    if str(step.get("shell", "")).partition(" ")[0] not in _SHELLS:
        return draft.note(str(step.get("name") or script), f"it is for the shell {str(step['shell'])[:40]}")
    env = {**job.env, **draft.read_variables(step.get("env"))}
    return draft.add_script(script, JobStep(job.job, str(step.get("working-directory", job.cwd)), env))


def _working_directory(place: Mapping[str, object], otherwise: str) -> str:
    defaults = place.get("defaults")
    run = defaults.get("run") if isinstance(defaults, dict) else None
    return str(run.get("working-directory", otherwise)) if isinstance(run, dict) else otherwise
