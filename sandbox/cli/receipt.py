"""`sandbox receipt`: signed statements of verdicts."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sandbox.cli.invocation import Invocation, add_home, global_options, note, runtime_option, show_table
from sandbox.cli.output_files import writing
from sandbox.cli.repository_argument import locate_repository
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.models.receipts import (
        BundleSigner,
        FoundReceipts,
        Receipt,
        ReceiptKey,
        ReceiptQuestion,
        ReplayResult,
        SignedReceipt,
    )
    from sandbox.workbench import Workbench

_FILE = click.Path(dir_okay=False, path_type=Path)
_COMMAND_CHARS = 200
_KEY = click.option(
    "--key",
    "keys",
    multiple=True,
    type=_FILE,
    metavar="FILE",
    help="Trusted public key in PEM, or a list of keys. Repeatable. Default: the keys of this home.",
)
_TRUST = click.option(
    "--trust-config",
    type=_FILE,
    metavar="FILE",
    help="ClientTrustConfig of a private Sigstore instance. Default: receipts.trust_config, else the public instance.",
)
_REPO = click.option("--repo", "repository", metavar="URL", help="Repository that must have the commit of the receipt.")
_REF = click.option("--ref", help="Branch, tag or commit of --repo that must have the tree of the receipt.")


@click.group()
def receipt() -> None:
    """Export the verdicts of clean rooms as signed receipts, and verify receipts of others.

    A receipt is an in-toto test result in a DSSE envelope. It exits with 3 when a receipt is refused.
    """


@receipt.command()
@click.argument("subject", metavar="TASK|RUN")
@click.option("-o", "--output", type=_FILE, metavar="FILE", help="Write the receipt to FILE instead of stdout.")
@click.option(
    "--signing-key", type=_FILE, metavar="FILE", help="Private Ed25519 key in PEM. Default: the key of this home."
)
@click.option("--provenance", is_flag=True, help="The SLSA provenance of the artifacts that RUN left.")
@global_options
@click.pass_obj
def export(invocation: Invocation, /, subject: str, output: Path | None, **how: Any) -> None:
    """Print a receipt of all checks of TASK on its last commit, or of one RUN of a clean room."""
    with invocation.workbench() as workbench:
        found = workbench.export_receipt(subject, **how)
    write_receipt(invocation, found, output)


def write_receipt(invocation: Invocation, found: SignedReceipt, output: Path | None) -> None:
    """Write a receipt to a file, else to stdout."""
    if output is None:
        click.echo(found.envelope)
        return
    with writing(output):
        output.write_text(found.envelope + "\n", encoding="ascii")
    invocation.emit(found.receipt, lambda: note(f"{output}: {found.receipt.digest}, key {found.receipt.keyid[:16]}"))


@receipt.command()
@click.argument("file", type=_FILE)
@click.option("-o", "--output", type=_FILE, metavar="BUNDLE", help="Default: FILE.sigstore.json.")
@click.option(
    "--identity-token",
    type=_FILE,
    metavar="TOKEN",
    help="File with a token of OpenID Connect for the audience `sigstore`. Default: the one that the CI gives its job.",
)
@_TRUST
@global_options
@click.pass_obj
def sign(invocation: Invocation, /, file: Path, output: Path | None, **how: Path | None) -> None:
    """Sign the receipt in FILE with the identity of this job, through Sigstore: no key has to be kept.

    The identity and the hash of the receipt become public in a transparency log, unless the instance is a private one.
    `receipt verify --bundle` verifies it, as does every Sigstore client. Needs the extra `space-sandbox[sigstore]`.
    """
    from sandbox.receipts.sigstore_bundle import read_file  # noqa: PLC0415 - lazy: `--help` stays fast

    with invocation.workbench() as workbench:
        found = workbench.sign_receipt(read_file(file), **how)
    target = output or file.with_name(f"{file.name}.sigstore.json")
    with writing(target):
        target.write_text(found.bundle + "\n", encoding="utf-8")
    named = f"--identity {shlex.quote(found.signer.identity)} --issuer {shlex.quote(found.signer.issuer)}"
    command = f"sandbox receipt verify {shlex.quote(str(file))} --bundle {shlex.quote(str(target))} {named}"
    invocation.emit(
        {"bundle": str(target), "signer": found.signer, "digest": found.digest}, lambda: note(f"{target}: {command}")
    )


@receipt.command()
@click.argument("file", type=click.File("rb"))
@_KEY
@click.option("--bundle", type=_FILE, metavar="FILE", help="Its Sigstore bundle; then no key is needed.")
@click.option("--identity", metavar="TEXT", help="Who has to have signed the bundle: URL of a workflow, email address.")
@click.option("--issuer", metavar="URL", help="The issuer of that identity's tokens.")
@_TRUST
@_REPO
@_REF
@click.option("--tree", metavar="ID", help="The tree that it must be about.")
@click.option("--commit", metavar="ID", help="The commit that it must be about.")
@click.option("--check", "checks", multiple=True, metavar="ID", help="A check that it must have. Repeatable.")
@click.option(
    "--artifact",
    "artifacts",
    multiple=True,
    type=_FILE,
    metavar="FILE",
    help="A file that it must be about. Repeatable.",
)
@global_options
@click.pass_obj
def verify(invocation: Invocation, /, file: Any, **what: Any) -> int:
    """Verify the receipt in FILE (`-`: stdin): signature, key or identity, content, and what it is about.

    Needs no engine, with --key no home, and a network only for a --repo that is not local and for the root keys of
    Sigstore's public instance. Exits with 0 if it holds and all its checks passed, with 1 if it holds and a check did
    not pass, with 3 if it is refused.
    """
    content = _read(file)
    what["vouched_by"] = _read_signer(what.pop("identity"), what.pop("issuer"))
    is_complete = what["trust_config"] is not None if what["bundle"] else what["keys"]
    if is_complete and what["repository"] is None:
        found = _verify_alone(content, what)
    else:
        with invocation.workbench() as workbench:
            found = workbench.verify_receipt(content, _ask(workbench, what))
    is_key_verified = bool(what["keys"]) or found.vouched_by is None
    invocation.emit(found, lambda: _show(found, is_key_verified=is_key_verified))
    return 0 if found.passed else 1


@receipt.command()
@click.argument("file", type=click.File("rb"))
@_KEY
@_REPO
@_REF
@runtime_option
@global_options
@click.pass_obj
def replay(invocation: Invocation, /, file: Any, **what: Any) -> int:
    """Verify the receipt in FILE, run its checks here on its tree, and compare the verdicts.

    Exits with 0 if every verdict is the same, else with 1.
    """
    from sandbox.cli.verdicts import CheckProgress  # noqa: PLC0415 - lazy: `receipt verify` runs no check

    with invocation.workbench() as workbench:
        watch = CheckProgress().watch()
        found = workbench.replay_receipt(_read(file), _ask(workbench, what), watch, runtime=invocation.runtime)
    invocation.emit(found, lambda: _show_replay(found))
    return 0 if found.agrees else 1


def _read_signer(identity: str | None, issuer: str | None) -> BundleSigner | None:
    from sandbox.models.receipts import BundleSigner  # noqa: PLC0415 - lazy: `--help` stays fast

    if (identity is None) != (issuer is None):
        raise click.UsageError("--identity and --issuer belong together.")
    return None if identity is None or issuer is None else BundleSigner(identity=identity, issuer=issuer)


def _verify_alone(content: bytes, what: dict[str, Any]) -> Receipt:
    """Verify with the keys of files alone: no home is needed, so none is made."""
    from sandbox.models import ReceiptQuestion  # noqa: PLC0415 - lazy: `--help` stays fast
    from sandbox.receipts.key_files import read_trusted_keys  # noqa: PLC0415 - as above
    from sandbox.receipts.verification import verify_question  # noqa: PLC0415 - as above

    question = ReceiptQuestion(**what)
    return verify_question(content, question, read_trusted_keys(question.keys))


def _ask(workbench: Workbench, what: dict[str, Any]) -> ReceiptQuestion:
    from sandbox.models import ReceiptQuestion  # noqa: PLC0415 - lazy: `--help` stays fast

    repository = what.pop("repository")
    return ReceiptQuestion(
        repository=locate_repository(workbench, repository) if repository is not None else None, **what
    )


def _read(file: Any) -> bytes:
    content: bytes = file.read(1024**2 + 1)
    return content


def _show(found: Receipt, *, is_key_verified: bool = True) -> None:
    from sandbox.checks.missing_packages import WITHOUT  # noqa: PLC0415 - as above

    rows = [[c.id, c.verdict.value, c.image_digest[:19], c.runtime, f"{c.wall_time_s:.1f} s"] for c in found.checks]
    show_table(["CHECK", "VERDICT", "IMAGE", "RUNTIME", "TIME"], [[one_line(cell) for cell in row] for row in rows])
    for check in found.checks:
        part = ", only a part of the check" if check.definition.arguments else ""
        part += f", elsewhere, says the key {check.shared_by[:16]}" if check.shared_by else ""
        click.echo(f"{one_line(check.id)} ran{part}: {one_line(shlex.join(check.definition.argv))[:_COMMAND_CHARS]}")
    for artifact in found.artifacts:
        click.echo(f"{artifact.sha256}  {one_line(artifact.path)}")
    if found.left_out:
        click.echo(f"left out: {one_line(', '.join(found.left_out))}")
    word = click.style("verified", fg="green") if found.passed else click.style("not verified", fg="red")
    lacking = f", {WITHOUT}" if any(check.packages_missing for check in found.checks) else ""
    click.echo(f"{word}{lacking}: tree {found.tree}" + (f", commit {found.commit}" if found.commit else ""))
    claimed = "" if is_key_verified else " (which was not verified)"
    click.echo(f"signed {found.signed_at.isoformat()} by {found.keyid[:16]}{claimed}, {found.digest}")
    if found.vouched_by is not None:
        click.echo(f"vouched for by {one_line(found.vouched_by.identity)}, issuer {one_line(found.vouched_by.issuer)}")


def _show_replay(found: ReplayResult) -> None:
    rows = [
        [one_line(c.id), c.before.value, c.now.value if c.now else "-", ", ".join(c.differences) or "-"]
        for c in found.checks
    ]
    show_table(["CHECK", "RECEIPT", "HERE", "OTHER THAN THERE"], rows)
    for path in found.other_artifacts:
        click.echo(f"missing or other content here: {one_line(path)}")
    click.echo(_conclude_replay(found))


def _conclude_replay(found: ReplayResult) -> str:
    if not found.other_artifacts:
        return "the verdicts agree" if found.agrees else "the verdicts differ"
    return f"{len(found.other_artifacts)} of {len(found.receipt.artifacts)} artifacts differ"


@receipt.command()
@click.argument("repo_id", metavar="REPO")
@click.argument("file", type=click.File("rb"))
@_KEY
@global_options
@click.pass_obj
def push(invocation: Invocation, /, repo_id: str, file: Any, keys: tuple[Path, ...]) -> None:
    """Add the receipt in FILE to the git notes of its commit on REPO's remote: refs/notes/space-sandbox."""
    from sandbox.models import ReceiptQuestion  # noqa: PLC0415 - lazy: `--help` stays fast

    with invocation.workbench() as workbench:
        found = workbench.push_receipt(repo_id, _read(file), ReceiptQuestion(keys=keys))
    invocation.emit(found, lambda: click.echo(f"{found.ref} of {repo_id}: {found.receipt.digest}"))


