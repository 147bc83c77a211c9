"""Print how the names and the prose of a Python package read: counts that a budget holds down.

`python -m devtools.words [PACKAGE ...]` prints a table, one column a package; with `--check` it fails when a count of
`sandbox` is above its budget in `devtools/words.toml`. Run it on other projects' packages to compare.

How it counts. *Participles*: functions whose name begins with a word in -ed or with an irregular participle, of all
functions; properties, `Once` values and context managers aside. *Shared classes*: classes that have the name of another
class of the package, leading underscore aside, of all classes. *Shared files*: modules that have the file name of
another module, `__init__` and the `concepts` of words.toml aside. *Riddles*: words such as "nobody" and "whoever", for
1,000 lines of the source.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUDGET = ROOT / "devtools" / "words.toml"

# fmt: off
_IRREGULAR = frozenset({
    "begun", "bound", "broken", "brought", "built", "chosen", "done", "drawn", "fallen", "found", "given",
    "gone", "got", "heard", "held", "hidden", "kept", "known", "laid", "led", "left", "lost", "made", "meant",
    "met", "paid", "said", "seen", "sent", "shown", "shut", "spent", "spoken", "taken", "thought", "told",
    "understood", "written",
})
# fmt: on
_NOT_PARTICIPLES = frozenset({"need", "needed", "feed", "speed", "seed", "embed", "exceed", "proceed", "shed", "red"})
_DECORATED_AS_VALUES = frozenset(
    {"property", "cached_property", "Once", "contextmanager", "asynccontextmanager", "setter", "fixture"}
)
_RIDDLES = re.compile(r"\b(nobody|whoever|somebody|whose|nothing|told|he|him|his)\b", re.IGNORECASE)


@dataclass
class Names:
    """What one package holds. `functions`, `classes`: (name, place); `lines`: of all its source.

    `concepts`: file names that may be shared, since the files are one concept on several floors.
    """

    concepts: frozenset[str] = frozenset()
    functions: list[tuple[str, str]] = field(default_factory=list)
    classes: list[tuple[str, str]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    riddles: list[tuple[str, str]] = field(default_factory=list)
    raises: list[tuple[str, bool]] = field(default_factory=list)
    lines: int = 0

    def participles(self) -> list[tuple[str, str]]:
        """Functions whose first word is a past participle."""
        return [(name, place) for name, place in self.functions if is_participle(name)]

    def shared_classes(self) -> list[tuple[str, str]]:
        """Classes that are not alone with their name."""
        counts = Counter(name.lstrip("_") for name, _ in self.classes)
        return [(name, place) for name, place in self.classes if counts[name.lstrip("_")] > 1]

    def shared_files(self) -> list[str]:
        """Modules that are not alone with their file name, `concepts` aside."""
        counts = Counter(Path(path).name for path in self.files)
        shared = (p for p in self.files if counts[Path(p).name] > 1 and Path(p).stem not in self.concepts)
        return sorted(shared, key=lambda p: (Path(p).name, p))

    def figures(self) -> dict[str, float]:
        """The counts, by the names that the budget has."""
        return {
            "participles_percent": _percent(len(self.participles()), len(self.functions)),
            "shared_classes_percent": _percent(len(self.shared_classes()), len(self.classes)),
            "shared_files": float(len(self.shared_files())),
            "riddles_per_1000_lines": round(1000 * len(self.riddles) / max(1, self.lines), 1),
            "methods_without_raises": float(sum(not documented for _, documented in self.raises)),
        }


def is_participle(name: str) -> bool:
    """Whether the first word of a function's name is a past participle."""
    first = name.strip("_").split("_")[0].lower()
    if first in _NOT_PARTICIPLES:
        return False
    return first in _IRREGULAR or (first.endswith("ed") and len(first) > 3)


def read_package(root: Path, concepts: Iterable[str] = ()) -> Names:
    """Count one package. Raises: OSError, SyntaxError."""
    names = Names(frozenset(concepts))
    for path in sorted(root.rglob("*.py")):
        place = str(path.relative_to(root.parent))
        source = path.read_text(encoding="utf-8")
        names.lines += source.count("\n")
        if path.name not in {"__init__.py", "__main__.py"}:
            names.files.append(place)
        for number, line in enumerate(source.splitlines(), start=1):
            names.riddles += [(hit[0], f"{place}:{number}") for hit in _RIDDLES.finditer(line)]
        _read_tree(ast.parse(source), place, names)
    return names


def _read_tree(tree: ast.Module, place: str, names: Names) -> None:
    for node in _statements(tree):
        where = f"{place}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ClassDef):
            names.classes.append((node.name, where))
            if node.name == "Workbench":
                names.raises += list(_raises_of(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_value(node):
            names.functions.append((node.name, where))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement below a node. Definitions are statements, and most nodes of a tree are expressions."""
    for blocks in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(node, blocks, ()):
            yield statement
            yield from _statements(statement)


def _is_value(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is read as a value (a property) or entered as a block (a context manager)."""
    return any(_decorator(each) in _DECORATED_AS_VALUES for each in node.decorator_list)


def _decorator(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _decorator(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _raises_of(workbench: ast.ClassDef) -> Iterator[tuple[str, bool]]:
    """Each public method, and whether its docstring says what it raises."""
    for node in workbench.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not _is_value(node):
            yield node.name, "Raises:" in (ast.get_docstring(node) or "")


def _percent(part: int, whole: int) -> float:
    return round(100 * part / max(1, whole), 1)


def above(figures: dict[str, float], budget: dict[str, float]) -> list[str]:
    """A line for each count that is above its budget, and for each that can be lowered to what was reached."""
    return [
        f"{name}: {figures[name]:g}, the budget is {limit:g}" for name, limit in budget.items() if figures[name] > limit
    ]


def table(columns: dict[str, dict[str, float]]) -> str:
    """The figures of several packages side by side, as Markdown."""
    names = [name for name in next(iter(columns.values()))]
    rows = [["", *columns], ["---", *("---" for _ in columns)]]
    rows += [[name.replace("_", " "), *(f"{figures[name]:g}" for figures in columns.values())] for name in names]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def details(names: Names) -> str:
    """Every name and word that was counted, with its place."""
    found: Iterable[tuple[str, str]] = [
        *(("participle " + name, place) for name, place in names.participles()),
        *(("shared class " + name, place) for name, place in sorted(names.shared_classes())),
        *(("shared file", place) for place in names.shared_files()),
        *(("riddle " + word, place) for word, place in names.riddles),
        *(("no Raises", name) for name, documented in names.raises if not documented),
    ]
    return "\n".join(f"{place}: {what}" for what, place in found)


def main(arguments: Sequence[str]) -> int:
    """Print the table (`--list`: each finding too), or compare with the budget (`--check`)."""
    packages = [Path(argument) for argument in arguments if not argument.startswith("--")] or [ROOT / "sandbox"]
    ours = tomllib.loads(BUDGET.read_text())
    concepts = {"sandbox": ours["concepts"]}
    counted = {package.name: read_package(package, concepts.get(package.name, ())) for package in packages}
    if "--check" in arguments:
        over = above(counted["sandbox"].figures(), ours["budget"])
        sys.stdout.write("".join(f"words: {line}; see `python -m devtools.words --list`\n" for line in over))
        return 1 if over else 0
    sys.stdout.write(table({name: names.figures() for name, names in counted.items()}) + "\n")
    if "--list" in arguments:
        sys.stdout.write("\n".join(details(names) for names in counted.values()) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
