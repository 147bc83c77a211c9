"""What became of a project of the corpus, and the tables that are printed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.corpus.control import Control
from benchmarks.corpus.entries import Entry

State = Literal["verified", "uncounted", "upstream", "open", "lost", "absent"]
ABSENT = "absent"  # the code of the error of an archive that could not be had
_CAUSE_WIDTH = 90
_CONTROLS: dict[Control, str] = {
    "fails": "fails in an ordinary container too",
    "passes": "not so in an ordinary container",
    "unknown": "fails in an ordinary container, not seen to be for the same reason",
    "not started": "its control did not start, and says nothing",
    "stopped": "its control was stopped, and says nothing",
}
_SILENT: tuple[Control, ...] = ("unknown", "not started", "stopped")


@dataclass(frozen=True)
class Outcome:
    """`profile`: the one that was detected, empty if none. `cause`: what was seen, empty if verified.

    `state`: `verified`; `uncounted` if all checks passed, no report has a test, and none printed what the entry says:
    that may be a suite that ran nothing; `upstream` and `open` as the entry says; `lost` if it has to be verified and
    is not; `absent` if its archive could not be had, which says nothing about us. `control`: what the same tests did
    in an ordinary container; None if that was not tried.
    """

    entry: Entry
    profile: str
    state: State
    tests: int
    cause: str
    wall_time_s: float
    control: Control | None = None


def judge(entry: Entry, document: Mapping[str, Any], wall_time_s: float, control: Control | None = None) -> Outcome:
    """Read the JSON document of `sandbox run`."""
    runs = document.get("runs", [])
    tests = sum((run.get("report") or {}).get("tests", 0) for run in runs)
    if document.get("verified") and not tests and not _prints_what_entry_says(entry, runs):
        return Outcome(entry, document["profile"], "uncounted", 0, "passed, and no test was counted", wall_time_s)
    if document.get("verified"):
        return Outcome(entry, document["profile"], "verified", tests, "", wall_time_s)
    if (document.get("error") or {}).get("code") == ABSENT:
        return Outcome(entry, "", "absent", 0, document["error"]["brief"], wall_time_s)
    state: State = "upstream" if entry.upstream else "open" if entry.open else "lost"
    cause = _find_cause(document, runs)
    return Outcome(entry, document.get("profile", ""), state, tests, cause, wall_time_s, control)


def _prints_what_entry_says(entry: Entry, runs: Sequence[Mapping[str, Any]]) -> bool:
    output = "\n".join(run.get(f"{stream}_tail") or "" for run in runs for stream in ("stdout", "stderr"))
    return bool(entry.says) and entry.says in output


def _find_cause(document: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> str:
    if error := document.get("error"):
        return f"{error['code']}: {error['brief']}"
    for run in runs:
        if run["verdict"] != "passed":
            seen = (run.get("cause") or {}).get("sentence") or _last_line(run)
            return f"{run['check_id']} {run['verdict']}: {seen}"
    return "no check"


def _last_line(run: Mapping[str, Any]) -> str:
    lines = f"{run.get('stdout_tail', '')}\n{run.get('stderr_tail', '')}".strip().splitlines()
    return lines[-1] if lines else ""


def format_line(outcome: Outcome) -> str:
    """One project."""
    said = f"{outcome.tests} tests" if outcome.state == "verified" else outcome.cause[:_CAUSE_WIDTH]
    if outcome.control is not None:
        said += f" ({_CONTROLS[outcome.control]})"
    detected = outcome.profile or "-"
    name = f"{outcome.entry.name} {outcome.entry.version}"
    return f"{name:<34} {detected:<10} {outcome.state:<9} {outcome.wall_time_s:6.1f} s  {said}"


def format_table(outcomes: Iterable[Outcome]) -> str:
    """For each profile: how many were verified, passed without a counted test, fail as upstream does, are open, are
    lost, and could not be had; of those that are not verified, how many fail, how many pass, and of how many nothing
    was learned in an ordinary container, as far as that was tried; and the time of all. Then two shares: one counts
    only what its control, or the file, does not call upstream's; the other counts all that could be had.
    """
    found = list(outcomes)
    lines = [
        f"{'profile':<10} {'projects':>8} {'verified':>8} {'uncounted':>9} {'upstream':>8} {'open':>5} {'lost':>5} "
        f"{'absent':>6} {'control fails':>13} {'passes':>7} {'says nothing':>12} {'time':>7}"
    ]
    for profile in [*sorted({o.entry.profile for o in found}), "all"]:
        rows = [o for o in found if profile in {"all", o.entry.profile}]
        states, controls = Counter(o.state for o in rows), Counter(o.control for o in rows)
        lines.append(
            f"{profile:<10} {len(rows):>8} {states['verified']:>8} {states['uncounted']:>9} {states['upstream']:>8} "
            f"{states['open']:>5} {states['lost']:>5} {states['absent']:>6} {controls['fails']:>13} "
            f"{controls['passes']:>7} {sum(controls[said] for said in _SILENT):>12} "
            f"{sum(o.wall_time_s for o in rows):>5.0f} s"
        )
    had = [o for o in found if o.state != "absent"]
    fair = [o for o in had if o.state != "upstream" and o.control != "fails"]
    lines.append(
        f"verified with no option, of those that pass upstream: {_share(fair):.0f} %; of all: {_share(had):.0f} %"
    )
    return "\n".join(lines)


def _share(outcomes: Sequence[Outcome]) -> float:
    """How many of them were verified, in percent."""
    return 100 * sum(1 for o in outcomes if o.state == "verified") / len(outcomes) if outcomes else 0.0
