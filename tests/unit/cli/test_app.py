"""The command line: exit codes, one JSON document, errors for people, a quick start."""

from __future__ import annotations

import ast
import errno
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest

import sandbox
from sandbox.agent.tools import Preset
from sandbox.cli import main
from sandbox.cli.app import cli
from sandbox.cli.misuse import _OPTIONS, _SYNONYMS, ELSEWHERE
from sandbox.cli.verdicts import ordinal
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Repository
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream

EXIT_CODES = {
    2: "invalid_input unsafe_path not_found nothing_to_commit forge_unsupported",
    3: "unsafe_repository approval_required approval_denied gate_closed quota_exceeded policy_violation egress_refused "
    "receipt_refused",
    4: "stale_hash patch_rejected conflict dirty_workspace origin_mismatch push_rejected",
    5: "auth_failed remote_not_found remote_broken network_error timeout forge_error engine_unavailable image_missing "
    "service_failed internal",
}
BY_CODE = {ErrorCode(name): code for code, names in EXIT_CODES.items() for name in names.split()}

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Run one command line in this process: (exit code, stdout, stderr)."""
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "sandbox-home"))
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "__all__")
    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in signals]

    def act(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield act
    for number, handler in zip(signals, before, strict=True):
        signal.signal(number, handler)


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """`sandbox repo list` meets this error."""

    def fail(_self: Workbench) -> None:
        raise error

    monkeypatch.setattr(Workbench, "repositories", fail)


def test_every_error_code_has_its_exit_code_here() -> None:
    assert set(BY_CODE) == set(ErrorCode)


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_is_an_exit_code_words_on_stderr_and_a_document(
    code: ErrorCode, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, SandboxError(code, "What failed", details="line 1\nline 2", hint="Do this"))
    exit_code, out, err = command("repo", "list")
    assert (exit_code, out) == (BY_CODE[code], "")
    assert f"error [{code}] What failed\n  line 1\n  line 2\nhint  Do this\n" in err
    exit_code, out, _ = command("--json", "repo", "list")
    assert exit_code == BY_CODE[code]
    assert json.loads(out) == {
        "error": {"code": code.value, "brief": "What failed", "details": "line 1\nline 2", "hint": "Do this"}
    }


USAGE: dict[str, list[str]] = {
    "unknown-command": ["frobnicate"],
    "unknown-subcommand": ["repo", "frobnicate"],
    "unknown-option": ["repo", "list", "--frobnicate"],
    "unknown-global-option": ["--frobnicate"],
    "missing-argument": ["repo", "clone"],
    "missing-option": ["commit", "task-x"],
    "too-many": ["repo", "show", "a", "b"],
    "wrong-choice": ["diff", "task-x", "--against", "yesterday"],
    "wrong-number": ["file", "read", "task-x", "f", "--start-line", "0"],
    "missing-file": ["file", "patch", "task-x", "/nonexistent/patch"],
    "bad-expectation": ["file", "patch", "task-x", "/dev/null", "--expect", "f=md5:1"],
    "expectation-without-path": ["file", "patch", "task-x", "/dev/null", "--expect", "=absent"],
    "upper-case-hash": ["file", "patch", "task-x", "/dev/null", "--expect", f"f=sha256:{'A' * 64}"],
    "unknown-repository": ["repo", "show", "nope"],
    "unknown-task": ["status", "task-nope"],
    "unknown-profile": ["profiles", "show", "nope"],
    "option-as-url": ["repo", "clone", "--", "--upload-pack=touch"],
    "url-with-password": ["repo", "clone", "https://u:hunter2@h/o/r"],
    "nothing-to-deny": ["approvals", "deny"],
    "one-and-all": ["approvals", "revoke", "apr-x", "--all"],
    "one-of-a-tool": ["approvals", "deny", "apr-x", "--tool", "t"],
    "endless-body": ["pr", "open", "task-x", "--body-file", "/dev/zero"],
    "body-of-a-folder": ["pr", "open", "task-x", "--body-file", "/"],
    "two-bodies": ["pr", "open", "task-x", "--body-file", "-", "--body", "b"],
    "home-is-a-file": ["--home", "/etc/passwd", "repo", "list"],
}


@pytest.mark.parametrize("arguments", USAGE.values(), ids=USAGE)
def test_a_wrong_command_line_is_exit_2_and_nothing_on_stdout(arguments: list[str], command: Command) -> None:
    exit_code, out, err = command(*arguments)
    assert (exit_code, out) == (2, "")
    assert "\nerror [" in f"\n{err}"
    assert "hint" in err
    assert "Traceback" not in err
    assert "hunter2" not in err


@pytest.mark.parametrize("arguments", USAGE.values(), ids=USAGE)
def test_a_wrong_command_line_is_one_document_with_json(arguments: list[str], command: Command) -> None:
    exit_code, out, _ = command("--json", *arguments)
    assert exit_code == 2
    (line,) = out.splitlines()
    error = json.loads(line)["error"]
    assert set(error) == {"code", "brief", "details", "hint"}
    assert error["code"] in {"invalid_input", "not_found"}
    assert "hunter2" not in out


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["rnu"], "run"),
        (["repos"], "repo"),
        (["profile"], "profiles"),
        (["profiles", "show", "pyton"], "python"),
    ],
)
def test_a_name_that_is_nearly_right_is_suggested(arguments: list[str], suggestion: str, command: Command) -> None:
    assert f"Did you mean: {suggestion}" in command(*arguments)[2]


def test_a_directory_without_a_path_to_it_is_taken_for_one(
    upstream: Upstream, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    upstream.write("folder/f")
    upstream.commit()
    monkeypatch.chdir(upstream.root)
    (upstream.root / "-x").mkdir()
    code, out, err = command("--json", "repo", "clone", "folder")
    assert (code, json.loads(out)["repository"]["name"]) == (0, upstream.root.name), err
    assert "folder is inside" in err
    assert "There is no directory 'p/other', and it is no URL" in command("repo", "clone", "p/other")[2]
    assert command("repo", "clone", "p/other")[0] == 2
    (tmp_path / "files").mkdir()
    for name in (str(tmp_path / "files"), os.path.relpath(tmp_path / "files")):
        code, _, err = command("repo", "clone", name)
        assert (code, f" {tmp_path / 'files'} is not a git repository" in err) == (2, True), err
    assert command("repo", "clone", "--", "-x")[0] == 2, "what may be an option is none"


@pytest.mark.parametrize("words", [["run"], ["profiles", "detect"], ["repo", "fetch"]], ids=" ".join)
def test_a_registered_repository_that_is_named_where_a_url_belongs_is_known(
    words: list[str], upstream: Upstream, command: Command
) -> None:
    upstream.commit()
    command("repo", "clone", str(upstream.root))
    registered = json.loads(command("--json", "repo", "list")[1])["repositories"][0]
    for name in (registered["id"], registered["name"]):
        code, _, err = command(*words, name)
        assert code == 2, err
        assert f"hint  {registered['id']} is a registered repository: give its URL, {upstream.root}\n" in err
    assert "registered" not in command(*words, f"{registered['name']}x")[2]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ("run . --image x", "hint  `sandbox repo set REPO --image TAG` keeps an image for a repository."),
        ("run . --env A=1", "hint  `sandbox repo set REPO --env NAME=VALUE` keeps a variable of all checks."),
        ("run . --limit pids=9", "hint  `sandbox repo set REPO --limit NAME=VALUE`"),
        ("run . --submodules", "hint  `sandbox repo set REPO --submodules`"),
        ("run . --pr 7", "Did you mean: --ref?\nhint  `--ref pr/7` is pull request 7."),
        ("profiles detect . --pr 7", "Did you mean: --ref?"),
        ("profiles new", "hint  A profile of your own is a file"),
        ("profiles create x", "docs/profiles.md"),
        ("apply", "`sandbox task apply`"),
        ("task commit", "`sandbox commit`"),
        ("repo apply", "`sandbox task apply`"),
        ("task creat", "'create'"),
        ("task create repo purpose", "--prompt TEXT"),
        ("check run - --all", "`sandbox check list TASK`"),
        ("verify", "`-` is the task"),
        ("status .", "`-` is the task"),
        ("task show bfe", "Four characters"),
        ("mcp config", "Choose from: claude, cursor"),
        ("check run - test --folow", "Did you mean: --follow?"),
        ("list --bz", "No such option '--bz'.\n"),
        ("pr create", "Did you mean `sandbox pr open`?"),
        ("pr list", "Did you mean `sandbox pr status`?"),
        ("file list", "`sandbox file search TASK --glob '*'`"),
        ("file cat x", "Did you mean `sandbox file read`?"),
        ("task start", "'start'.\nhint  Did you mean `sandbox task create`?"),
        ("task rm x", "Did you mean `sandbox task close`?"),
        ("repo add x", "Did you mean `sandbox repo clone`?"),
        ("check test", "Did you mean `sandbox check run`?"),
        ("receipt list", "'list'.\nhint  See: sandbox receipt --help"),
        ("test", "`sandbox check run` for a check of a task, `sandbox run` for a repository"),
        ("help", "`sandbox --help`"),
        ("version", "`sandbox --version`"),
        ("undo", "`sandbox task restore TASK head`"),
        ("revert", "`sandbox task restore TASK head`"),
        ("restore", "`sandbox task restore`"),
        ("ls", "Did you mean `sandbox list`?"),
        ("rm", "Did you mean `sandbox task close`?"),
        ("run . --branch x", "Did you mean: --ref?"),
        ("pr open - --description x", "Did you mean: --body?"),
    ],
    ids=lambda value: value.replace(" ", "_"),
)
def test_a_first_guess_is_answered_with_what_to_write(arguments: str, advice: str, command: Command) -> None:
    code, out, err = command(*arguments.split())
    assert (code, out) == (2, "")
    assert advice in err


def test_each_command_and_option_that_is_said_to_be_meant_exists() -> None:
    groups = [cli.get_command(click.Context(cli), name) for name in cli.list_commands(click.Context(cli))]
    inner = [list(group.commands.values()) for group in groups if isinstance(group, click.Group)]
    commands = [*filter(None, groups), *chain.from_iterable(inner)]
    assert {one for _, meant in _SYNONYMS for one in meant} <= {command.name for command in commands}
    options = {option for command in commands for parameter in command.params for option in parameter.opts}
    assert set(chain.from_iterable(_OPTIONS.values())) <= options


def test_commands_that_stand_elsewhere_are_not_at_the_top() -> None:
    """That each exists where the table says is held by test_hint_commands."""
    assert not ELSEWHERE.keys() & set(cli.list_commands(click.Context(cli)))


@pytest.mark.parametrize("position", ["before", "between", "after"])
def test_global_options_are_taken_anywhere(position: str, command: Command, tmp_path: Path) -> None:
    options = ["--json", "--home", str(tmp_path / "elsewhere")]
    arguments = {
        "before": [*options, "repo", "list"],
        "between": ["repo", "list", *options],
        "after": ["repo", "list", *options],
    }[position]
    exit_code, out, _ = command(*arguments)
    assert (exit_code, json.loads(out)) == (0, {"repositories": []})
    assert (tmp_path / "elsewhere" / "repositories").is_dir()


HINT = "Look: sandbox task list\n`sandbox gc` removes it; the sandbox home stays. See: sandbox repo --help"


@pytest.mark.parametrize("json_flag", [[], ["--json"]], ids=["people", "json"])
def test_commands_in_a_hint_carry_the_home_that_was_given(
    json_flag: list[str], command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "a home"
    raising(monkeypatch, SandboxError(ErrorCode.CONFLICT, "x", hint=HINT))
    _, out, err = command(*json_flag, "repo", "list", "--home", str(home))
    said = json.loads(out)["error"]["hint"] if json_flag else err
    assert f"Look: sandbox --home '{home}' task list\n" in said
    assert f"`sandbox --home '{home}' gc` removes it; the sandbox home stays. See: sandbox repo --help" in said


def test_commands_in_a_hint_are_as_they_are_without_the_flag(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, SandboxError(ErrorCode.CONFLICT, "x", hint=HINT))
    assert HINT in command("repo", "list")[2]


def test_a_command_in_a_log_line_carries_the_home_too(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def warn(_self: Workbench) -> tuple[Repository, ...]:
        logging.getLogger("sandbox.x").warning("%s stays until `sandbox gc`: %s", "it", "50 %")
        return ()

    monkeypatch.setattr(Workbench, "repositories", warn)
    home = tmp_path / "100%s"
    err = command("repo", "list", "--home", str(home))[2]
    assert f"it stays until `sandbox --home {home} gc`: 50 %" in json.loads(err)["event"]


def test_a_variable_that_is_nearly_ours_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_ENGIN_HOST", "x")
    exit_code, _, err = command("repo", "list")
    assert exit_code == 2
    assert "SANDBOX_ENGIN_HOST" in err
    assert "SANDBOX_ENGINE_HOST" in err


def test_a_variable_that_sets_nothing_is_named_and_the_command_runs(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_NOPE", "x")
    exit_code, out, err = command("repo", "list", "--json")
    assert (exit_code, json.loads(out)) == (0, {"repositories": []})
    assert json.loads(err)["event"].startswith("SANDBOX_NOPE: no setting has this name")
    monkeypatch.setenv("SANDBOX_LOG", "error")
    assert command("repo", "list", "--json")[2] == "", "its level silences it"


def test_every_command_we_print_is_recognised_as_one() -> None:
    """Code that writes `sandbox gc` in the middle of a sentence without backticks would print one without its home."""
    names = "|".join(cli.list_commands(click.Context(cli)))
    written = re.compile(rf"\bsandbox (?:{names})\b")
    may_be_written = re.compile(rf"""\bsandbox[\s"'f]+(?:{names})\b""")  # of two literals, too: parsing takes long
    unmarked = []
    sources = {path: path.read_text(encoding="utf-8") for path in Path(sandbox.__file__).parent.rglob("*.py")}
    for path, source in sources.items():
        if not may_be_written.search(source):
            continue
        for text in _texts(ast.parse(source)):
            unmarked += [f"{path.name}: {text}" for m in written.finditer(text) if not _is_marked(text[: m.start()])]
    assert unmarked == []


