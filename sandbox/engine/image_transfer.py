"""Save images of the engine as a tar stream, and load one: `GET /images/get` and `POST /images/load`.

The SDK waits for the first byte only as long as for any answer; an engine collects gigabytes before it sends one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import IO, Any, cast

from sandbox.engine.docker_api import DockerApi, read_message, require_success, translate_errors
from sandbox.errors import ErrorCode, SandboxError

_SILENCE_S = 900.0
_LOADED = "Loaded image ID: "


@contextmanager
def save(engine: DockerApi, references: Sequence[str]) -> Iterator[IO[bytes]]:
    """Yield a tar stream, as `docker save` writes it, with these images; shared layers are in it once."""
    with (
        translate_errors(f"save the images {', '.join(references)}"),
        closing(
            engine.api.get(_url(engine, "get"), params={"names": list(references)}, stream=True, timeout=_SILENCE_S)
        ) as answer,
    ):
        require_success(answer)
        yield cast("IO[bytes]", answer.raw)


def load(engine: DockerApi, archive: Iterable[bytes]) -> tuple[str, ...]:
    """Load a tar stream of images without tags; return the ids that the engine names. Raises: `internal` when it
    refuses the archive.
    """
    found = []
    with (
        translate_errors("load images"),
        closing(engine.api.post(_url(engine, "load"), data=iter(archive), stream=True, timeout=_SILENCE_S)) as answer,
    ):
        if not answer.ok:
            raise _refusal_error(read_message(answer))
        for line in answer.iter_lines():
            said: dict[str, Any] = json.loads(line) if line else {}
            if "error" in said:
                raise _refusal_error(str(said["error"])[:2000])
            found += [text.removeprefix(_LOADED) for text in str(said.get("stream", "")).split("\n")]
    return tuple(text for text in found if text.startswith("sha256:"))


def _refusal_error(why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL,
        "The engine refused to load the images",
        details=why,
        hint="Look whether its disk is full (`sandbox doctor`) and what its log says. If neither, export them again.",
    )


def _url(engine: DockerApi, action: str) -> str:
    return f"{engine.api.base_url}/v{engine.api.api_version}/images/{action}"
