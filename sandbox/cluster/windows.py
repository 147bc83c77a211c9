"""What an answer may show of a task's runs and its journal: a window of bounded size, which says what is left out.

Theory. Temporal keeps every answer in a task's history, so a log never goes through it as a whole. A log is answered
with its beginning and its end, and any other part by its lines; lists are answered in pages.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Base64Bytes, BaseModel, Field, TypeAdapter, ValidationError

from sandbox import Workbench
from sandbox.cluster.answers import unreadable_answer_error
from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Artifact, LogLines, LogQuery, MergeConflict, RunLog, Status, SyncResult, TestResults
from sandbox.models.exported_changes import ExportedChanges
from sandbox.models.ids import ObjectId
from sandbox.models.model import Model
from sandbox.workbench.checks.collected_artifacts import MOST_BYTES_OF_RUN
from sandbox.workbench.checks.shared_parts import PART_BYTES, PartDigest

WINDOW_BYTES = 256 * 1024
"""Of a log or a page. As JSON it may be up to three times as large, which is below the limit of an answer."""

MOST_ARTIFACT_BYTES = 8 * 1024**2
"""Of one that is answered in windows: they stay in the history of its task for a while."""

MOST_DOCUMENT_BYTES = 32 * 1024**2
"""Of a document of a task's changes, when it is no longer compressed: above what contents of 16 MiB have as base64."""

CHANGES = "the task's changes"
"""What such a document is called in place of the path of an artifact."""

MOST_MATCHES = 500
MOST_RESULTS = 200
MOST_ITEMS = 10_000
_HEAD_BYTES = WINDOW_BYTES // 4  # the end of a log says why a check failed
_MORE = 20  # items that may come between two pages, and are then the first of the second one
_ItemT = TypeVar("_ItemT")


class PageArguments(Model):
    """`skip`: how many of the newest were answered before."""

    limit: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 50
    skip: Annotated[int, Field(ge=0, le=MOST_ITEMS)] = 0


class RunArguments(Model):
    """`run_id`: of a run of this task; None: of the newest one."""

    run_id: str | None = None


class RunLogArguments(RunArguments):
    """As `Workbench.run_log`."""

    stream: str = "stdout"
    raw: bool = False


class ReadLogArguments(RunArguments):
    """As `Workbench.read_log`."""

    query: LogQuery = LogQuery()


class ArtifactArguments(RunArguments):
    """`offset`: of the first byte to read. `shared`: whether the caller reads the store of shared artifacts."""

    path: str
    offset: Annotated[int, Field(ge=0)] = 0
    shared: bool = False


class ShownState(Model):
    """What an approval of a call on a task's files is bound to, and what a person is shown of it, of one reading."""

    state: str
    status: Status


class SnapshotBase(Model):
    """The commit that a task which continues from a snapshot is based on."""

    base: ObjectId


