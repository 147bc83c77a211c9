"""Build several images at once, each after the one that it starts from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait

from sandbox.engine.image_types import Image, Progress

JOBS = 4
"""Builds at once: most of a build is a download or one process."""

BuildStep = Callable[[str, Image | None, Progress], Image]
"""Builds the image of a name on its parent's (None: on Debian), and reports lines."""


def build_in_order(parents: Mapping[str, str], build: BuildStep, progress: Progress) -> dict[str, Image]:
    """Build each name when its parent is there. `parents`: by name, each before its children; '' for none.

    Lines of a build get its name in front, `NAME | `. When one fails, the others end at their next line, and its error
    is raised. An interrupt does not wait: the threads end with the process, and the engine ends their builds.
    """
    places = threading.BoundedSemaphore(JOBS)
    failure: list[BaseException] = []
    made: dict[str, Future[Image]] = {}

    def work(name: str, parent: Future[Image] | None, outcome: Future[Image]) -> None:
        def report(line: str) -> None:
            if failure:
                raise failure[0]
            progress(f"{name} | {line}")

        try:
            below = parent.result() if parent else None
            with places:
                outcome.set_result(build(name, below, report))
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            if not failure:
                failure.append(error)
            outcome.set_exception(error)

    for name, parent in parents.items():
        made[name] = Future()
        threading.Thread(
            target=work, args=(name, made.get(parent), made[name]), daemon=True, name=f"build {name}"
        ).start()
    wait(made.values())
    if failure:
        raise failure[0]
    return {name: outcome.result() for name, outcome in made.items()}
