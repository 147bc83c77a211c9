"""A cached verdict is bound to what every guest gets, its environment included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.models import Check, ServiceRule, ServiceSetup
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.verdict_keys import build_bindings
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.repositories.repository_settings import AddedFiles

CHECK = Check(id="test", label="test", argv=("make", "test"))


def key_in(home: Path, policy: str) -> str:
    (home / "policies").mkdir(parents=True)
    (home / "policies" / "container.toml").write_text(policy)
    return build_bindings(Policies(home), GuestSetup("sha256:" + "1" * 64, "runc"), "2" * 40, [CHECK])["test"].key


@pytest.mark.parametrize("policy", ['[env]\nGOPROXY = "direct"\n', '[env]\nTZ = "UTC"\n', "shm_bytes = 1\n"])
def test_another_policy_is_another_key(policy: str, tmp_path: Path) -> None:
    shipped = key_in(tmp_path / "a", "")
    assert key_in(tmp_path / "b", "") == shipped
    assert key_in(tmp_path / "c", policy) != shipped


def test_a_service_is_part_of_the_keys_of_the_checks_that_get_it(tmp_path: Path) -> None:
    lint = CHECK.model_copy(update={"id": "lint"})
    rule = ServiceRule(name="db", image="redis", ready=("true",), port=6379, checks=("test",))
    setup = ServiceSetup(rule=rule, image_digest="sha256:" + "3" * 64, argv=("serve",))
    variants = [
        (),
        (setup,),
        (setup.model_copy(update={"image_digest": "sha256:" + "4" * 64}),),
        (setup.model_copy(update={"argv": ("serve", "--fast")}),),
        (setup.model_copy(update={"rule": rule.model_copy(update={"check_env": {"A": "1"}})}),),
    ]
    keys: dict[str, set[str]] = {"test": set(), "lint": set()}
    for services in variants:
        guests = GuestSetup("sha256:" + "1" * 64, "runc", services=services)
        for name, binding in build_bindings(Policies(tmp_path), guests, "2" * 40, [lint, CHECK]).items():
            keys[name].add(binding.key)
    assert {name: len(found) for name, found in keys.items()} == {"test": len(variants), "lint": 1}


def test_a_checkout_with_submodules_or_files_of_lfs_has_other_keys(tmp_path: Path) -> None:
    plain = GuestSetup("sha256:" + "1" * 64, "runc")
    urls = ("https://h/a/b", "https://h/a/c")
    choices = (AddedFiles(urls), *(AddedFiles(urls, submodules_with_lfs=(url,)) for url in urls), AddedFiles(lfs=True))
    setups = (plain, *(replace(plain, added=added) for added in choices))
    keys = {build_bindings(Policies(tmp_path), setup, "2" * 40, [CHECK])["test"].key for setup in setups}
    assert len(keys) == len(setups)


def test_how_a_check_gets_the_files_is_part_of_its_key(tmp_path: Path) -> None:
    guests = GuestSetup("sha256:" + "1" * 64, "runc")
    checks = [CHECK, CHECK.model_copy(update={"workspace": "read-only"})]
    assert len({build_bindings(Policies(tmp_path), guests, "2" * 40, [c])["test"].key for c in checks}) == 2
