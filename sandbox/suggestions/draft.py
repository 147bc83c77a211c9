"""Collect what one file suggests, within limits; each value is validated before it is kept."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import PurePosixPath

from pydantic import TypeAdapter, ValidationError

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import Check, PackageName
from sandbox.models.suggestions import SuggestedPart, SuggestionKind, SuggestionNote
from sandbox.suggestions.shell_lines import (
    changes_shell,
    find_installed_packages,
    is_compound,
    join_lines,
    only_installs_packages,
    parse_command,
)

MAX_PACKAGES, MAX_CHECKS, MAX_VARIABLES, MAX_NOTES = 100, 40, 50, 60
MAX_LINES = 500  # of a script
MAX_SCRIPT_CHARS = 256 * 1024
"""Maximum of all scripts of a tree together. An alias, or what GitLab runs before each job, repeats a script."""

MAX_SHOWN_LINES = 60
"""Maximum lines of scripts of one file that are kept to be shown."""

TIMEOUT_S = 900.0
"""Of a suggested check: a CI gives its jobs hours; the operator's settings can give more."""
_SHOWN_CHARS = 160
_VARIABLE = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_VALUE_CHARS = 2_000
_PACKAGE: TypeAdapter[str] = TypeAdapter(PackageName)

IsProtected = Callable[[str], bool]
"""Whether only the policy may set this environment variable."""


