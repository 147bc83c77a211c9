"""What a project under test still lacks, one requirement a line; and whether it is a package.

`declared.py needs WHEEL`: run-time requirements that are not installed.
`declared.py builds PYPROJECT`: requirements of its build that are not installed.
`declared.py members FOLDER`: the folders, from there, of the packages of its workspace and of those that uv, Poetry, a
requirements file, tox or a Pipfile take by a path from the tree.
`declared.py extensions WHEEL FOLDER`: the modules of a wheel that its build compiled or wrote, which it has just put
beside their sources there.
`declared.py syntax PYPROJECT`: where it is no TOML.
`declared.py application PYPROJECT`: why its project need not be a package, if it says so, or says of no build.
`declared.py wants PYPROJECT [WHEEL]`: requirements of its test and dev extras and groups that are not installed but
in the wheel-house; the ones that are not there either are named on stderr.
Extras come from the wheel's metadata (every back-end writes it), groups from `[dependency-groups]` (PEP 735).
"""

import itertools
import os
import posixpath
import re
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import suppress
from email.parser import Parser
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from tox_references import Sections

WHEELS = Path("/wheels")
PYPROJECT = "pyproject.toml"
PLACED_AT = 315_619_201  # 1980-01-02 00:00:01, which no other file has: the next check replaces what a killed one left
FOLDERS_OF_SOURCES = ("", "src", "lib", "python")
MOST_IGNORED = 2_000
EXTENSIONS = ("*.cpython-*.so", "*.abi3.so")  # never taken into a commit: policies/profiles/python.toml
LOCAL = (
    r"(?:(?P<editable>-e|--editable)[ =]?\s*)?(?:file:(?!//))?(?P<path>[\w.-]+(?:/[\w.-]+)*)/?"
    r"(?:\[(?P<extras>[\w., -]*)\])?"
)
"""A folder in a line of a requirements file; sandbox/dependencies/requirement_files.py has the same, and the names."""
INCLUDE = r"(?:-r|--requirement)[ =]?\s*(\S+)"
MANIFESTS_OF_FOLDERS = (PYPROJECT, "setup.py", "setup.cfg")
REQUIREMENTS = (
    r"(?:requirements/)?(?:requirements[-_.](?:tests?|testing|ci|dev|development)|(?:test|ci|dev)[-_]requirements)"
    r"[.](?:txt|in)|requirements/(?:tests?|testing|ci|dev|develop|development|local)[.](?:txt|in)"
    r"|requirements/(?:default|base)[.]txt"
    r"|(?:tests?/)?requirements[.]txt"
)
WANTED = ("dev", "develop", "test", "tests", "testing")
TOX = "tox.ini"
LISTS_FOR_TESTS = {"test", "tests", "testing", "test-dependencies", "pytest", "unittest", "unittests", "hatch-test"}
LISTS_OF_PIPFILE = {"packages", "dev-packages", "dev", "devel", "develop", "development", *LISTS_FOR_TESTS}
"""sandbox/dependencies has the same names."""


