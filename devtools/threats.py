"""Write docs/threats.md from sandbox/attack/threats.toml; `--check` only says whether it differs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from devtools.reference import table
from devtools.written import write_or_check
from sandbox.attack import explain
from sandbox.models import Threat

PAGE = Path(__file__).parent.parent / "docs" / "threats.md"
_NOTE = "<!-- Written by `python -m devtools.threats`; edit sandbox/attack/threats.toml instead. -->\n"
_HEAD = """# Threats

What an attacker tries, what stops it, and the test that shows it. `sandbox doctor --attack --explain` prints this list.

| state | means |
|---|---|
| tested | a test attacks it, or tests the wall itself |
| partly | the wall has a gap or is tested in part; the remark says which |
| by design | what would be attacked is not there |
| later | not in this version |
| ships | `sandbox doctor --attack` also runs it on your own host ([attack](attack.md)) |

Each test in `tests/attack` runs the attack twice: against an unhardened command, which must be hit or the test is
void, and against the product. Races have a fixed budget that the unhardened side must win in, and report their
attempts. The session ends by proving that no container, process or mount of it is left.
Entries about git (A-G, O, Q) run twice, on the installed git and on a newer one that `scripts/setup tools` fetches
(2.39.5 and 2.55.0 when this was written): configured hooks and the file system monitor's daemon exist only there. Where
the machine's archive has no git of 2.55 or newer these tests skip with that reason; one that could not be fetched is a
failure where `CI` is set.
`pytest tests/attack -n 2` takes about four minutes on two cores; tests with a guest skip without an engine, and fail
where `CI` is set.
"""
SECTIONS = {
    "A": "Which repository is it: the `.git` of a worktree",
    "B": "Configuration that runs programs",
    "C": "Nested repositories and submodules",
    "D": "Metadata of git",
    "E": "Hostile remotes",
    "F": "Credentials and transport",
    "G": "Arguments",
    "H": "Paths and files",
    "I": "Reading, searching and output",
    "J": "Patches",
    "K": "The container",
    "L": "Resources and life cycle",
    "M": "Images and dependencies",
    "N": "Tools over MCP and HTTP, approvals",
    "O": "Pull requests",
    "P": "Records, crashes and tidying",
    "Q": "The controller's own process",
    "S": "Start-up, shared resources and promises kept by half",
}
_BESIDE = (
    ("git over `git://`", "`test_e_git_protocol_is_refused_before_any_connection`",
     "https and ssh only; git is told the one protocol of the remote"),
    ("overlay: marks",
     "`test_r_no_mark_of_an_overlay_can_be_made_by_a_guest`, `test_r_options_of_a_mount_are_never_cut`",
     "the kernel refuses them to a guest; status reads the upper directory"),
    ("overlay: shared checkout",
     "`test_r_nothing_done_in_a_worktree_reaches_the_checkout_below_or_another_task`",
     "never mounted writable; copied before it changes"),
    ("overlay: hidden changes",
     "`test_r_what_lies_deeper_than_a_path_may_be_long_is_named`, `test_r_a_mess_made_inside_is_answered_and_removed`",
     "what cannot be opened is rejected by name"),
    ("overlay: closing", "`tests/contract/test_pristine.py`; two processes are not raced",
     "one lock for mounting and taking away"),
    ("clean room", "`test_r_a_room_holds_the_committed_tree_to_the_byte`",
     "only paths that differ are touched, gitlinks count as nothing"),
    ("notes on base commits",
     "`tests/unit/workbench/repositories/test_commit_facts.py`, `tests/unit/engine/test_mounts.py` (links and white"
     " space in the home)",
     "made again when damaged"),
    ("what ships, each entry with its control",
     "`test_shipped_entry_holds`, `test_shipped_entry_on_a_newer_git_holds`", ""),
    ("what ships, walls taken down",
     "`test_shipped_suite_sees_a_careless_host`, `test_shipped_suite_sees_a_soft_guest`,"
     " `test_shipped_suite_sees_the_operators_own_rules`,"
     " `test_shipped_suite_sees_a_careless_proxy`,"
     " `test_shipped_suite_sees_a_server_that_sends_what_nobody_sees`", "each entry then says that it got through"),
    ("controls", "`test_git_used_by_the_controls_is_the_products`", ""),
)  # fmt: skip


def page() -> str:
    """The page as it should be."""
    threats = explain()
    parts = [_NOTE, _HEAD]
    for letter, title in SECTIONS.items():
        rows = [_row(threat) for threat in threats if threat.section == letter]
        parts.append(f"\n## {letter}. {title}\n")
        parts.append(table(("entry", "what is tried", "what stops it", "tests", "state"), rows))
    parts.append("\n## Beside the list\n")
    parts.append(table(("about", "tests", "what holds"), _BESIDE))
    return "".join(parts)


def _row(threat: Threat) -> tuple[str, ...]:
    state = f"{threat.state.value}; ships" if threat.ships else threat.state.value
    remark = f": {threat.remark}" if threat.remark else ""
    return threat.id, threat.attack, threat.stops or "-", threat.tests or "-", f"{state}{remark}"


def main(arguments: Sequence[str]) -> int:
    """Write the page, or with `--check` say whether it is as it should be."""
    return write_or_check(arguments, {PAGE: page()})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