def _texts(tree: ast.Module) -> Iterator[str]:
    """String constants that are no docstrings."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    statements = {
        id(s.value)
        for node in ast.walk(tree)
        if isinstance(node, owners)
        for s in node.body[:1]
        if isinstance(s, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.value


def _is_marked(before: str) -> bool:
    return not before or before.endswith((": ", "`", "\n"))


def test_a_defect_of_ours_is_told_without_a_traceback(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, RuntimeError("boom"))
    exit_code, out, err = command("repo", "list")
    assert (exit_code, out) == (5, "")
    assert "error [internal] Unexpected RuntimeError" in err
    assert "Traceback" not in err
    assert "SANDBOX_DEBUG" in err
    monkeypatch.setenv("SANDBOX_DEBUG", "1")
    with pytest.raises(RuntimeError, match="boom"):
        command("repo", "list")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (112, "112th"),
    ],
)
def test_a_place_in_line_is_an_ordinal(number: int, words: str) -> None:
    assert ordinal(number) == words


def test_an_interrupt_is_exit_130(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    exit_code, out, err = command("repo", "list")
    assert (exit_code, out) == (130, "")
    assert "Interrupted" in err
    exit_code, out, _ = command("repo", "list", "--json")
    error = json.loads(out)["error"]
    assert (exit_code, error["code"], error["reason"]) == (130, "conflict", "stopped")


def test_an_interrupt_after_the_result_adds_no_second_document(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke = cli.invoke

    def interrupt(context: click.Context) -> None:
        invoke(context)
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "invoke", interrupt)
    exit_code, out, _ = command("repo", "list", "--json")
    assert (exit_code, json.loads(out)) == (130, {"repositories": []})


def test_a_full_disk_is_no_defect(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, OSError(errno.ENOSPC, "No space left on device", "/home/file"))
    exit_code, _, err = command("repo", "list")
    assert exit_code == BY_CODE[ErrorCode.QUOTA_EXCEEDED]
    assert "error [quota_exceeded] The disk is full" in err


def test_a_termination_is_an_interrupt(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminate(_self: Workbench) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Workbench, "repositories", terminate)
    assert command("repo", "list")[0] == 130


def test_i09_an_error_cannot_write_to_the_terminal(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\x1b]52;c;cm0gLXJm\x07 \u202eevil"
    raising(monkeypatch, SandboxError(ErrorCode.DIRTY_WORKSPACE, text, details=text))
    err = command("repo", "list")[2]
    assert "\x1b]" not in err
    assert "\u202e" not in err


@pytest.mark.parametrize("arguments", [[], ["repo"]], ids=["sandbox", "repo"])
def test_no_command_shows_the_help_and_no_error(arguments: list[str], command: Command) -> None:
    exit_code, out, err = command(*arguments)
    assert exit_code in {0, 2}
    assert "error" not in err
    assert "Usage:" in out + err


HELP: list[list[str]] = [
    [],
    ["run"],
    ["repo"],
    ["repo", "clone"],
    ["task", "create"],
    ["file", "patch"],
    ["check", "run"],
    ["images", "build"],
    ["profiles"],
    ["doctor"],
]


@pytest.mark.parametrize("arguments", HELP, ids=" ".join)
def test_help_is_on_stdout(arguments: list[str], command: Command) -> None:
    for flag in ("--help", "-h"):
        exit_code, out, err = command(*arguments, flag)
        assert (exit_code, err) == (0, "")
        assert out.startswith(" ".join(["Usage: sandbox", *arguments]))


def test_the_table_of_commands_is_what_the_commands_are(command: Command) -> None:
    out = command("--help")[1]
    for name in ("run", "repo", "task", "file", "check", "verify", "diff", "commit", "push", "images", "doctor"):
        assert f"\n  {name} " in out
        assert command(name, "--help")[0] == 0


def test_help_groups_the_commands_and_has_examples_and_exit_codes(command: Command) -> None:
    out = command("--help")[1]
    parts = {title: rows for title, rows in re.findall(r"(?m)^(\S.*):\n((?:  .*\n)+)", out)}
    *groups, examples, endings = [parts[title] for title in list(parts)[1:]]
    listed = [name for rows in groups for name in re.findall(r"(?m)^  (\w+)", rows)]
    assert (len(groups), sorted(listed)) == (9, sorted(cli.list_commands(click.Context(cli))))
    assert set(map(int, re.findall(r"(?m)^  (\d+)", endings))) == {0, 1, 130, *EXIT_CODES}
    for example in re.findall(r"(?m)^  sandbox (\S+(?: [a-z]+)?)", examples):
        assert command(*example.split(), "--help")[0] == 0, example


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_what_a_shell_reads(shell: str, command: Command) -> None:
    exit_code, out, err = command("completion", shell)
    assert (exit_code, err) == (0, "")
    assert f"_SANDBOX_COMPLETE={shell}_complete" in out
    assert json.loads(command("--json", "completion", shell)[1]) == {"shell": shell, "script": out.removesuffix("\n")}
    assert command("completion", "tcsh")[0] == 2


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("sandbox completi", "completion"),
        ("sandbox task cre", "create"),
        ("sandbox task create --from", "--from-snapshot"),
        ("sandbox task create --kind tr", "tree"),
        ("sandbox nonsense x", ""),
    ],
)
def test_bash_completes(words: str, completed: str) -> None:
    program = Path(sys.executable).with_name("sandbox")
    script = f"""eval "$('{program}' completion bash)"; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    _sandbox_completion '{program}'; echo "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{completed}\n", "")


