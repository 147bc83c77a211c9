"""Images of the engine: inspect, list, tag, pull, import, build."""

from __future__ import annotations

import json
import re
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import closing, suppress
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from sandbox.engine.build_context import write_build_context
from sandbox.engine.build_output import BuildStep, PullOutput, build_error, find_line, plain_lines, read_step
from sandbox.engine.dialects import find_dialect
from sandbox.engine.direct_requests import find_object
from sandbox.engine.docker_api import DockerApi, require_success, translate_errors
from sandbox.engine.image_types import PULL_DEADLINE_S, Image, ImageBuild, Progress
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    import docker.auth
    import docker.errors
    import requests
    import urllib3.exceptions
else:  # loaded for an error, and for what `socket_api` has not (docs/adr/0080)
    docker = LazyModule("docker")
    requests = LazyModule("requests")
    urllib3 = LazyModule("urllib3")

_SILENCE_S = 900  # a build step without output for this long counts as hung
_TAIL_LINES = 30
_PULL_REPORT_S = 2.0
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*([/:@][A-Za-z0-9][A-Za-z0-9._-]*)*")


class _EngineAnswer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class _ImageConfig(_EngineAnswer):
    env: list[str] | None = Field(None, alias="Env")
    labels: dict[str, str] | None = Field(None, alias="Labels")
    volumes: dict[str, Any] | None = Field(None, alias="Volumes")
    user: str = Field("", alias="User")
    entrypoint: list[str] | None = Field(None, alias="Entrypoint")
    arguments: list[str] | None = Field(None, alias="Cmd")


class _InspectedRoot(_EngineAnswer):
    layers: list[str] | None = Field(None, alias="Layers")


class _InspectedImage(_EngineAnswer):
    id: str = Field(alias="Id")
    tags: list[str] | None = Field(None, alias="RepoTags")
    size: int = Field(0, alias="Size")
    created: str = Field("", alias="Created")
    config: _ImageConfig | None = Field(None, alias="Config")
    root: _InspectedRoot | None = Field(None, alias="RootFS")


class _ListedImage(_EngineAnswer):
    id: str = Field(alias="Id")
    tags: list[str] | None = Field(None, alias="RepoTags")


def inspect(engine: DockerApi, reference: str) -> Image | None:
    """Find the local image with this tag or digest, or None. Raises: `invalid_input` for an invalid image name."""
    unusable = SandboxError(ErrorCode.INVALID_INPUT, f"{reference!r} cannot be the name of an image")
    if not _REFERENCE.fullmatch(reference):  # it becomes part of a URL
        raise unusable
    with translate_errors(f"inspect the image '{reference}'"):
        try:
            answer = find_object(engine, "images", reference)
        except docker.errors.APIError as error:
            if error.status_code == HTTPStatus.BAD_REQUEST:
                raise unusable from error
            raise
    return None if answer is None else parse_image(answer, find_dialect(engine).plain_tag)


def parse_image(answer: Mapping[str, Any], plain_tag: Callable[[str], str] = str) -> Image:
    """Parse the engine's `GET /images/NAME/json` to an `Image`. `plain_tag`: the name that we know a tag by."""
    seen = _InspectedImage.model_validate(answer)
    config = seen.config or _ImageConfig.model_validate({})
    return Image(
        digest=seen.id,
        tags=tuple(dict.fromkeys(plain_tag(tag) for tag in seen.tags or ())),
        size_bytes=seen.size,
        created_at=seen.created,
        labels=dict(config.labels or {}),
        env=tuple(config.env or ()),
        user=config.user,
        has_volumes=bool(config.volumes),
        command=(*(config.entrypoint or ()), *(config.arguments or ())),
        layers=tuple((seen.root and seen.root.layers) or ()),
    )


def find_any_digest(engine: DockerApi) -> str:
    """Return the digest of any local image; empty when there is none."""
    with translate_errors("list the images"):
        return next((str(image["Id"]) for image in engine.api.images()), "")


def list_tags(engine: DockerApi, *, label: str | None) -> tuple[str, ...]:
    """List the tags of the local images, sorted; with `label`, only of images that have this label."""
    filters = {"label": label} if label else {}
    with translate_errors("list the images"):
        answers = engine.api.images(filters=filters)
    tags = {tag for a in answers for tag in _ListedImage.model_validate(a).tags or () if "<none>" not in tag}
    return tuple(sorted({find_dialect(engine).plain_tag(tag) for tag in tags}))


