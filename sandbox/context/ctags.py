"""Find the symbols of files with ctags in a guest: parsers of hostile input do not run on the host.

The tree is mounted read-only, and ctags gets a list of the wanted files. There is no network; output and time are
bounded. The output is guest data: lines in another format, or of a file that was not wanted, are dropped. A repository
of 25,000 files gives 300,000 lines, so a line has only what the map shows, between tabs (`--_xformat` in ctags(1)):
JSON has twice the bytes and takes five times as long to read.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import gt
from pathlib import Path, PurePosixPath

from sandbox.engine.container_labels import INSTANCE_LABEL, RUN_LABEL
from sandbox.engine.container_types import Streams
from sandbox.engine.create_options import ContainerSpec, GuestAccount, create_options
from sandbox.engine.protocol import GuestRunner
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Limits
from sandbox.models.definitions import DefinitionRule
from sandbox.policy.container import EffectiveContainerPolicy
from sandbox.store.mapped_tree import MAX_SYMBOLS, Symbol

_log = logging.getLogger(__name__)

DEADLINE_S = 120.0
OUTPUT_BYTES = 64 * 1024**2
FILE_SYMBOLS = 400
"""Maximum symbols of one file: the first ones. Generated files have many thousands."""

_OPTIONS = (
    "--options=NONE",
    "--links=no",
    "--sort=no",
    "--output-format=xref",
    "--_xformat=%N\t%F\t%n\t%K\t%s\t%S",
)
_MOST_CHARS = (200, 4096, 9, 40, 400, 400)
"""Of name, path, line, kind, scope and signature."""

_LONGEST_LINE = 4 * (sum(_MOST_CHARS) + len(_MOST_CHARS)) + 1  # a character has up to four bytes
_LIST = "files"


@dataclass(frozen=True)
class CtagsRun:
    """Where ctags runs: the guest's name, image and settings, and the host path of the tree.

    `report`: an empty folder for the list of files. `definitions`: patterns for languages that ctags does not know.
    """

    name: str
    engine: GuestRunner
    policy: EffectiveContainerPolicy
    image_digest: str
    runtime: str
    account: GuestAccount
    instance: str
    tree: Path
    report: Path
    cgroup_parent: str
    definitions: Sequence[DefinitionRule] = ()


@dataclass(frozen=True)
class FoundSymbols:
    """Definitions by the path of their file. Not `complete`: ctags printed more than `OUTPUT_BYTES`, or more than
    `MAX_SYMBOLS` definitions.
    """

    by_path: Mapping[str, list[Symbol]]
    complete: bool


def read_symbols(run: CtagsRun, paths: Collection[str]) -> FoundSymbols:
    """Return the definitions of these files of the tree, the first `MAX_SYMBOLS` in the first `OUTPUT_BYTES` of ctags'
    output.

    A path that is not one printable line has none. Raises: `timeout`, `internal`, and the errors of the engine adapter.
    """
    wanted = {path for path in paths if path.isprintable()}
    out, errors = SymbolReader(wanted, OUTPUT_BYTES), _BoundedBuffer(64 * 1024)
    (run.report / _LIST).write_text("".join(f"./{path}\n" for path in sorted(wanted)), encoding="utf-8")
    (run.report / _LIST).chmod(0o644)  # whatever the umask: the guest is another user
    options = create_options(_container_spec(run), run.policy)
    ending = run.engine.run_to_end(run.name, options, Streams(out.append, errors.append), deadline_s=DEADLINE_S)
    if ending.timed_out:
        raise SandboxError(
            ErrorCode.TIMEOUT, f"ctags did not finish within {DEADLINE_S:g} s", hint="Use include_globs."
        )
    if ending.exit_code != 0 or ending.oom_killed:
        details = bytes(errors.content[-2000:]).decode("utf-8", errors="replace")
        raise SandboxError(ErrorCode.INTERNAL, f"ctags ended with exit code {ending.exit_code}", details=details)
    out.end()
    if not out.is_complete:
        _log.warning(
            "ctags printed more than %d bytes or %d symbols: symbols of the last files are missing",
            OUTPUT_BYTES,
            MAX_SYMBOLS,
        )
    return FoundSymbols({path: symbols for path, symbols in out.found.items() if symbols}, out.is_complete)


class SymbolReader:
    """Reads the symbols of the wanted files while ctags prints them: the first `FILE_SYMBOLS` of each file and the
    first `MAX_SYMBOLS` of all, from the first `limit` bytes. Lines may have 16 bytes, so that the bytes alone would
    allow four million symbols, which take a gigabyte.
    """

    def __init__(self, wanted: Collection[str], limit: int) -> None:
        self.found: dict[str, list[Symbol]] = {path: [] for path in wanted}
        self._left = limit
        self._symbols_left = MAX_SYMBOLS
        self._rest = b""

    @property
    def is_complete(self) -> bool:
        """Whether ctags printed less than the limits."""
        return self._left > 0 and self._symbols_left >= 0

    def append(self, chunk: bytes) -> None:
        """Read the lines that end in this chunk. A line that is too long keeps its start, so that it stays too long."""
        if not self.is_complete:
            return
        chunk = chunk[: self._left]
        self._left -= len(chunk)
        whole, found, rest = chunk.rpartition(b"\n")
        if found:
            self._add(self._rest + whole)
        self._rest = rest if found else (self._rest + rest)[:_LONGEST_LINE]

    def end(self) -> None:
        """Read the last line, if it is not cut."""
        if self.is_complete:
            self._add(self._rest)

    def _add(self, output: bytes) -> None:
        for path, symbol in parse_symbols(output):
            symbols = self.found.get(path)
            if symbols is not None and len(symbols) < FILE_SYMBOLS:
                self._symbols_left -= 1
                if self._symbols_left < 0:
                    return
                symbols.append(symbol)


def parse_symbols(output: bytes) -> Iterator[tuple[str, Symbol]]:
    """Parse ctags' lines, each with the path of its file; lines of another format are skipped. Pure."""
    try:
        lines = output.decode().split("\n")
    except UnicodeDecodeError:
        lines = [text for line in output.split(b"\n") if (text := _decode(line))]
    shared: dict[str, str] = {}  # kinds and scopes repeat: one object for each of them halves the memory
    share = shared.setdefault
    is_plain = "".join(lines).replace("\t", "").isprintable()
    for line in lines:
        fields = line.split("\t")
        if len(fields) != len(_MOST_CHARS) or (
            len(line) > _MOST_CHARS[0] and any(map(gt, map(len, fields), _MOST_CHARS))
        ):
            continue
        name, path, number, kind, scope, signature = fields
        if not (name and path and number.isascii() and number.isdigit() and number[0] != "0"):
            continue
        if len(number) > _MOST_CHARS[2] or len(kind) > _MOST_CHARS[3]:
            continue
        if is_plain or f"{name}{kind}{scope}{signature}".isprintable():
            kind, scope, signature = share(kind, kind), share(scope, scope), share(signature, signature)
            yield path.removeprefix("./"), (name, int(number), kind, scope, "" if signature == "-" else signature)


