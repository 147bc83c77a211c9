"""Output of an image build or pull: lines that are safe to show, and the cause of a failure. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from sandbox.byte_sizes import format_bytes
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.text import neutralise

STEP_FAILED = "build_failed"
"""The `reason` of the error when a step of a Dockerfile failed, or the file is none."""

_LINE_CHARS = 500
_COMMAND_CHARS = 200
_STEP = lazy_pattern(r"^(?:Step|STEP) (?P<number>\d{1,4})/(?P<count>\d{1,4}) ?: (?P<command>.*)$")
_PARSE_ERROR = lazy_pattern(r"parse error(?: on)? line (\d{1,6})")
_NETWORK_SIGNS = (
    "temporary failure resolving",
    "could not resolve",
    "name or service not known",
    "failed to establish a new connection",
    "connection timed out",
    "connection refused",
    "network is unreachable",
    "certificate verify failed",
)


def plain_lines(text: str) -> list[str]:
    """Non-empty lines of build output, without terminal sequences, at most 500 characters each."""
    lines = (line.rstrip()[:_LINE_CHARS] for line in neutralise(text).splitlines())
    return [line for line in lines if line]


class PullOutput:
    """What an engine reports of a pull. `text`: how far it is; of the engine's words it has only numbers."""

    def __init__(self) -> None:
        self.text = "waiting for the registry"
        self._loaded: dict[str, tuple[int, int]] = {}  # bytes of each layer: here, and in all
        self._layers: set[str] = set()
        self._complete: set[str] = set()

    def add_item(self, item: Mapping[str, Any]) -> None:
        """Take one object of the stream of `POST /images/create` (seen: Docker 20.10)."""
        status, layer = item.get("status"), str(item.get("id", ""))
        if status == "Pulling fs layer":
            self._layers.add(layer)
        elif status == "Pull complete":
            self._complete.add(layer)
        elif status == "Download complete":
            size = self._loaded.get(layer, (0, 0))[1]
            self._loaded[layer] = (size, size)
        elif status == "Downloading":
            with suppress(KeyError, TypeError, ValueError, OverflowError):  # the last: of an infinite number
                self._loaded[layer] = (int(item["progressDetail"]["current"]), int(item["progressDetail"]["total"]))
        if self._layers:
            self.text = self._describe()

    def _describe(self) -> str:
        here, total = (sum(size[which] for size in self._loaded.values()) for which in (0, 1))
        if len(self._loaded) < len(self._layers):  # a layer that waits for its turn has no size yet
            return f"downloading, {format_bytes(here)}"
        if here < total:
            return f"downloading, {format_bytes(here)} of {format_bytes(total)}"
        return f"extracting, {len(self._complete)} of {len(self._layers)} layers"


@dataclass(frozen=True)
class BuildStep:
    """A step that an engine began: `number` of `count`, and its instruction on one line."""

    number: int
    count: int
    command: str


def read_step(line: str, before: BuildStep | None) -> BuildStep | None:
    """The step that begins with this line of output; `before` if none does. A step may print what looks like the next
    one: this chooses the words of an error only. Pure.
    """
    found = _STEP.match(line)
    if found is None or int(found["number"]) != (before.number + 1 if before else 1):
        return before
    return BuildStep(int(found["number"]), int(found["count"]), found["command"])


def find_line(recipe: str, step: BuildStep) -> int | None:
    """The line of a Dockerfile on which a step begins; None if it is not the instruction there. Pure."""
    begins, goes_on = list[tuple[int, str]](), False
    for number, line in enumerate(recipe.splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if not goes_on:
            begins.append((number, text.split()[0].lower()))
        goes_on = text.endswith("\\")
    at = begins[step.number - 1] if step.number <= len(begins) else None
    return at[0] if at and step.command.lower().startswith(at[1]) else None


def build_error(
    tag: str, tail: Iterable[str], failure: str, step: BuildStep | None = None, line: int | None = None
) -> SandboxError:
    """Classify a failed build. The engine gives no code for the cause, only the output of the failed step. `line`: of
    the Dockerfile.
    """
    details = "\n".join([*tail, *plain_lines(failure)])
    if any(sign in details.lower() for sign in _NETWORK_SIGNS):
        return SandboxError(
            ErrorCode.NETWORK_ERROR,
            f"The image '{tag}' could not be built: a download failed",
            details=details,
            hint="Check images.build_network, images.ca_bundle and the proxy variables, then build again; completed "
            "steps are kept.",
        )
    if line is None and (found := _PARSE_ERROR.search(failure)):
        line = int(found[1])
    where = f": line {line} of its Dockerfile" if line else ""
    which = f", step {step.number} of {step.count}: {step.command[:_COMMAND_CHARS]}" if step else ""
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The image '{tag}' could not be built{where}{which}",
        details=details,
        hint="The last lines above name the step of its Dockerfile that failed.",
        reason=STEP_FAILED,
        data={"line": line, "step": step.number if step else None, "command": step.command if step else ""},
    )