def list_with_label(engine: DockerApi, label: str) -> tuple[Image, ...]:
    """Inspect every local image that has a tag and this label."""
    with translate_errors("list the images"):
        answers = engine.api.images(filters={"label": label, "dangling": False})
    found = (inspect(engine, digest) for digest in dict.fromkeys(_ListedImage.model_validate(a).id for a in answers))
    return tuple(image for image in found if image is not None)


def find_dangling_digests(engine: DockerApi) -> frozenset[str]:
    """List the digests of the images without a tag on which no other image was built."""
    with translate_errors("list the images"):
        answers = engine.api.images(filters={"dangling": True})
    return frozenset(_ListedImage.model_validate(answer).id for answer in answers)


def tag(engine: DockerApi, digest: str, reference: str) -> None:
    """Add a tag to an image; if another image has the tag, it moves."""
    repository, _, version = reference.rpartition(":")
    with translate_errors(f"tag the image '{reference}'"):
        engine.api.tag(digest, repository, version)


def untag(engine: DockerApi, reference: str) -> None:
    """Remove a tag; the engine deletes the image with its last tag. A missing tag is fine.

    Raises: `conflict` when a container uses the image.
    """
    with translate_errors(f"remove the image '{reference}'"):
        try:
            engine.api.remove_image(reference)
        except docker.errors.ImageNotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code == HTTPStatus.CONFLICT:
                brief = f"The image '{reference}' is in use"
                raise SandboxError(ErrorCode.CONFLICT, brief, details=str(error.explanation)) from error
            raise


def find_digests_in_use(engine: DockerApi) -> frozenset[str]:
    """List the digests of images used by containers of this engine, running or not, of any home."""
    with translate_errors("list the containers"):
        return frozenset(str(container["ImageID"]) for container in engine.api.containers(all=True))


def pull(engine: DockerApi, reference: str, progress: Progress, deadline_s: float = PULL_DEADLINE_S) -> Image:
    """Pull one tag. Raises: `image_missing` (no such image), `network_error` (no registry), `timeout`.

    The SDK has no timeout for a pull (7.2), so it runs in a thread that is abandoned at the deadline. `progress`: gets
    what has arrived, at most every 2 s, in the caller's thread.
    """
    outcome: Future[None] = Future()
    output = PullOutput()
    threading.Thread(target=_pull, args=(engine, reference, output, outcome), daemon=True, name="pull").start()
    ends_at, reported = time.monotonic() + deadline_s, ""
    while outcome not in wait([outcome], min(_PULL_REPORT_S, max(0.0, ends_at - time.monotonic()))).done:
        if time.monotonic() >= ends_at:
            raise SandboxError(ErrorCode.TIMEOUT, f"The image '{reference}' did not arrive within {deadline_s:g} s")
        if (text := output.text) != reported:
            progress(text)
            reported = text
    try:
        with translate_errors(f"pull the image '{reference}'", on_missing=lambda why: _pull_error(reference, why)):
            outcome.result()
    except SandboxError as error:
        if error.code is not ErrorCode.INTERNAL:
            raise
        brief = f"The engine cannot pull '{reference}'"
        raise SandboxError(ErrorCode.NETWORK_ERROR, brief, details=error.details) from error
    image = inspect(engine, reference)
    if image is None:
        raise _pull_error(reference, "it was removed just after the pull")
    return image