def test_presets_of_tools_are_named_short_or_as_the_table_of_tools_does() -> None:
    mcp = cli.get_command(click.Context(cli), "mcp")
    (option,) = [found for found in (mcp.params if mcp else ()) if found.name == "tools"]
    assert option.type.convert("repo-edit-tools, check", option, None) == ("edit", "check")
    assert option.type.convert(",".join(set(Preset) - {Preset.BOOTSTRAP}), option, None) is not None
    with pytest.raises(click.UsageError, match="'nonsense' is none of"):
        option.type.convert("repo-nonsense-tools", option, None)


def test_the_version_is_told(command: Command) -> None:
    assert command("--version") == (0, f"sandbox, version {sandbox.__version__}\n", "")
    for arguments in (("--version", "--json"), ("--json", "--version")):
        code, out, err = command(*arguments)
        assert (code, json.loads(out), err) == (0, {"version": sandbox.__version__}, "")


def test_importing_the_package_loads_nothing_and_unknown_names_are_unknown() -> None:
    code = "import sys, sandbox; assert not {'docker', 'pydantic', 'sandbox.workbench'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=Path(sandbox.__file__).parents[1], check=True)
    assert sandbox.Workbench is Workbench
    assert set(sandbox.__all__) <= set(dir(sandbox))
    with pytest.raises(AttributeError):
        _ = sandbox.nonsense  # type: ignore[attr-defined]  # a type checker sees it, too


