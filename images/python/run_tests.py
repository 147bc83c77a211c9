"""Run a project's tests as the project itself does: `run_tests.py WORK [ARGUMENT...]`, in the root of the project.

What it says is read as data: `commands`, `changedir` and `set_env` of tox's test environment, `session.run()` of a test
session of nox, or the test programs of Django and others. Nothing of it is given to a shell.
pytest runs the tests of a project that has settings of pytest, or says nothing that is understood. WORK: a folder of
ours, for what tox would keep in its own. ARGUMENT: what the caller wants to be run; it takes the place of tox's
`{posargs}`.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tox_references import Sections

REPORT = "/report/junit.xml"
FILE_BYTES = 1024**2  # of a settings file; a longer one is not read
_FACTORS = re.compile(r"((?:[!A-Za-z0-9_.,-]|\{[A-Za-z0-9_.,-]*\})+):(?!//)(?:\s+(.*)|$)")
_OF_EVERY_TEST = {"py", "py3", f"py3{sys.version_info.minor}", "test", "tests", "testing", "unit", "unittest"}
_UNKNOWN = "{?}"  # no word of tox: what holds it is not understood
_BRANCHES = tuple(
    getattr(ast, name) for name in ("If", "For", "While", "Try", "TryStar", "Match") if hasattr(ast, name)
)
_MAY_TEST = re.compile("test|trial", re.IGNORECASE)
_SUBSTITUTION = re.compile(r"\{([^{}]*)\}")
_RUNNERS = {"django-admin", "green", "nose2", "stestr", "trial", "unit2", "zope-testrunner"}
_BY_PYTEST = re.compile(  # setuptools 72 has no command `test`
    r"-m (?:pytest\b.*|unittest(?: discover| -[vbfc]| --(?:verbose|buffer|failfast|catch))*)"
    r"|(?:-\S+ )*setup\.py (?:.* )?test(?: .*)?"
)
_UNITTEST = [sys.executable, "-m", "unittest"]
_TESTS = re.compile(r"tests?\w*\.py|\w+_tests\.py")  # of unittest; pytest looks for test_*.py and *_test.py
_NOT_TAKEN = re.compile(r"PATH|HOME|TMPDIR|VIRTUAL_ENV|PYTEST_ADDOPTS|(?:COV|COVERAGE|PIP|UV|VIRTUALENV|TOX)_.*")
_NOT_OWN = {"CVS", "_darcs", "build", "dist", "examples", "node_modules", "vendor", "venv"}  # pytest enters few of them
_IMPORTS_TESTING = re.compile(r"^\s*(?:import|from) [\w., ]*\b(?:unittest|pytest)\b", re.MULTILINE)
_ENDS_IMPORT = re.compile(r"^unittest\.main\(", re.MULTILINE)
_MANAGES = "DJANGO_SETTINGS_MODULE"
_SHOWS = {"demo", "demos", "example", "sample", "samples"}  # how a package is used: its tests are elsewhere
_EXITS = {"SystemExit", "exit", "os._exit", "quit", "sys.exit"}
_PYTEST_SETTINGS = {"pytest.ini": "[pytest]", "tox.ini": "[pytest]", "setup.cfg": "[tool:pytest]"}


class NotUnderstoodError(Exception):
    """A command uses something of tox that is not known here."""


@dataclass(frozen=True)
class Plan:
    """`commands`: run one after another in `folder`, until one fails; empty: pytest with `options`, of `files` if there
    are some. `origin`: where they stand.
    """

    origin: str = "pytest"
    commands: Sequence[Sequence[str]] = ()
    folder: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[str] = ()
    options: Sequence[str] = ()


@dataclass(frozen=True)
class Tox:
    """The settings of its test environment, lines of `set_env` as NAME=VALUE."""

    origin: str
    commands: Sequence[str] = ()
    folder: str = ""
    set_env: Sequence[str] = ()


def choose(work: str, arguments: Sequence[str]) -> Plan:
    """How the tests of the project in the current directory are run."""
    tox = read_tox()
    environment = expand_environment(tox, work)
    if has_pytest_settings():
        return Plan(environment=environment)
    for source in (tox, read_nox()):
        try:
            found = [argv for line in source.commands if (argv := parse_command(line, work, arguments))]
            folder = expand(source.folder or ".", work, ())
        except NotUnderstoodError:
            return Plan(environment=environment)
        if ["pytest"] in found:
            return name_files(list_unnamed(), environment)
        if arguments and found and all(argv[:3] == _UNITTEST for argv in found):
            return Plan(environment=environment)  # what is asked for is named as pytest does
        if found:
            return Plan(source.origin, found, folder, environment)
    return find_django(arguments, environment) or find_others(arguments, environment) or Plan(environment=environment)


def has_pytest_settings() -> bool:
    """Whether a settings file or a conftest.py of pytest is where pytest looks."""
    if "pytest" in load_toml().get("tool", {}) or Path("conftest.py").is_file():
        return True
    return any(text in load(name).splitlines() for name, text in _PYTEST_SETTINGS.items())


def read_tox() -> Tox:
    """`[testenv]` of tox.ini, setup.cfg or pyproject.toml, or tox's own tables there and in tox.toml."""
    table = load_toml().get("tool", {}).get("tox", {})
    for origin, text in (
        ("tox.ini", load("tox.ini")),
        ("pyproject.toml", str(table.get("legacy_tox_ini", ""))),
        ("setup.cfg", load("setup.cfg")),
    ):
        parser = ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(text)
        except ConfigError:
            continue
        if parser.has_section("testenv"):
            section = parser["testenv"]
            folder, set_env, commands = (
                tuple(Sections(parser).list_lines(section.get(old, section.get(new, "")), select))
                for old, new in (("changedir", "change_dir"), ("setenv", "set_env"), ("commands", "commands"))
            )
            return Tox(origin, commands, next(iter(folder), ""), set_env)
    found, origin = (own, "tox.toml") if (own := load_toml("tox.toml")) else (table, "pyproject.toml")
    return read_tox_table(found.get("env_run_base", {}), origin)