def _pull(engine: DockerApi, reference: str, output: PullOutput, outcome: Future[None]) -> None:
    try:
        for item in engine.api.pull(reference, stream=True, decode=True):
            if "error" in item:
                raise docker.errors.DockerException(str(item["error"]))
            output.add_item(item)
    except (docker.errors.DockerException, requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        outcome.set_exception(error)
    except Exception as error:  # noqa: BLE001 - of a stream that is none: the caller waits for the outcome
        outcome.set_exception(docker.errors.DockerException(f"its answer is not that of a pull: {error!r}"))
    else:
        outcome.set_result(None)


def _pull_error(reference: str, why: str) -> SandboxError:
    return SandboxError(ErrorCode.IMAGE_MISSING, f"The image '{reference}' cannot be pulled", details=why)


def import_tar(engine: DockerApi, stream: IO[bytes], tag: str, labels: Mapping[str, str]) -> Image:
    """Import a root file system's tar stream as a one-layer image. An existing tag moves to it."""
    repository, _, version = tag.rpartition(":")
    changes = [f'LABEL "{name}"="{value}"' for name, value in sorted(labels.items())]
    with translate_errors(f"import the image '{tag}'"):
        engine.api.import_image(src=stream, repository=repository, tag=version, changes=changes)
    image = inspect(engine, tag)
    if image is None:
        raise SandboxError(ErrorCode.INTERNAL, f"The image '{tag}' was removed just after its import")
    return image


def build(engine: DockerApi, request: ImageBuild, progress: Progress) -> Image:
    """Build an image folder with the engine's own builder and tag the result.

    Raises: `network_error` or `internal` with the last 30 lines in `details`; `timeout` after the deadline.
    """
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with tempfile.TemporaryFile() as context:
        write_build_context(context, request.folder, request.extra_files)
        context.seek(0)
        with (
            translate_errors(f"build the image '{request.tag}'"),
            closing(_start_build(engine, request, context)) as answer,
        ):
            digest, failure, step = _follow_build(_read_documents(answer), request, progress, tail)
    image = inspect(engine, digest) if digest and not failure else None
    if image is None:
        recipe = (request.folder / "Dockerfile").read_text(encoding="utf-8", errors="replace")
        raise build_error(request.tag, tail, failure, step, find_line(recipe, step) if step else None)
    return image


def _start_build(engine: DockerApi, request: ImageBuild, context: IO[bytes]) -> requests.Response:
    """`POST /build`, as the SDK sends it; the SDK (7.1) has no parameter for the control group."""
    api: Any = engine.api
    group = find_dialect(engine).choose_build_group(request.cgroup_parent)
    parameters = {
        "t": request.tag,
        "rm": "true",
        "forcerm": "true",
        "nocache": "true" if request.no_cache else "false",
        "networkmode": request.network,
        "buildargs": json.dumps(dict(request.args)),
        "labels": json.dumps(dict(request.labels)),
        **({"cgroupparent": group} if group else {}),
    }
    headers = {"Content-Type": "application/tar", **_list_registry_headers()}
    url = f"{api.base_url}/v{api.api_version}/build"
    answer: requests.Response = api.post(
        url, data=context, params=parameters, headers=headers, stream=True, timeout=_SILENCE_S
    )
    if answer.status_code == HTTPStatus.BAD_REQUEST and "parse error" in (said := answer.text[:2000]):
        raise build_error(request.tag, (), said)
    require_success(answer)
    return answer


def _list_registry_headers() -> dict[str, str]:
    """The credentials of the registries that the user is logged in to, which a recipe may name."""
    auth: Any = docker.auth
    credentials: dict[str, Any] = auth.load_config().get_all_credentials()
    if auth.INDEX_NAME in credentials:  # the engine knows Docker Hub by its URL
        credentials.setdefault(auth.INDEX_URL, credentials[auth.INDEX_NAME])
    return {"X-Registry-Config": auth.encode_header(credentials).decode()} if credentials else {}


def _read_documents(answer: requests.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line:
            yield json.loads(line)


def _follow_build(
    stream: Iterable[dict[str, Any]], request: ImageBuild, progress: Progress, tail: deque[str]
) -> tuple[str, str, BuildStep | None]:
    """Report the build's lines. Returns the image's digest, the engine's error message if the build failed, and the
    last step.
    """
    ends_at = time.monotonic() + request.deadline_s
    step: BuildStep | None = None
    digest = failure = ""
    for item in stream:
        if time.monotonic() > ends_at:  # the caller closes the connection, and the engine then ends the build
            raise SandboxError(
                ErrorCode.TIMEOUT,
                f"The image '{request.tag}' was not built within {request.deadline_s:g} s",
                details="\n".join(tail),
            )
        with suppress(KeyError, TypeError):
            digest = str(item["aux"]["ID"])
        failure = str(item.get("error", failure))
        for line in plain_lines(str(item.get("stream", ""))):
            tail.append(line)
            step = read_step(line, step)
            progress(line)
    return digest, failure, step
