"""Read all manifests of a Python project at the root of a tree."""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

from sandbox.dependencies.collection import Collection, ReadFile
from sandbox.dependencies.hatch_settings import FILE as HATCH
from sandbox.dependencies.hatch_settings import read_hatch
from sandbox.dependencies.lock_files import LOCK_FILES, find_lock_file, read_lock_file
from sandbox.dependencies.pipfile import FILE as PIPFILE
from sandbox.dependencies.pipfile import read_pipfile
from sandbox.dependencies.pyproject import FILE, read_pyproject
from sandbox.dependencies.requirement_files import read_requirement_file
from sandbox.dependencies.setup_files import read_pkg_info, read_setup_cfg, read_setup_py
from sandbox.dependencies.test_environments import RECIPES, read_all_extras, read_noxfile, read_tox
from sandbox.dependencies.uv_workspace import add_named_folders, find_packages_of_tree, read_packages_of_tree
from sandbox.models.dependencies import Manifest
from sandbox.models.dependencies import RequirementRole as Role

_REQUIREMENT_FILES = {
    "requirements.txt": Role.RUNTIME,
    "requirements/default.txt": Role.RUNTIME,
    "requirements/base.txt": Role.RUNTIME,
    **{
        f"{folder}{name}.{suffix}": role
        for suffix in ("txt", "in")
        for folder in ("", "requirements/")
        for role, names in {
            Role.TEST: ("requirements-test", "requirements-tests", "requirements-testing", "requirements_test",
                        "requirements_tests", "requirements_testing",
                        "requirements.test", "requirements-ci", "requirements_ci", "ci-requirements",
                        "test-requirements", "test_requirements", "test", "tests", "testing", "ci"),
            Role.DEVELOPMENT: ("requirements-dev", "requirements_dev", "dev-requirements", "dev_requirements",
                               "requirements.dev", "requirements-development", "dev", "develop", "development",
                               "local"),
        }.items()
        for name in names
        if folder or "requirements" in name
    },
    "tests/requirements.txt": Role.TEST,
    "test/requirements.txt": Role.TEST,
}  # fmt: skip
_NAME = re.compile(r"\s*[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NOT_FOR_TESTS = frozenset(
    {"bandit", "basedpyright", "black", "bumpversion", "bump2version", "codespell", "flake8", "furo", "isort"}
    | {"mkdocs", "mkdocs-material", "mypy", "nox", "pre-commit", "pylint", "pyright", "ruff", "sphinx-autobuild"}
    | {"sphinx-rtd-theme", "towncrier", "tox", "tox-uv", "twine", "ty", "zest-releaser"}
)
_LINTERS_OF_PYTEST = frozenset(
    {"pytest-black", "pytest-checkdocs", "pytest-flake8", "pytest-mypy", "pytest-perf", "pytest-pylint", "pytest-ruff"}
)
MANIFESTS = (
    FILE, HATCH, "setup.cfg", "setup.py", "tox.ini", "tox.toml", "noxfile.py", "PKG-INFO", PIPFILE, *RECIPES,
    *LOCK_FILES, *_REQUIREMENT_FILES,
)  # fmt: skip
"""The files that are looked at; those that they include are read too."""


def read_python_manifest(read: ReadFile) -> Manifest:
    """What the project at the root of a tree declares, as data. Runs no code of it and opens no network. Never raises
    for what a repository holds: entries that cannot be used are in `refused`.
    """
    collection = Collection(read)
    lock_file = find_lock_file(collection)
    members = find_packages_of_tree(collection)
    read_pyproject(collection)
    read_hatch(collection)
    read_setup_cfg(collection)
    read_setup_py(collection)
    if not any(found.role is Role.RUNTIME for found in collection.requirements):
        read_pkg_info(collection)
    for path, role in _REQUIREMENT_FILES.items():
        is_source_of_other = path.endswith(".in") and collection.files.get(f"{path[:-3]}.txt") is not None
        if path not in collection.files and not is_source_of_other:
            read_requirement_file(collection, path, role)
    read_tox(collection)
    read_noxfile(collection)
    read_pipfile(collection)
    read_all_extras(collection)
    if lock_file is not None:
        read_lock_file(collection, lock_file)
    read_packages_of_tree(collection, add_named_folders(collection, members))
    if not _wants_tests(collection):
        for add in collection.unnamed:
            add()
    collection.expand_extras()
    return collection.to_manifest()


def _wants_tests(collection: Collection) -> bool:
    """Whether a list that is for tests or development, or an extra that is selected, holds more than linters; anything,
    where another index is named: what a list with any name holds may be meant to come from there.
    """
    for_tests = [found for found in collection.requirements if found.role in {Role.TEST, Role.DEVELOPMENT}]
    if collection.has_other_index:
        return bool(for_tests or collection.wanted_extras)
    listed = any(found.role is Role.TEST or found.name not in _NOT_FOR_TESTS for found in for_tests)
    return listed or any(
        role is not Role.DEVELOPMENT or not _has_linters_only(collection.extras.get(name, ([], ""))[0])
        for name, role in collection.wanted_extras
    )


def _has_linters_only(texts: object) -> bool:
    found = [_NAME.match(text) if isinstance(text, str) else None for text in texts] if isinstance(texts, list) else []
    return all(one is not None and canonicalize_name(one[0].strip()) in _NOT_FOR_TESTS for one in found)


def select_requirements(manifest: Manifest) -> Manifest:
    """The manifest with the requirements that a check needs: of development lists, without the tools that no test
    imports, as far as their names say so. pytest-enabler uses the plugins that are there, so those that are no tests
    are left out: they depend on the newest linter, or on a network.
    """
    enabled = any(r.name == "pytest-enabler" for r in manifest.requirements)
    left_out = {role: _LINTERS_OF_PYTEST if enabled else frozenset[str]() for role in Role}
    left_out[Role.DEVELOPMENT] |= _NOT_FOR_TESTS
    kept = (r for r in manifest.requirements if r.name not in left_out[r.role])
    return manifest.model_copy(update={"requirements": tuple(kept)})