def of_wheel(wheel: Path, extras: Sequence[str]) -> Iterator[Requirement]:
    """Its requirements that hold here with one of `extras` ("": without any)."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    own = canonicalize_name(metadata["Name"])
    for requirement in map(Requirement, metadata.get_all("Requires-Dist", [])):
        marker = requirement.marker
        holds = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
        if holds and canonicalize_name(requirement.name) != own:
            requirement.marker = None
            yield requirement


def of_groups(pyproject: Path) -> Iterator[Requirement]:
    """Requirements of the wanted groups that hold here, includes expanded."""
    tables = tomllib.loads(pyproject.read_text(encoding="utf-8")) if pyproject.is_file() else {}
    groups = {canonicalize_name(name): entries for name, entries in tables.get("dependency-groups", {}).items()}
    pending, seen = list(WANTED), set()
    while pending:
        group = canonicalize_name(pending.pop(0))
        for entry in () if group in seen else groups.get(group, ()):
            if isinstance(entry, dict):
                pending.append(entry["include-group"])
            elif (requirement := Requirement(entry)).marker is None or requirement.marker.evaluate():
                requirement.marker = None
                yield requirement
        seen.add(group)


def of_build(pyproject: Path) -> Iterator[Requirement]:
    """What `[build-system]` asks for here."""
    tables = tomllib.loads(pyproject.read_text(encoding="utf-8")) if pyproject.is_file() else {}
    for requirement in map(Requirement, tables.get("build-system", {}).get("requires", [])):
        if requirement.marker is None or requirement.marker.evaluate():
            requirement.marker = None
            yield requirement


def installed(requirement: Requirement) -> bool:
    """Whether the interpreter has it; one with extras is left to pip."""
    try:
        return not requirement.extras and requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def in_wheelhouse(requirement: Requirement) -> bool:
    """Whether some wheel has its name and an allowed version."""
    wheels = (parse_wheel_filename(path.name) for path in WHEELS.glob("*.whl"))
    name = canonicalize_name(requirement.name)
    return any(found == name and requirement.specifier.contains(number) for found, number, *_ in wheels)


def needs(wheel: Path) -> list[str]:
    """What the project cannot run without."""
    return [str(r) for r in of_wheel(wheel, [""]) if not installed(r)]


def builds(pyproject: Path) -> list[str]:
    """What it cannot be built without."""
    return [str(r) for r in of_build(pyproject) if not installed(r)]


def application(pyproject: Path) -> list[str]:
    """Why the project need not be a package: what its tool is told, or that nothing says how it is built."""
    tables = tomllib.loads(pyproject.read_text(encoding="utf-8")) if pyproject.is_file() else {}
    tool = tables.get("tool", {})
    for name, key in (("poetry", "package-mode"), ("uv", "package"), ("pdm", "distribution")):
        if tool.get(name, {}).get(key) is False:
            return [f"[tool.{name}] says {key} = false"]
    is_built = "build-system" in tables or any(
        (pyproject.parent / name).is_file() for name in ("setup.py", "setup.cfg")
    )
    return [] if is_built else ["pyproject.toml has no [build-system]"]


def members(root: Path) -> list[str]:
    """Those that have a pyproject.toml, or that a requirements file names, without the project at the root."""
    root = root.resolve()
    workspace = read_tools(root).get("uv", {}).get("workspace", {})
    named, left_out = (
        [path for pattern in workspace.get(key, []) if Path(pattern) != Path() for path in sorted(root.glob(pattern))]
        for key in ("members", "exclude")
    )
    of_files = [root / folder for folder in list_named_folders(root)]
    pending = [*(path for path in named if path not in left_out), *list_source_folders(root), *of_files]
    found = list[Path]()
    for path in map(Path.resolve, pending):  # grows while it is read
        inside = path.is_relative_to(root) and path != root and not any(map(is_hidden, path.relative_to(root).parts))
        if inside and path not in found and ((path / PYPROJECT).is_file() or path in of_files):
            found.append(path)
            pending += list_source_folders(path)
    return [str(path.relative_to(root)) for path in found]


def read_tools(folder: Path) -> dict[str, Any]:
    """`[tool]` of a folder's pyproject.toml."""
    path = folder / PYPROJECT
    tables = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return tables.get("tool", {})  # type: ignore[no-any-return]


def list_source_folders(folder: Path) -> Iterator[Path]:
    """The folders that uv's sources and Poetry's lists name."""
    tools = read_tools(folder)
    poetry = tools.get("poetry", {})
    groups = (group.get("dependencies", {}) for group in poetry.get("group", {}).values())
    tables = (poetry.get("dependencies", {}), poetry.get("dev-dependencies", {}), *groups)
    for table in (tools.get("uv", {}).get("sources", {}), *tables):
        for source in table.values():
            for one in source if isinstance(source, list) else [source]:
                if isinstance(one, dict) and "path" in one:
                    yield folder / one["path"]


