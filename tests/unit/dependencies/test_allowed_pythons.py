"""Which Python a project is for, read as data."""

from __future__ import annotations

import pytest

from sandbox.dependencies.allowed_pythons import allows_python, read_allowed_pythons


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"pyproject.toml": b'[project]\nrequires-python = ">= 3.12"\n'}, ">= 3.12", id="project"),
        pytest.param({"pyproject.toml": b'[tool.poetry.dependencies]\npython = "^3.12"\n'}, ">=3.12,<4", id="poetry"),
        pytest.param({"setup.cfg": b"[options]\npython_requires = >=3.12\n"}, ">=3.12", id="setup.cfg"),
        pytest.param({"Pipfile": b'[requires]\npython_version = "3.12"\n'}, ">=3.12", id="Pipfile"),
        pytest.param({"Pipfile": b"[requires]\npython_version = 3\n"}, "", id="no text"),
        pytest.param({"setup.py": b"setup(\n    python_requires='>=3.12',\n)\n"}, ">=3.12", id="setup.py"),
        pytest.param({"setup.py": b"# python_requires='>=3.12'\nsetup(python_requires=WANTED)\n"}, "", id="computed"),
        pytest.param(
            {"pyproject.toml": b"[build-system]\n# python", "setup.cfg": b"[options]\npython_requires = >=3.9\n"},
            ">=3.9",
            id="the next file",
        ),
        pytest.param({}, "", id="nothing"),
        pytest.param({"pyproject.toml": b'[project]\nrequires-python = ["3"]\n'}, "", id="a list"),
        pytest.param({"pyproject.toml": b'[project]\nrequires-python = "' + b">3," * 40 + b'"'}, "", id="too long"),
        pytest.param({"pyproject.toml": b'[project]\nrequires-python = "===ask-the-user"\n'}, "", id="words"),
        pytest.param({"pyproject.toml": b'[project]\nrequires-python = ">3; import os"\n'}, "", id="code"),
        pytest.param({"pyproject.toml": b"requires-python = [" * 2000}, "", id="brackets"),
        pytest.param({"setup.cfg": b"python [options\n" + b" " * 9000}, "", id="no ini"),
    ],
)
def test_the_first_manifest_with_plain_data_counts(files: dict[str, bytes], expected: str) -> None:
    assert read_allowed_pythons(files.get) == expected


@pytest.mark.parametrize(
    ("allowed", "version", "expected"),
    [
        ("", "3.11.2", True),
        (">=3.9", "3.11.2", True),
        (">=3.12", "3.11.2", False),
        (">= 3.12", "3.13.5", True),
        (">=3.11.4", "3.11.2", False),
        (">=3.8,<3.12", "3.13.5", False),
        ("~=3.12", "3.13.5", True),
        ("!=3.11.*,>=3.9", "3.11.2", False),
        ("not a version", "3.11.2", True),
    ],
)
def test_a_specifier_decides_and_what_is_none_excludes_nothing(allowed: str, version: str, expected: bool) -> None:
    assert allows_python(allowed, version) is expected