def read_tox_table(table: Any, origin: str) -> Tox:
    """`env_run_base`: its commands are lists of words, and of tables that say what to put there."""
    if not isinstance(table, dict) or not table:
        return Tox("")
    commands = []
    for argv in table.get("commands", []):
        words = []
        for word in argv:
            default = [str(found) for found in word.get("default", [])] if isinstance(word, dict) else []
            of_caller = isinstance(word, dict) and word.get("replace") == "posargs"
            words.append(f"{{posargs:{shlex.join(default)}}}" if of_caller else shlex.quote(str(word)))
        commands.append(" ".join(words))
    set_env = [f"{name}={value}" for name, value in table.get("set_env", {}).items() if isinstance(value, str)]
    return Tox(origin, commands, str(table.get("change_dir", "")), set_env)


def select(text: str) -> Iterator[str]:
    """Lines that hold for a test environment of this Python: those without factors, and those whose factors say so."""
    for line in text.replace("\\\n", " ").splitlines():
        found = _FACTORS.fullmatch(line.strip())
        if found is None or any(holds(factors) for factors in alternatives(found[1])):
            yield (found[2] or "") if found else line.strip()


def alternatives(factors: str) -> list[str]:
    """`py{3,311}-x,y` without its braces: py3-x, py311-x, y."""
    open_brace = re.search(r"\{([^{}]*)\}", factors)
    if open_brace is None:
        return factors.split(",")
    before, after = factors[: open_brace.start()], factors[open_brace.end() :]
    return [found for inner in open_brace[1].split(",") for found in alternatives(f"{before}{inner}{after}")]


def holds(factors: str) -> bool:
    """Whether all factors, joined by `-`, are of a test environment."""
    return all((factor in _OF_EVERY_TEST) != factor.startswith("!") for factor in factors.split("-"))


