"""How a project runs its tests is read as data, in the guest."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

PY = sys.executable
MAIN = "import unittest\nunittest.main()\n"
RUN = "r = unittest.TextTestRunner().run(suite)\n"
NO_STATUS = (
    RUN,
    f"# sys.exit(1)\n{RUN}",
    f"{RUN}sys.exit()\n",
    f"{RUN}sys.exit(0)\n",
    f"if not sys.argv[1:]: sys.exit('usage')\n{RUN}",
    "unittest.main(argv=list(x), exit=False)\n",
    "from pytest import main\nmain()\n",
    "def main(:\n",
)
STATUS = (
    f"{RUN}sys.exit(not r.wasSuccessful())\n",
    f"{RUN}if r.failures: exit(1)\n",
    "raise SystemExit(main())\n",
)
MANAGE = "os.environ['DJANGO_SETTINGS_MODULE'] = 'x'\n"
TOX = "[testenv]\ncommands =\n    {commands}\n"


@pytest.fixture(name="program")
def load_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The program, as a check starts it, in an empty folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "images" / "python"))
    monkeypatch.chdir(tmp_path)
    yield import_module("run_tests")
    sys.modules.pop("run_tests")


def write(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"tox.ini": TOX.format(commands="pytest {posargs:-n auto}")},
        {"tox.ini": TOX.format(commands="coverage run -p -m pytest tests\n    coverage report")},
        {"tox.ini": TOX.format(commands="python -m unittest discover -v")},
        {"tox.ini": TOX.format(commands="python -m unittest discover -s tests/unit\n    pytest integration")},
        {"tox.ini": TOX.format(commands="python -m x.test"), "conftest.py": ""},
        {"tox.ini": TOX.format(commands="python -m x.test") + "[pytest]\n"},
        {"pyproject.toml": "[tool.pytest.ini_options]\n", "tox.ini": TOX.format(commands="python -m x.test")},
        {"tox.ini": TOX.format(commands="sh -c 'run the tests'")},
        {"tox.ini": TOX.format(commands="make test")},
        {"tox.ini": TOX.format(commands="python -m x.test {[other]words}")},
        {"tox.ini": TOX.format(commands="{[testenv]commands}\n    python -m x.test {[a]b}") + "[a]\nb = {[a]b}\n"},
        {"tox.ini": TOX.format(commands="mypy tests\n    python -m pip install tests")},
        {"tox.ini": "[testenv\ncommands = python -m x.test\n"},
        {"noxfile.py": "def tests(session):\n    session.run('pytest', *session.posargs)\n"},
        {"noxfile.py": "def lint(session):\n    session.run('python', 'tests/lint.py')\n"},
        {"noxfile.py": "def tests(session):\n    session.run('python', 'tests/run.py', find())\n"},
        {"noxfile.py": "def tests(:\n"},
        {"noxfile.py": "def tests(session):\n    session.chdir(find())\n    session.run('python', 'test.py')\n"},
        {
            "noxfile.py": "def tests(session):\n    session.run('python', 'test.py')\n    session.chdir('x')\n"
            "    session.run('python', 'test.py')\n"
        },
        {"noxfile.py": "def tests(session):\n    session.chdir('none')\n    session.run('python', 'test.py')\n"},
        {
            "noxfile.py": "def tests(session):\n    if x: session.chdir('a')\n    else: session.chdir('b')\n"
            "    session.run('python', 'test.py')\n",
            "a/b/test.py": "",
        },
        {"tox.ini": TOX.format(commands="python setup.py test")},
        {"tox.ini": TOX.format(commands="python -bb setup.py -q build_ext -i test -v --addopts='-x y' {posargs:a}")},
        {"x/tests/__init__.py": "", "x/tests/__main__.py": MAIN, "my-y/test_one.py": ""},
        {"x/tests/__init__.py": "", "x/tests/__main__.py": "import y\ny.main()\n"},
        {f".venv/tests/{name}": MAIN for name in ("__init__.py", "__main__.py")},
        {f"env/tests/{name}": MAIN for name in ("__init__.py", "__main__.py")} | {"env/pyvenv.cfg": ""},
        {"test/__main__.py": MAIN},
        {f"src/test/{name}": MAIN for name in ("__init__.py", "__main__.py")},
        {f"my-x/test/{name}": MAIN for name in ("__init__.py", "__main__.py")},
        {"runtests.py": MAIN, "tests/test_one.py": ""},
        *({"runtests.py": f"import pytest, unittest\n{text}"} for text in NO_STATUS),
        *({"x/tests/__init__.py": "", "x/tests/__main__.py": f"import unittest\n{text}"} for text in NO_STATUS),
        {"runtests.py": "import os\n"},
        {"one/manage.py": MANAGE, "one/tests.py": "", "two/manage.py": MANAGE, "two/tests.py": ""},
        {"example/manage.py": MANAGE, "example/tests.py": ""},
        {"web/manage.py": MANAGE},
        {"web/manage.py": MANAGE, "web/app/tests.py": "", "tests/test_a.py": ""},
        {"pyproject.toml": "not toml"},
    ],
)
def test_pytest_runs_what_it_can_run_and_what_is_not_understood(files: Mapping[str, str], program: ModuleType) -> None:
    write(files)
    plan = program.choose("/work", [])
    assert (plan.origin, plan.commands) == ("pytest", ())


@pytest.mark.parametrize(
    ("files", "commands", "folder"),
    [
        ({"tox.ini": TOX.format(commands="python -bb -m x.test {posargs}")}, [[PY, "-bb", "-m", "x.test"]], "."),
        (
            {"tox.ini": "[testenv]\nchangedir = tests\ncommands =\n  {envpython} runtests.py \\\n  {posargs:--fast}\n"},
            [[PY, "runtests.py", "--fast"]],
            "tests",
        ),
        (
            {
                "tox.ini": TOX.format(
                    commands="full: python -m x.test --all\n    py{27,3}: python -m x.test\n    flake8"
                )
            },
            [[PY, "-m", "x.test"]],
            ".",
        ),
        (
            {
                "tox.ini": TOX.format(commands="{[testenv:full]commands}\n    docs: {[testenv:docs]commands}")
                + "[testenv:full]\ncommands =\n  flake8\n  python -m x.test {[core]words}\n[core]\nwords = --all\n"
                "[testenv:docs]\ncommands =\n  python docs/test.py\n  python docs/test_links.py\n"
            },
            [[PY, "-m", "x.test", "--all"]],
            ".",
        ),
        ({"setup.cfg": TOX.format(commands="coverage run --source x -m x.test")}, [[PY, "-m", "x.test"]], "."),
        ({"setup.cfg": TOX.format(commands="trial {posargs:x}")}, [["trial", "x"]], "."),
        (
            {"pyproject.toml": '[tool.tox]\nlegacy_tox_ini = """\n[testenv]\ncommands=python test.py {toxinidir}"""'},
            [[PY, "test.py", "<root>"]],
            ".",
        ),
        (
            {
                "pyproject.toml": '[tool.tox.env_run_base]\nchange_dir = "{work_dir}"\n'
                'commands = [["python", "-m", "x test", {replace = "posargs", default = ["a b"], extend = true}]]\n'
            },
            [[PY, "-m", "x test", "a b"]],
            "/work",
        ),
        ({"tox.toml": '[env_run_base]\ncommands = [["python", "-m", "x.test"]]\n'}, [[PY, "-m", "x.test"]], "."),
        (
            {"noxfile.py": "def test(session):\n    session.install('x')\n    session.run('python', '-m', 'x.test')\n"},
            [[PY, "-m", "x.test"]],
            ".",
        ),
        (
            {
                "noxfile.py": "def tests(session):\n    session.run('make', 'words')\n"
                "    with session.chdir('web/app'):\n"
                "        session.run('python', 'runtests.py', *session.posargs)\n    session.chdir('docs')\n",
                "web/app/runtests.py": "",
            },
            [[PY, "runtests.py"]],
            "web/app",
        ),
        ({"manage.py": MANAGE}, [[PY, "manage.py", "test"]], "."),
        (
            {"web/manage.py": MANAGE, "web/app/tests.py": ""},
            [[PY, "manage.py", "test"]],
            "web",
        ),
        ({"tests/runtests.py": "import django\n"}, [[PY, "runtests.py"]], "tests"),
        (
            {"x/tests/__init__.py": "", "x/tests/__main__.py": MAIN, "x/tests/smoke.py": ""},
            [[PY, "-m", "x.tests"]],
            ".",
        ),
        (
            {"src/x/test/__init__.py": "", "src/x/test/__main__.py": "from unittest import main\nmain()\n"},
            [[PY, "-m", "x.test"]],
            ".",
        ),
        ({"runtests.py": MAIN, "tests/one.py": "", "vendor/test_one.py": ""}, [[PY, "runtests.py"]], "."),
        *(({"run_tests.py": f"import unittest\n{text}"}, [[PY, "run_tests.py"]], ".") for text in STATUS),
    ],
)
def test_the_projects_own_way_is_taken(
    files: Mapping[str, str], commands: list[list[str]], folder: str, program: ModuleType
) -> None:
    write(files)
    plan = program.choose("/work", [])
    root = str(Path.cwd())
    assert [[word.replace(root, "<root>") for word in argv] for argv in plan.commands] == commands
    assert plan.folder == folder


def test_files_that_pytest_does_not_look_for_are_named_if_there_are_no_others(program: ModuleType) -> None:
    write({"tests.py": "import unittest\n", "x/test.py": "import pytest\n", "x/tests.py": ""})
    write({f"{folder}/tests.py": "import unittest\n" for folder in ("node_modules/y", "venv", "build", "examples")})
    write({"x/testlex.py": "import unittest\n", "x/latest.py": "import unittest\n", "x/testing.py": ""})
    write({"x/testmain.py": f"{MAIN}"})  # it would end pytest while it is imported
    files, mode = ["tests.py", "x/test.py", "x/testlex.py"], ["--import-mode=importlib"]
    assert program.choose("/work", []) == program.Plan(files=files, options=mode)
    write({"x/test_one.py": ""})
    assert program.choose("/work", []) == program.Plan()


@pytest.mark.parametrize("words", ["discover -v -s {toxinidir}/tests", "discover tests", "-v x.tests", "discover -p a"])
def test_unittest_runs_where_it_is_told_and_pytest_where_tests_are_asked_for(words: str, program: ModuleType) -> None:
    write({"tox.ini": TOX.format(commands=f"python -m unittest {words}\n    python -m unittest discover -s more")})
    plan = program.choose("/work", [])
    given = shlex.split(words.replace("{toxinidir}", str(Path.cwd())))
    assert plan.commands == [[PY, "-m", "unittest", *given], [PY, "-m", "unittest", "discover", "-s", "more"]]
    assert program.choose("/work", ["tests/test_a.py"]) == program.Plan()


def test_files_with_names_of_unittest_are_named_to_pytest_where_unittest_would_find_them(program: ModuleType) -> None:
    write({"tox.ini": TOX.format(commands="python -m unittest"), "tests/testfoo.py": "import unittest\n"})
    assert program.choose("/work", []).files == ["tests/testfoo.py"]
    write({"x/testing.py": "def test_client(app): pass\n", "tests/test_a.py": "import unittest\n"})
    assert program.choose("/work", []) == program.Plan(), "testing.py is no test"


def test_a_file_that_ends_its_import_is_named_when_it_is_left_out(
    program: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    write({"tests.py": MAIN, "x/tests.py": "import unittest\n"})
    assert program.choose("/work", []).files == ["x/tests.py"]
    assert "tests.py is left out" in capsys.readouterr().err


def test_named_files_may_have_the_same_name(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda _, argv: calls.append(argv[3:]))
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("another program ran"))
    mode = "--import-mode=importlib"
    for files, last in (({}, []), ({"x/tests.py": "import unittest\n"}, [mode, "x/tests.py"])):
        write(files)
        with suppress(TypeError):  # the program does not end there
            program.main("/work", [])
        assert calls[-1][4:] == last


def test_arguments_take_the_place_of_those_of_tox(program: ModuleType) -> None:
    write({"tox.ini": TOX.format(commands="python -m x.test {posargs:--all}")})
    assert program.choose("/work", ["a; b"]).commands == [[PY, "-m", "x.test", "a; b"]]


def test_variables_are_set_but_not_those_that_steer_the_environment(program: ModuleType) -> None:
    lines = (
        "A = {toxinidir}/a\n  py3: B=1\n  docs: C=1\n  PYTEST_ADDOPTS=-n auto\n  PATH=/x\n  COVERAGE_FILE=x\n  D={[a]b}"
    )
    write({"tox.ini": f"[testenv]\nsetenv =\n  {lines}\ncommands = pytest\n"})
    assert program.choose("/work", []).environment == {"A": f"{Path.cwd()}/a", "B": "1"}


def test_commands_run_in_order_until_one_fails(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", dict(program.os.environ))
    write({f"test_{status}.py": f"raise SystemExit({status})\n" for status in (0, 3, 4)})
    write({"tox.ini": TOX.format(commands="\n    ".join(f"python test_{status}.py" for status in (0, 3, 4)))})
    assert program.main("/work", []) == 3


def test_unittest_writes_a_report_for_each_of_its_commands(program: ModuleType) -> None:
    words = program.with_report([PY, "-m", "unittest", "-v", "x"], 1)
    assert (words[0], Path(words[1]).name, words[2:]) == (
        PY,
        "unittest_report.py",
        ["/report/unittest-1.xml", "-v", "x"],
    )
    assert program.with_report([PY, "-m", "x"], 0) == [PY, "-m", "x"]
