"""Run entries one after the other, each with a deadline, and report how each ended."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough, NotSupported, Void
from sandbox.attack.harness.scene import Scene
from sandbox.attack.harness.site import AttackRun
from sandbox.attack.selection import needs_engine, select
from sandbox.config import load_settings
from sandbox.errors import SandboxError
from sandbox.files.openat2 import require_openat2
from sandbox.models import AttackOutcome, AttackReport, AttackResult
from sandbox.store.home import default_home, resolve_home

DEADLINE_S = 180.0
"""Of one entry; reached: `error`, because a product that hangs on an attack has not held."""

_NO_OBJECTION = {AttackOutcome.HELD, AttackOutcome.SKIPPED}

OnResult = Callable[[AttackResult, int], None]
"""Called with each result as it comes, and the number of entries."""


def attack(
    home: Path | None = None,
    only: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    on_result: OnResult | None = None,
    deadline_s: float = DEADLINE_S,
) -> AttackReport:
    """Run the suite, or the sections and entries in `only`, with the settings and policies of `home`.

    Raises: `invalid_input` for an unknown name or unreadable settings, `engine_unavailable` and `image_missing` if an
    entry needs a container and none can be made. Interrupts pass through after the clean-up.
    """
    require_openat2()
    environment = os.environ if environ is None else environ
    root = resolve_home(home or default_home(environment))
    entries = select(only)
    started = time.monotonic()
    with AttackRun(load_settings(root, environment), environment, root / "policies") as site:
        site.remove_abandoned()
        if needs_engine(entries):
            site.image("base")  # one error now instead of one for each entry
        results = tuple(run_entries(site, entries, on_result, deadline_s))
        engine = site.engine.version if needs_engine(entries) else ""
    return _report(results, time.monotonic() - started, site, engine)


def run_entries(
    site: AttackRun, entries: Sequence[AttackEntry], on_result: OnResult | None, deadline_s: float
) -> Iterable[AttackResult]:
    """Run the entries; results are yielded as they come."""
    for entry in entries:
        result = _run_one(site, entry, deadline_s)
        if on_result is not None:
            on_result(result, len(entries))
        yield result


def _run_one(site: AttackRun, entry: AttackEntry, deadline_s: float) -> AttackResult:
    started = time.monotonic()
    outcome, control, seen = _try_entry(site, entry, deadline_s)
    return AttackResult(
        id=entry.id,
        title=entry.title,
        section=entry.section,
        tried=entry.tried,
        outcome=outcome,
        control=control,
        seen=seen,
        wall_time_s=round(time.monotonic() - started, 3),
    )


_Ended = tuple[AttackOutcome, str, str]


def _try_entry(site: AttackRun, entry: AttackEntry, deadline_s: float) -> _Ended:
    if reason := next((reason for need in entry.needs if (reason := need(site))), ""):
        return AttackOutcome.SKIPPED, "", reason
    try:
        if entry.scene == "guests":
            return _play_until_deadline(site, deadline_s, lambda: _play(entry, site.guests.scene))
        with site.scene(entry.id) as scene:
            return _play_until_deadline(site, deadline_s, lambda: _play(entry, scene, begin=entry.scene == "task"))
    except SandboxError as error:
        return AttackOutcome.ERROR, "", f"{error.code}: {error.brief} {error.details}".strip()
    except OSError as error:
        return AttackOutcome.ERROR, "", f"the scratch directory: {error}"


def _play(entry: AttackEntry, scene: Scene, *, begin: bool = False) -> _Ended:
    """Plant, control, attack, inspect; with `begin` on a new task. An untyped exception of the product means `error`,
    never `held`.
    """
    control = ""
    try:
        if begin:
            scene.new_task()
        entry.plant(scene)
        control = entry.control(scene)
        scene.record_state()
        seen = entry.attack(scene)
        scene.require_no_effect()
    except GotThrough as effect:
        return AttackOutcome.GOT_THROUGH, control, str(effect)
    except Void as reason:
        return AttackOutcome.VOID, control, str(reason)
    except NotSupported as reason:
        return AttackOutcome.SKIPPED, control, str(reason)
    except SandboxError as error:
        return AttackOutcome.ERROR, control, f"{error.code}: {error.brief} {error.details}".strip()
    except Exception as error:  # noqa: BLE001 - the outermost edge of an entry; the others go on
        return AttackOutcome.ERROR, control, f"{type(error).__name__}: {error}"
    return AttackOutcome.HELD, control, seen


def _play_until_deadline(site: AttackRun, seconds: float, play: Callable[[], _Ended]) -> _Ended:
    """Run in a separate thread: one that hangs, for instance on a FIFO, is abandoned and ends with the process."""
    ended: list[_Ended] = []
    thread = threading.Thread(target=lambda: ended.append(play()), name="attack", daemon=True)
    site.current_thread = thread
    thread.start()
    thread.join(seconds)
    return ended[0] if ended else (AttackOutcome.ERROR, "", f"no answer in {seconds:.0f} s")


def _report(results: Sequence[AttackResult], seconds: float, site: AttackRun, engine: str) -> AttackReport:
    def count(outcome: AttackOutcome) -> int:
        return sum(result.outcome is outcome for result in results)

    return AttackReport(
        results=tuple(results),
        # Skipped entries alone say no more than no entries.
        safe={AttackOutcome.HELD} <= {result.outcome for result in results} <= _NO_OBJECTION,
        held=count(AttackOutcome.HELD),
        got_through=count(AttackOutcome.GOT_THROUGH),
        void=count(AttackOutcome.VOID),
        skipped=count(AttackOutcome.SKIPPED),
        errors=count(AttackOutcome.ERROR),
        wall_time_s=round(seconds, 3),
        engine=engine,
        runtime=site.runtime if engine else "",
        git=".".join(map(str, site.git_version)),
    )