def read_nox() -> Tox:
    """What `session.run()` runs in the sessions for tests, if its arguments are literals, and in which folder."""
    try:
        tree = ast.parse(load("noxfile.py"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Tox("noxfile.py")
    commands, folders = [], set[str]()
    for function in (found for found in tree.body if isinstance(found, ast.FunctionDef)):
        for call, folder in list_calls(function) if re.fullmatch(r"(unit_?)?tests?|testing", function.name) else ():
            if isinstance(call.func, ast.Attribute) and call.func.attr == "run":
                words = [
                    "{posargs}" if "posargs" in ast.dump(word) else str(getattr(word, "value", _UNKNOWN))
                    for word in call.args
                ]
                commands.append(" ".join(word if word == "{posargs}" else shlex.quote(word) for word in words))
                folders |= {folder} if _MAY_TEST.search(commands[-1]) else set()
    return Tox("noxfile.py", commands, min(folders, default="") if len(folders) < 2 else _UNKNOWN)


def list_calls(function: ast.FunctionDef) -> Iterator[tuple[ast.Call, str]]:
    """The calls in the order of the text, each with the folder that `session.chdir()` has led to. After one that may be
    done or not, it is not known. sandbox/dependencies/test_environments.py does the same.
    """
    session = function.args.args[0].arg if function.args.args else ""

    def is_change(node: ast.AST) -> bool:
        found = node.func if isinstance(node, ast.Call) else None
        return (
            isinstance(found, ast.Attribute)
            and found.attr in {"chdir", "cd"}
            and isinstance(found.value, ast.Name)
            and found.value.id == session
        )

    folder = ""
    pending: list[ast.AST | str] = [function]
    while pending:
        node = pending.pop()
        if isinstance(node, str):  # the end of `with session.chdir():`
            folder = node
            continue
        if folder != _UNKNOWN and isinstance(node, _BRANCHES) and any(map(is_change, ast.walk(node))):
            folder = _UNKNOWN
        if isinstance(node, ast.With) and any(is_change(item.context_expr) for item in node.items):
            pending.append(folder)
        if isinstance(node, ast.Call):
            yield node, folder
            folder = enter(folder, node) if is_change(node) else folder
        pending += reversed(list(ast.iter_child_nodes(node)))


def enter(folder: str, call: ast.Call) -> str:
    """The folder that a call leads to, if it is one of the tree and there."""
    target = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    found = str(Path(folder, target)) if folder != _UNKNOWN and isinstance(target, str) else _UNKNOWN
    return found if Path(found).is_dir() else _UNKNOWN


def parse_command(line: str, work: str, arguments: Sequence[str]) -> list[str]:
    """Its words if it runs tests; ["pytest"] if pytest finds the same ones, and reports more; [] if it runs none.

    Raises: `NotUnderstoodError` for a command that runs tests in a way that is not known here.
    """
    if not line or line.startswith(("-", "!")):
        return []
    try:
        first, *rest = without_coverage(shlex.split(expand(line, work, arguments)))
    except ValueError:
        raise NotUnderstoodError from None
    name = Path(first).name
    if name in {"pytest", "py.test"} or _BY_PYTEST.fullmatch(" ".join(rest)):
        return ["pytest"]
    if not any("test" in word.lower() for word in (name, *rest)) and name != "trial":
        return []
    program = sys.executable if re.fullmatch(r"python[0-9.]*", name) else name if name in _RUNNERS else ""
    if program:
        return [] if "pip" in rest[:2] else [program, *rest]
    if name in {"make", "sh", "bash", "tox", "nox"}:
        raise NotUnderstoodError
    return []


def with_report(argv: Sequence[str], number: int) -> list[str]:
    """A command of unittest, by a program that also writes what each test did; any other as it is."""
    if list(argv[:3]) != _UNITTEST:
        return list(argv)
    program = Path(__file__).with_name("unittest_report.py")
    return [sys.executable, str(program), f"{Path(REPORT).parent}/unittest-{number}.xml", *argv[3:]]


def without_coverage(words: list[str]) -> list[str]:
    """`coverage run --branch -m unittest` as `python -m unittest`: nothing reads what coverage would write."""
    if words[:1] == ["coverage"] or words[1:3] == ["-m", "coverage"]:
        rest = words[words.index("coverage") + 1 :]
        start = next((i for i, word in enumerate(rest) if word == "-m" or word.endswith(".py")), len(rest))
        return ["python", *rest[start:]] if rest[:1] == ["run"] else [":"]
    return words or [":"]


def expand(text: str, work: str, arguments: Sequence[str]) -> str:
    """Replace what tox writes in braces. Raises: `NotUnderstoodError`."""
    root = str(Path.cwd())
    known = {
        "toxinidir": root, "tox_root": root, "toxworkdir": work, "tox_work_dir": work, "work_dir": work,
        "envtmpdir": work, "env_tmp_dir": work, "envdir": sys.prefix, "env_dir": sys.prefix, "/": "/", "": "",
        "envpython": sys.executable, "env_python": sys.executable, "envbindir": f"{sys.prefix}/bin", "envname": "py3",
    }  # fmt: skip

    def replace(match: re.Match[str]) -> str:
        name, _, default = match[1].partition(":")
        if name == "posargs":
            return shlex.join(arguments) if arguments else default
        if name == "env":
            variable, _, default = default.partition(":")
            return os.environ.get(variable, default)
        if match[1] not in known:
            raise NotUnderstoodError
        return known[match[1]]

    for _ in range(3):  # a default may have braces of its own
        text = _SUBSTITUTION.sub(replace, text)
    return text


def expand_environment(tox: Tox, work: str) -> dict[str, str]:
    """The variables of `set_env`, without those that steer tools of no use here."""
    found = {}
    for line in tox.set_env:
        name, equals, value = (part.strip() for part in line.partition("="))
        if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and not _NOT_TAKEN.fullmatch(name):
            try:
                found[name] = expand(value, work, ())
            except NotUnderstoodError:
                continue
    return found


def find_django(arguments: Sequence[str], environment: Mapping[str, str]) -> Plan | None:
    """Django's own runner, for a project with one `manage.py`, at the root, or one folder below that has all tests, and
    for a package with a `runtests.py`.
    """
    below = [path for path in Path().glob("*/manage.py") if path.parent.name not in _NOT_OWN | _SHOWS]
    tested = [path for path in below if any(path.parent.glob("**/test*.py")) and has_all_tests(path.parent)]
    found = [path for path in (Path("manage.py"), *tested) if _MANAGES in load(str(path))]
    if len(found) == 1 or Path("manage.py") in found:
        command = [sys.executable, "manage.py", "test", *arguments]
        return Plan(str(found[0]), [command], str(found[0].parent), environment)
    for name in ("runtests.py", "tests/runtests.py"):
        if re.search(r"^\s*(?:import|from) django\b", load(name), re.MULTILINE):
            path = Path(name)
            return Plan(name, [[sys.executable, path.name, *arguments]], str(path.parent), environment)
    return None


def find_others(arguments: Sequence[str], environment: Mapping[str, str]) -> Plan | None:
    """Where no file has a name that pytest looks for: a program `runtests.py` at the root, a package `tests` that runs
    itself, or `name_files`. The status of a program is the verdict, so one that would end with 0 whatever fails is not
    run.
    """
    folders = list_unnamed()
    if not folders:
        return None
    for name in ("runtests.py", "run_tests.py"):
        if has_tests(Path(name)) and sets_status(load(name)):
            return Plan(name, [[sys.executable, name, *arguments]], ".", environment)
    run_themselves = (
        path
        for path, names in folders.items()
        if {"__init__.py", "__main__.py"} <= set(names) and path.name in {"test", "tests"}
    )
    for path in sorted(run_themselves, key=lambda path: (len(path.parts), path)):
        module = name_module(path)
        if module and has_tests(path / "__main__.py") and sets_status(load(f"{path}/__main__.py")):
            return Plan(f"{path}/__main__.py", [[sys.executable, "-m", module, *arguments]], ".", environment)
    return name_files(folders, environment)


def name_files(folders: Mapping[Path, Sequence[str]], environment: Mapping[str, str]) -> Plan:
    """Files such as `tests.py` and `testlex.py`, which pytest takes if they are named."""
    files = sorted(path / name for path, names in folders.items() for name in names if _TESTS.fullmatch(name))
    named = []
    for path in filter(has_tests, files):
        if _ENDS_IMPORT.search(load(str(path))):
            sys.stderr.write(f"sandbox-python-check: {path} is left out: it ends whoever imports it\n")
        else:
            named.append(str(path))
    if not named:
        return Plan(environment=environment)
    return Plan(environment=environment, files=named, options=["--import-mode=importlib"])  # many have the same name


def list_unnamed() -> dict[Path, list[str]]:
    """The folders of the project and their files; {} if some have a name that pytest looks for."""
    folders = dict(walk_own())
    return {} if any(map(has_pytest_name, folders.values())) else folders


def walk_own() -> Iterator[tuple[Path, list[str]]]:
    """The folders of the project, without those that pytest enters seldom, and the names of their files."""
    for folder, folders, names in os.walk("."):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in _NOT_OWN and not name.startswith("."))
        yield Path(folder), names


def has_pytest_name(names: Sequence[str]) -> bool:
    """Whether pytest looks for one of these files."""
    return any(name.endswith("_test.py") or (name.startswith("test_") and name.endswith(".py")) for name in names)


def has_all_tests(folder: Path) -> bool:
    """Whether no file outside of a folder has a name that pytest looks for."""
    return not any(has_pytest_name(names) for path, names in walk_own() if folder not in (path, *path.parents))


def name_module(path: Path) -> str:
    """The name by which Python finds a package of the project; "" if it has none, or Python would find its own."""
    is_below = path.parts[0] in {"src", "lib"}
    names = path.parts[1:] if is_below else path.parts
    is_taken = is_below and names[0] in {"test", *sys.stdlib_module_names}
    return "" if is_taken or not all(map(str.isidentifier, names)) else ".".join(names)


def sets_status(text: str) -> bool:
    """Whether a test program says by its exit status that a test failed: by `unittest.main()`, or by an exit with what
    it computed, or with a constant where it looks at what failed.
    """
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    imports = [each for each in nodes if isinstance(each, ast.ImportFrom) and each.module == "unittest"]
    mains = {"unittest.main", *("main" for each in imports if any(name.name == "main" for name in each.names))}
    looks = any(isinstance(n, ast.Attribute) and n.attr in {"wasSuccessful", "failures", "errors"} for n in nodes)
    for call in (each for each in nodes if isinstance(each, ast.Call)):
        name = ast.unparse(call.func)
        if name in mains and all(word.arg != "exit" for word in call.keywords):
            return True
        if name in _EXITS and call.args:
            constant = call.args[0]
            if not isinstance(constant, ast.Constant) or (constant.value and looks):
                return True
    return False


def has_tests(path: Path) -> bool:
    """Whether a file uses unittest or pytest."""
    return _IMPORTS_TESTING.search(load(str(path))) is not None


def load(name: str) -> str:
    """The text of a file; "" if there is none that can be read."""
    path = Path(name)
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size <= FILE_BYTES else ""
    except (OSError, UnicodeDecodeError):
        return ""


def load_toml(name: str = "pyproject.toml") -> dict[str, Any]:
    """The tables of a file."""
    try:
        return tomllib.loads(load(name))
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def main(work: str, arguments: list[str]) -> int:
    """The exit status of the first command that fails; 0 if none does."""
    plan = choose(work, arguments)
    os.environ.update(plan.environment)
    if not plan.commands:
        settings = ["-q", "-o", f"cache_dir={work}/pytest-cache", f"--junitxml={REPORT}"]
        words = [*settings, *plan.options, *(arguments or plan.files)]
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *words])  # noqa: S606 -- no shell is wanted
    for number, argv in enumerate(plan.commands):
        sys.stderr.write(f"sandbox-python-check: as {plan.origin} says: {shlex.join(argv)}\n")
        words = with_report(argv, number)
        status = subprocess.run(words, cwd=plan.folder, check=False).returncode  # noqa: S603 -- the project's own tests
        if status:
            return status if status > 0 else 128 - status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
