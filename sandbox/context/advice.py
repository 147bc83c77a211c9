"""From facts about a commit to advice: what was seen, why checks cannot run, and the command that helps. Pure.

A person who meets a repository for the first time has to learn from one answer what to do next, also when its checks
cannot run. Names of files are text of the repository; no content of a file is repeated.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models.remarks import Remark, RemarkKind
from sandbox.profiles import GENERIC

_SHOWN = 8
_VERSION_FROM_GIT = lazy_pattern(
    rb"\b(?:setuptools[-_]scm|hatch-vcs|versioneer|versioningit|setuptools-git-versioning|pbr|dunamai"
    rb"|poetry[-_]dynamic[-_]versioning|uv[-_]dynamic[-_]versioning)\b|\bsource *= *[\"']scm[\"']"
)
_NOT_IN_NAMES = lazy_pattern("[^a-z0-9_-]+")
_DEAF = lazy_pattern(rb"\b(?:versioneer|versioningit|setuptools-git-versioning|dunamai)\b")  # read no variable
_OUR_VARIABLES = lazy_pattern(r"\b(?:SANDBOX_COMMIT|SANDBOX_DESCRIBE|SOURCE_DATE_EPOCH)\b")
_PLAIN = lazy_pattern(r"\w[\w./-]{0,100}", re.ASCII)
_VERSION_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


@dataclass(frozen=True)
class SeenFacts:
    """What is known of a commit. `repo_id`, `remote_url`: for the commands. `profile`: the one in use; `has_checks`:
    of it.

    `folder`: where checks run, '' for the top. `others`: profiles that match there, too, and are not used, with the
    evidence; `foreign`: build files there by language, of languages without a profile. Both are empty if a person
    chose the profile.
    `manifests`: build files, as paths. `deep_folder`: of the first, if projects are not looked for as deep.
    `unreadable`: of those, what cannot be parsed, and why. `near`: profiles that have one of their files here, and look
    for more in it. `below`: the profile that each folder matches by itself. `only_folder`: the one of them that checks
    run in, since no other holds a project. `suggestion`: hash of an untrusted file of checks.
    `packages`: Debian packages that files name and the operator has not trusted, by file. `local_changes`: paths that a
    directory has and the commit has not. `lacks_version`: the build asks git for a version and is given none;
    `no_variable`: nor does its tool read one.
    `requires_version`: of the project, if it excludes the version of the profile's image. `versions`: by image;
    `image`: the one of them in use, '' if none satisfies it.
    """

    repo_id: str
    profile: str
    has_checks: bool
    manifests: Sequence[str] = ()
    deep_folder: str = ""
    unreadable: Mapping[str, str] | None = None
    near: Sequence[str] = ()
    below: Mapping[str, str] | None = None
    only_folder: str = ""
    remote_url: str = ""
    suggestion: str = ""
    packages: Mapping[str, Sequence[str]] | None = None
    submodules: Sequence[str] = ()
    uses_lfs: bool = False
    lacks_version: bool = False
    no_variable: bool = False
    local_changes: int = 0
    requires_version: str = ""
    image: str = ""
    language: str = "Python"
    versions: Mapping[str, str] | None = None
    folder: str = ""
    others: Mapping[str, str] | None = None
    foreign: Mapping[str, Sequence[str]] | None = None


def find_advice(facts: SeenFacts) -> tuple[Remark, ...]:
    """All remarks on a commit, those that decide whether anything runs first."""
    return tuple(
        remark
        for rule in (
            _no_checks,
            _below,
            _only_folder,
            _unchecked,
            _suggestion,
            _packages,
            _submodules,
            _lfs,
            _version,
            _git_data,
            _local_changes,
        )
        for remark in rule(facts)
    )


def asks_git_for_version(read: Callable[[str], bytes | None]) -> bool:
    """Whether a Python project's files name a tool that reads the version from git tags. `read`: marker files."""
    return any(_VERSION_FROM_GIT.search(read(name) or b"") for name in _VERSION_FILES)


def reads_no_variable(read: Callable[[str], bytes | None]) -> bool:
    """Whether that tool cannot be given a version in a variable."""
    return any(_DEAF.search(read(name) or b"") for name in _VERSION_FILES)


def asks_for_commit(markers: Iterable[str | None]) -> bool:
    """Whether the build files name a variable that holds a fact of the commit. `markers`: their texts."""
    return any(_OUR_VARIABLES.search(text or "") for text in markers)