@dataclass(frozen=True)
class JobStep:
    """Where a script stands in its file. `job`: names its checks; those of one job run after each other."""

    job: str
    cwd: str = "."
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class SuggestionDraft:
    """What was found in one file so far. `prefix`: what the ids of its checks begin with. `jobs`: those of `checks`.
    `lines`: of its scripts, to be shown. `script_chars`: of all scripts so far, with the files before it.
    """

    path: str
    prefix: str
    is_protected: IsProtected
    packages: dict[str, None] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    notes: list[SuggestionNote] = field(default_factory=list)
    lines: dict[str, None] = field(default_factory=dict)
    script_chars: int = 0

    def note(self, text: str, reason: str) -> None:
        """Record what cannot be used. The last place says that there is more."""
        if len(self.notes) < MAX_NOTES - 1:
            shown = _replace_surrogates(text[:_SHOWN_CHARS])
            self.notes.append(SuggestionNote(path=self.path, text=shown, reason=reason))
        elif len(self.notes) == MAX_NOTES - 1:
            self.notes.append(SuggestionNote(path=self.path, text="...", reason="there is more of this kind"))

    def note_guests(self, place: str, image: object, job: Mapping[str, object]) -> None:
        """Record which image and services a job names."""
        if isinstance(image, str):
            self.note(f"{place}: image {image}", "the image is yours to choose")
        if job.get("services"):
            self.note(f"{place}: services", "services are declared in a profile")

    def add_package(self, name: str) -> None:
        """Add a Debian package, or note why not."""
        try:
            _PACKAGE.validate_python(name)
        except ValidationError:
            return self.note(name, "this is no name of a Debian package")
        if len(self.packages) >= MAX_PACKAGES:
            return self.note(name, f"more than {MAX_PACKAGES} packages")
        self.packages[name] = None
        return None

    def add_variable(self, name: str, value: object) -> None:
        """Add a variable for all checks, or note why not."""
        if self._require_variable(name, value):
            self.env[name] = str(value)

    def read_variables(self, document: object) -> dict[str, str]:
        """The usable variables of a map, for checks of this file; the others are noted."""
        items = document.items() if isinstance(document, dict) else ()
        return {str(name): str(value) for name, value in items if self._require_variable(str(name), value)}

    def _require_variable(self, name: str, value: object) -> bool:
        reason = self._find_obstacle(name, value)
        if reason:
            self.note(name, reason)
        return not reason

    def _find_obstacle(self, name: str, value: object) -> str:
        if not _VARIABLE.fullmatch(name) or self.is_protected(name):
            return "a check may not set this variable"
        if not isinstance(value, str) or "$" in value or len(value) > _VALUE_CHARS or not value.isprintable():
            return "the value of this variable is not plain text"
        return f"more than {MAX_VARIABLES} variables" if len(self.env) >= MAX_VARIABLES else ""

    def add_script(self, script: object, step: JobStep) -> None:
        """Add the packages that a script installs, and its plain commands as checks; the others are noted."""
        if not isinstance(script, str):
            return self.note(step.job, "its script is not plain text")
        if script.count("\n") > MAX_LINES:
            return self.note(step.job, f"its script has more than {MAX_LINES} lines")
        self.script_chars += len(script)
        if self.script_chars > MAX_SCRIPT_CHARS:
            return self.note(step.job, f"the scripts up to this one have more than {MAX_SCRIPT_CHARS} characters")
        lines = list(join_lines(script))
        self._read_lines(lines)
        cwd = _parse_directory(step.cwd)
        if cwd is None:
            return self.note(step.cwd, "this is no directory of the repository")
        if any(is_compound(line) for line in lines):
            return self.note(lines[0], "the script is more than a list of commands")
        for number, line in enumerate(lines):
            if changes_shell(line):
                for rest in lines[number:]:
                    self.note(rest, "it changes the shell, or comes after what does")
                break
            self._add_command(line, JobStep(step.job, cwd, step.env))
        return None

    def _read_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            if len(self.lines) < MAX_SHOWN_LINES and line.isprintable():
                self.lines[line[:_SHOWN_CHARS]] = None
            for name in find_installed_packages(line):
                self.add_package(name)

    def _add_command(self, line: str, step: JobStep) -> None:
        try:
            command = parse_command(line)
        except ValueError as error:
            if not only_installs_packages(line):
                self.note(line, str(error))
            return None
        if len(self.checks) >= MAX_CHECKS:
            return self.note(line, f"more than {MAX_CHECKS} commands")
        env = {**step.env, **self.read_variables(dict(command.env))}
        if any(name not in env for name, _ in command.env):
            return None  # noted: without the variable it would be another command
        stem = _to_id(f"{self.prefix}-{step.job}")
        alike = [check.id for check in self.checks if check.id.rpartition("-")[0] == stem]
        check = Check(
            id=f"{stem}-{len(alike) + 1}",
            label=f"{_replace_surrogates(step.job[:40])} of {self.path}",
            argv=command.argv,
            cwd=step.cwd,
            env=env,
            timeout_s=TIMEOUT_S,
            requires=tuple(alike[-1:]),
        )
        self.checks.append(check)
        self.jobs.append(step.job)
        return None

    def _separate_jobs(self) -> Iterator[Check]:
        """The checks, each after the one before it of its own job, not of another whose name gives the same ids."""
        last: dict[str, str] = {}
        for check, job in zip(self.checks, self.jobs, strict=True):
            required = (last[job],) if job in last else ()
            yield check if check.requires == required else check.model_copy(update={"requires": required})
            last[job] = check.id

    def to_parts(self) -> Iterator[SuggestedPart]:
        """One part for each kind that the file suggests something of."""
        if self.packages:
            yield _to_part(self.path, SuggestionKind.PACKAGES, {"packages": sorted(self.packages)})
        if self.env:
            yield _to_part(self.path, SuggestionKind.ENVIRONMENT, {"env": dict(sorted(self.env.items()))})
        if self.checks:
            checks = [check.model_dump(mode="json", exclude_defaults=True) for check in self.checks]
            part = _to_part(self.path, SuggestionKind.CHECKS, {"checks": checks})
            yield part.model_copy(update={"checks": tuple(self._separate_jobs())})


def _replace_surrogates(text: str) -> str:
    """Escapes of YAML and JSON can name half of a character (`"\\ud800"`), which no result can be encoded with."""
    return text.encode(errors="replace").decode()


def _to_part(path: str, kind: SuggestionKind, content: dict[str, object]) -> SuggestedPart:
    """The hash is over path, kind and content: the same words in another file or of another kind are not trusted.

    Ids in it are those that the file has alone, and each check requires the one with the number before it. Trust is
    bound to this hash, so neither another file nor a later version of this program may change it.
    """
    text = json.dumps({"path": path, "kind": kind.value, **content}, sort_keys=True, separators=(",", ":"))
    sha256 = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return SuggestedPart.model_validate({"path": path, "kind": kind, "sha256": sha256, **content})


def _parse_directory(text: str) -> str | None:
    """A directory below the workspace in its plain form, or None."""
    path = PurePosixPath(text)
    usable = text and not path.is_absolute() and ".." not in path.parts and text.isprintable() and "$" not in text
    return str(path) if usable else None


def _to_id(text: str) -> str:
    """The beginning of a check's id: at most 36 characters, so that a number fits."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:36].rstrip("-") or "ci"
