"""Read `requirements*.txt`: requirements, hashes, and includes of other files of the tree. Other options are refused.

`-e .` and `.` mean the project itself, which a check installs anyway, and its extras. `-e ./libs/x` and `./libs/x` mean
a package of the tree: `uv_workspace.py` reads it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from sandbox.dependencies.collection import Collection, NamedFolder
from sandbox.dependencies.folder_patterns import resolve_folder
from sandbox.models.dependencies import RefusalReason
from sandbox.models.dependencies import RequirementRole as Role

MAX_DEPTH = 8  # of files that include files
PATH_CHARS = 300  # of an included file

_COMMENT = re.compile(r"(?:^|\s)#.*$")
_HASH = re.compile(r"\s--hash[= ](\S+)")
_INCLUDE = re.compile(r"^(?:-r|--requirement|-c|--constraint)[ =]?\s*(\S+)$")
_ITSELF = re.compile(r"^(?:(?:-e|--editable)[ =]?\s*)?(?:file:)?\.(?:/)?(?:\[([A-Za-z0-9._, -]*)\])?$")

LOCAL = (
    r"(?:(?P<editable>-e|--editable)[ =]?\s*)?(?:file:(?!//))?(?P<path>[\w.-]+(?:/[\w.-]+)*)/?"
    r"(?:\[(?P<extras>[\w., -]*)\])?"
)
"""A folder, with its extras, in a line of a requirements file; images/python/declared.py has the same."""
MANIFESTS_OF_FOLDERS = ("pyproject.toml", "setup.py", "setup.cfg")
"""What makes a folder a package; images/python/declared.py has the same."""


def read_requirement_file(collection: Collection, path: str, role: Role, depth: int = 0) -> None:
    """Add what a requirements file and those that it includes declare. Constraint files are skipped."""
    for line in _join_lines(collection.load_text(path)):
        if collection.is_full:
            return collection.refuse_rest(path)
        if add_itself(collection, line, role) or add_folder(collection, line, role, path):
            continue
        if include := _INCLUDE.fullmatch(line):
            _follow(collection, path, include[1], role, depth, is_constraint=line.startswith(("-c", "--c")))
        else:
            hashes = _HASH.findall(line)
            collection.add_text(_HASH.sub("", line), role, path, hashes)
    return None


def _join_lines(text: str) -> Iterator[str]:
    """The logical lines, without comments and empty ones."""
    for line in text.replace("\\\n", " ").split("\n"):
        if content := _COMMENT.sub("", line).strip():
            yield content


def add_itself(collection: Collection, line: str, role: Role) -> bool:
    """Whether a line means the project itself: `.`, `-e .[test]`; then its extras are selected."""
    found = _ITSELF.fullmatch(line)
    if found is not None:
        collection.want_extras((found[1] or "").split(","), role)
    return found is not None


def add_folder(collection: Collection, line: str, role: Role, origin: str) -> bool:
    """Whether a line means a package in a folder of the tree. As for pip, its path is from the root; if there is none,
    from the folder of the file, as for uv.
    """
    found = re.fullmatch(LOCAL, line, re.ASCII)
    if found is None or not (found["editable"] or "/" in line or line.startswith("file:")):
        return False
    extras = tuple(filter(None, map(str.strip, (found["extras"] or "").split(","))))
    folders = (resolve_folder(base, found["path"]) for base in ("", posixpath.dirname(origin)))
    return any(
        add_package_of_tree(collection, NamedFolder(folder, extras, role, origin)) for folder in folders if folder
    )


def add_package_of_tree(collection: Collection, named: NamedFolder) -> bool:
    """Whether a folder is a package; then it is named."""
    is_package = any(collection.load_text(posixpath.join(named.folder, name)) for name in MANIFESTS_OF_FOLDERS)
    if is_package:
        collection.named_folders.append(named)
    return is_package


def read_named_file(collection: Collection, path: str, role: Role, origin: str, folder: str = "") -> None:
    """Read a requirements file that another file names, by its path from a folder, the root. Unusual paths are refused,
    and those out of the tree.
    """
    found = resolve_folder(folder, path) or ""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", found) or len(path) > PATH_CHARS:
        collection.refuse(path, RefusalReason.PATH, origin)
    elif found not in collection.files:
        read_requirement_file(collection, found, role)


def _follow(collection: Collection, path: str, target: str, role: Role, depth: int, *, is_constraint: bool) -> None:
    if "://" in target:
        return collection.refuse(target, RefusalReason.URL, path)
    inner = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    is_plain = inner.isprintable() and len(inner) <= PATH_CHARS
    if not is_plain or posixpath.isabs(inner) or inner.startswith(("..", "~")) or "$" in inner:
        return collection.refuse(target, RefusalReason.PATH, path)
    if depth >= MAX_DEPTH:
        return collection.refuse(target, RefusalReason.LIMIT, path)
    if is_constraint or inner in collection.files:  # read already, or a circle
        return None
    return read_requirement_file(collection, inner, role, depth + 1)
