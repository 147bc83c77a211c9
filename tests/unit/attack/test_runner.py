"""How an entry of the shipped attack suite ends: each outcome, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from devtools.user_ids import list_users
from sandbox.attack import runner, select
from sandbox.attack.harness import site as attack_site
from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough, NotSupported, Void
from sandbox.attack.harness.scene import Scene
from sandbox.attack.harness.scratch import PREFIX, instances_of
from sandbox.attack.harness.site import AttackRun
from sandbox.cli.app import main
from sandbox.cli.attacks import summary
from sandbox.config import Settings
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import AttackOutcome, AttackReport, AttackResult
from sandbox.store import journal
from sandbox.store.home import Home


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run removes what killed runs left below `$TMPDIR`, with the engine: those of other tests are not ours."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def ran(tmp_path: Path, entry: AttackEntry, deadline_s: float = 60.0) -> AttackResult:
    with AttackRun(Settings(), os.environ) as site:
        (result,) = runner.run_entries(site, [entry], None, deadline_s)
    assert not site.root.exists()
    return result


def quiet(_scene: Scene) -> str:
    return "nothing"


def raising(error: Exception) -> AttackEntry:
    def attack(_scene: Scene) -> str:
        raise error

    return AttackEntry("Z01", "a title", "a use-case", quiet, attack, scene="bare")


def test_an_attack_without_effect_held(tmp_path: Path) -> None:
    result = ran(tmp_path, AttackEntry("Z01", "a title", "a use-case", quiet, quiet, scene="bare"))
    assert (result.outcome, result.control, result.seen) == (AttackOutcome.HELD, "nothing", "nothing")
    assert (result.id, result.section, result.tried) == ("Z01", "Z", "a use-case")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (GotThrough("x"), AttackOutcome.GOT_THROUGH),
        (Void("x"), AttackOutcome.VOID),
        (NotSupported("x"), AttackOutcome.SKIPPED),
        (SandboxError(ErrorCode.TIMEOUT, "x"), AttackOutcome.ERROR),
        (ValueError("x"), AttackOutcome.ERROR),
    ],
    ids=lambda value: str(getattr(value, "value", type(value).__name__)),
)
def test_what_an_attack_raises_is_its_outcome(tmp_path: Path, error: Exception, outcome: AttackOutcome) -> None:
    result = ran(tmp_path, raising(error))
    assert result.outcome is outcome
    assert "x" in result.seen


def test_a_scene_that_cannot_begin_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is: else its thread would end with a trace, and the deadline be blamed."""

    def full(_scene: Scene, _base: str | None = None) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Scene, "new_task", full)
    result = ran(tmp_path, AttackEntry("Z01", "a title", "a use-case", quiet, quiet))
    assert (result.outcome, result.seen) == (AttackOutcome.ERROR, "OSError: no space left")


def mark(scene: Scene) -> str:
    subprocess.run([scene.script("payload")], check=True)
    return "wrong"


def overwrite(scene: Scene) -> str:
    (scene.outside / "secret").write_text("overwritten")
    return "wrong"


@pytest.mark.parametrize(("attack", "said"), [(mark, "ran on the host: payload"), (overwrite, "changed outside")])
def test_an_effect_is_found_although_the_attack_says_nothing(tmp_path: Path, attack: object, said: str) -> None:
    result = ran(tmp_path, AttackEntry("Z01", "t", "u", quiet, attack, scene="bare"))  # type: ignore[arg-type]  # an object
    assert result.outcome is AttackOutcome.GOT_THROUGH
    assert said in result.seen


def test_an_effect_of_the_control_is_not_held_against_the_product(tmp_path: Path) -> None:
    def control(scene: Scene) -> str:
        return mark(scene) + overwrite(scene)

    assert ran(tmp_path, AttackEntry("Z01", "t", "u", control, quiet, scene="bare")).outcome is AttackOutcome.HELD


def test_an_entry_that_hangs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack_site, "GRACE_S", 0.1)
    never = threading.Event()

    def hang(_scene: Scene) -> str:
        never.wait(120)
        return ""

    result = ran(tmp_path, AttackEntry("Z01", "t", "u", quiet, hang, scene="bare"), deadline_s=0.1)
    never.set()
    assert result.outcome is AttackOutcome.ERROR
    assert "no answer" in result.seen


def test_an_unmet_need_is_a_reason_to_skip(tmp_path: Path) -> None:
    entry = AttackEntry("Z01", "t", "u", quiet, quiet, needs=(lambda _: "", lambda _: "needs the moon"))
    result = ran(tmp_path, entry)
    assert (result.outcome, result.seen) == (AttackOutcome.SKIPPED, "needs the moon")


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    site = AttackRun(Settings(), os.environ)

    def interrupted() -> None:
        with site:
            site.create_scene("victim").new_task()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not site.root.exists()
    assert not [home for home in list_users().values() if Path(home).is_relative_to(site.root)]
    assert str(site.root) not in Path("/proc/self/mountinfo").read_text()