def _decode(line: bytes) -> str:
    """'' for what is not text."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return ""


def build_argv(definitions: Iterable[DefinitionRule], report: str) -> tuple[str, ...]:
    """The command. A language of a profile gets a name that ctags cannot have, and takes its suffixes. Pure."""
    languages: dict[str, list[DefinitionRule]] = defaultdict(list)
    for rule in definitions:
        languages[rule.language.lower()].append(rule)
    own = [option for name, rules in languages.items() for option in _language_options(f"profile{name}", rules)]
    return ("ctags", *_OPTIONS, *own, "-f", "-", "-L", f"{report}/{_LIST}")


def _language_options(name: str, rules: Sequence[DefinitionRule]) -> Iterator[str]:
    kinds = {kind: chr(ord("a") + at) for at, kind in enumerate(dict.fromkeys(rule.kind for rule in rules))}
    yield f"--langdef={name}"
    yield f"--langmap={name}:{''.join(dict.fromkeys(suffix for rule in rules for suffix in rule.suffixes))}"
    for rule in rules:
        pattern = rule.pattern.replace("/", "\\/")
        yield f"--regex-{name}=/{pattern}/\\1/{kinds[rule.kind]},{rule.kind}/"


class _BoundedBuffer:
    """Keeps the first bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.content = bytearray()

    def append(self, chunk: bytes) -> None:
        self.content += chunk[: self._limit - len(self.content)]


def _container_spec(run: CtagsRun) -> ContainerSpec:
    return ContainerSpec(
        name=run.name,
        image=run.image_digest,
        argv=build_argv(run.definitions, run.policy.container.mounts.report),
        cwd=PurePosixPath(run.policy.container.mounts.workspace),
        env={},
        limits=run.policy.container.within_ceiling(Limits(memory_bytes=1024**3, cpus=1.0, pids=64)),
        workspace=run.tree,
        git_mask=None,
        report=run.report,
        user=run.account.guest_user,
        first_ids=run.account.first_ids,
        runtime=run.runtime,
        labels={INSTANCE_LABEL: run.instance, RUN_LABEL: run.name},
        cpuset="",
        workspace_read_only=True,
        account_files=run.account.files,
        cgroup_parent=run.cgroup_parent,
    )