# --- every step that needs no engine


@pytest.fixture
def json_command(command: Command) -> Callable[..., Any]:
    """Run with --json; the exit code must be 0."""

    def act(*arguments: str) -> Any:
        exit_code, out, err = command("--json", *arguments)
        assert exit_code == 0, out + err
        (line,) = out.splitlines()
        return json.loads(line)

    return act


def test_a_change_goes_from_clone_to_push_with_json(
    upstream: Upstream, json_command: Callable[..., Any], tmp_path: Path
) -> None:
    upstream.write("f.txt", b"one\ntwo\n")
    upstream.write("Makefile", b"test:\n\ttrue\n")
    base = upstream.commit()
    cloned = json_command("repo", "clone", str(upstream.root))
    repo_id = cloned["repository"]["id"]
    assert (cloned["repository"]["profile"], cloned["repository"]["default_branch"]) == ("make", "main")
    assert cloned["context"]["tree"] == ["Makefile", "f.txt"]
    assert json_command("repo", "list")["repositories"] == [cloned["repository"]]
    task = json_command("task", "create", repo_id, "--prompt", "Say INJ, please!")["task"]
    assert task["branch"] == f"space-agent/{task['id'][5:13]}-say-inj-please"
    read = json_command("file", "read", task["id"], "f.txt")
    assert (read["content"], read["total_lines"]) == ("one\ntwo\n", 2)
    (tmp_path / "p").write_text("--- a/f.txt\n+++ b/f.txt\n@@ -1,2 +1,3 @@\n one\n+INJ\n two\n")
    patched = json_command("file", "patch", task["id"], str(tmp_path / "p"), "--expect", f"f.txt={read['sha256'][7:]}")
    assert [f["kind"] for f in patched["files"]] == ["modified"]
    assert [c["id"] for c in json_command("check", "list", task["id"])["checks"]] == ["build", "test"]
    status = json_command("status", task["id"])
    assert (status["dirty"], [c["path"] for c in status["changes"]]) == (True, ["f.txt"])
    assert "+INJ" in json_command("diff", task["id"])["text"]
    committed = json_command("commit", task["id"], "-m", "Say INJ")
    assert json_command("status", task["id"])["dirty"] is False
    pushed = json_command("push", task["id"])
    assert (pushed["commit"], pushed["forced"]) == (committed["commit"], False)
    assert upstream.oid(task["branch"]) == committed["commit"]
    assert upstream.oid(f"{task['branch']}^") == base
    assert upstream.git("show", f"{task['branch']}:f.txt") == b"one\nINJ\ntwo\n"
    closed = json_command("task", "close", task["id"], "--delete")["task"]
    assert (closed["status"], closed["worktree_path"]) == ("closed", None)
    assert upstream.oid(task["branch"]) == committed["commit"]