KILLED = f"""
import os, signal
from sandbox.attack.harness.site import {AttackRun.__name__} as Site
from sandbox.config import Settings
site = Site(Settings(), os.environ)
site.{AttackRun.create_scene.__name__}("victim").{Scene.new_task.__name__}()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_is_taken_away_by_the_next_and_a_living_one_stays(
    own_temporary_directory: Path,
) -> None:
    below = own_temporary_directory
    environ = {**os.environ, "TMPDIR": str(below), "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run([sys.executable, "-c", KILLED], env=environ, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    (left,) = below.iterdir()
    foreign = below / f"{PREFIX}of-somebody"
    foreign.mkdir()
    with AttackRun(Settings(), os.environ) as living, AttackRun(Settings(), os.environ) as site:
        site.remove_abandoned()
        assert not left.exists()
        assert set(below.iterdir()) == {living.root, site.root, foreign}
    assert str(left) not in Path("/proc/self/mountinfo").read_text()


def test_only_instances_of_the_run_are_looked_for(tmp_path: Path) -> None:
    for place, text in (
        ("claim", "0" * 16),
        ("a/home/instance", "1" * 16),
        ("b/home/instance", "x=1,2"),
        ("c", "2" * 16),
    ):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert instances_of(tmp_path) == {"0" * 16, Home(tmp_path / "a" / "home").instance_id}


def test_a_run_that_could_try_none_of_its_entries_is_not_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = AttackEntry("Z01", "t", "u", quiet, quiet, scene="bare", needs=(lambda _: "needs the moon",))
    held = AttackEntry("Z02", "t", "u", quiet, quiet, scene="bare")
    chosen = [absent]
    monkeypatch.setattr(runner, "select", lambda _only: chosen)
    found = runner.attack(tmp_path / "home", environ=os.environ)
    assert (found.safe, found.skipped) == (False, 1)
    chosen.append(held)
    assert runner.attack(tmp_path / "home", environ=os.environ).safe is True


def report(**counts: int) -> AttackReport:
    numbers = {"held": 0, "got_through": 0, "void": 0, "skipped": 0, "errors": 0, **counts}
    safe = bool(numbers["held"]) and not (numbers["got_through"] or numbers["void"] or numbers["errors"])
    place = {"wall_time_s": 59.7, "engine": "20.10.24", "runtime": "runc", "git": "2.39.5"}
    return AttackReport.model_validate({"results": (), "safe": safe, **numbers, **place})


@pytest.mark.parametrize(
    ("counts", "begin"),
    [
        (
            {"held": 70, "skipped": 2},
            "safe: 70 held, 0 got through, 0 void, 2 skipped; 60 s on git 2.39.5, Docker 20.10",
        ),
        ({"held": 1, "got_through": 1}, "NOT SAFE: 1 held, 1 got through"),
        ({"held": 1, "void": 1}, "not proven: 1 held, 0 got through, 1 void"),
        ({"errors": 3}, "not proven: 0 held, 0 got through, 0 void, 3 errors"),
        ({"skipped": 1}, "not proven, none could be tried here: 0 held, 0 got through, 0 void, 1 skipped; 60 s on git"),
    ],
)
def test_the_last_line_says_what_is_proven(counts: dict[str, int], begin: str) -> None:
    assert summary(report(**counts)).startswith(begin)


def test_sections_and_ids_are_chosen_in_any_case() -> None:
    assert [e.id for e in select(["a01", "A03,A02"])] == ["A01", "A02", "A03"]
    assert {e.section for e in select(["a"])} == {"A"}
    assert len({e.id for e in select()}) == len(select()), "an id is there twice"
    with pytest.raises(SandboxError) as caught:
        select(["A01", "nothing"])
    assert caught.value.code is ErrorCode.INVALID_INPUT


def test_the_command_prints_one_document_and_exits_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(tmp_path / "home"), "--json", "doctor", "--attack", "--only", "A04"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["safe"], said["held"]) == (True, 1)
    assert said["results"][0]["outcome"] == "held"
    assert not (tmp_path / "home").exists(), "the user's home is not touched"


def test_a_home_that_is_there_records_how_the_attacks_ended(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    assert main(["--home", str(home.root), "--json", "doctor", "--attack", "--only", "A04"]) == 0
    (entry,) = [e for e in journal.read_entries(home, journal.HOME_JOURNAL) if e.operation == "doctor-attack"]
    assert (entry.facts["safe"], entry.facts["held"]) == ("true", "1")


def test_only_without_attack_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--only", "A"]) == 2
    assert "--only needs --attack" in capsys.readouterr().err


@pytest.mark.parametrize("only", [["--only", "A01"], ["--only", "a01", "--only", "S02,B09"], ["--only", "K"]])
def test_explaining_runs_nothing_and_says_of_each_entry_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], only: list[str]
) -> None:
    """Without an engine, a home or git; those that do not ship are listed too and say so."""
    for name, value in (("DOCKER_HOST", "unix:///nonexistent"), ("PATH", "/nonexistent")):
        monkeypatch.setenv(name, value)
    arguments = ["--home", str(tmp_path / "home"), "doctor", "--attack", "--explain", *only]
    assert main([*arguments, "--json"]) == 0
    found = {threat["id"]: threat for threat in json.loads(capsys.readouterr().out)["threats"]}
    named = ",".join(only[1::2]).upper().split(",")
    assert {name[0] for name in found} == {name[0] for name in named}
    assert set(found) == set(named) or named == ["K"]
    assert main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for threat in found.values():
        assert " ".join(threat["attack"].split()) in shown
        assert bool(threat["control"]) is threat["ships"]
    assert not (tmp_path / "home").exists()


def test_explain_alone_or_of_no_entry_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--explain"]) == 2
    assert "--explain needs --attack" in capsys.readouterr().err
    assert main(["doctor", "--attack", "--explain", "--only", "A99"]) == 2
    assert "There is no attack 'A99'" in capsys.readouterr().err