def list_named_folders(root: Path) -> list[str]:
    """The folders of packages that requirements files, tox and a Pipfile name: from the root, else from the folder of
    the file.
    """
    names = [path.relative_to(root).as_posix() for path in (*root.glob("*.*"), *root.glob("*/*.*"))]
    pending = [*sorted(name for name in names if re.fullmatch(REQUIREMENTS, name)), TOX]
    found = list[str]()
    for name in pending:  # grows while it is read
        for line in list_deps_of_tox(root) if name == TOX else list_lines(root / name):
            if include := re.fullmatch(INCLUDE, line):
                inner = posixpath.normpath(posixpath.join(posixpath.dirname(name), include[1]))
                pending += [inner] if inner not in pending and not inner.startswith(("..", "/")) else []
            local = re.fullmatch(LOCAL, line, re.ASCII)
            if local and (local["editable"] or "/" in line or line.startswith("file:")):
                places = (
                    posixpath.normpath(posixpath.join(base, local["path"])) for base in ("", posixpath.dirname(name))
                )
                found += [place for place in places if is_package(root / place)][:1]
    found += [place for place in list_paths_of_pipfile(root) if is_package(root / place)]
    return list(dict.fromkeys(found))


def list_lines(path: Path) -> Iterator[str]:
    """The logical lines of a requirements file, without comments."""
    text = path.read_text(encoding="utf-8-sig", errors="replace") if path.is_file() else ""
    return (re.sub(r"(?:^|\s)#.*$", "", line).strip() for line in text.replace("\\\n", " ").split("\n"))


def list_deps_of_tox(root: Path) -> Iterator[str]:
    """What the environments of tox for tests install: all lines, whatever their factors."""
    own = as_table(read_tools(root).get("tox"))
    texts = [str(own.get("legacy_tox_ini", ""))]
    texts += [(root / name).read_text(errors="replace") for name in (TOX, "setup.cfg") if (root / name).is_file()]
    lists = list[Any]()
    for text in texts:
        parser = ConfigParser(interpolation=None, strict=False)
        with suppress(ConfigError):
            parser.read_string(text)
        sections = Sections(parser)
        lists += [
            list(sections.list_lines(parser[section].get("deps", ""), str.splitlines))
            for section in parser.sections()
            if section == "testenv" or (section.startswith("testenv:") and is_for_tests(section.partition(":")[2]))
        ]
    for table in (read_toml(root / "tox.toml"), own):
        environments = [found for name, found in as_table(table.get("env")).items() if is_for_tests(name)]
        lists += [as_table(found).get("deps") for found in (table.get("env_run_base"), *environments)]
    for line in (line for lines in lists if isinstance(lines, list) for line in lines if isinstance(line, str)):
        yield re.sub(r"\{(?:toxinidir|tox_root)\}", ".", re.sub(r"^[!\w.,{}-]+:\s+", "", line.strip()))


def as_table(value: object) -> dict[str, Any]:
    """A table of a TOML file; {} for what is none."""
    return value if isinstance(value, dict) else {}


def is_for_tests(name: str) -> bool:
    """Whether a list of this name is of tests."""
    return canonicalize_name(name) in LISTS_FOR_TESTS


def list_paths_of_pipfile(root: Path) -> Iterator[str]:
    """The folders that a Pipfile names, from the root."""
    for name, entries in read_toml(root / "Pipfile").items():
        if canonicalize_name(name) in LISTS_OF_PIPFILE and isinstance(entries, dict):
            for path in (as_table(entry).get("path") for entry in entries.values()):
                if isinstance(path, str):
                    yield posixpath.normpath(path)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file; {} if there is none that can be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def is_package(folder: Path) -> bool:
    """Whether something in it says how it is built."""
    try:
        return any((folder / name).is_file() for name in MANIFESTS_OF_FOLDERS)
    except OSError:  # a name that is too long
        return False