def test_a_push_to_a_local_path_says_which_of_its_hooks_were_not_run(
    upstream: Upstream, command: Command, json_command: Callable[..., Any]
) -> None:
    upstream.write("f.txt", b"one\n")
    upstream.commit()
    repo_id = json_command("repo", "clone", str(upstream.root))["repository"]["id"]
    task = json_command("task", "create", repo_id)["task"]
    (Path(task["worktree_path"]) / "f.txt").write_text("two\n")
    json_command("commit", task["id"], "-m", "Two")
    hook = upstream.git_dir / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    exit_code, out, _ = command("--json", "push", task["id"])
    error = json.loads(out)["error"]
    assert (exit_code, error["code"], error["reason"]) == (3, "policy_violation", "hooks_not_run")
    assert error["data"] == {"hooks": ["pre-receive"]}
    hook.rename(hook.with_name("post-receive"))
    exit_code, out, err = command("push", task["id"])
    assert (exit_code, out.splitlines()[-1]) == (0, "  forced no")
    assert "note: its hooks post-receive were not run (docs/push.md)" in err


def test_closing_a_task_says_what_it_leaves_and_how_to_save_it(upstream: Upstream, command: Command) -> None:
    upstream.commit()
    repo_id = json.loads(command("--json", "repo", "clone", str(upstream.root))[1])["repository"]["id"]
    task = json.loads(command("--json", "task", "create", repo_id)[1])["task"]
    (Path(task["worktree_path"]) / "new").write_text("x\n")
    assert "Commit them" in command("task", "close", task["id"], "--delete")[2]
    assert (
        f"1 uncommitted change(s) stay in the worktree, and can no longer be committed; `sandbox diff {task['id']}`"
        in (command("task", "close", task["id"])[2])
    )
    code, _, err = command("task", "close", task["id"], "--delete")
    assert (code, "Commit them" in err, f"`sandbox diff {task['id']}`" in err) == (4, False, True)
    assert "+x" in command("diff", task["id"])[1]
    _, files, counted = command("diff", task["id"], "--stat")
    assert [line.split() for line in files.splitlines()] == [
        ["FILE", "CHANGE", "ADDED", "REMOVED"],
        ["new", "added", "1", "0"],
    ]
    assert "files: 1, lines added: 1, removed: 0" in counted
    assert "note" not in command("task", "close", task["id"], "--delete", "--discard")[2]


