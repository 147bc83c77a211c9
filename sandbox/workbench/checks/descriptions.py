"""Ask a project for what its manifests compute, in a guest without a network: its own code answers.

The answer is data from a guest: a file of its report folder, of which only lines with known fields are kept. They are
parsed as strictly as a manifest (sandbox/dependencies).
"""

from __future__ import annotations

from pathlib import Path

from sandbox.checks.execute import CheckDirectories
from sandbox.dependencies.layer_plan import ProjectDescription
from sandbox.files.git_mask import require_mask
from sandbox.files.guest_files import read_guest_file
from sandbox.models import Check, Verdict
from sandbox.store.home import GIT_MASK
from sandbox.store.verdicts import was_short_of_resources
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.run import build_room_recorder, new_report_folder
from sandbox.workbench.checks.step_rooms import run_step
from sandbox.workbench.controller.guest_accounts import find_account
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import TreeSource
from sandbox.workbench.tasks.worktrees import clean_room

_FILE_BYTES = 256 * 1024
_LINE_CHARS = 1_100
_ANSWERED = frozenset({Verdict.PASSED, Verdict.FAILED})


def describe_project(
    services: Services,
    setup: GuestSetup,
    description: ProjectDescription,
    source: TreeSource,
    watch: Watch,
) -> str | None:
    """What the project in a clean room says of itself: lines with known fields; '' if it cannot say it; None if it was
    not asked to the end, or the host was short of processes or memory meanwhile.

    Raises: as `build_room_recorder` and `run_in_rooms`.
    """
    watch.building("Asking the project's build for its requirements, without a network")
    step = description.step
    check = Check(
        id="describe", label="describe", argv=("sh", "-c", step.script), env=dict(step.env), timeout_s=step.timeout_s
    )
    recorder = build_room_recorder(services, setup, source.repo_id)
    with clean_room(services, source.repo_id, source.git, (source.tree, source.tree), setup.added, [check]) as room:
        require_mask(room.root, GIT_MASK)
        with new_report_folder(services, room) as (run_id, report):
            account = find_account(services, room.owner)
            place = CheckDirectories(room.root, report, account, source.tree, clean_room=True, task_id=None)
            try:
                run = run_step(services, recorder, (run_id, check, place), watch, "describe")
            finally:
                recorder.forget_log(run_id)
            if run.verdict not in _ANSWERED or (run.verdict is Verdict.FAILED and was_short_of_resources(run)):
                return None
            if run.verdict is Verdict.FAILED:
                watch.building("It could not say: what the manifests say as data is used")
                return ""
            return read_fields(report / description.file, description.fields)


def read_fields(path: Path, fields: tuple[str, ...]) -> str:
    """The lines of a guest's file that begin with one of `fields` and `: `, up to the first empty line."""
    content = read_guest_file(path, _FILE_BYTES + 1) or b""
    if len(content) > _FILE_BYTES:
        return ""
    head = content.decode("utf-8", "replace").partition("\n\n")[0]
    starts = tuple(f"{field}: " for field in fields)
    lines = (line for line in head.split("\n") if line.startswith(starts) and len(line) <= _LINE_CHARS)
    return "".join(f"{line}\n" for line in lines if line.isprintable())
