"""The table of extras says what pyproject.toml does, and a missing one is named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest

import sandbox
from sandbox.cli import main
from sandbox.cli.app import cli
from sandbox.extras import EXTRAS, find_extra

ROOT = Path(sandbox.__file__).parents[1]


def test_every_extra_of_the_package_has_its_modules() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    distributions = {extra: {re.split(r"[>=<]", one)[0] for one in names} for extra, names in declared.items()}
    assert {extra: {module.split(".")[0] for module in EXTRAS if EXTRAS[module] == extra} for extra in declared} == {
        extra: {"opentelemetry" if "opentelemetry" in name else name for name in names}
        for extra, names in distributions.items()
    }
    assert all(f"`{extra}`" in (ROOT / "docs" / "install.md").read_text() for extra in declared)


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("temporalio", "temporal"),
        ("opentelemetry.sdk._logs", "otel"),
        ("opentelemetry", None),
        ("docker", None),
        (None, None),
    ],
)
def test_only_modules_of_an_extra_have_one(module: str | None, extra: str | None) -> None:
    assert find_extra(ModuleNotFoundError(name=module)) == extra


@pytest.mark.parametrize(("module", "hint"), [("temporalio", "space-sandbox[temporal]"), ("docker", "again")])
def test_a_command_without_its_module_says_what_to_install(
    module: str, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_context: click.Context) -> None:
        raise ModuleNotFoundError(name=module)

    monkeypatch.setattr(cli, "invoke", fail)
    main(["list"])
    assert hint in capsys.readouterr().err