def test_all_questions_are_answered_by_one_command(command: Command, tmp_path: Path) -> None:
    with Workbench(tmp_path / "sandbox-home", environ={}) as workbench:
        for tool in ("space_repo_clone", "space_repo_clone", "space_repo_fetch"):
            number = len(workbench.approvals())
            workbench.request_approval(workbench.approval_call(tool, {"url": f"https://h/{number}"}))

    def states(*arguments: str) -> list[str]:
        code, out, _ = command("approvals", *arguments, "--json")
        assert code == 0
        return [a["state"] for a in json.loads(out)["approvals"]]

    assert states("deny", "--all", "--tool", "space_repo_clone") == ["denied", "denied"]
    assert states("list") == ["pending"]
    assert states("revoke", "--all") == ["revoked"]
    assert states("deny", "--all") == []


def test_a_request_is_named_by_the_beginning_of_its_id(command: Command, tmp_path: Path) -> None:
    with Workbench(tmp_path / "sandbox-home", environ={}) as workbench:
        for number in range(2):
            workbench.request_approval(workbench.approval_call("space_repo_clone", {"url": f"https://h/{number}"}))
        first, second = (one.id for one in workbench.approvals())
        with pytest.raises(SandboxError):
            workbench.answer_approval(first[:12], approved=True, by="x")  # the control: only a person can list them
    assert command("approvals", "approve", first[:12])[0] == 0
    assert command("approvals", "deny", second[:12])[0] == 0
    listed = json.loads(command("approvals", "list", "--all", "--json")[1])["approvals"]
    assert {one["id"]: one["state"] for one in listed} == {first: "approved", second: "denied"}
    assert command("approvals", "show", "apr-")[0] == 2


