"""When a changed approval policy takes effect on requests and streams of the protocol."""

from __future__ import annotations

from pathlib import Path

from sandbox.agent.agent import Agent
from sandbox.agent.protocol_permission import is_permitted
from sandbox.agent.tools import Preset
from sandbox.workbench import Workbench

TOOL = "space_repo_status"


def test_a_policy_does_not_change_in_the_life_of_a_controller(tmp_path: Path) -> None:
    """So an open stream needs no second look at its permission. The next controller has the new policy."""
    (tmp_path / "policies").mkdir()
    found = []
    for _ in range(2):
        with Workbench(tmp_path, environ={}) as workbench:
            agent = Agent(workbench, tmp_path, presets=frozenset(Preset))
            before = is_permitted(agent, TOOL)
            (tmp_path / "policies" / "approvals.toml").write_text(f'[tools]\n{TOOL} = "deny"\n')
            acting = Agent(workbench.acting(workbench.caller), tmp_path, presets=frozenset(Preset))
            found += [before, is_permitted(agent, TOOL), is_permitted(acting, TOOL)]
    assert found == [True, True, True, False, False, False]
