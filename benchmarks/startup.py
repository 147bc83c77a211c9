"""S17: how long the command takes to start, against `python -c pass`."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from benchmarks._harness import compare


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "sandbox", "--home", home]

        def run(argv: list[str]) -> None:
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)

        def floor() -> None:
            run([sys.executable, "-c", "pass"])

        compare("S17 --version", lambda: run([*command, "--version"]), floor, floor_name="python -c pass", target="6x")
        compare(
            "S17 task list, no tasks",
            lambda: run([*command, "task", "list"]),
            floor,
            floor_name="python -c pass",
            target="(4x `docker ps`)",
        )


if __name__ == "__main__":
    main()
