"""THREATS S110 to S113, S133: receipts that are forged or shown for something else, in files, notes and caches."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.scene import FILES, Scene, require_equal, require_hit, require_refusal
from sandbox.attack.harness.verdict_samples import (
    TREE,
    SigningKey,
    change_statement,
    make_binding,
    make_receipt,
    make_run,
    read_carelessly,
)
from sandbox.errors import ErrorCode
from sandbox.models import Verdict
from sandbox.models.receipts import ReceiptArtifact, ReceiptQuestion, Statement
from sandbox.receipts.statement import describe_check
from sandbox.receipts.verification import Expectation, verify_receipt
from sandbox.workbench.checks.shared_cache import ENTRY, read_entry

_OURS, _THEIRS = SigningKey(), SigningKey()
_IDENTITY = ("-c", "user.name=v", "-c", "user.email=v@example.invalid")
_NOTES = (*_IDENTITY, "notes", "--ref=space-sandbox")
_OTHER = "b" * 40


def _say_passed(statement: Statement) -> None:
    predicate = statement["predicate"]
    predicate["result"], predicate["passedTests"], predicate["failedTests"] = "PASSED", ["test"], []
    predicate["configuration"][1]["annotations"]["verdict"] = "passed"


def _sign_as_us(statement: bytes) -> bytes:
    """An envelope by the attacker's key that names ours."""
    envelope = json.loads(_THEIRS.sign(statement))
    envelope["signatures"][0]["keyid"] = _OURS.public.keyid
    return json.dumps(envelope).encode()


def _forge() -> dict[str, bytes]:
    """Forged receipts, by the reason that each is refused for."""
    failed, passed = _OURS.sign(make_receipt(Verdict.FAILED)), _OURS.sign(make_receipt())
    return {
        "tampered": change_statement(failed, _say_passed),
        "wrong_key": _THEIRS.sign(make_receipt()),
        "tampered ": _sign_as_us(base64.b64decode(json.loads(passed)["payload"])),
        "malformed": passed[:-1] + b',"payloadType":"application/vnd.in-toto+json"}',
    }


def _believes_forgeries(_scene: Scene) -> str:
    forged = _forge()
    require_hit(
        all(read_carelessly(each)["predicate"]["result"] == "PASSED" for each in forged.values()),
        "a forgery does not say PASSED",
    )
    require_hit(verify_receipt(_OURS.sign(make_receipt()), [_OURS.public], Expectation()).passed, "no receipt holds")
    return f"a reader who verifies no signature believes {len(forged)} forged receipts"


def _refuses(envelope: bytes, reason: str, expected: Expectation | None = None) -> None:
    error = require_refusal(
        lambda: verify_receipt(envelope, [_OURS.public], expected or Expectation()), ErrorCode.RECEIPT_REFUSED
    )
    require_equal(error.reason, reason, "the reason of the refusal")


def _refuses_forgeries(_scene: Scene) -> str:
    forged = _forge()
    for reason, envelope in forged.items():
        _refuses(envelope, reason.strip())
    return f"{len(forged)} forged receipts refused by name"


def _believes_old_receipt(_scene: Scene) -> str:
    said = read_carelessly(_OURS.sign(make_receipt()))["predicate"]["result"]
    require_hit(said == "PASSED", "it does not say PASSED")
    return "a reader who compares no tree takes it for the new one"


def _refuses_old_receipt(_scene: Scene) -> str:
    receipt = _OURS.sign(make_receipt())
    _refuses(receipt, "wrong_tree", Expectation(tree=_OTHER))
    _refuses(receipt, "wrong_commit", Expectation(commit=_OTHER))
    return "a receipt of another tree or commit was refused"


def _provenance(hash_letter: str = "1") -> bytes:
    artifact = ReceiptArtifact(path="dist/app", sha256=f"sha256:{hash_letter * 64}")
    return _OURS.sign(make_receipt(artifacts=(artifact,), keyid=_OURS.public.keyid))


def _name_other_file(statement: Statement) -> None:
    statement["subject"][0]["digest"]["sha256"] = "2" * 64


def _believes_provenance(_scene: Scene) -> str:
    said = read_carelessly(change_statement(_provenance(), _name_other_file))
    require_hit(said["subject"][0]["digest"]["sha256"] == "2" * 64, "the file was not replaced")
    require_hit(verify_receipt(_provenance(), [_OURS.public], Expectation()).artifacts, "no provenance holds")
    return "a reader who verifies no signature takes it for the provenance of another file"


def _refuses_provenance(_scene: Scene) -> str:
    _refuses(change_statement(_provenance(), _name_other_file), "tampered")
    _refuses(_provenance(), "wrong_artifact", Expectation(artifacts=(f"sha256:{'2' * 64}",)))
    _refuses(_OURS.sign(make_receipt()), "wrong_artifact", Expectation(artifacts=(f"sha256:{'1' * 64}",)))
    return "provenance of another file, and a receipt without files, were refused"


