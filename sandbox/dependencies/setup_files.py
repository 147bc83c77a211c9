"""Read setup.cfg, tox.ini and, by their syntax tree only, the literal lists of setup.py and noxfile.py.

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

from packaging.utils import canonicalize_name

from sandbox.dependencies.collection import MAX_ENTRIES, Collection
from sandbox.dependencies.pyproject import add_extra, classify_list
from sandbox.dependencies.requirement_files import add_itself, read_requirement_file
from sandbox.models.dependencies import RefusalReason
from sandbox.models.dependencies import RequirementRole as Role

LINE_CHARS = 300  # of an .ini file: its parser is quadratic in the spaces of a line
LITERAL_DEPTH = 20  # of lists that are added to lists

_EXTRA = re.compile(r"""\s*(?:;|\band)\s*\(?extra == ['"]([A-Za-z0-9._-]{1,100})['"]\)?\s*$""")
_KEYWORDS = {"install_requires": Role.RUNTIME, "tests_require": Role.TEST, "setup_requires": Role.BUILD}
_EXCLUDING_FACTOR = re.compile(r"^![A-Za-z0-9_.-]+:\s*")
_FACTOR = re.compile(r"^[A-Za-z0-9_.-]+(?:\{[A-Za-z0-9_,.-]*\})?[A-Za-z0-9_,.!-]*:(?!//)")
_TOX_INCLUDE = re.compile(r"^-(?:r|c)\s*(?:\{toxinidir\}/)?(\S+)$")


def read_setup_cfg(collection: Collection) -> None:
    """Add what setup.cfg declares."""
    parser = _parse_ini(collection, "setup.cfg")
    if parser.has_option("metadata", "name") and not collection.project:
        collection.project = canonicalize_name(parser["metadata"]["name"].strip())
    for key, kind in _KEYWORDS.items():
        if parser.has_option("options", key):
            collection.add(_list_lines(parser["options"][key]), kind, f"setup.cfg: {key}")
    if parser.has_section("options.extras_require"):
        for name, text in parser["options.extras_require"].items():
            add_extra(collection, name, _list_lines(text), f"setup.cfg: extra {name}")


def read_tox(collection: Collection) -> None:
    """Add the `deps` of tox.ini's `testenv` and of its test environments."""
    parser = _parse_ini(collection, "tox.ini")
    for section in parser.sections():
        kind, _, name = section.partition(":")
        is_for_tests = section == "testenv" or (kind == "testenv" and classify_list(name) is Role.TEST)
        if is_for_tests:
            _read_tox_deps(collection, parser[section].get("deps", ""), f"tox.ini: {section}")
            collection.want_extras(re.split(r"[,\n]", parser[section].get("extras", "")), Role.TEST)


def _read_tox_deps(collection: Collection, text: str, origin: str) -> None:
    """Lines of one factor, as `py37: pytest<8`, are for environments that are not ours. Substitutions are refused."""
    for line in _list_lines(text):
        plain = _EXCLUDING_FACTOR.sub("", line)
        if _FACTOR.match(plain):
            continue
        include = _TOX_INCLUDE.fullmatch(plain)
        if include is None and not add_itself(collection, plain, Role.TEST):
            collection.add_text(plain, Role.TEST, origin)
        elif include and plain.startswith("-r") and include[1] not in collection.files:
            _read_include(collection, include[1], origin)


def _read_include(collection: Collection, path: str, origin: str) -> None:
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", path) and ".." not in path:
        read_requirement_file(collection, path, Role.TEST)
    else:
        collection.refuse(path, RefusalReason.PATH, origin)


def read_pkg_info(collection: Collection) -> None:
    """Add the metadata that a source distribution carries, where the project's own lists are computed."""
    head = collection.load_text("PKG-INFO").partition("\n\n")[0]
    if found := re.search(r"^Name: (\S+)$", head, re.MULTILINE):
        collection.project = collection.project or canonicalize_name(found[1])
    by_extra: dict[str, list[str]] = {}
    for text in re.findall(r"^Requires-Dist: (.{1,1000})$", head, re.MULTILINE):
        extra = _EXTRA.search(text)
        by_extra.setdefault(extra[1] if extra else "", []).append(_EXTRA.sub("", text))
    collection.add(by_extra.pop("", []), Role.RUNTIME, "PKG-INFO")
    for name, texts in by_extra.items():
        add_extra(collection, name, texts, f"PKG-INFO: extra {name}")


def read_setup_py(collection: Collection) -> None:
    """Add the literal lists of the call of `setup()`."""
    tree = _parse_python(collection, "setup.py")
    names = dict(_find_assignments(tree))
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name_of_call(node) == "setup"):
        for keyword in call.keywords:
            origin = f"setup.py: {keyword.arg}"
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant) and not collection.project:
                collection.project = canonicalize_name(str(keyword.value.value))
            elif keyword.arg in _KEYWORDS:
                _add_literal(collection, keyword.value, names, _KEYWORDS[keyword.arg], origin)
            elif keyword.arg == "extras_require":
                _add_extras(collection, keyword.value, names)