def no_checks_error(profile: str, remarks: Sequence[Remark]) -> SandboxError:
    """`invalid_input`: no check can run. What was seen is in the details, what to do about it in the hint."""
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"The profile '{profile}' has no checks to run",
        details="\n".join(remark.seen for remark in remarks),
        hint=" ".join(f"{remark.remedy}." for remark in remarks if remark.remedy),
    )


def _no_checks(facts: SeenFacts) -> Iterator[Remark]:
    if facts.has_checks:
        return
    seen = f"Build files seen: {_join(facts.manifests)}" if facts.manifests else "No build file was seen"
    choose = f"`sandbox repo set {facts.repo_id} --profile"
    if facts.near:
        why = f"The profile {' or '.join(facts.near)} looks for more in its file, such as a test target"
        remedy = f"To use it all the same: {choose} {facts.near[0]}`"
    elif facts.profile != GENERIC:
        why = f"The profile '{facts.profile}' has no checks"
        remedy = f"`sandbox profiles list` shows the profiles, {choose} NAME` chooses one; see docs/profiles.md"
    else:
        why = "No profile fits"
        remedy = _suggest_folder(facts) or (
            "docs/other-languages.md has a recipe for a profile of your own; `sandbox profiles list` shows the shipped "
            f"ones, {choose} NAME` chooses one"
        )
    for name, reason in (facts.unreadable or {}).items():
        why = f"{why}. {name} cannot be parsed: {reason}"
        remedy = f"Correct {name} and commit it"
    has_better = bool(facts.below or facts.suggestion) and not facts.near
    yield Remark(kind=RemarkKind.NO_CHECKS, seen=f"{seen}. {why}", remedy="" if has_better else remedy)


def _suggest_folder(facts: SeenFacts) -> str:
    """Where all build files are in folders too deep for projects to be looked for: the command with that folder."""
    if not facts.deep_folder:
        return ""
    shown = facts.deep_folder if _PLAIN.fullmatch(facts.deep_folder) else "FOLDER"
    return f"`sandbox run {_show_remote(facts.remote_url)} --subpath {shown}` looks in that folder"


def _suggestion(facts: SeenFacts) -> Iterator[Remark]:
    if facts.suggestion:
        yield Remark(
            kind=RemarkKind.SUGGESTION,
            seen=".sandbox/checks.toml suggests checks, services or packages: not used until the operator trusts them",
            remedy=f"The operator reviews and trusts them with `sandbox trust {facts.repo_id}`",
        )


def _packages(facts: SeenFacts) -> Iterator[Remark]:
    if facts.packages:
        named = sorted({name for names in facts.packages.values() for name in names})
        yield Remark(
            kind=RemarkKind.PACKAGES,
            seen=f"{_join(list(facts.packages))} asks for Debian packages, which checks may lack: {_join(named)}",
            remedy=f"The operator reviews and trusts them with `sandbox trust {facts.repo_id}`",
        )


def _below(facts: SeenFacts) -> Iterator[Remark]:
    """Only when no check would run at the top: a library with examples in folders is not several projects."""
    if facts.has_checks or not facts.below:
        return
    which = "Projects in folders" if len(facts.below) > 1 else "A project in a folder"
    chosen = choose_projects(facts.below)
    options = " ".join(f"--project {name}={folder}" for name, folder in chosen.items()) or "--project NAME=FOLDER"
    always = f"--subpath {next(iter(facts.below))}" if len(chosen) == 1 == len(facts.below) else options
    now = f"To check {'it' if len(facts.below) == 1 else 'them'} now"
    yield Remark(
        kind=RemarkKind.BELOW,
        seen=f"{which}: {_join([f'{path} ({name})' for path, name in facts.below.items()])}",
        remedy=f"{now}: `sandbox run {_show_remote(facts.remote_url)} {options}`; the operator keeps that with "
        f"`sandbox repo set {facts.repo_id} {always}`",
    )


def _only_folder(facts: SeenFacts) -> Iterator[Remark]:
    if not facts.only_folder:
        return
    keep = f"`sandbox repo set {facts.repo_id} --subpath {facts.only_folder}` keeps that when another is added"
    yield Remark(
        kind=RemarkKind.ONLY_FOLDER,
        seen=f"The only project is in {facts.only_folder}/ ({facts.profile}): its checks run there",
        remedy=keep if _PLAIN.fullmatch(facts.only_folder) else "",
    )


