"""THREATS S113: images in a store that somebody else writes into.

An image that one host shares is taken by another one whose engine has none, so that one verdict answers on both.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.privateengine import PrivateEngine
from devtools.requirement import unavailable
from sandbox import Workbench
from sandbox.errors import ErrorCode
from sandbox.models import CheckRun
from tests.docker.test_image_transfer import PROFILE, make_remote
from tests.unit.conftest import refused
from tests.unit.receipt_samples import Signer

pytestmark = [
    pytest.mark.must,
    pytest.mark.slow,
    pytest.mark.xdist_group("image-transfer"),
    pytest.mark.usefixtures("engine"),
]
OURS, THEIRS = Signer(), Signer()


class Hosts:
    """Homes that share a store and trust our key."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root, root / "store"
        (root / "public.pem").write_bytes(OURS.public_pem)

    def open(self, name: str, url: str = "", signer: Signer = OURS) -> Workbench:
        home = self.root / name
        (home / "profiles").mkdir(parents=True)
        (home / "profiles" / "generic.toml").write_text(PROFILE)
        (self.root / f"{name}.pem").write_bytes(signer.pem)
        settings = {
            "cache": {"url": str(self.store), "images": True},
            "receipts": {
                "signing_key": str(self.root / f"{name}.pem"),
                "trusted_keys": [str(self.root / "public.pem")],
            },
            **({"engine": {"host": url}} if url else {}),
        }
        return Workbench(home, environ={"PATH": os.environ["PATH"]}, settings=settings, allow_file=True)

    @property
    def statement(self) -> Path:
        (found,) = self.store.glob("image-*.json")
        return found


class BuildsError(Exception):
    """The image would be built, for minutes."""


@pytest.fixture
def no_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object) -> None:
        raise BuildsError

    monkeypatch.setattr("sandbox.images.build_all", build)


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    if reason := PrivateEngine.why_not():
        unavailable(reason)
    return Hosts(tmp_path)


def answer(workbench: Workbench, remote: str) -> CheckRun:
    (run,) = workbench.run(remote).runs
    return run


def change_a_part(hosts: Hosts) -> None:
    next(hosts.store.glob("image-part-*")).write_bytes(b"evil")


def remove_a_part(hosts: Hosts) -> None:
    next(hosts.store.glob("image-part-*")).unlink()


def remove_the_signature(hosts: Hosts) -> None:
    envelope = json.loads(hosts.statement.read_text())
    hosts.statement.write_text(json.dumps({**envelope, "signatures": []}))


def sign_for_another_recipe(hosts: Hosts) -> None:
    """As an older statement that is put under this name."""
    entry = json.loads(base64.b64decode(json.loads(hosts.statement.read_text())["payload"]))
    payload = json.dumps({**entry, "recipe": "0" * 64}).encode()
    hosts.statement.write_bytes(OURS.sign(payload))


def sign_with_another_key(hosts: Hosts) -> None:
    hosts.statement.unlink()
    with hosts.open("theirs", signer=THEIRS) as evil:
        evil.share_images(["init"], print)


ATTACKS: tuple[Callable[[Hosts], None], ...] = (
    change_a_part, remove_a_part, remove_the_signature, sign_for_another_recipe, sign_with_another_key
)  # fmt: skip


@pytest.mark.usefixtures("no_builds")
def test_s113_a_shared_image_is_taken_instead_of_built_and_a_poisoned_one_is_not(hosts: Hosts) -> None:
    """Control: the engine of the second host has no image, so without the store it would be built; and what nobody
    touched is taken, with the verdict that the first host found.
    """
    remote = make_remote(hosts.root / "remote")
    with hosts.open("one") as one, PrivateEngine() as engine:
        first = answer(one, remote)
        assert (first.verdict, first.cached) == ("passed", False)
        with hosts.open("early", engine.url) as early, pytest.raises(BuildsError):
            answer(early, remote)
        for number, attack in enumerate(ATTACKS):
            one.share_images(["init"], print)
            attack(hosts)
            with hosts.open(f"attacked-{number}", engine.url) as attacked, pytest.raises(BuildsError):
                answer(attacked, remote)
        hosts.statement.unlink()
        (shared,) = one.share_images(["init"], print)
        with hosts.open("two", engine.url) as two:
            second = answer(two, remote)
            assert (second.run_id, second.verdict, second.cached) == (first.run_id, "passed", True)
            assert shared.images[0].digest in {image.digest for image in two.images()}


def test_s113_a_home_without_the_setting_shares_no_images(tmp_path: Path) -> None:
    with Workbench(tmp_path / "home", environ={"PATH": os.environ["PATH"]}) as bench, refused(ErrorCode.INVALID_INPUT):
        bench.share_images(["init"], print)
