"""Checks: the commands that may be run, and their limits. Launches: applications that are probed while they run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from sandbox.models.ids import CheckId, SimpleName
from sandbox.models.model import Model
from sandbox.models.words import LAUNCH, TestOutcome

RUN_TOKEN = "<run>"  # noqa: S105  # a placeholder, no secret
ARTIFACT_TOKEN = "<artifact>"  # noqa: S105

MAX_PROBES = 32
MAX_TIMEOUT_S = 7 * 86_400.0
"""Of a check, and of a service until it is ready: also of a file of a repository, which may say `inf`."""
MARGIN_S = 30.0
"""How much longer the launch itself may take than its phases, for what lies between them."""

MAX_WORD_BYTES = 128 * 1024 - 1
"""Of an argument, and of a variable with its name: MAX_ARG_STRLEN of execve(2), without the NUL."""

SMALLEST_LIMITS: Mapping[str, int | float] = {"memory_bytes": 6 * 1024**2, "cpus": 0.01}
"""The engine (Docker 20.10 to 29) creates no guest with less: no check could start."""


LARGEST_LIMITS: Mapping[str, int | float] = {"cpus": 10_000.0, "pids": 2**22, "open_files": 2**30, "disk_files": 10**12}
LARGEST_BYTES = 2**60
"""1 EiB. The kernel, and files of disks, have numbers of 64 bits; `pids`: its PID_MAX_LIMIT."""


def describe_unusable_word(text: str) -> str:
    """Why a program cannot be started with this argument, or this `NAME=value`; '' if it can."""
    try:
        size = len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return "it has half of a character (a lone surrogate)"
    if size > MAX_WORD_BYTES:
        return f"it takes {size:,} bytes; at most {MAX_WORD_BYTES:,} are possible, a variable with its name"
    return ""


def _require_usable_variables(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if why := describe_unusable_word(f"{name}={value}"):
            raise ValueError(f"the variable {name[:100]!a} cannot be set: {why}")
    return env


def describe_small_limit(limits: Mapping[str, int | float]) -> str:
    """Which limit is too low for any guest to start, and its bound; '' if none is."""
    for name, least in SMALLEST_LIMITS.items():
        if name in limits and not limits[name] >= least:  # also true for NaN
            return f"{name} must be at least {least:,}: no guest starts with less"
    return ""


def _find_too_large(limits: Mapping[str, int | float]) -> dict[str, int | float]:
    """Those of the limits that are larger than any host could give, as the largest possible ones."""
    most = {name: LARGEST_LIMITS.get(name, LARGEST_BYTES) for name in limits}
    return {name: most[name] for name, value in limits.items() if value > most[name]}


Environment = Annotated[dict[str, str], AfterValidator(_require_usable_variables)]
"""Variables of a program: a program can be started with each of them."""


class Limits(Model):
    """What one check may use. Each line says what happens when the limit is reached."""

    memory_bytes: PositiveInt = 4 * 1024**3  # the kernel kills: Verdict.OOM_KILLED
    cpus: PositiveFloat = 2.0  # the scheduler throttles
    pids: PositiveInt = 512  # fork fails inside the guest
    file_bytes: PositiveInt = 8 * 1024**3  # writes to one file fail (SIGXFSZ); tests of 32-bit offsets pass 4 GiB
    open_files: PositiveInt = 4096  # open fails inside the guest
    tmp_bytes: PositiveInt = 512 * 1024**2  # writes to /tmp fail (ENOSPC)
    home_bytes: PositiveInt = 128 * 1024**2  # writes to the home directory fail (ENOSPC)
    output_bytes: PositiveInt = 10 * 1024**2  # per stream: the middle is dropped, truncated=True
    output_total_bytes: PositiveInt = 1024**3  # of both streams: the check is stopped, Verdict.OUTPUT_LIMIT
    disk_bytes: PositiveInt = 10 * 1024**3  # of its files: the check is stopped, Verdict.DISK_LIMIT
    disk_files: PositiveInt = 500_000  # as above

    def within_host(self, cpus: int, memory_bytes: int) -> Self:
        """The limits that a host with so many CPUs, and so much memory for all guests, can give."""
        most = {"cpus": min(self.cpus, cpus), "memory_bytes": min(self.memory_bytes, memory_bytes)}
        return self.model_copy(update=most)


LimitsT = TypeVar("LimitsT", bound=Limits)


def require_enough(limits: LimitsT) -> LimitsT:
    """The limits, if a guest can start with them; those that no host could give are lowered to the largest possible
    ones. Not a rule of the model: records have limits of guests that started.

    Raises: ValueError.
    """
    if why := describe_small_limit(dict(limits)):
        raise ValueError(why)
    return lower_limits(limits)


def lower_limits(limits: LimitsT) -> LimitsT:
    """The limits, as `require_enough` lowers them."""
    lowered = _find_too_large(dict(limits))
    return limits.model_copy(update=lowered) if lowered else limits


def validate_limits(limits: dict[str, int | float]) -> dict[str, int | float]:
    """Some limits by name, as they stand in a file, lowered as by `require_enough`.

    Raises: ValueError, also for an unknown name.
    """
    require_enough(Limits.model_validate(limits))
    return {**limits, **_find_too_large(limits)}


ChosenLimits = Annotated[dict[str, int | float], AfterValidator(validate_limits)]
"""Limits that override those of a check: only the named ones."""


class Risk(StrEnum):
    """What a tool or check can touch; drives approvals."""

    FILESYSTEM_READ = "filesystem-read"
    FILESYSTEM_WRITE = "filesystem-write"
    SHELL = "shell"


Jobs = Literal["auto"] | PositiveInt
"""How many parallel jobs build tools run; `auto`: as many as the limits on CPUs and memory allow."""


WorkspaceAccess = Literal["read-write", "read-only"]
"""How a check gets the files."""


TestSelector = Literal["pytest", "ctest", "cargo", "files", "surefire", "gradle"]
"""How a runner wants the tests of its own report named, to run only these again."""


class CheckParameter(Model):
    """`[[check.parameter]]`: what a caller may add to a check in a task, to run a part of it.

    `<name>` in the check's argv is where the arguments stand. `pattern`: a regular expression that each must match as a
    whole. `many`: any number of them; else one. `default`: what stands there without arguments. `option`: stands before
    them. `selects`: how the tests of a report are named in these arguments, so that tests that fail newly are run again
    alone.
    """

    name: SimpleName
    pattern: str = Field(min_length=1, max_length=500)
    many: bool = False
    default: tuple[str, ...] = ()
    option: str = ""
    selects: TestSelector | None = None

    @field_validator("pattern")
    @classmethod
    def _require_expression(cls, text: str) -> str:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return text


OutputFormat = Literal["tap", "node", "unittest", "cargo", "diagnostics"]
"""A format of a program's output: TAP, TAP or what runners of JavaScript print for people, what those of unittest do,
that of Rust's tests, or the errors of compilers and linters, a line each.
"""


class ResultPatterns(Model):
    """`[check.results]`: how a check that writes no report says how its tests ended. `output`: the format of its
    output; or regular expressions for the lines that a program of one's own prints for its tests. The first group of
    each is the name of the test.
    """

    output: OutputFormat | None = None
    passed: str | None = Field(default=None, min_length=1, max_length=500)
    failed: str | None = Field(default=None, min_length=1, max_length=500)
    skipped: str | None = Field(default=None, min_length=1, max_length=500)

    @field_validator("passed", "failed", "skipped")
    @classmethod
    def _require_group(cls, text: str | None) -> str | None:
        try:
            if text is not None and re.compile(text).groups < 1:
                raise ValueError("the pattern needs a group around the name of the test")
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return text

    def by_outcome(self) -> tuple[tuple[TestOutcome, str], ...]:
        """The patterns that there are, failures first: a line is of the first that matches."""
        said = (
            (TestOutcome.FAILED, self.failed),
            (TestOutcome.SKIPPED, self.skipped),
            (TestOutcome.PASSED, self.passed),
        )
        return tuple((outcome, text) for outcome, text in said if text is not None)


class ArtifactRule(Model):
    """`[[check.artifact]]`: files to keep after the check. `path`: as in gitignore(5), from the check's directory.

    `coverage`: the files are of this format, and are summed up.
    """

    path: str = Field(min_length=1, max_length=500)
    coverage: Literal["cobertura", "lcov"] | None = None

    @field_validator("path")
    @classmethod
    def _require_inside(cls, text: str) -> str:
        if text.startswith(("!", "#")) or text.endswith("/") or ".." in text.split("/"):
            raise ValueError(
                "a pattern of files inside the check's directory, without `!`, `..` and a slash at the end"
            )
        return text


def _require_expression(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


class LaunchReady(Model):
    """When the application is up: one of `file` (a regular file of the guest), `line` (a regular expression for a line
    of its output), `port` (of 127.0.0.1) and `argv` (a command that ends with 0), within `deadline_s`.
    """

    file: str = ""
    line: str = Field(default="", max_length=500)
    port: int | None = Field(default=None, ge=1, le=65535)
    argv: tuple[str, ...] = ()
    deadline_s: PositiveFloat = Field(default=30.0, le=3600)

    _check_line = field_validator("line")(_require_expression)

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if sum((bool(self.file), bool(self.line), self.port is not None, bool(self.argv))) != 1:
            raise ValueError("'ready' needs one of file, line, port and argv")
        return self


class LaunchStop(Model):
    """How the application is stopped: `signal`, then it must end within `deadline_s`, with `exit_code`; 128 plus the
    number of the signal for one that it does not handle.
    """

    signal: Literal["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"] = "TERM"
    deadline_s: PositiveFloat = Field(default=10.0, le=600)
    exit_code: int = Field(default=0, ge=0, le=255)


class LaunchProbe(Model):
    """A command that runs in the guest while the application is up. It passes if it ends with `exit_code` within
    `deadline_s`, its output matches `output`, and does not match `no_output` (searched in the first 256 KiB of stdout).
    With `no_output`, longer output fails.

    `artifact`: the name of a file that it leaves at `<artifact>`, kept beside the logs, at most `artifact_bytes`.
    """

    id: SimpleName
    argv: tuple[str, ...] = Field(min_length=1)
    env: Environment = Field(default_factory=dict)
    exit_code: int = Field(default=0, ge=0, le=255)
    output: str = Field(default="", max_length=2000)
    no_output: str = Field(default="", max_length=2000)
    deadline_s: PositiveFloat = Field(default=10.0, le=3600)
    artifact: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$")
    artifact_bytes: int = Field(default=4 * 1024**2, ge=1, le=64 * 1024**2)

    _check_patterns = field_validator("output", "no_output")(_require_expression)


class LaunchSteps(Model):
    """What happens while the application runs. `soak_s`: how long it must stay up after the probes."""

    ready: LaunchReady
    soak_s: NonNegativeFloat = Field(default=2.0, le=3600)
    stop: LaunchStop = LaunchStop()
    probes: tuple[LaunchProbe, ...] = Field(default=(), max_length=MAX_PROBES)

    @model_validator(mode="after")
    def _require_names(self) -> Self:
        names = [probe.id for probe in self.probes]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"several probes are named {', '.join(doubled)}")
        return self

    @property
    def longest_s(self) -> float:
        """How long all phases may take together."""
        return self.ready.deadline_s + sum(p.deadline_s for p in self.probes) + self.soak_s + self.stop.deadline_s


SEED = "<seed>"  # in the variables of `Check.shuffle`


class Check(Model):
    """One named command of a profile. `cwd` is relative to the workspace; `env` adds to the fixed environment.

    `jobs`: passed to make, cmake, ctest and cargo in variables that `env` does not set. None: the tools decide.
    `deterministic`: the same files always give the same verdict, as with a compiler, so one failure is enough.
    `workspace`: `read-only` for a check that must not change the files; other directories stay writable.
    `parameters`: what callers may add in a task, in the order in which arguments are given. `arguments`: what a caller
    added; such a run is of a part of the check. `results`: how its output says how tests ended, for programs that write
    no JUnit file. `launch`: the command is an application that is probed while it runs (docs/applications.md).
    `shuffle`: variables that make its tests run in another order, with `<seed>` for a number up to 99,999; only set
    where the caller asks for it. `artifacts`: files to keep after the check.
    """

    id: CheckId
    label: str
    argv: tuple[str, ...] = Field(min_length=1)
    cwd: str = "."
    env: Environment = Field(default_factory=dict)
    timeout_s: PositiveFloat = Field(default=300.0, le=MAX_TIMEOUT_S)
    limits: Annotated[Limits, AfterValidator(require_enough)] = Limits()
    jobs: Jobs | None = None
    requires: tuple[CheckId, ...] = ()
    deterministic: bool = False
    workspace: WorkspaceAccess = "read-write"
    risk: Risk = Risk.SHELL
    parameters: tuple[CheckParameter, ...] = Field(
        default=(), max_length=4, validation_alias=AliasChoices("parameter", "parameters")
    )
    arguments: tuple[str, ...] = ()
    results: ResultPatterns | None = None
    launch: LaunchSteps | None = None
    shuffle: dict[str, str] = Field(default_factory=dict)
    artifacts: tuple[ArtifactRule, ...] = Field(
        default=(), max_length=16, validation_alias=AliasChoices("artifact", "artifacts")
    )

    @property
    def shuffle_seed(self) -> int | None:
        """The seed that its tests are shuffled with; None if they have their usual order."""
        for name, text in self.shuffle.items():
            found = re.match(re.escape(text.partition(SEED)[0]) + "([0-9]{1,9})", self.env.get(name, ""))
            if SEED in text and found and self.shuffled_env(found[1]).items() <= self.env.items():
                return int(found[1])
        return None

    def shuffled_env(self, seed: str) -> dict[str, str]:
        """The variables that shuffle its tests with a seed."""
        return {name: text.replace(SEED, seed) for name, text in self.shuffle.items()}

    @model_validator(mode="after")
    def _require_places(self) -> Self:
        names = [parameter.name for parameter in self.parameters]
        for name in names:
            if self.argv.count(f"<{name}>") != 1 or names.count(name) > 1:
                raise ValueError(f"argv needs the element '<{name}>' once, for the parameter '{name}'")
        if any(parameter.many for parameter in self.parameters[:-1]):
            raise ValueError("only the last parameter may take many arguments")
        return self


class LaunchRule(Model):
    """`[launch]`: how the application of a verified tree is started in a guest, and what it must then do.

    `<run>` in `argv`, `env`, `ready.file` and of probes is a fresh directory of this launch, in the guest's memory. The
    repository's files are read-only to the application, unless `workspace` says otherwise.
    """

    argv: tuple[str, ...] = Field(min_length=1)
    env: Environment = Field(default_factory=dict)
    cwd: str = "."
    requires: tuple[CheckId, ...] = ()
    limits: Annotated[Limits, AfterValidator(require_enough)] = Limits()
    workspace: WorkspaceAccess = "read-only"
    ready: LaunchReady
    soak_s: NonNegativeFloat = Field(default=2.0, le=3600)
    stop: LaunchStop = LaunchStop()
    probes: tuple[LaunchProbe, ...] = Field(default=(), alias="probe", max_length=MAX_PROBES)

    def as_check(self) -> Check:
        """The check that launches the application. Raises: ValueError for probes of one name."""
        steps = LaunchSteps(ready=self.ready, soak_s=self.soak_s, stop=self.stop, probes=self.probes)
        return Check(
            id=LAUNCH,
            label="Launch the application and probe it",
            argv=self.argv,
            cwd=self.cwd,
            env=self.env,
            timeout_s=steps.longest_s + MARGIN_S,
            limits=self.limits,
            requires=self.requires,
            workspace=self.workspace,
            launch=steps,
        )


class ReleaseRule(Model):
    """`[promote]`: what a release has. `artifacts`: files and folders that the build makes, relative to the repository.

    `confirm_s`: how long the promoted release may take to be confirmed; then `current` is switched back.
    """

    artifacts: tuple[str, ...] = Field(min_length=1, max_length=200)
    confirm_s: PositiveFloat = Field(default=120.0, le=86400)
    max_bytes: int = Field(default=1024**3, ge=1, le=16 * 1024**3)
    max_files: int = Field(default=20_000, ge=1, le=200_000)