def _write_notes(scene: Scene) -> None:
    """A failure that we signed, then what an attacker adds: a forgery, and our receipt of an older tree."""
    old = scene.seed(scene.remote, {**FILES, "old": b""})
    new = scene.seed(scene.remote, FILES)
    tree = _git(scene, "rev-parse", f"{new}^{{tree}}")
    old_tree = _git(scene, "rev-parse", f"{old}^{{tree}}")
    lines = (
        _OURS.sign(make_receipt(Verdict.FAILED, commit=new, tree=tree)),
        _THEIRS.sign(make_receipt(commit=new, tree=tree)),
        _OURS.sign(make_receipt(commit=old, tree=old_tree)),
    )
    _git(scene, *_NOTES, "add", "-f", "-F", "-", "main", stdin=b"\n".join(lines))
    (scene.root / "key.json").write_text(json.dumps({"keys": [_OURS.public.model_dump(mode="json")]}))


def _believes_notes(scene: Scene) -> str:
    shown = _git(scene, *_NOTES, "show", "main")
    said = [read_carelessly(line.encode())["predicate"]["result"] for line in shown.splitlines() if line]
    require_hit(said == ["FAILED", "PASSED", "PASSED"], "the notes are not those of the attacker")
    return "the last line that `git notes show` prints says PASSED"


def _refuses_notes(scene: Scene) -> str:
    question = ReceiptQuestion(keys=(scene.root / "key.json",))
    found = scene.workbench.fetch_receipts(str(scene.remote), question=question)
    require_equal([receipt.passed for receipt in found.receipts], [False], "the receipts that hold")
    require_equal(sorted(found.refused), ["wrong_key", "wrong_tree"], "the others")
    _make_link_of_note(scene)
    require_refusal(
        lambda: scene.workbench.fetch_receipts(str(scene.remote), question=question), ErrorCode.UNSAFE_REPOSITORY
    )
    return "two of three lines refused by name, and a note that is a link"


def _make_link_of_note(scene: Scene) -> None:
    commit = _git(scene, "rev-parse", "main")
    blob = _git(scene, "hash-object", "-w", "--stdin", stdin=b"/etc/passwd")
    tree = _git(scene, "mktree", stdin=f"120000 blob {blob}\t{commit}\n".encode())
    notes = _git(scene, *_IDENTITY, "commit-tree", tree, "-m", "notes")
    _git(scene, "update-ref", "refs/notes/space-sandbox", notes)


def _git(scene: Scene, *words: str, stdin: bytes = b"") -> str:
    return scene.require_git(*words, cwd=scene.remote, git_dir=scene.remote, stdin=stdin)


def _entry(key: SigningKey, runtime: str = "runc", verdict: Verdict = Verdict.PASSED) -> bytes:
    check = describe_check(make_binding(runtime), make_run(verdict))
    return key.sign(make_receipt(checks=(check,), commit=None, source=ENTRY))


def _poison() -> dict[str, Callable[[], bytes]]:
    """Entries under the name of a question, by the reason that each is refused for."""
    return {
        "wrong_key": lambda: _entry(_THEIRS),
        "wrong_checks": lambda: _entry(_OURS, runtime="other"),
        "tampered": lambda: change_statement(_entry(_OURS, verdict=Verdict.FAILED), _say_passed),
    }


def _believes_entries(_scene: Scene) -> str:
    said = [read_carelessly(make())["predicate"]["result"] for make in _poison().values()]
    require_hit(set(said) == {"PASSED"}, "an entry does not say PASSED")
    require_hit(read_entry(_entry(_OURS), make_binding(), (_OURS.public,)).tree == TREE, "no entry is used")
    return "a reader who takes what is under the verdict's name answers passed"


def _refuses_entries(_scene: Scene) -> str:
    for reason, make in _poison().items():
        error = require_refusal(
            lambda make=make: read_entry(make(), make_binding(), (_OURS.public,)),  # type: ignore[misc]  # bound now
            ErrorCode.RECEIPT_REFUSED,
        )
        if error.reason != reason:
            raise GotThrough(f"refused as {error.reason} instead of {reason}")
    return f"{len(_poison())} poisoned entries refused by name"


ENTRIES = (
    AttackEntry("S110", "forged receipts", "receipt verify", _believes_forgeries, _refuses_forgeries, scene="bare"),
    AttackEntry("S111", "a receipt of an old tree for a new one", "receipt verify", _believes_old_receipt,
          _refuses_old_receipt, scene="bare"),
    AttackEntry("S112", "notes of a hostile remote", "receipt fetch", _believes_notes, _refuses_notes, _write_notes,
          scene="bare"),
    AttackEntry("S113", "poisoned entries of a shared verdict cache", "run", _believes_entries, _refuses_entries,
          scene="bare"),
    AttackEntry("S133", "provenance of another file", "receipt verify", _believes_provenance, _refuses_provenance,
          scene="bare"),
)  # fmt: skip