def test_a_person_who_approves_a_call_learns_what_changed_since_it_was_asked(command: Command, tmp_path: Path) -> None:
    """Control: before the change there is no such line."""
    home = tmp_path / "sandbox-home"
    with Workbench(home, environ={}) as workbench:
        asked = workbench.request_approval(workbench.approval_call("space_repo_clone", {"url": "https://h/o/one"}))
    assert json.loads(command("approvals", "show", asked.id, "--json")[1])["changed"] == []
    assert "changed since" not in command("approvals", "show", asked.id)[1]
    (home / "policies").mkdir()
    (home / "policies" / "approvals.toml").write_text('[tools]\nspace_repo_commit = "ask"\n')
    assert json.loads(command("approvals", "show", asked.id, "--json")[1])["changed"] == ["the approval policy"]
    shown = command("approvals", "approve", asked.id)[1].splitlines()
    assert shown[-2:] == [
        "changed since it was asked, so the call of now needs another approval:",
        "  the approval policy",
    ]


def test_the_list_says_what_each_question_is_about(command: Command, tmp_path: Path) -> None:
    with Workbench(tmp_path / "sandbox-home", environ={}) as workbench:
        for url in ("https://h/o/one", f"https://h/{'x' * 90}/y"):
            workbench.request_approval(workbench.approval_call("space_repo_clone", {"url": url}))
    lines = command("approvals", "list")[1].splitlines()
    assert len([line for line in lines if "https://h/o/one " in line]) == 1
    assert len([line for line in lines if f"https://h/{'x' * 69}…" in line]) == 1, "`show` has all of it"