class ArtifactWindow(Model):
    """A part of an artifact. `content`: `WINDOW_BYTES` of it from the offset on, base64. `parts`: all of it, in the
    store of shared artifacts; then `content` is empty.
    """

    artifact: Artifact
    content: Base64Bytes = b""
    parts: Annotated[Sequence[PartDigest], Field(max_length=MOST_BYTES_OF_RUN // PART_BYTES)] = ()


class ChangesArguments(Model):
    """As `Workbench.export_changes`. `offset`: of the first byte to read of the compressed document."""

    uncommitted: bool = False
    offset: Annotated[int, Field(ge=0)] = 0


class ResultsArguments(RunArguments):
    """As `Workbench.test_results`."""

    failed_only: bool = False
    cursor: int = 0
    limit: int = MOST_RESULTS


class Page(Model):
    """Items of a list, newest first. `more`: there are older ones."""

    items: Sequence[Any]
    more: bool


def list_runs(bench: Workbench, task_id: str, asked: PageArguments) -> Page:
    """As `Workbench.runs`, without the last `skip`."""
    return _make_page(bench.runs(task_id, asked.skip + asked.limit)[asked.skip :])


def list_journal(bench: Workbench, task_id: str, asked: PageArguments) -> Page:
    """As `Workbench.log`, newest first, without the last `skip`."""
    return _make_page(bench.log(task_id, limit=asked.skip + asked.limit)[::-1][asked.skip :])


def read_log(bench: Workbench, task_id: str, asked: ReadLogArguments) -> LogLines:
    """As `Workbench.read_log`, of a run of this task only: the home of a worker has those of other tasks, too."""
    query = asked.query
    less = {"max_bytes": min(query.max_bytes, WINDOW_BYTES), "max_results": min(query.max_results, MOST_MATCHES)}
    return bench.read_log(bench.find_run(task_id, asked.run_id), query.model_copy(update=less))


def read_run_log(bench: Workbench, task_id: str, asked: RunLogArguments) -> RunLog:
    """As `Workbench.run_log`; the middle of a long one is left out."""
    found = bench.run_log(task_id, asked.run_id, asked.stream, raw=asked.raw)
    content = base64.b64decode(found.content) if asked.raw else found.content.encode()
    if len(content) <= WINDOW_BYTES:
        return found
    kept = _cut_middle(content)
    text = base64.b64encode(kept).decode() if asked.raw else kept.decode(errors="ignore")  # a cut inside a character
    return found.model_copy(update={"content": text, "truncated": True})


def read_results(bench: Workbench, task_id: str, asked: ResultsArguments) -> TestResults:
    """As `Workbench.test_results`, with smaller pages."""
    run_id = bench.find_run(task_id, asked.run_id)
    limit = min(asked.limit, MOST_RESULTS)
    return bench.test_results(run_id, failed_only=asked.failed_only, cursor=asked.cursor, limit=limit)


def read_artifact(bench: Workbench, task_id: str, asked: ArtifactArguments) -> ArtifactWindow:
    """A window of an artifact, of a run of this task only; or all of it in the shared store. Raises: `quota_exceeded`
    for one that is too large to be answered.
    """
    run_id = bench.find_run(task_id, asked.run_id)
    content = bench.read_artifact(run_id, asked.path)  # raises for an unknown one
    artifact = next((one for one in bench.artifacts(run_id).artifacts if one.path == asked.path), None)
    if artifact is None:
        raise SandboxError(ErrorCode.NOT_FOUND, f"The artifact {asked.path[:200]!a} is no longer kept")
    if artifact.size > MOST_ARTIFACT_BYTES:
        if asked.shared and (parts := bench.share_artifact(run_id, asked.path)):
            return ArtifactWindow(artifact=artifact, parts=parts)
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"The artifact {asked.path[:200]!a} has {artifact.size} bytes; at most {MOST_ARTIFACT_BYTES} pass through "
            "the cluster",
            hint="Set cache.url and cache.artifacts on the workers and here, to one store (docs/cluster.md).",
        )
    return _cut_window(artifact, b"".join(content), asked.offset)


def _cut_window(artifact: Artifact, whole: bytes, offset: int) -> ArtifactWindow:
    return ArtifactWindow(artifact=artifact, content=base64.b64encode(whole[offset : offset + WINDOW_BYTES]))


def read_changes(bench: Workbench, task_id: str, asked: ChangesArguments) -> ArtifactWindow:
    """A window of what a task changed, as a compressed document. Each is made anew: a task that changes meanwhile has
    another hash in the next one. Raises: `quota_exceeded` for one that is too large to be answered.
    """
    document = bench.export_changes(task_id, uncommitted=asked.uncommitted).model_dump_json().encode()
    whole = zlib.compress(document, 1)
    if len(whole) > MOST_ARTIFACT_BYTES:
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"The result has {len(whole)} bytes, compressed; at most {MOST_ARTIFACT_BYTES} pass through the cluster",
            hint="Push the task's branch, and fetch it.",
        )
    artifact = Artifact(path=CHANGES, sha256=f"sha256:{hashlib.sha256(whole).hexdigest()}", size=len(whole))
    return _cut_window(artifact, whole, asked.offset)