def is_hidden(name: str) -> bool:
    """Whether no pattern means folders of this name."""
    return name.startswith(".") or name == "node_modules"


def extensions(wheel: Path, root: Path) -> Iterator[str]:
    """Those of packages that stand at the root or in a folder of sources: tests may find these instead of what is
    installed. So do modules that a build wrote, such as the one with the version, if .gitignore has them. Each appears
    whole and with its time; a part of one that a kill leaves has a name that is never taken into a commit either.
    """
    ignored = read_ignored(root)
    with zipfile.ZipFile(wheel) as archive:
        for name, folder in itertools.product(archive.namelist(), FOLDERS_OF_SOURCES):
            path = root / folder / name
            is_free = not os.path.lexists(path) or path.lstat().st_mtime == PLACED_AT
            if "/" not in name or not is_free or not os.access(path.parent, os.W_OK):
                continue
            if not any(map(path.match, EXTENSIONS)) and (path.suffix != ".py" or not is_ignored(root, path, ignored)):
                continue
            part = path.with_name(f".part-{path.name}.abi3.so")
            try:
                part.write_bytes(archive.read(name))
                os.utime(part, (PLACED_AT, PLACED_AT))
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
            yield path.relative_to(root).as_posix()


def read_ignored(root: Path) -> list[str]:
    """The patterns of the .gitignore at the root; none if one of them takes back what others say of whole folders."""
    with suppress(OSError, UnicodeDecodeError):
        lines = [line.strip() for line in (root / ".gitignore").read_text().splitlines()[:MOST_IGNORED]]
        said = [line for line in lines if line and not line.startswith("#")]
        if not any(line.startswith("!") and (line.endswith("/") or "**" in line) for line in said):
            return said
    return []


def is_ignored(root: Path, path: Path, patterns: list[str]) -> bool:
    """Whether one of the patterns is about the file, and none says that it is not ignored. What they say of folders is
    not looked at.
    """
    place = path.relative_to(root).as_posix()
    found = [line.startswith("!") for line in patterns if fits_pattern(place, line.removeprefix("!"))]
    return bool(found) and not any(found)


def fits_pattern(place: str, pattern: str) -> bool:
    """Whether a pattern of git is about a file, as far as it needs no more than `*`, `?` and a leading `**/`."""
    pattern = pattern.removeprefix("**/")
    if "/" in pattern:
        wanted, given = pattern.removeprefix("/").split("/"), place.split("/")
        return len(wanted) == len(given) and all(map(fnmatchcase, given, wanted))
    return fnmatchcase(posixpath.basename(place), pattern)


def syntax(pyproject: Path) -> Iterator[str]:
    """`line 1, column 9: REASON`, or the reason alone."""
    try:
        tomllib.loads(pyproject.read_text(encoding="utf-8")) if pyproject.is_file() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        found = re.fullmatch(r"(.*) \(at (line \d+, column \d+|end of document)\)", str(error), re.DOTALL)
        yield f"{found[2]}: {found[1]}" if found else str(error)


def wants(pyproject: Path, *wheel: Path) -> list[str]:
    """What its developers test it with."""
    declared = [*of_groups(pyproject), *(r for path in wheel for r in of_wheel(path, WANTED))]
    lacking = [r for r in declared if not installed(r)]
    for absent in dict.fromkeys(str(r) for r in lacking if not in_wheelhouse(r)):
        sys.stderr.write(f"sandbox-python-check: not in the wheel-house, going on without: {absent}\n")
    return [str(r) for r in lacking if in_wheelhouse(r)]


if __name__ == "__main__":
    commands: dict[str, Callable[..., Iterable[str]]] = {
        "application": application,
        "builds": builds,
        "extensions": extensions,
        "members": members,
        "needs": needs,
        "syntax": syntax,
        "wants": wants,
    }
    said = set[str]()
    for line in commands[sys.argv[1]](*map(Path, sys.argv[2:])):
        if line not in said:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()  # what was done counts, also if the next fails
        said.add(line)