@receipt.command()
@click.argument("url", metavar="URL")
@click.option("--ref", default="HEAD", help="Branch, tag or commit. Default: the default branch.")
@click.option("-o", "--output", type=_FILE, metavar="FILE", help="Write the newest receipt that holds to FILE.")
@_KEY
@global_options
@click.pass_obj
def fetch(invocation: Invocation, /, url: str, ref: str, output: Path | None, keys: tuple[Path, ...]) -> int:
    """Fetch the receipts that URL's git notes have for a commit, and verify each.

    Exits with 0 if one holds and its checks passed, with 1 if the newest one that holds says that a check did not
    pass, with 3 if none holds.
    """
    from sandbox.models import ReceiptQuestion  # noqa: PLC0415 - lazy: `--help` stays fast

    with invocation.workbench() as workbench:
        found = workbench.fetch_receipts(locate_repository(workbench, url), ref, ReceiptQuestion(keys=keys))
    if output is not None and found.envelope:
        with writing(output):
            output.write_text(found.envelope + "\n", encoding="ascii")
    invocation.emit(found, lambda: _show_found(found))
    return 3 if not found.receipts else 0 if found.receipts[0].passed else 1


def _show_found(found: FoundReceipts) -> None:
    for each in found.receipts:
        _show(each)
    if found.refused:
        note(f"{len(found.refused)} receipt(s) refused: {', '.join(sorted(set(found.refused)))}")
    if not found.receipts and found.refused:
        click.echo(f"no receipt of commit {found.commit} holds")
    elif not found.receipts:
        click.echo(f"the remote has no receipt of commit {found.commit}")
        note(add_home("`sandbox receipt push` sends one: it becomes a git note in refs/notes/space-sandbox"))


