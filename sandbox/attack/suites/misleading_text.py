"""THREATS S11 to S13: text that reads differently from how it is written: hidden secrets, orders that only a model
reads, names that look like others.
"""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Mapping

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.scene import Scene, require_equal, require_hit, require_refusal
from sandbox.errors import ErrorCode
from sandbox.git.unhardened import run_unhardened

HOST, TOKEN = "forge.invalid", "tok_Zk3mQ9xW7vB1nR5tY8uE2pL6"
MESSAGE = "Fix it\n\n" + "".join(f"&#{ord(letter)};<i></i>" for letter in TOKEN)
LOOK_ALIKES = (
    "\u2024", "\u2024\u2024", "\u2025", "\uff0e\uff0e/x", "d/\u3002\u3002/x", "a\u2215b", "a\u2044b", "a\uff0fb",
    "a\uff3cb", "a\u29f5b", "\u3002git/config", "\u2800", "d/\u3000/x",
)  # fmt: skip
UNSEEN = "\u200b\u202e\u00ad\u3164\u2800\u180b\u034f\ufe00\U000e0041\U000e0100"
"""A space without width, a change of direction, a hyphen and fillers that nobody sees, selectors, a tag character."""
TOOLS: Mapping[str, Mapping[str, str]] = {
    "space_repo_diff": {},
    "space_repo_status": {},
    "space_repo_search": {"pattern": "order"},
}
BEFORE_SERVER = ""
"""Python that runs in the server's process first."""
_SERVER = "import sys; sys.path[:] = {path!r}; {before}from sandbox.__main__ import main; sys.exit(main())"


def _hide_secret(scene: Scene) -> None:
    scene.workbench.set_credential(HOST, username="u", secret=TOKEN)
    (scene.worktree / "f.txt").write_text("changed\n")
    scene.workbench.commit(scene.task.id, MESSAGE)


def _misses(scene: Scene) -> str:
    message = scene.require_git("log", "-1", "--format=%B", scene.task.branch, cwd=scene.root, git_dir=scene.cache)
    require_hit(TOKEN not in message, "the text as written holds the secret")
    require_hit(TOKEN in html.unescape(message.replace("<i></i>", "")), "a reader does not see the secret")
    scene.require_git("push", "-q", str(scene.remote), f"{scene.task.branch}:sent", cwd=scene.root, git_dir=scene.cache)
    return "a search of the message as written found no secret, and `git push` sent it"


def _refuses_push(scene: Scene) -> str:
    require_refusal(lambda: scene.workbench.push(scene.task.id), ErrorCode.POLICY_VIOLATION)
    sent = scene.require_git("for-each-ref", f"refs/heads/{scene.task.branch}", cwd=scene.remote)
    require_equal(sent, "", "branches of the remote")
    return "the push was refused before the remote was contacted"


def _makes_files(scene: Scene) -> str:
    for number, name in enumerate(LOOK_ALIKES):
        path = scene.root / "plain" / str(number) / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x\n")
        require_hit(path.read_bytes() == b"x\n", f"{name!a} was not created")
    return "a plain write makes an ordinary file of each name"


def _refuses_names(scene: Scene) -> str:
    for name in LOOK_ALIKES:
        require_refusal(
            lambda name=name: scene.workbench.write_file(scene.task.id, name, b"x\n", None),  # type: ignore[misc]  # bound now
            ErrorCode.UNSAFE_PATH,
        )
    return f"{len(LOOK_ALIKES)} names refused for writing"


def _hide_orders(scene: Scene) -> None:
    (scene.worktree / "f.txt").write_text(f"an{UNSEEN}order\n")
    (scene.worktree / f"an{UNSEEN}order").write_text("found\n")


def _sends_orders(scene: Scene) -> str:
    words = ("diff", "--no-index", "/dev/null", str(scene.worktree / "f.txt"))
    shown = scene.git(*words, cwd=scene.root).stdout.decode()
    require_hit(set(UNSEEN) <= set(shown), "git escaped them")
    return f"plain `git diff` showed {len(UNSEEN)} characters that nobody sees"


def _ask_server(scene: Scene) -> str:
    """What a client of the server gets from its tools."""
    program = _SERVER.format(path=[p for p in sys.path if p], before=BEFORE_SERVER)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "attack", "version": "1"}}
    calls = [
        {
            "id": 2 + number,
            "method": "tools/call",
            "params": {"name": name, "arguments": {"task_id": scene.task.id, **more}},
        }
        for number, (name, more) in enumerate(TOOLS.items())
    ]
    messages: list[Mapping[str, object]] = [
        {"id": 1, "method": "initialize", "params": hello}, {"method": "notifications/initialized"}, *calls
    ]  # fmt: skip
    stdin = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages).encode()
    argv = [sys.executable, "-I", "-c", program, "--home", str(scene.home), "mcp", "--tools", "all"]
    done = run_unhardened(argv, cwd=scene.root, home=scene.operator, stdin=stdin)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    texts = [json.dumps(a["result"], ensure_ascii=False) for a in answers if a.get("id", 0) > 1 and "result" in a]
    if len(texts) != len(TOOLS) or any("order" not in text for text in texts):
        raise GotThrough(f"{len(texts)} of {len(TOOLS)} tools answered: {done.stderr.decode(errors='replace')[-300:]}")
    return "".join(texts)


def _spells_out(scene: Scene) -> str:
    shown = _ask_server(scene)
    if seen := sorted(set(UNSEEN) & set(shown)):
        raise GotThrough(f"a model gets {', '.join(f'U+{ord(letter):04X}' for letter in seen)}")
    require_equal("u200b" in shown and "u3164" in shown, True, "the characters, spelled out")
    return f"in the answers of {len(TOOLS)} tools each of them was spelled out or dropped"


ENTRIES = (
    AttackEntry("S11", "a secret between tags and entities of a message", "push", _misses, _refuses_push, _hide_secret),
    AttackEntry("S12", "characters that a model reads and a person does not see", "mcp", _sends_orders, _spells_out,
                _hide_orders),
    AttackEntry("S13", "names of look-alike dots and separators", "write", _makes_files, _refuses_names),
)  # fmt: skip