def _unchecked(facts: SeenFacts) -> Iterator[Remark]:
    """Where a person takes one profile's verdict for that of all languages. A choice of theirs ends it."""
    others, foreign = facts.others or {}, facts.foreign or {}
    if not facts.has_checks or not (others or foreign):
        return
    matching = _join([f"{name} ({evidence})" for name, evidence in others.items()])
    languages = _join([f"{language} ({', '.join(files[:_SHOWN])})" for language, files in foreign.items()])
    seen = [f"{matching} {'matches' if len(others) == 1 else 'match'}, too"] if others else []
    seen += [f"no profile is for {languages}"] if foreign else []
    text = "; ".join(seen)
    place = facts.folder or "."
    added = " ".join(f"--project {name}={place}:{name}" for name in others)
    commands = [f"`sandbox repo set {facts.repo_id} {added}` adds {'it' if len(others) == 1 else 'them'}"]
    remedy = commands if others and _is_plain(place) else []
    remedy.append(f"`sandbox repo set {facts.repo_id} --profile {facts.profile}` keeps this choice")
    own = f"; a profile of yours runs {_join(list(foreign))} (docs/other-languages.md)" if foreign else ""
    yield Remark(
        kind=RemarkKind.UNCHECKED,
        seen=f"Only the tests of {facts.profile} run. {text[:1].upper() if not others else text[:1]}{text[1:]}",
        remedy=f"{', '.join(remedy)}{own}",
    )


def _is_plain(folder: str) -> bool:
    return folder == "." or bool(_PLAIN.fullmatch(folder))


def _show_remote(url: str) -> str:
    """The remote as an argument of a command: a directory of this host as a path, if that needs no escapes."""
    path = url.removeprefix("file://")
    return shlex.quote(url if "%" in path else path)


def choose_projects(folders: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """A name for each folder, its last part if that is free; not one of `taken`. Commands are made to be copied:
    folders with names that could be more than names are left out, and so are those past the shown ones. Pure.
    """
    found: dict[str, str] = {}
    for folder in islice((folder for folder in folders if _PLAIN.fullmatch(folder)), _SHOWN):
        for text in (folder.rpartition("/")[2], folder.replace("/", "-")):
            name = _NOT_IN_NAMES.sub("-", text.lower()).strip("-_")[:40]
            if name and name not in found and name not in taken:
                found[name] = folder
                break
    return found


def _submodules(facts: SeenFacts) -> Iterator[Remark]:
    if facts.submodules:
        yield Remark(
            kind=RemarkKind.SUBMODULES,
            seen=f"Submodules are left out, their folders are empty: {_join(facts.submodules)}",
            remedy=f"If checks need their files: `sandbox repo set {facts.repo_id} --submodules`",
        )


def _lfs(facts: SeenFacts) -> Iterator[Remark]:
    if facts.uses_lfs:
        yield Remark(
            kind=RemarkKind.LFS,
            seen="Some files are stored with Git LFS (.gitattributes): checks see small pointer files in their place",
            remedy=f"If checks need them: `sandbox repo set {facts.repo_id} --lfs`, or `sandbox run --lfs yes` once",
        )


def _version(facts: SeenFacts) -> Iterator[Remark]:
    if not facts.requires_version:
        return
    known, asked = facts.versions or {}, f"The project is for {facts.language} {facts.requires_version}"
    if facts.image:
        seen = f"{asked}: checks run in the image {facts.image}, with {facts.language} {known[facts.image]}"
    else:
        seen = f"{asked}, which no image has: {describe_versions(known)}"
    yield Remark(
        kind=RemarkKind.IMAGE,
        seen=seen,
        remedy=f"`sandbox repo set {facts.repo_id} --image NAME` chooses another image (docs/images.md)",
    )


def describe_versions(known: Mapping[str, str]) -> str:
    """Versions by image, for people."""
    return ", ".join(f"{version} ({image})" for image, version in known.items())


def _git_data(facts: SeenFacts) -> Iterator[Remark]:
    if facts.lacks_version:
        yield Remark(
            kind=RemarkKind.GIT_DATA,
            seen="The manifests name a tool that reads the version from git, and a check sees no git data "
            "(no .git, no tags)",
            remedy="Its tool takes it from no variable; what to do is in docs/profiles.md, Facts of the commit"
            if facts.no_variable
            else "Set it in the variable that its tool reads, for example: "
            f"`sandbox repo set {facts.repo_id} --env SETUPTOOLS_SCM_PRETEND_VERSION=0.0.0`",
        )


def _local_changes(facts: SeenFacts) -> Iterator[Remark]:
    if facts.local_changes:
        yield Remark(
            kind=RemarkKind.LOCAL_CHANGES,
            seen=f"The directory has uncommitted changes ({facts.local_changes}), which are left out",
            remedy="Commit them to have them checked",
        )


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