def collect_changes(ask: Callable[[int], ArtifactWindow]) -> ExportedChanges:
    """What a task changed, from several answers of a worker. `ask`: called with an offset. Raises: `internal` for what
    cannot be read.
    """
    reader = zlib.decompressobj()
    try:
        document = reader.decompress(b"".join(collect_artifact(ask(0), ask)), MOST_DOCUMENT_BYTES)
        if not reader.eof:
            raise unreadable_answer_error("a worker", "Its document of changes has no end, or is too long.")
        return ExportedChanges.model_validate_json(document, extra="ignore")
    except zlib.error as error:
        raise unreadable_answer_error("a worker", str(error)) from error
    except ValidationError as error:
        raise unreadable_answer_error("a worker", describe_errors(error)) from error


def bound_conflicts(found: SyncResult) -> SyncResult:
    """Without the texts with markers of those conflicts that come after `WINDOW_BYTES` of them; the list is whole."""
    left, shown = WINDOW_BYTES, list[MergeConflict]()
    for one in found.conflicts:
        left -= len((one.merged or one.excerpt or "").encode())
        shown.append(one if left >= 0 else one.model_copy(update={"merged": None, "excerpt": None}))
    return found.model_copy(update={"conflicts": tuple(shown)})


def collect_pages(ask: Callable[[int, int], Page], kind: type[_ItemT], limit: int) -> Iterator[_ItemT]:
    """The newest items, from several answers. `ask`: called with a limit and with how many to skip. An item that came
    while the pages were asked for is left out, and none is there twice.

    Raises: `internal` for what is no such item.
    """
    read, given, skip = TypeAdapter(kind), set[str](), 0
    while len(given) < limit:
        page = ask(min(MOST_ITEMS, limit - len(given) + _MORE), skip)
        skip += len(page.items)
        fresh = {json.dumps(item, sort_keys=True): item for item in page.items}
        new = [known for known in fresh if known not in given][: limit - len(given)]
        given.update(new)
        try:
            found = [read.validate_python(fresh[known], extra="ignore") for known in new]
        except ValidationError as error:
            raise unreadable_answer_error("a worker", describe_errors(error)) from error
        yield from found
        if not page.more or not new:
            return


def collect_artifact(first: ArtifactWindow, ask: Callable[[int], ArtifactWindow]) -> Iterator[bytes]:
    """An artifact from several answers of a worker; the last part comes only if all of it has its hash. `ask`: called
    with an offset. Raises: `internal` for other content, and for more than a worker may answer.
    """
    artifact, digest, read, held = first.artifact, hashlib.sha256(), 0, b""
    window = first
    while read <= MOST_ARTIFACT_BYTES and (chunk := window.content):
        if held:
            yield held
        digest.update(chunk)
        held, read = chunk, read + len(chunk)
        if read >= artifact.size:
            break
        window = ask(read)
    if read != artifact.size or f"sha256:{digest.hexdigest()}" != artifact.sha256:
        raise SandboxError(
            ErrorCode.INTERNAL,
            f"The artifact {artifact.path[:200]!a} came with another content than the list of its run says",
            hint="Read it again; it may have been removed meanwhile.",
        )
    yield held


def _make_page(found: Sequence[BaseModel]) -> Page:
    items: list[Any] = []
    left = WINDOW_BYTES
    for one in found:
        left -= len(one.model_dump_json())
        if items and left < 0:
            return Page(items=items, more=True)
        items.append(one.model_dump(mode="json"))
    return Page(items=items, more=False)


def _cut_middle(content: bytes) -> bytes:
    """The first and the last lines, with a line between them that says how many bytes are missing."""
    head = content[:_HEAD_BYTES]
    tail = content[_HEAD_BYTES - WINDOW_BYTES :]
    head = head[: head.rfind(b"\n") + 1] or head
    tail = tail[tail.find(b"\n") + 1 :] or tail
    mark = f"[{len(content) - len(head) - len(tail)} bytes are not shown: --lines shows any part of this log]\n"
    return head + (b"" if head.endswith(b"\n") else b"\n") + mark.encode() + tail