def test_an_approval_of_another_home_is_looked_for_in_this_one(command: Command, tmp_path: Path) -> None:
    """An agent cannot say in which home its question is: its answers name no path of the host."""
    code, _, err = command("approvals", "approve", "apr-" + "a" * 26)
    assert code == 2
    assert f"in the home {tmp_path / 'sandbox-home'}" in err
    assert "--home" in err


def test_names_from_a_repository_are_neutral_on_the_terminal(upstream: Upstream, command: Command) -> None:
    upstream.write("a\x1b]0;evil\x07b", b"\x1b[31mx\n")
    upstream.commit()
    repo_id = json.loads(command("--json", "repo", "clone", str(upstream.root))[1])["repository"]["id"]
    task_id = json.loads(command("--json", "task", "create", repo_id)[1])["task"]["id"]
    path = json.loads(command("--json", "task", "show", task_id)[1])["task"]["worktree_path"]
    (Path(path) / "new\x1b]0;evil\x07").write_bytes(b"\x1b]0;evil\x07x\n")
    for arguments in (("status", task_id), ("diff", task_id)):
        exit_code, out, err = command(*arguments)
        assert exit_code == 0
        assert "\x1b]" not in out + err
        assert "new" in out


def leaves(
    group: click.Group, context: click.Context, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its full name."""
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from leaves(found, context, (*path, name))
        else:
            yield " ".join((*path, name)), found


def test_the_reference_has_every_command_with_all_its_options() -> None:
    page = (Path(sandbox.__file__).parents[1] / "docs/cli.md").read_text().splitlines()
    missing = []
    for name, found in leaves(cli, click.Context(cli)):
        rows = [line for line in page if line.startswith(("| `", "| <code>")) and name in line]
        options = [o for p in found.params if isinstance(p, click.Option) for o in p.opts if o.startswith("--")]
        wanted = [o for o in options if o not in {"--home", "--json", "--no-daemon"}]
        missing += [f"{name} {o}" for o in ["", *wanted] if not any(o in row for row in rows)]

    assert missing == []


LOADING = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "sandbox.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""
LEAVING = """
import atexit, os, signal
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
"""
UNGUARDED = "from sandbox.cli.app import cli\ncli(['--version'], standalone_mode=False)"
GUARDED = "import sys\nfrom sandbox.__main__ import main\nsys.argv[1:] = ['--version']\nsys.exit(main())"


@pytest.mark.parametrize("moment", [LOADING, LEAVING], ids=["loading", "leaving"])
def test_ctrl_c_before_and_after_the_command_is_no_traceback(moment: str) -> None:
    def ended(code: str) -> subprocess.CompletedProcess[str]:
        argv = ["env", "--default-signal=INT", sys.executable, "-c", moment + code]
        root = Path(sandbox.__file__).parents[1]
        return subprocess.run(argv, cwd=root, check=False, capture_output=True, text=True, timeout=60)

    assert "Traceback" in ended(UNGUARDED).stderr  # the control
    guarded = ended(GUARDED)
    assert (guarded.returncode, guarded.stderr) == (-signal.SIGINT, "")


def test_an_exploration_of_nothing_names_the_options_that_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--home", str(tmp_path / "home"), "explore", "task-0123"]) == 2
    assert "Give --patches DIR, --tasks ID, or both." in capsys.readouterr().err


@pytest.mark.parametrize(("level", "warns"), [("loud", True), ("DEBUG", False), ("", False)])
def test_an_unknown_log_level_is_said(
    level: str, warns: bool, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_LOG", level)
    code, _, err = command("repo", "list")
    assert (code, "'loud' is no level: use debug, info" in err) == (0, warns)
