"""Read setup.cfg, PKG-INFO and, by its syntax tree only, the literal lists of setup.py.

No line of them is run: a list that is computed is refused as `syntax`, and a project that needs it says so in a lock
file or in pyproject.toml.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from sandbox.dependencies import ini_files
from sandbox.dependencies.collection import MAX_ENTRIES, Collection
from sandbox.dependencies.pyproject import add_extra
from sandbox.models.dependencies import RefusalReason
from sandbox.models.dependencies import RequirementRole as Role

LITERAL_DEPTH = 20  # of lists that are added to lists
MAX_LOOKS = 50_000  # at parts of literals of one file: sums of empty lists grow fast, too
_MAX_BRACES = 2_000  # Python's parser takes time for each expression of an f-string by its place in the string

_EXTRA = re.compile(r"""(?:;|\band)\s*\(?extra == ['"]([A-Za-z0-9._-]{1,100})['"]\)?\s*$""")
_KEYWORDS = {"install_requires": Role.RUNTIME, "tests_require": Role.TEST, "setup_requires": Role.BUILD}


def read_setup_cfg(collection: Collection) -> None:
    """Add what setup.cfg declares."""
    parser = parse_ini(collection, "setup.cfg")
    if parser.has_option("metadata", "name") and not collection.project:
        collection.project = canonicalize_name(parser["metadata"]["name"].strip())
    for key, kind in _KEYWORDS.items():
        if parser.has_option("options", key):
            collection.add(list_lines(parser["options"][key]), kind, f"setup.cfg: {key}")
    if parser.has_section("options.extras_require"):
        for name, text in parser["options.extras_require"].items():
            add_extra(collection, name, list_lines(text), f"setup.cfg: extra {name}")


def list_published_names(collection: Collection) -> set[str]:
    """The packages that the metadata of a source distribution asks a registry for."""
    head = collection.load_text("PKG-INFO").partition("\n\n")[0]
    found = re.findall(r"^Requires-Dist: ([A-Za-z0-9][A-Za-z0-9._-]{0,199})(?! *@)", head, re.MULTILINE)
    return {canonicalize_name(name) for name in found}


def read_pkg_info(collection: Collection) -> None:
    """Add the metadata that a source distribution carries, where the project's own lists are computed."""
    head = collection.load_text("PKG-INFO").partition("\n\n")[0]
    if found := re.search(r"^Name: (\S+)$", head, re.MULTILINE):
        collection.project = collection.project or canonicalize_name(found[1])
    by_extra: dict[str, list[str]] = {}
    for text in re.findall(r"^Requires-Dist: (.{1,1000})$", head, re.MULTILINE):
        extra = _EXTRA.search(text)
        by_extra.setdefault(extra[1] if extra else "", []).append(_EXTRA.sub("", text).rstrip())
    collection.add(by_extra.pop("", []), Role.RUNTIME, "PKG-INFO")
    for name, texts in by_extra.items():
        add_extra(collection, name, texts, f"PKG-INFO: extra {name}")


def read_setup_py(collection: Collection) -> None:
    """Add the literal lists of the call of `setup()`."""
    tree = parse_python(collection, "setup.py")
    names = _Names(dict(_find_assignments(tree)))
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and name_of_call(node) == "setup"):
        for keyword in call.keywords:
            origin = f"setup.py: {keyword.arg}"
            if keyword.arg is None:  # `**needs`
                collection.computed |= not collection.declared
            elif keyword.arg == "name" and isinstance(keyword.value, ast.Constant) and not collection.project:
                collection.project = canonicalize_name(str(keyword.value.value))
            elif keyword.arg in _KEYWORDS:
                _add_literal(collection, keyword.value, names, _KEYWORDS[keyword.arg], origin)
            elif keyword.arg == "extras_require":
                _add_extras(collection, keyword.value, names)


@dataclass
class _Names:
    """What names of a file stand for, and how many more parts of literals are looked at."""

    values: Mapping[str, ast.expr]
    left: int = MAX_LOOKS


def _add_extras(collection: Collection, value: ast.expr, names: _Names) -> None:
    node = names.values.get(value.id) if isinstance(value, ast.Name) else value
    if not isinstance(node, ast.Dict):
        return collection.refuse("computed", RefusalReason.SYNTAX, "setup.py: extras_require")
    for key, texts in zip(node.keys, node.values, strict=True):
        name = key.value if isinstance(key, ast.Constant) else None
        if isinstance(name, str) and (found := _literal_texts(texts, names, 0)) is not None:
            add_extra(collection, name, found, f"setup.py: extra {canonicalize_name(name)}")
        else:
            collection.refuse("computed", RefusalReason.SYNTAX, "setup.py: extras_require")
    return None


def parse_ini(collection: Collection, path: str) -> ConfigParser:
    return parse_ini_text(collection, collection.load_text(path), path)


def parse_ini_text(collection: Collection, text: str, path: str) -> ConfigParser:
    """The sections of an .ini file, or of such a text in the file `path`; empty if it is refused, which is recorded."""
    try:
        return ini_files.parse(text)
    except ConfigError:
        collection.refuse(path, RefusalReason.SYNTAX, path)
        return ConfigParser(interpolation=None)


def list_lines(text: str) -> list[str]:
    lines = (line.partition(" #")[0].strip() for line in text.split("\n"))
    return [line for line in lines if line and not line.startswith("#")]


def parse_python(collection: Collection, path: str) -> ast.Module:
    try:
        text = collection.load_text(path)
        if text.count("{") > _MAX_BRACES:
            raise ValueError("too many braces")
        with warnings.catch_warnings():  # of its escapes and comparisons: they are the repository's own affair
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the parser's stack is bounded: MemoryError
        collection.refuse(path, RefusalReason.SYNTAX, path)
        return ast.Module(body=[], type_ignores=[])


def name_of_call(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _find_assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _add_literal(collection: Collection, node: ast.expr, names: _Names, role: Role, origin: str) -> None:
    texts = _literal_texts(node, names, 0)
    if texts is None:
        collection.computed |= role is Role.RUNTIME
        collection.refuse("computed", RefusalReason.SYNTAX, origin)
    else:
        collection.add(texts, role, origin)


def _literal_texts(node: ast.expr | None, names: _Names, depth: int) -> list[str] | None:
    """The strings of a literal list, of names of such lists, and of sums of them; None for anything else."""
    names.left -= 1
    if depth > LITERAL_DEPTH or names.left < 0:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        names.left -= node.value.count("\n")  # a text of empty lines is no entry, and a name may stand for it often
        return [line for line in node.value.split("\n") if line.strip()]
    if isinstance(node, ast.Name):
        return _literal_texts(names.values.get(node.id), names, depth + 1)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        inside = _Names({}, names.left)  # a name in a list stands for one text, which is not looked for
        found = _join_texts(node.elts, inside, depth)
        names.left = inside.left
        return found
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _join_texts([node.left, node.right], names, depth)
    return None


def _join_texts(nodes: Sequence[ast.expr], names: _Names, depth: int) -> list[str] | None:
    """The strings of all nodes; None as soon as one has none or they are too many: sums of sums grow fast."""
    texts: list[str] = []
    for node in nodes:
        found = _literal_texts(node, names, depth + 1)
        if found is None or len(texts) + len(found) > MAX_ENTRIES:
            return None
        texts += found
    return texts
