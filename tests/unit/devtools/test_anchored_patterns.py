"""Patterns that decide whether a text is valid end where the text does: `$` also matches before a last newline."""

from __future__ import annotations

from importlib import import_module

import pytest

VALID = {
    "sandbox.cli.move_task:_KEY": "path@-..-",
    "sandbox.engine.user_maps:_ROOT_DIRECTORY": "/var/lib/docker/1.1",
    "sandbox.forges.github:_JOB": "/actions/runs/1/job/1",
    "sandbox.forges.github:_RUN": "/runs/1",
    "sandbox.git.local.read_refs:_PACKED": f"{'a' * 40} refs/heads/x",
    "sandbox.git.local.read_refs:_PEELED": f"^{'a' * 40}",
    "sandbox.git.local.view:_BOOLEAN": "true",
    "sandbox.git.local.view:_FAN_OUT": "ab",
    "sandbox.git.local.view:_OID_LINES": f"{'a' * 40}\n",
    "sandbox.git.local.view:_PACK_FILE": "pack-1.idx",
    "sandbox.images.lookup:_USED": "x-used-20260101",
    "sandbox.remotes:_HOSTNAME": "example.org",
    "sandbox.remotes:_SCP": "git@example.org:o/n",
    "sandbox.remotes:_SEGMENT": "name",
    "sandbox.remotes:_USER": "git",
    "sandbox.workbench.controller.complete_ids:_TASK_OR_RUN": "task-0",
    "sandbox.workbench.controller.repository_names:_PLACE": "..",
    "sandbox.workbench.reconciling.clone_objects:_SET_ASIDE": ".x.corrupt-1",
    "sandbox.workbench.reconciling.temporary_files:_HALF_CLONE": ".x.incoming",
    "sandbox.workbench.reconciling.temporary_files:_HALF_PRISTINE": ".x.01234567",
    "sandbox.workbench.reconciling.temporary_files:_REMOVED": f".x.removed-{'0' * 16}",
    "sandbox.workbench.reconciling.temporary_files:_TEMPORARY": f".x.{'0' * 12}.tmp",
    "sandbox.workbench.reconciling.workspace_leftovers:_HALF": ".clone-0.0",
}


@pytest.mark.parametrize("place", VALID)
def test_a_text_with_a_newline_after_it_is_another_text(place: str) -> None:
    module, name = place.split(":")
    pattern, valid = getattr(import_module(module), name), VALID[place]
    if name == "_OID_LINES":
        assert pattern.match(valid.encode())
        assert not pattern.match(valid.encode() + b"\n")
    else:
        assert pattern.search(valid)
        assert not pattern.search(valid + "\n")