@receipt.command()
@click.option("--pem", is_flag=True, help="Print only the public key in use, in PEM; with --json only its entry.")
@global_options
@click.pass_obj
def keys(invocation: Invocation, pem: bool) -> None:
    """List the home's keys; --json prints the list that `verify --key` takes. The first use makes a key."""
    with invocation.workbench() as workbench:
        found = workbench.receipt_keys()
    if pem:
        in_use = next(key for key in reversed(found) if not (key.retired_at or key.revoked_at))
        invocation.emit({"keys": [in_use]}, lambda: click.echo(in_use.public_key, nl=False))
        return
    invocation.emit({"keys": found}, lambda: show_table(["KEY", "STATE", "SINCE"], [_row(key) for key in found]))


def _row(key: ReceiptKey) -> list[str]:
    state = "revoked" if key.revoked_at else "retired" if key.retired_at else "in use"
    since = key.revoked_at or key.retired_at or key.created_at
    return [key.keyid[:16], state, since.isoformat() if since else "-"]


@receipt.command("rotate-key")
@global_options
@click.pass_obj
def rotate_key(invocation: Invocation) -> None:
    """Replace the home's key. Receipts that it has signed stay valid."""
    with invocation.workbench() as workbench:
        key = workbench.rotate_receipt_key()
    invocation.emit(key, lambda: click.echo(f"new key {key.keyid}"))


@receipt.command("revoke-key")
@click.argument("keyid", metavar="KEY")
@click.option("--reason", default="", help="Why; it is shown when a receipt of the key is refused.")
@global_options
@click.pass_obj
def revoke_key(invocation: Invocation, keyid: str, reason: str) -> None:
    """Revoke a key: all its receipts are refused from now on, whenever they were signed."""
    with invocation.workbench() as workbench:
        key = workbench.revoke_receipt_key(keyid, reason=reason)
    invocation.emit(key, lambda: click.echo(f"revoked {key.keyid}"))