def _add_extras(collection: Collection, value: ast.expr, names: Mapping[str, ast.expr]) -> None:
    node = names.get(value.id) if isinstance(value, ast.Name) else value
    if not isinstance(node, ast.Dict):
        return collection.refuse("computed", RefusalReason.SYNTAX, "setup.py: extras_require")
    for key, texts in zip(node.keys, node.values, strict=True):
        name = key.value if isinstance(key, ast.Constant) else None
        if isinstance(name, str) and (found := _literal_texts(texts, names, 0)) is not None:
            add_extra(collection, name, found, f"setup.py: extra {canonicalize_name(name)}")
        else:
            collection.refuse("computed", RefusalReason.SYNTAX, "setup.py: extras_require")
    return None


def read_noxfile(collection: Collection) -> None:
    """Add the literal arguments of `session.install()` in test sessions of noxfile.py."""
    tree = _parse_python(collection, "noxfile.py")
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        if classify_list(function.name) is not Role.TEST:
            continue
        for call in (
            node for node in ast.walk(function) if isinstance(node, ast.Call) and _name_of_call(node) == "install"
        ):
            for argument in call.args:
                text = argument.value if isinstance(argument, ast.Constant) else None
                if not isinstance(text, str) or text.startswith("-") or add_itself(collection, text, Role.TEST):
                    continue
                collection.add_text(text, Role.TEST, f"noxfile.py: {function.name}")


def _parse_ini(collection: Collection, path: str) -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=False)
    text = collection.load_text(path)
    try:
        if max(map(len, text.split("\n"))) > LINE_CHARS:
            raise ConfigError("a long line")
        parser.read_string(text)
    except ConfigError:
        collection.refuse(path, RefusalReason.SYNTAX, path)
        return ConfigParser(interpolation=None)
    return parser


def _list_lines(text: str) -> list[str]:
    lines = (line.partition(" #")[0].strip() for line in text.split("\n"))
    return [line for line in lines if line and not line.startswith("#")]


def _parse_python(collection: Collection, path: str) -> ast.Module:
    try:
        with warnings.catch_warnings():  # of its escapes and comparisons: they are the repository's own affair
            warnings.simplefilter("ignore")
            return ast.parse(collection.load_text(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the parser's stack is bounded: MemoryError
        collection.refuse(path, RefusalReason.SYNTAX, path)
        return ast.Module(body=[], type_ignores=[])


def _name_of_call(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _find_assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _add_literal(
    collection: Collection, node: ast.expr, names: Mapping[str, ast.expr], role: Role, origin: str
) -> None:
    texts = _literal_texts(node, names, 0)
    if texts is None:
        collection.refuse("computed", RefusalReason.SYNTAX, origin)
    else:
        collection.add(texts, role, origin)


def _literal_texts(node: ast.expr | None, names: Mapping[str, ast.expr], depth: int) -> list[str] | None:
    """The strings of a literal list, of names of such lists, and of sums of them; None for anything else."""
    if depth > LITERAL_DEPTH:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [line for line in node.value.split("\n") if line.strip()]
    if isinstance(node, ast.Name):
        return _literal_texts(names.get(node.id), names, depth + 1)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return _join_texts(node.elts, {}, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _join_texts([node.left, node.right], names, depth)
    return None


def _join_texts(nodes: Sequence[ast.expr], names: Mapping[str, ast.expr], depth: int) -> list[str] | None:
    """The strings of all nodes; None as soon as one has none or they are too many: sums of sums grow fast."""
    texts: list[str] = []
    for node in nodes:
        found = _literal_texts(node, names, depth + 1)
        if found is None or len(texts) + len(found) > MAX_ENTRIES:
            return None
        texts += found
    return texts
