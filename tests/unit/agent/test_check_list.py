"""What an agent is told of checks."""

from __future__ import annotations

from sandbox.agent.check_list import list_shared
from sandbox.models import Check, Limits


def test_limits_that_are_shared_are_said_once_and_defaults_not_at_all() -> None:
    checks = [Check(id=f"c{n}", label="x", argv=("true",)) for n in range(3)]
    own = Check(id="own", label="y", argv=("make",), cwd="api", requires=("c0",), limits=Limits(pids=9), env={"A": "1"})
    found = list_shared((*checks, own), ()).model_dump(mode="json")
    assert found["limits"] == Limits().model_dump()
    assert found["checks"][0] == {"id": "c0", "label": "x", "argv": ["true"], "timeout_s": 300.0}
    assert found["checks"][3] == {
        "id": "own",
        "label": "y",
        "argv": ["make"],
        "timeout_s": 300.0,
        "cwd": "api",
        "env": {"A": "1"},
        "limits": {"pids": 9},
        "requires": ["c0"],
    }
    assert list_shared((), ()).model_dump() == {"checks": (), "limits": {}, "advice": ()}
