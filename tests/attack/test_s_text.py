"""THREATS S11 to S13: text that reads differently from how it is written."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from devtools.host_speed import slowness
from sandbox.agent import mcp_tasks
from sandbox.agent.agent import Agent
from sandbox.agent.results import success
from sandbox.agent.server import _build_watch, make_server
from sandbox.agent.tools import TOOLS
from sandbox.attack.harness.scene import hash_of
from sandbox.attack.suites.misleading_text import LOOK_ALIKES
from sandbox.characters import EMOJI_SELECTORS, INVISIBLE
from sandbox.errors import ErrorCode
from sandbox.forges.body import compose_title
from sandbox.forges.sanitize import sanitize_markdown
from sandbox.models import RepoMap, SearchQuery
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.delivery import secret_scan
from sandbox.workbench.delivery.push import push
from tests.attack.arena import Arena, refused
from tests.attack.forgereading import visible
from tests.unit.workbench.checks.test_task_events import RUN, record

pytestmark = [pytest.mark.must, pytest.mark.one_git]
TOKEN = "ghp_Zk3mQ9xW7vB1nR5tY8uE2pL6"
HIDDEN: dict[str, Callable[[str], str]] = {
    "zero-width spaces": "\u200b".join,
    "soft hyphens": "\u00ad".join,
    "variation selectors": "\ufe0f".join,
    "tag characters": "\U000e0041".join,
    "fillers": "\u3164".join,
    "accents": "\u0301".join,
    "empty tags": "<b></b>".join,
    "comments": "<!-- x -->".join,
    "tags with text": '<span title="a > b">'.join,
    "decimal entities": lambda t: "".join(f"&#{ord(c)};" for c in t),
    "entities with zeros": lambda t: "".join(f"&#{ord(c):012};" for c in t),
    "hexadecimal entities": lambda t: "".join(f"&#x{ord(c):x};" for c in t),
    "nested entities": lambda t: "".join(f"&amp;amp;#{ord(c)};" for c in t),
    "a named entity": lambda t: t.replace("_", "&lowbar;").replace("Z", "&shy;Z&zwnj;"),
    "percent-encoding": lambda t: "".join(f"%{ord(c):02X}" for c in t),
    "links": lambda t: "".join(f"[{c}](https://a.example/1)" for c in t),
    "links with parentheses": lambda t: "".join(f"[{c}](https://a.example/(1)2)" for c in t),
    "links in angle brackets": lambda t: "".join(f"[{c}](<1)2> 'x')" for c in t),
    "links with escapes": lambda t: "".join(f"[{c}](1\\)2)" for c in t),
    "links by reference": lambda t: "".join(f"[{c}][1]" for c in t),
    "footnotes": "[^1]".join,
    "fullwidth letters": lambda t: "".join(chr(ord(c) + 0xFEE0) for c in t),
    "entities between tags": lambda t: "<i></i>".join(f"&#{ord(c)};" for c in t),
    "tags within entities": "&lt;b&gt;".join,
}
ROWS = pytest.mark.parametrize("hide", HIDDEN.values(), ids=HIDDEN)


@ROWS
def test_s11_a_secret_between_invisible_letters_tags_and_entities_is_found(hide: Callable[[str], str]) -> None:
    """Control: the text as written does not contain it. The part of a secret is none, hidden the same way."""
    assert TOKEN.lower() not in hide(TOKEN).lower(), "void"
    assert secret_scan.contains_secret(f"before\n{hide(TOKEN)}\nafter", TOKEN)
    assert not secret_scan.contains_secret(f"before\n{hide(TOKEN[:-2])}\nafter", TOKEN)


@pytest.mark.parametrize("name", ["zero-width spaces", "soft hyphens", "decimal entities", "empty tags"])
def test_s11_a_reader_of_the_forge_sees_the_secret(name: str) -> None:
    """What the search is for: as a forge shows the text, the secret is there."""
    seen = re.sub("[\u00ad\u200b]", "", visible(HIDDEN[name](TOKEN)))
    assert TOKEN in seen


@ROWS
def test_s11_a_hidden_secret_is_found_in_what_our_escaping_makes_of_it(hide: Callable[[str], str]) -> None:
    """Escaping puts letters (`\\u200b`) where an invisible character was, and breaks into entities and tags."""
    assert secret_scan.contains_secret(sanitize_markdown(hide(TOKEN), 20_000), TOKEN)
    start = TOKEN[: secret_scan.MIN_SECRET_CHARS + 1]
    title = compose_title(hide(start), None, "")
    assert secret_scan.contains_secret(title, start) or title.endswith("\u2026"), "void: the title was cut"


@pytest.mark.parametrize("name", ["empty tags", "variation selectors", "decimal entities", "links"])
def test_s11_a_message_with_a_hidden_secret_is_not_pushed(arena: Arena, name: str) -> None:
    """Control: plain git pushes the same commit, and a search of its message finds nothing."""
    message = f"Fix it\n\n{HIDDEN[name](TOKEN)}"
    (arena.worktree / "f.txt").write_text("changed\n")
    arena.workbench.commit(arena.task.id, message)
    branch = arena.workbench.task(arena.task.id).branch
    assert TOKEN not in arena.require_git("log", "-1", "--format=%B", branch, cwd=arena.root, git_dir=arena.cache)
    arena.require_git("push", "-q", str(arena.remote), f"{branch}:sent", cwd=arena.root, git_dir=arena.cache)
    services = build_services(arena.home, {**arena.build_environment(), "GITHUB_TOKEN": TOKEN}, allow_file=True)
    with refused(ErrorCode.POLICY_VIOLATION) as errors:
        push(services, arena.task.id)
    services.close()
    assert TOKEN not in str(errors[0].payload())
    assert branch not in arena.require_git("for-each-ref", cwd=arena.remote)
    assert arena.workbench.push(arena.task.id).branch == branch, "void: without that secret the commit is pushed"


def test_s11_a_branch_with_a_secret_is_not_pushed(arena: Arena) -> None:
    task = arena.workbench.create_task(arena.repo_id, TOKEN)
    assert TOKEN not in task.branch, "void: git would take the name as written"
    arena.workbench.write_file(task.id, "new", b"x\n", None)
    arena.workbench.commit(task.id, "work")
    services = build_services(arena.home, {**arena.build_environment(), "GITHUB_TOKEN": TOKEN}, allow_file=True)
    with refused(ErrorCode.POLICY_VIOLATION):
        push(services, task.id)
    services.close()


HOSTILE = {
    "tags": "<a" * 32_000,
    "quoted tags": "<a\"<a'" * 10_000,
    "comments": "<!--" * 16_000 + "-->",
    "values": "='=\"" * 16_000,
    "links": "](" * 32_000,
    "links with parentheses": "](" * 9_000 + "](1)(2)" * 6_000,
    "links in angle brackets": "](<" * 20_000,
    "links by reference": "][" * 32_000,
    "escaped brackets": "\\(\\)\\[\\]" * 8_000,
    "a long number": "&#" + "9" * 64_000 + ";",
    "zeros": "&#0" * 21_000,
    "names": "&notin" * 10_000,
    "marks": "\u0301\u0323" * 32_000,
    "ligatures": "\ufdfa" * 64_000,
    "nested": "&amp;lt;b&gt;%252525[x](y)<a b='>'>" * 2_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_s11_no_text_of_the_size_of_a_body_is_searched_for_long(text: str) -> None:
    started = time.process_time()
    assert not secret_scan.contains_secret(text, TOKEN)
    assert time.process_time() - started < 10 * slowness()


UNSEEN = "a\u00adb\u034fc\u115fd\u180be\u200bf\u202eg\u2800h\u3164i\ufe00j\uffa0k\U000e0041l\U000e0100m\u2764\ufe0f"


MAP = RepoMap(map=UNSEEN, tokens_estimated=1, files_covered=1, files_total=1)
"""As a guest of the image with ctags may answer."""


def test_s12_what_cannot_be_seen_is_spelled_out_in_every_text_for_models(arena: Arena) -> None:
    """Control: the bytes on disk hold every one of these characters."""
    (arena.worktree / "f.txt").write_text(f"{UNSEEN}\n")
    (arena.worktree / f"n{UNSEEN}").write_text("found\n")
    unseen = INVISIBLE & set(map(ord, UNSEEN))
    assert len(unseen) == 13
    assert unseen <= set(map(ord, (arena.worktree / "f.txt").read_text())), "void"
    task = arena.task.id
    answers = {
        "space_repo_diff": arena.workbench.diff(task),
        "space_repo_status": arena.workbench.status(task),
        "space_repo_search": arena.workbench.search(task, SearchQuery(pattern="found")),
        "space_repo_map": MAP,
    }
    for name, answer in answers.items():
        shown = str(success(TOOLS[name], answer).structured_content)
        assert not unseen & set(map(ord, shown)), name
        assert all(f"\\u{code:04x}" in shown.replace("\\\\", "\\") for code in unseen - EMOJI_SELECTORS), name


def test_s12_a_file_for_an_edit_is_exact_and_says_what_cannot_be_seen(arena: Arena) -> None:
    text = UNSEEN.replace("\U000e0041", "")
    (arena.worktree / "f.txt").write_text(f"one\n{text}\n")
    document = success(
        TOOLS["space_repo_read_file"], arena.workbench.read_file(arena.task.id, "f.txt")
    ).structured_content
    assert document is not None
    assert document["content"] == f"one\n{text}\n"
    assert {line.partition(" ")[0] for line in document["invisible"]} >= {"U+200B", "U+202E", "U+3164"}
    assert all(line.endswith("line 2") for line in document["invisible"])


def test_s12_errors_resources_the_prompt_and_progress_spell_it_out_too(arena: Arena) -> None:
    """Control: what each of them is made of holds all of these characters."""
    unseen, home, task = INVISIBLE & set(map(ord, UNSEEN)), Home(arena.home), arena.task.id
    (arena.worktree / "f.txt").write_text(f"{UNSEEN}\n")
    (arena.worktree / f"n{UNSEEN}").write_text("found\n")
    arena.workbench.clean_task(task, [f"n{UNSEEN}"])
    home.logs(task).mkdir(exist_ok=True)
    save_run(home, task, record(task))
    (home.logs(task) / f"{RUN}.stdout").write_text(UNSEEN)
    shown: dict[str, str] = {}

    async def session(client: Client) -> None:
        known = {"expected_sha256": hash_of(f"{UNSEEN}\n".encode())}
        edit = {"task_id": task, "path": "f.txt", "old": "no\n", "new": "", **known}
        for name, change in {"closest lines": {"old": f"{UNSEEN}x"}, "no file": {"path": f"n{UNSEEN}"}}.items():
            answer = await client.call_tool("space_repo_edit_file", edit | change)
            assert answer.is_error
            shown[name] = json.dumps(answer.structured_content, ensure_ascii=False)
        for place in ("journal", f"runs/{RUN}/stdout"):
            found = await client.read_resource(f"sandbox://tasks/{task}/{place}")
            shown[place] = str(found.contents[0].model_dump()["text"])
        for name, ask in {
            "prompt": lambda: client.get_prompt(UNSEEN),
            "owner": lambda: client.get_prompt("repository-workbench", {"owner": UNSEEN}),
            "tool": lambda: client.call_tool(f"space_{UNSEEN}", {}),
        }.items():
            with pytest.raises(MCPError) as refusal:
                await ask()
            shown[name] = refusal.value.error.message
        with pytest.raises(MCPError) as refusal:
            mcp_tasks.cancel_task(arena.workbench, f"run-{UNSEEN}")
        shown["protocol task"] = refusal.value.error.message

    async def report_progress(_step: float, _total: None, message: str) -> None:
        shown["progress"] = message

    async def run() -> None:
        async with Client(make_server(Agent(arena.workbench, arena.home, approvals="auto"))) as client:
            await session(client)
        context: Any = SimpleNamespace(session=SimpleNamespace(report_progress=report_progress))
        follow = _build_watch(context, threading.Event()).follow
        assert follow is not None
        await anyio.to_thread.run_sync(follow, "stdout", UNSEEN.encode())

    anyio.run(run)
    assert len(shown) == 9
    for name, text in shown.items():
        assert not unseen & set(map(ord, text)), name
        assert "200b" in text, f"void: {name}: {text}"


@pytest.mark.parametrize("name", LOOK_ALIKES, ids=ascii)
def test_s13_a_name_that_only_looks_like_another_is_not_written(arena: Arena, name: str) -> None:
    """Control: the kernel makes an ordinary file of that name, which can be read, and which a push reports."""
    with refused(ErrorCode.UNSAFE_PATH) as errors:
        arena.workbench.write_file(arena.task.id, name, b"x\n", None)
    assert "'look-alike'" in errors[0].brief
    with refused(ErrorCode.UNSAFE_PATH):
        arena.workbench.apply_patch(
            arena.task.id, b"--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+x\n" % name.encode(), {name: None}
        )
    assert not (arena.worktree / name).exists()
    (arena.worktree / name).parent.mkdir(parents=True, exist_ok=True)
    (arena.worktree / name).write_bytes(b"guest\n")
    assert arena.workbench.read_file(arena.task.id, name).content == "guest\n"
    assert name in {change.path for change in arena.workbench.status(arena.task.id).changes}


def test_s13_a_person_is_shown_what_a_name_is_made_of(arena: Arena) -> None:
    folder = arena.worktree / "\u2024\u2024"
    folder.mkdir()
    (folder / "a\u2215b").write_bytes(b"guest\n")
    arena.workbench.commit(arena.task.id, "work")
    call = arena.workbench.approval_call("space_repo_push", {"task_id": arena.task.id})
    question = "\n".join(arena.workbench.request_approval(call).question)
    assert "\u2215" not in question
    assert "RISK: \\u{2024}\\u{2024}/a\\u{2215}b  [not all ASCII] (look-alike)" in question
