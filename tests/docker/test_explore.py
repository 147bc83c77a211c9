"""Best of N: several changes of one task, verified side by side. Real engine, real git, the command as a process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp.client.client import Client

from devtools.agent import AgentServer, ok, talk
from devtools.command import Command
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.models import Exploration, ExploredWay
from sandbox.workbench import ExploreOptions, Workbench
from tests.unit.conftest import initialised, refused

PROFILE = r"""
label = "bench"
image = "base"
priority = 99
[[detect.any]]
file = "tests"
[[check]]
id = "build"
label = "build"
argv = ["sh", "-c", "! grep -q BROKEN source"]
[[check]]
id = "test"
label = "test"
argv = ["sh", "-c", '''grep -q HUNGRY source && exec tail /dev/zero; \
bad=0; for t in one two three; do if grep -qx $t source; then echo "[PASS] $t"; \
else echo "[FAIL] $t"; bad=1; fi; done; exit $bad''']
requires = ["build"]
[check.limits]
memory_bytes = 67108864
[check.results]
passed = '^\[PASS\] (.*)'
failed = '^\[FAIL\] (.*)'
"""


def patch(removed: str, *added: str) -> bytes:
    """A patch of the file `source`, which has the lines one and two."""
    before = ["one", "two"]
    lines = [f"-{line}" if line == removed else f" {line}" for line in before]
    lines += [f"+{line}" for line in added]
    new = len(before) - (removed in before) + len(added)
    return "\n".join(["--- a/source", "+++ b/source", f"@@ -1,2 +1,{new} @@", *lines, ""]).encode()


PATCHES = {
    "mends.patch": patch("", "three"),
    "mends, and more.patch": patch("", "three", "four", "five"),
    "nothing.patch": patch("", "four"),
    "breaks.patch": patch("one", "three"),
    "build.patch": patch("", "BROKEN"),
    "stale.patch": patch("one", "x").replace(b" two", b" other"),
}


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    root = tmp_path_factory.mktemp("explore")
    (root / "home" / "profiles").mkdir(parents=True)
    (root / "home" / "profiles" / "bench.toml").write_text(PROFILE)
    upstream = initialised(root / "upstream")
    upstream.write("tests")
    upstream.write("source", b"one\ntwo\n")
    upstream.commit()
    with Workbench(root / "home", environ=dict(os.environ), allow_file=True) as found:
        found.clone(str(upstream.root))
        yield found
    unmount_below(root)


@pytest.fixture
def task_id(workbench: Workbench) -> str:
    return workbench.create_task(workbench.repositories()[0].id, "explore").id


def by_name(found: Exploration) -> dict[str, ExploredWay]:
    return {way.name: way for way in found.ways}


def test_the_best_is_restored_and_all_are_kept(workbench: Workbench, task_id: str) -> None:
    found = workbench.explore(task_id, PATCHES)
    assert [(way.rank, way.name, way.newly_failing, way.failing) for way in found.ways] == [
        (1, "mends.patch", 0, 0),
        (2, "mends, and more.patch", 0, 0),
        (3, "nothing.patch", 0, 1),
        (4, "breaks.patch", 1, 1),
        (5, "build.patch", 4, 4),
        (None, "stale.patch", 0, 0),
    ]
    ways = by_name(found)
    assert (found.base_failing, found.winner, found.restored, found.note) == (1, "mends.patch", True, "")
    assert ways["breaks.patch"].newly_failing_tests == ("test: one",)
    assert ways["build.patch"].verdicts == {"build": "failed"}
    assert (ways["mends.patch"].verified, ways["mends.patch"].additions, ways["mends.patch"].files) == (True, 1, 1)
    assert "patch_rejected" in (ways["stale.patch"].problem or "")
    assert workbench.read_file(task_id, "source").content == "one\ntwo\nthree\n"
    kept = {snapshot.id: snapshot.label for snapshot in workbench.snapshots(task_id)}
    assert {kept[way.snapshot] for way in found.ways if way.snapshot} == {
        f"explored: {name}" for name in PATCHES if name != "stale.patch"
    }
    assert len(workbench.tasks()) == len({task.id for task in workbench.tasks()})
    other = ways["mends, and more.patch"].snapshot
    assert other is not None
    workbench.restore(task_id, other)
    assert workbench.read_file(task_id, "source").content == "one\ntwo\nthree\nfour\nfive\n"
    assert [entry.operation for entry in workbench.log(task_id)].count("explore") == 1


def test_tasks_are_compared_too_and_nothing_is_touched_without_a_winner(workbench: Workbench, task_id: str) -> None:
    fork, edited = workbench.fork_task(task_id), workbench.fork_task(task_id)
    edits = ((fork.id, "one\n"), (edited.id, "two\n"))
    for name, content in edits:
        workbench.write_file(name, "source", content, workbench.read_file(name, "source").sha256)
    found = workbench.explore(task_id, {}, [fork.id, edited.id])
    assert [(way.newly_failing, way.deletions) for way in found.ways] == [(1, 1), (1, 1)]
    assert (found.winner, found.restored) == (None, False)
    assert not workbench.status(task_id).changes
    with refused(ErrorCode.INVALID_INPUT):
        workbench.explore(task_id, {}, [task_id])
    with refused(ErrorCode.INVALID_INPUT):
        workbench.explore(task_id)


def test_expected_hashes_gate_a_patch_and_the_path_policy_holds(workbench: Workbench, task_id: str) -> None:
    hook = b"--- /dev/null\n+++ b/.github/workflows/x.yml\n@@ -0,0 +1 @@\n+x\n"
    options = ExploreOptions(restore=False, expected_hashes={"source": "sha256:" + "0" * 64})
    with refused(ErrorCode.STALE_HASH) as caught:
        workbench.explore(task_id, {"old": PATCHES["mends.patch"], "hook": hook}, (), None, options)
    assert [line.split(": ")[:2] for line in caught.value.details.splitlines()] == [
        ["old", "stale_hash"],
        ["hook", "unsafe_path"],
    ]
    none = ExploreOptions(restore=False, expected_hashes={})
    with refused(ErrorCode.PATCH_REJECTED):
        workbench.explore(task_id, {"x": PATCHES["mends.patch"]}, (), None, none)


def test_a_task_that_changed_meanwhile_is_not_overwritten(
    workbench: Workbench, task_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sandbox.workbench.checks import explore  # noqa: PLC0415 - patched below
    from sandbox.workbench.checks.ranking import rank_ways as rank  # noqa: PLC0415 - as above

    def change_meanwhile(ways: list[ExploredWay]) -> tuple[ExploredWay, ...]:
        workbench.write_file(task_id, "mine", b"work", None)
        return rank(ways)

    monkeypatch.setattr(explore, "rank_ways", change_meanwhile)
    found = workbench.explore(task_id, {"mends": PATCHES["mends.patch"]})
    assert (found.winner, found.restored) == ("mends", False)
    assert "changed meanwhile" in found.note
    assert [change.path for change in workbench.status(task_id).changes] == ["mine"]


def test_the_command_prints_a_table_and_json(workbench: Workbench, task_id: str, tmp_path: Path) -> None:
    for name, text in PATCHES.items():
        (tmp_path / name).write_bytes(text)
    command = Command(workbench.home)
    shown = command("explore", task_id, "--patches", str(tmp_path), "--no-restore")
    assert shown.code == 0
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert rows[0][:3] == ["RANK", "WAY", "NEWLY"]
    assert rows[1][:2] == ["1", "mends.patch"]
    assert "best: mends.patch" in shown.stdout
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "breaks.diff").write_bytes(PATCHES["breaks.patch"])
    broken = command("explore", task_id, "--patches", str(tmp_path / "only"), "--json")
    assert broken.code == 1
    assert json.loads(broken.stdout)["winner"] is None
    assert not workbench.status(task_id).changes


def test_an_agent_explores_a_task_whose_own_state_reached_a_limit(workbench: Workbench, task_id: str) -> None:
    """Over MCP. What the task's own state does not say is said."""
    workbench.write_file(task_id, "source", b"one\ntwo\nHUNGRY\n", workbench.read_file(task_id, "source").sha256)
    start = "--- a/source\n+++ b/source\n@@ -1,3 +1,"
    patches = {
        "fed": f"{start}3 @@\n one\n two\n-HUNGRY\n+three\n",
        "hungry": f"{start}4 @@\n one\n two\n HUNGRY\n+three\n",
    }

    async def session(client: Client) -> None:
        read = await ok(client, "space_repo_read_file", task_id=task_id, path="source")
        hashes = {"source": read["sha256"]}
        found = await ok(client, "space_repo_explore", task_id=task_id, patches=patches, expected_hashes=hashes,
                         wait_s=120)  # fmt: skip
        assert (found["state"], found["winner"], found["restored"]) == ("finished", "fed", True)
        assert [(way["name"], way["verdicts"]["test"]) for way in found["ways"]] == [
            ("fed", "passed"), ("hungry", "oom_killed"),
        ]  # fmt: skip
        assert found["note"].startswith("of the task's own state, test ended with oom_killed")
        now = await ok(client, "space_repo_read_file", task_id=task_id, path="source")
        assert now["content"] == "one\ntwo\nthree\n"

    talk(AgentServer(workbench.home, "stdio"), session)
