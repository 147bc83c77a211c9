"""What `doctor` says of the operator's own files, and of the home's state: the engine is not to blame for them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Probe
from sandbox.workbench.controller import doctor
from sandbox.workbench.controller.configured_files import probe_configured_files
from sandbox.workbench.controller.services import Services, build_services
from tests.unit.receipt_samples import Signer


def open_home(home: Path, **flags: Any) -> Services:
    return build_services(home, {"PATH": os.environ["PATH"]}, flags, allow_file=True)


def test_files_and_settings_without_effect_are_named_with_what_was_meant(tmp_path: Path) -> None:
    """Control: those with the right names are not."""
    for name in ("policies/contaner.toml", "policies/paths.toml", "profiles/python.tml", "profiles/own.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    services = open_home(tmp_path, profiles={"pythn": {"image": "x:1"}, "python": {"image": "x:1"}})
    (tmp_path / "profiles/README.md").write_text("notes")
    probes = probe_configured_files(services)
    found = [(probe.level.value, probe.value.partition(":")[0], probe.hint) for probe in probes]
    assert found == [
        ("warn", f"{tmp_path}/policies/contaner.toml", "Did you mean container.toml?"),
        ("warn", f"{tmp_path}/profiles/python.tml", "Rename it to python.toml, or move it away."),
        ("warn", "profiles.pythn", "Did you mean python?"),
    ]


def test_keys_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    private, public = tmp_path / "key.pem", tmp_path / "key.pub"
    signer = Signer()
    private.write_bytes(signer.pem)
    private.chmod(0o600)
    public.write_bytes(signer.public_pem)

    def ask(signing: Path, *trusted: Path) -> tuple[Probe, ...]:
        keys = {"signing_key": str(signing), "trusted_keys": [str(path) for path in trusted]}
        return probe_configured_files(open_home(tmp_path / "home", receipts=keys))

    assert ask(private, public) == (), "the control"
    found = ask(tmp_path / "gone.pem", public, tmp_path / "gone.pub")
    assert [(probe.name, probe.level.value) for probe in found] == [("signing key", "fail"), ("trusted key", "fail")]
    assert ["gone.pem" in found[0].value, "gone.pub" in found[1].value] == [True, True]


@pytest.mark.parametrize(
    ("code", "blamed"), [(ErrorCode.INTERNAL, False), (ErrorCode.INVALID_INPUT, False), (ErrorCode.TIMEOUT, True)]
)
def test_damaged_state_is_no_fault_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, *, blamed: bool
) -> None:
    error = SandboxError(code, "The state file registry.json cannot be used", hint="Restore it")

    def fail(_: Services) -> None:
        raise error

    monkeypatch.setattr(doctor, "_list_recipe_images", fail)
    engine, _, state = doctor._connect_and_list_images(cast("Services", SimpleNamespace(engine="the engine")))
    assert (engine is error) is blamed
    assert [(probe.name, probe.hint) for probe in state] == ([] if blamed else [("home state", "Restore it")])
