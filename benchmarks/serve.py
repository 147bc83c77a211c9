"""What the daemon changes: S32 (commands through it), and S36 (its memory at rest)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks import startup
from benchmarks._harness import compare
from devtools.daemon import serving

_GOAL_MB = 120


def main() -> None:
    startup.TASKS = 20
    with startup.site() as at, serving(at.home) as daemon:
        at.run("check", "run", at.task_id, "true")
        for command in ("task list", f"status {at.task_id}", f"file read {at.task_id} README.md"):
            words = command.split()
            name = f"S32 {' '.join(w for w in words if w != at.task_id)}"
            floor = partial(startup.run, startup.PYTHON)
            compare(name, partial(at.run, *words), floor, floor_name="python -c pass", target="5x")
            compare(
                f"{name}, in process",
                partial(at.run, "--no-daemon", *words),
                floor,
                floor_name="python -c pass",
                target="",
            )
        compare(
            "S32 check run true",
            lambda: at.run("check", "run", at.task_id, "true"),
            lambda: startup.run(["docker", "run", "--rm", "--network", "none", startup.IMAGE, "true"]),
            floor_name="docker run --rm --network none",
            target="0.5x",
        )
        print(f"S36 memory at rest: {measure_memory(daemon.process.pid):.0f} MB; target {_GOAL_MB} MB", flush=True)


def measure_memory(process: int) -> float:
    """What the daemon's processes hold together, in MB: a page that they share counts once (PSS)."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    found = [Path(f"/proc/{one}/smaps_rollup").read_text() for one in (str(process), *children)]
    lines = [line.split() for text in found for line in text.splitlines()]
    return sum(int(line[1]) for line in lines if line[0] == "Pss:") / 1024


if __name__ == "__main__":
    main()
