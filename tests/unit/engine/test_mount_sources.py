"""What engines answer where they do not find, or may not look at, the source of a mount."""

from __future__ import annotations

import pytest

from sandbox.engine.mounts import names_unseen_source

BIND = 'invalid mount config for type "bind": '


@pytest.mark.parametrize(
    "answer",
    [
        f"{BIND}bind source path does not exist: /a",  # seen: Docker 20.10, 28.5
        f"{BIND}stat /a/b: not a directory",  # seen: Docker 20.10
        f"{BIND}stat /home/u/.local/share/space: permission denied",
        "statfs /a: no such file or directory",  # seen: Podman 4.3
        "statfs /a/b: not a directory",  # seen: Podman 4.3
        "statfs /home/u: permission denied",
    ],
)
def test_the_engine_does_not_see_the_source(answer: str) -> None:
    assert names_unseen_source(answer)


@pytest.mark.parametrize(
    "answer",
    [
        f"{BIND}field Source must not be empty",
        f"{BIND}invalid mount path: 'stat /a' mount path must be absolute",
        'Conflict. The container name "/stat /a" is already in use',
        "no such file or directory",
        "",
    ],
)
def test_it_says_something_else(answer: str) -> None:
    assert not names_unseen_source(answer)
